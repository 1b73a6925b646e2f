"""In the place of mlx_lm_worker.py, without mlx_lm: speaks its protocol, counts instead of computing.

The token that follows T at position P is 100 + (31 T + 7 P + S) % 2900, where S is the sum of all
tokens of the sequence: a cache that is mixed up gives other tokens. FAKE_MODE says what goes wrong;
"on S say R text" answers the order S with a frame of kind R that holds that text ("on H": when it has
come up).
"""

import fcntl
import json
import os
import signal
import struct
import sys
import time

VOCABULARY = 3072
mode = os.environ.get("FAKE_MODE", "")
pid_file = open(os.environ["FAKE_PID"], "w")
fcntl.flock(pid_file, fcntl.LOCK_EX)  # until this process is gone
pid_file.write(str(os.getpid()))
pid_file.flush()
source, sink = sys.stdin.buffer, sys.stdout.buffer
source.read(int(source.readline()))  # the real one's text


def send(kind, *parts):
    sink.write(struct.pack("<cQ", kind, sum(len(part) for part in parts)) + b"".join(parts))
    sink.flush()


def send_json(kind, **value):
    send(kind, json.dumps(value).encode())


def is_told_to_say(order):
    words = mode.split(" ", 4)
    if words[0] != "on" or words[1] != order:
        return False
    send(words[3].encode(), words[4].encode())
    return True


def follower(tokens):
    last = len(tokens) - 1
    return 100 + (31 * tokens[last] + 7 * last + sum(tokens)) % 2900


def run(payload, slots):
    words = iter(struct.unpack(f"<{len(payload) // 4}I", payload))
    rows = []
    for _ in range(next(words)):
        slots.pop(next(words), None)
    for _ in range(next(words)):
        slot, begin, _, _, wanted, count = (next(words) for _ in range(6))
        held = slots.setdefault(slot, [])
        if begin == 0:
            held.clear()
        if len(held) != begin:
            return send_json(b"E", code="", message=f"slot {slot} holds {len(held)}, not {begin}",
                             remedy="")
        for _ in range(count):
            held.append(next(words))
            row = [0.0] * VOCABULARY
            row[follower(held)] = 1.0
            rows.append(row)
        if wanted != 2:
            del rows[len(rows) - count:len(rows) - wanted]
    body = b"".join(struct.pack(f"<{VOCABULARY}f", *row) for row in rows)
    send(b"R", struct.pack("<QQ", 5_000_000, VOCABULARY if rows else 0), body)


if mode == "exits":
    sys.exit(3)
if mode == "garbage":
    sink.write(b"Hello there, this is no frame at all")
    sink.flush()
    time.sleep(5)
if mode == "silent":
    time.sleep(60)
if mode == "lacks":
    send_json(b"E", code="ENGINE_MISSING", message="fakepython has no mlx_lm", remedy="install it")
    sys.exit(0)
if not is_told_to_say("H"):
    send_json(b"H", python="fakepython", version="0.99.1", device="cpu")
slots, steps = {}, 0
while True:
    head = source.read(9)
    if len(head) < 9:
        break
    kind, size = struct.unpack("<cQ", head)
    payload = source.read(size)
    if is_told_to_say(kind.decode()):
        continue
    if kind == b"D":
        send_json(b"D", martian={"tensor": True, "pipeline": False},
                  venusian={"tensor": False, "pipeline": False})
    elif kind == b"C":
        send_json(b"C", backend="ring", size=json.loads(payload)["world"])
    elif kind == b"L" and mode == "refuses":
        send_json(b"E", code="MODEL_FORMAT_UNSUPPORTED", message="no such form of martian", remedy="")
        break
    elif kind == b"L":
        send_json(b"P", loaded=500_000, total=1_000_000)
        send_json(b"L", bytes=1_000_000, active=1_000_000, vocab=VOCABULARY)
    elif kind == b"S":
        steps += 1
        if mode == "dies" and steps == 6:
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "hangs" and steps == 6:
            time.sleep(60)
        send_json(b"P")
        run(payload, slots)
if mode == "stubborn":
    time.sleep(60)
