"""What one hostile key does to a gateway, over and over until its input closes: each kind is a process of
its own that tells at its end what it was answered. Standard library only.

    attacks.py KIND KEY MODEL PORT...
"""

import collections
import concurrent.futures
import http.client
import json
import os
import random
import re
import select
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "integration"))
from attackers import connected, stopped, tell

ANSWER_MAX_S = 50
ROUND_PAUSE_S = 1
AT_ONCE = 8
SLOW_BODIES, SLOW_BODY_BYTES, TRICKLE_S = 200, 4 << 20, 1
# Words that no refusal may have: nothing that a client sends needs a person.
NEVER_SAID = re.compile(r"restart", re.IGNORECASE)


def notes(count):
    """Signs that NFC takes apart into three combining ones each."""
    return "\U0001d164" * count


def prose(size):
    lines, length = [], 0
    while length < size:
        lines.append(f"line {len(lines)} of it\n")
        length += len(lines[-1])
    return "".join(lines)


def chat(model, **more):
    return {"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Answer."}], **more}


def deep_arguments(model, number):
    """Nested as deep as may be, deeper than may be, and many small values."""
    shape = number % 3
    if shape == 2:
        return json.dumps(chat(model, chat_template_kwargs={"a": [{}] * 1_000_000}))
    depth = (90, 100_000)[shape]
    whole = json.dumps(chat(model, chat_template_kwargs="DEEP"))
    return whole.replace('"DEEP"', '{"a":' * depth + "1" + "}" * depth)


KINDS = {
    # name: (path, body of request `number`, how many at once)
    "grammars": ("/v1/chat/completions", lambda model, number: json.dumps(
        chat(model, guided_regex=f"x{{{number + 1}}}" + "\\w" * 43_000)), AT_ONCE),
    "texts": ("/tokenize", lambda model, _: json.dumps(
        {"model": model, "prompt": notes(490_000)}, ensure_ascii=False), AT_ONCE),
    "big-texts": ("/tokenize", lambda model, _: json.dumps(
        {"model": model, "prompt": prose(3_900_000)}), 12),
    "deep-arguments": ("/v1/chat/completions", deep_arguments, 3),
    "million-ids": ("/detokenize", lambda model, _: json.dumps(
        {"model": model, "tokens": [7] * 1_000_000}), 2),
}


def post(port, key, path, body):
    """(status, text); 0: the connection failed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_MAX_S)
    try:
        connection.request("POST", path, body, {"content-type": "application/json",
                                                "authorization": f"Bearer {key}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def wait(seconds):
    select.select([sys.stdin], [], [], seconds)


def post_rounds(kind, key, model, ports):
    path, make, at_once = KINDS[kind]
    statuses, wrong, number = collections.Counter(), collections.Counter(), 0
    # Made before: a client on another machine would not take this one's processor time for it.
    bodies = [make(model, i).encode() for i in range(3 if kind == "deep-arguments" else 1)]

    def one(count):
        body = make(model, count).encode() if kind == "grammars" else bodies[count % len(bodies)]
        return post(ports[count % len(ports)], key, path, body)

    with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
        while not stopped():
            for status, text in threads.map(one, range(number, number + at_once)):
                statuses[status] += 1
                if NEVER_SAID.search(text) or status in (500, 502):
                    wrong[f"{kind}: {status} {text[:300]}"] += 1
            number += at_once
            wait(ROUND_PAUSE_S)
    tell(requests=number, statuses=statuses, wrong=wrong)


def slow_bodies(key, model, ports):
    """Bodies of 4 MiB that trickle in, so many at a time; those that are ended begin again."""
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"authorization: Bearer {key}\r\ncontent-length: {SLOW_BODY_BYTES}\r\n\r\n").encode()
    begin = json.dumps(chat(model))[:-2].encode()
    open_ones, made, statuses = [], 0, collections.Counter()
    while not stopped():
        for one in open_ones[:]:
            try:
                one.send(b" " * 2048)
                said = one.recv(4096, socket.MSG_DONTWAIT)
                if said.startswith(b"HTTP/"):
                    statuses[said.split(b" ", 2)[1].decode()] += 1
            except BlockingIOError:
                continue
            except OSError:
                statuses["cut"] += 1
            one.close()
            open_ones.remove(one)
        while len(open_ones) < SLOW_BODIES:
            one = connected("127.0.0.1", ports[made % len(ports)], head + begin)
            if one is None:
                break
            open_ones.append(one)
            made += 1
        wait(TRICKLE_S)
    tell(requests=made, statuses=statuses, wrong={})


def probe(key, ports, hidden):
    """Asks for another tenant's model by each of its names: all that is told has to be what is told of
    a model that does not exist."""
    chance, asked, wrong = random.Random(7), 0, collections.Counter()
    statuses = collections.Counter()
    bodies = {"/v1/chat/completions": lambda name: chat(name),
              "/v1/completions": lambda name: {"model": name, "prompt": "a"},
              "/v1/embeddings": lambda name: {"model": name, "input": "a"},
              "/v1/messages": lambda name: chat(name),
              "/v1/responses": lambda name: {"model": name, "input": "a"},
              "/api/generate": lambda name: {"model": name, "prompt": "a"},
              "/api/show": lambda name: {"model": name},
              "/tokenize": lambda name: {"model": name, "prompt": "a"},
              "/detokenize": lambda name: {"model": name, "tokens": [1]}}

    def answer(port, path, name):
        status, text = post(port, key, path, json.dumps(bodies[path](name)))
        for spelling in (name, name.removesuffix(":latest")):
            text = text.replace(spelling, "NAME")
        text = re.sub(r'"(request_id|id)": ?"[^"]*"', "", text)
        return status, text

    while not stopped():
        path, port = chance.choice(list(bodies)), chance.choice(ports)
        name = hidden + chance.choice(("", "#1", "#2", "#7", ":latest", "#"))
        missing = answer(port, path, "nowhere" + name[len(hidden):])
        found = answer(port, path, name)
        asked += 1
        statuses[found[0]] += 1
        if found != missing:
            wrong[f"{path} {name}: {found} and not {missing}"[:500]] += 1
        for listed in ("/v1/models", "/api/tags", "/api/ps"):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_MAX_S)
            try:
                connection.request("GET", listed, headers={"authorization": f"Bearer {key}"})
                if hidden in connection.getresponse().read().decode():
                    wrong[f"{listed} lists {hidden}"] += 1
            except OSError:
                pass
            finally:
                connection.close()
        wait(ROUND_PAUSE_S)
    tell(requests=asked, statuses=statuses, wrong=wrong)


if __name__ == "__main__":
    os.nice(19)  # clients on other machines take nothing of this one's processors
    chosen, own_key, asked_model, *gateways = sys.argv[1:]
    gateways = [int(port) for port in gateways]
    if chosen == "slow-bodies":
        slow_bodies(own_key, asked_model, gateways)
    elif chosen == "probe":
        probe(own_key, gateways, asked_model)
    else:
        post_rounds(chosen, own_key, asked_model, gateways)
