"""Runs in each virtual machine of tests/rdma: one agent; the first machine tells the story.

    story.py RANK COUNT BUILD STORY

"2", two machines: the cluster finds its verbs devices, serves the bundled model split over the two by tensor,
over verbs and over TCP with the same answer, and both are timed. "3", three machines: a pipeline over verbs; then a
device is deleted, a GID taken away and a cable cut, and each time the cluster goes on over TCP and says why.
"soak", two machines: all-reduces over verbs for five minutes, none of which may fail.
"""

import json
import os
import subprocess
import sys
import threading
import time
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from live_cluster import (BUNDLED_MODEL, Failed, Node, alive_nodes, coordinator_of, deployment,
                          is_ready, run, say)

RANK, COUNT, BUILD, STORY = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
SOAK_ROUNDS = 90
PROMPT = "Explain RDMA in simple terms"
MODEL_READY_MAX_S = 180
# A machine that slept so much longer than it meant to was starved by its host: what failed there tells nothing.
STARVED_S = 2
STARVED_WORDS = "this machine got no processor time"
checks = 0


def expect(condition, text):
    global checks
    checks += 1
    if not condition:
        raise Failed(text)
    say(f"holds: {text}")


def start_agent():
    folder = "/tmp/m"
    os.makedirs(folder, mode=0o700)
    cluster = types.SimpleNamespace(
        folder=folder, namespaces=False, prefix="", discovery_port=8888,
        secret=os.path.join(BUILD, "rdma-machines.secret"),
        binary=lambda name: os.path.join(BUILD, "bin", name))
    node = Node(cluster, RANK, f"vm{RANK}")
    # Emulated processors are some tens of times slower: so much more time do agents give each other.
    node.write_config(extra={
        "discovery_loopback": False, "control_bind": "0.0.0.0", "ring_bind": "",
        "gateway_port": 8000, "link_probe_interval_s": 10,
        "heartbeat_interval_ms": 1000, "suspect_after_ms": 5000, "dead_after_ms": 10000, "lease_ms": 8000})
    node.gateway_port = 8000
    output = open(os.path.join(folder, "stdout.log"), "ab")
    node.process = subprocess.Popen([cluster.binary("agentd"), "--config", node.config_path],
                                    stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=subprocess.STDOUT)
    return node


