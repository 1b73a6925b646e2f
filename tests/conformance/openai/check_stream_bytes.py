"""Reads a stream from a raw socket and holds every byte against the format."""

import json
import socket
import sys
import urllib.parse


def read_chunked(file):
    body = b""
    while True:
        line = file.readline()
        assert line.endswith(b"\r\n"), f"chunk size line {line!r}"
        size = int(line.strip(), 16)
        data = file.read(size)
        assert len(data) == size, "a chunk is cut short"
        assert file.read(2) == b"\r\n", "a chunk does not end with CRLF"
        if size == 0:
            return body
        body += data


def request(url, model, options):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "What is RDMA?"}],
                       "max_tokens": 8, "temperature": 0, "stream": True, **options}).encode()
    with socket.create_connection((url.hostname, url.port or 80), timeout=120) as connection:
        connection.sendall(
            f"POST {url.path.rstrip('/')}/chat/completions HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n".encode() + body)
        file = connection.makefile("rb")
        assert file.readline() == b"HTTP/1.1 200 OK\r\n"
        headers = {}
        while (line := file.readline()) != b"\r\n":
            name, value = line.decode("ascii").rstrip("\r\n").split(": ", 1)
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        assert headers["content-type"].startswith("text/event-stream"), headers
        assert headers["transfer-encoding"] == "chunked", headers
        assert headers.get("x-request-id"), headers
        stream = read_chunked(file)
        assert file.read() == b"", "bytes after the end"
    return stream.decode("utf-8")


def check(stream, include_usage):
    assert stream.endswith("data: [DONE]\n\n"), stream[-80:]
    assert "\r" not in stream
    payloads = []
    for event in stream[:-2].split("\n\n"):
        if event.startswith(":"):
            continue
        assert event.startswith("data: ") and "\n" not in event, event
        payloads.append(event[len("data: "):])
    assert payloads.pop() == "[DONE]"
    chunks = [json.loads(payload) for payload in payloads]
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk", chunk
        for name in ("id", "created", "model"):
            assert chunk[name] == chunks[0][name], f"{name} changes"
        assert ("usage" in chunk) == include_usage, chunk
    if include_usage:
        last = chunks.pop()
        usage = last["usage"]
        assert last["choices"] == [] and all(chunk["usage"] is None for chunk in chunks)
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] > 0 and 0 < usage["completion_tokens"] <= 8, usage
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"]["role"] == "assistant"
    assert all("role" not in choice["delta"] for choice in choices[1:])
    assert choices[-1]["delta"] == {}
    assert choices[-1]["finish_reason"] in ("stop", "length")
    assert all(choice["finish_reason"] is None for choice in choices[:-1])


def main():
    url, model = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2]
    check(request(url, model, {}), include_usage=False)
    check(request(url, model, {"stream_options": {"include_usage": True}}), include_usage=True)
    print("stream bytes: as the format says")


main()
