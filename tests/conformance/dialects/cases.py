"""A table of cases: each is a function, called with its arguments; the first failure ends the program."""

import json
import sys
import urllib.error
import urllib.request

CASES = []
FAMILIES = ["hermes", "mistral", "harmony", "llama3"]
# What the scripted models do, turn by turn: tests/unit/agentd/gateway/scripted_model.h.
TURNS = [
    [("get_weather", {"city": "Oslo"})],
    [("get_weather", {"city": "Rome", "days": 2}), ("get_time", {})],
    [("write_file", {"path": "report.md", "content": "# Tromsø\n\nsays \"<b>7°</b>\" & more\n"})],
    [],
]
WEATHER = {"type": "object", "required": ["city"],
           "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
FILE = {"type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
NOTHING = {"type": "object", "properties": {}}


def case(*arguments):
    """Adds a function as a case; once for each of the arguments, if there are any."""
    def add(function):
        CASES.extend([(function, (argument,)) for argument in arguments] or [(function, ())])
        return function
    return add


def run(client, what):
    for function, arguments in CASES:
        try:
            function(client, *arguments)
        except BaseException:
            print(f"FAILED: {what}: {function.__name__}{arguments}")
            raise
    print(f"{what}: {len(CASES)} cases")


def ask(url, path, body=None, method=None):
    """(status, text) of one request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as failure:
        return failure.code, failure.read().decode()


def answered(url, path, body=None):
    """The text of a request that has to be answered."""
    status, text = ask(url, path, body)
    assert status == 200, (path, status, text)
    return text


def base_url():
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} BASE_URL")
    return sys.argv[1]


def mirrored(text):
    """The request that the model "mirror" answered with."""
    return json.loads(text)


def expect(error, call, *words, status=None):
    """The call fails so, and its message has these words."""
    try:
        call()
    except error as failure:
        message = str(failure)
        for word in words:
            assert word in message, (word, message)
        if status is not None:
            assert failure.status_code == status, (failure.status_code, message)
        return failure
    raise AssertionError(f"no {error.__name__}")