class SlownessWatch(threading.Thread):
    """How late this process is when it has slept a moment: an emulated processor that gets no time on its host
    misses the limits that agents and ranks hold each other to. Every machine says so when it is the first time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most_s = 0

    def run(self):
        while True:
            begun = time.monotonic()
            time.sleep(0.2)
            late = time.monotonic() - begun - 0.2
            if self.most_s < STARVED_S <= late:
                print(f"{STARVED_WORDS} for {late:.1f} s", flush=True)
            self.most_s = max(self.most_s, late)


def wait_for(node, what, condition, limit_s):
    begun = time.monotonic()
    status = None
    while time.monotonic() - begun < limit_s:
        if not node.running():
            raise Failed(f"agentd ended by itself while waiting: {what}")
        status = node.status()
        if status is not None and condition(status):
            say(f"{what}: {time.monotonic() - begun:.1f} s")
            return status
        time.sleep(1.5)  # each look costs an emulated processor a second
    print(json.dumps(status)[:3000])
    raise Failed(f"not within {limit_s} s: {what}")


def links_of(node):
    done = node.ctl("links", "-o", "json", check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def verdict_is(node, wanted):
    def holds(_):
        view = links_of(node)
        return view is not None and view["links"]["group"].get("verdict") == wanted
    return holds


def backend_of(status):
    return (deployment(status) or {}).get("plan", {}).get("backend")


def answer(node):
    return node.ctl("model", "infer", BUNDLED_MODEL, "--prompt", PROMPT, "--max-tokens", "24",
                    "--temperature", "0", timeout=120).stdout


def find_everything(node):
    wait_for(node, f"{COUNT} agents see each other",
             lambda s: len(alive_nodes(s)) == COUNT and coordinator_of(s), 180)
    wait_for(node, "the verdict is: verbs", verdict_is(node, "verbs"), 180)
    view = links_of(node)
    verbs = [link for link in view["links"]["links"] if link["kind"] in ("verbs", "LINK_KIND_VERBS")]
    expect(len(verbs) == COUNT * (COUNT - 1) // 2, "there is a verbs link for each cable")
    expect(all(link["a"]["gid_index"] == 1 and link["b"]["gid_index"] == 1 for link in verbs),
           "each with the IPv4-mapped GID at index 1")
    print(node.ctl("links").stdout, flush=True)


def load(node, transport=None, parallelism="pipeline"):
    more = ["--transport", transport] if transport else []
    node.ctl("model", "load", BUNDLED_MODEL, "--ranks", str(COUNT), "--parallelism", parallelism,
             *more, timeout=MODEL_READY_MAX_S)
    return wait_for(node, f"the model is ready ({transport or 'auto'})", is_ready,
                    MODEL_READY_MAX_S)


def unload(node):
    node.ctl("model", "unload", BUNDLED_MODEL)
    wait_for(node, "the model is unloaded", lambda s: deployment(s) is None, 120)


def prove(node, backend):
    verified = json.loads(node.ctl("verify", "transport", "-o", "json", timeout=120).stdout)
    expect(verified["group"]["backend"] == backend and verified["group"]["group_size"] == COUNT
           and verified["group"]["sum_correct"], f"verify transport: {COUNT} ranks over {backend}")
    for timing in verified["group"]["timings"]:
        say(f"  {backend}: all-reduce of {timing['size_bytes']} bytes: "
            f"{float(timing['us_p50']):.0f} us, p99 {float(timing['us_p99']):.0f} us")


def serve_over_both(node):
    """The same answer over verbs and over TCP, and the figures of both."""
    status = load(node, parallelism="tensor")
    expect(backend_of(status) == "verbs", "the plan takes verbs by itself")
    over_verbs = answer(node)
    say(f"answer: {over_verbs.strip()[:70]!r}…")
    expect(len(over_verbs.split()) >= 5, "an answer of words came over verbs")
    prove(node, "verbs")
    unload(node)
    status = load(node, transport="ring", parallelism="tensor")
    expect(backend_of(status) == "ring", "TCP when asked for")
    expect(answer(node) == over_verbs, "the answer over TCP is the same")
    prove(node, "ring")
    unload(node)


def after_fault(node, what, before, code, reference):
    """The gang is formed again over TCP, by itself, and the reason is told."""
    status = wait_for(
        node, f"after {what} the model is served over TCP",
        lambda s: is_ready(s, after_epoch=before) and backend_of(s) == "ring", 240)
    expect(answer(node) == reference, f"after {what} the answer is the same")
    fallbacks = json.dumps(deployment(status).get("fallbacks", []))
    expect(code in fallbacks, f"after {what} status names {code}")
    shown = node.ctl("status").stdout
    expect(code in shown, f"and people read it in status too ({code})")
    doctor = node.ctl("doctor", check=False)
    expect(code in doctor.stdout, f"the doctor names {code}")
    unload(node)


def epoch(node):
    return int(deployment(node.status()).get("epoch", 0))


def back_to_verbs(node, what):
    wait_for(node, f"{what}: verbs again", verdict_is(node, "verbs"), 180)
    status = load(node)
    expect(backend_of(status) == "verbs", f"{what}: the next gang is formed over verbs")


def suffer(node):
    status = load(node)
    expect(backend_of(status) == "verbs", "the plan takes verbs by itself")
    reference = answer(node)
    prove(node, "verbs")

    before = epoch(node)
    deleting = subprocess.Popen(["rdma", "link", "del", "rdma_cable1"])
    after_fault(node, "a device was deleted", before, "NO_VERBS_DEVICE", reference)
    deleting.wait(timeout=60)
    run(["rdma", "link", "add", "rdma_cable1", "type", "rxe", "netdev", "cable1"])
    back_to_verbs(node, "the device is back")

    before = epoch(node)
    address = run(["ip", "-o", "-4", "addr", "show", "cable1"]).stdout.split()[3]
    run(["ip", "addr", "del", address, "dev", "cable1"])
    after_fault(node, "a GID was taken away", before, "NO_IPV4_GID", reference)
    run(["ip", "addr", "add", address, "brd", "+", "dev", "cable1"])
    back_to_verbs(node, "the GID is back")

    before = epoch(node)
    run(["ip", "link", "set", "cable2", "down"])
    after_fault(node, "a cable was cut", before, "PORT_DOWN", reference)
    run(["ip", "link", "set", "cable2", "up"])
    back_to_verbs(node, "the cable is back")
    unload(node)


def sum_over_cable(kind, port):
    """All-reduces of the two machines over their cable, by one of the benchmark's groups; a line a size."""
    addresses = f"198.19.1.1:{port},198.19.1.2:{port}"
    devices = "-,rdma_cable1" if RANK == 0 else "rdma_cable0,-"
    return run([os.path.join(BUILD, "tests/collectives_rank"), kind, str(RANK), "40", addresses,
                "1024,8192,65536,1048576", devices], timeout=120).stdout.splitlines()


def time_collectives():
    """Our group over TCP and over verbs, on the same cable, one after the other."""
    for port, kind, name in ((7001, "ours", "TCP"), (7002, "verbs", "verbs")):
        for line in sum_over_cable(kind, port):
            size, least, median = line.split()
            if RANK == 0:
                say(f"  {name}: all-reduce of {size} bytes: least {least} us, median {median} us")


def soak():
    for done in range(1, SOAK_ROUNDS + 1):
        sum_over_cable("verbs", 7002 + done)
        if RANK == 0 and done % 10 == 0:
            say(f"{done} rounds of sums")


def follow(node):
    """What the agent of another machine writes, as it writes it, until the machine is turned off."""
    log = None
    while node.running():
        if log is None and os.path.exists(node.log_path):
            log = open(node.log_path, errors="replace")
        for line in log or ():
            print(line, end="", flush=True)
        time.sleep(0.5)
    raise Failed("agentd ended by itself")


def print_log(node):
    with open(node.log_path, errors="replace") as log:
        print(f"--- end of {node.log_path}\n" + "".join(log.readlines()[-60:]), flush=True)


def print_warnings_of_kernel():
    """A device of the emulated machine that failed shows here alone."""
    for line in run(["dmesg", "--level=emerg,alert,crit,err,warn"], check=False).stdout.splitlines()[-20:]:
        print(f"kernel: {line}", flush=True)


def main():
    if STORY == "soak":
        return soak()
    if STORY == "2":
        time_collectives()
    slowness = SlownessWatch()
    slowness.start()
    node = start_agent()
    if RANK != 0:
        return follow(node)
    try:
        find_everything(node)
        serve_over_both(node) if STORY == "2" else suffer(node)
    except (Failed, subprocess.SubprocessError):
        print(f"a moment's sleep was late by at most {slowness.most_s:.1f} s", flush=True)
        print_log(node)
        raise
    print(f"{checks} held; a moment's sleep was late by at most {slowness.most_s:.1f} s", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (Failed, subprocess.SubprocessError) as failure:
        print(f"FAILED after {checks} checks: {failure}", flush=True)
        print_warnings_of_kernel()
        sys.exit(1)
