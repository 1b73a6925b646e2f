"""What hostile machines and clients do to a cluster: each attack is a process of its own, in a network
namespace that the test made, and goes on until it is stopped. Standard library only.

    with Attack(node_or_host.inside, "half-open", "198.18.7.1", 40001, 2000) as attack: …
    attack.report   what it did, as the process said at its end
"""

import json
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import time

STOP_MAX_S = 60
BEACON_PORT = 8888


def stopped():
    """The test closed our input."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def wait_for_stop():
    select.select([sys.stdin], [], [], STOP_MAX_S * 10)


def tell(**report):
    print(json.dumps(report), flush=True)


def connected(address, port, first_bytes=b"", source=None):
    """A connection that said these bytes, read without waiting; none: it is refused."""
    one = socket.socket()
    one.settimeout(0.5)
    try:
        if source:
            one.bind((source, 0))
        one.connect((address, port))
        one.sendall(first_bytes)
        one.setblocking(False)
    except OSError:
        one.close()
        return None
    return one


def open_silent(address, port, count, first_bytes=b"", sources=()):
    """Connects and says nothing more; those that are refused or cut are opened again ten times a second.
    `sources`: the addresses to come from, in turn."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 100), hard))
    held, made = [], 0
    while not stopped():
        for one in held[:]:
            try:
                if one.recv(4096, socket.MSG_DONTWAIT) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                continue
            except OSError:
                one.close()
                held.remove(one)
        while len(held) < count and not stopped():
            one = connected(address, port, first_bytes, sources[made % len(sources)] if sources else None)
            if one is None:
                break
            held.append(one)
            made += 1
        select.select([sys.stdin], [], [], 0.1)
    tell(made=made, held=len(held))


def heard_beacon():
    """A real one, from the wire: what an attacker has to begin with."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        listener.settimeout(20)
        listener.bind(("", BEACON_PORT))
        while True:
            frame = listener.recv(2048)
            if frame[:4] == b"MCRM":
                return frame


def flood_beacons(address, per_second):
    """A real beacon with another node id in each copy, so that its tag is never right."""
    frame = heard_beacon()
    payload = frame[8:8 + struct.unpack(">H", frame[6:8])[0]]
    at = 8 + re.search(rb"[0-9a-f]{32}", payload).start()
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    begun, sent = time.monotonic(), 0
    while not stopped():
        behind = int((time.monotonic() - begun) * per_second) - sent
        if behind <= 0:
            time.sleep(0.001)
            continue
        for _ in range(min(behind, 500)):
            forged = frame[:at] + b"%032x" % (0xabc << 100 | sent) + frame[at + 32:]
            try:
                sender.sendto(forged, (address, BEACON_PORT))
            except OSError:
                pass
            sent += 1
    tell(sent=sent, per_second=round(sent / (time.monotonic() - begun)))


def sweep_ports(address):
    sweeps, found = 0, set()
    while not stopped():
        for port in range(1024, 65536):
            with socket.socket() as one:
                one.settimeout(0.2)
                if one.connect_ex((address, port)) == 0:
                    found.add(port)
            if port % 1024 == 0 and stopped():
                break
        else:
            sweeps += 1
    tell(sweeps=sweeps, open_ports=sorted(found))


def post_large(port, model, size, streams):
    """Chat requests of so many bytes, so many at once, one round; the status codes that came."""
    import http.client
    import threading
    body = json.dumps({"model": model, "stream": True, "max_tokens": 4,
                       "messages": [{"role": "user", "content": "word " * (size // 5)}]})
    codes, rounds = [], 0

    def one():
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            codes.append(answer.status)
        except OSError as error:
            codes.append(repr(error))

    while not stopped():
        threads = [threading.Thread(target=one) for _ in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rounds += 1
    tell(rounds=rounds, codes=codes)


class Attack:
    """`inside` gives the command line that runs another in the namespace that the attack comes from;
    `script` has attacks of its own in place of this file."""

    def __init__(self, inside, kind, *arguments, script=__file__):
        self.command = inside([sys.executable, os.path.abspath(script), kind, *map(str, arguments)])
        self.report = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind, value, trace):
        try:
            said, _ = self.process.communicate(timeout=STOP_MAX_S)
            self.report = json.loads(said) if said.strip() else None
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


if __name__ == "__main__":
    chosen, *given = sys.argv[1:]
    if chosen == "half-open":
        open_silent(given[0], int(given[1]), int(given[2]), sources=given[3:])
    elif chosen == "idle-http":
        open_silent("127.0.0.1", int(given[0]), int(given[1]), b"POST /v1/chat/completions HTTP/1.1\r\nhost: ")
    elif chosen == "beacons":
        flood_beacons(given[0], int(given[1]))
    elif chosen == "sweep":
        sweep_ports(given[0])
    elif chosen == "large-prompts":
        post_large(int(given[0]), given[1], int(given[2]), int(given[3]))
    else:
        sys.exit(f"no attack named {chosen}")
