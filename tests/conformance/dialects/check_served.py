"""Paths without a package of their own: tokens, the description, and what it promises."""

import json

from cases import ask, base_url, case, run


@case()
def tokens_there_and_back(url):
    status, told = ask(url, "/tokenize", {"model": "tiny", "prompt": "Hello"})
    told = json.loads(told)
    assert status == 200 and told["count"] == 5 and told["max_model_len"] == 4096
    assert json.loads(ask(url, "/detokenize", {"model": "tiny", "tokens": told["tokens"]})[1]) == \
        {"prompt": "Hello"}


@case()
def a_chat_has_tokens_too(url):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}
    assert json.loads(ask(url, "/tokenize", body)[1])["count"] == 5


def paths(url):
    text = json.loads(ask(url, "/openapi.json")[1])
    return [(method, path, operation) for path, methods in text["paths"].items()
            for method, operation in methods.items()]


@case()
def nothing_described_is_an_unknown_path(url):
    for method, path, _ in paths(url):
        path = path.replace("{model}", "tiny").replace("{digest}", "sha256:0")
        status, body = ask(url, path, {} if method == "post" else None, method.upper())
        assert "nothing at this path" not in body, (method, path, body)
        assert status != 405, (method, path)


@case()
def an_empty_body_is_an_error_in_the_described_shape(url):
    for method, path, operation in paths(url):
        if method != "post" or "200" not in operation["responses"]:
            continue
        status, body = ask(url, path, {})
        # Orders are taken of the page that the agent serves, or with a key.
        wanted = 401 if path.startswith("/dashboard/") else 400
        assert status == wanted, (path, status, body)
        shape = json.dumps(operation["responses"]["default"]["content"])
        error = json.loads(body)
        if "AnthropicError" in shape:
            assert error["type"] == "error" and error["error"]["type"], (path, body)
        elif "OllamaError" in shape:
            assert isinstance(error["error"], str), (path, body)
        else:
            assert error["error"]["message"], (path, body)


if __name__ == "__main__":
    run(base_url(), "served")
