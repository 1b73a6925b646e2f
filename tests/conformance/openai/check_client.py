"""Uses a gateway through OpenAI's own package, unchanged."""

import sys

import openai

QUESTION = [{"role": "system", "content": "Answer briefly."},
            {"role": "user", "content": [{"type": "text", "text": "What is RDMA?"}]}]


def check_answer(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=5,
                                            temperature=0, seed=1, user="me")
    assert answer.object == "chat.completion" and answer.model == model
    assert answer.id.startswith("chatcmpl-") and answer._request_id
    assert len(answer.choices) == 1
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 5 and usage.prompt_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return choice.message.content


def check_stream(client, model, expected):
    text, usage, finish = "", None, None
    with client.chat.completions.create(
            model=model, messages=QUESTION, max_completion_tokens=5, temperature=0, seed=1,
            stream=True, stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
    assert text == expected, f"streamed {text!r}, whole {expected!r}"
    assert usage.completion_tokens > 0 and finish in ("stop", "length")


def check_left_stream(client, model):
    with client.chat.completions.create(model=model, messages=QUESTION, stream=True) as stream:
        next(iter(stream))
    check_answer(client, model)  # the next request is served


def check_text(client, model):
    asked = {"model": model, "max_tokens": 5, "temperature": 0, "seed": 1}
    prompts = ["RDMA is", "A link is"]
    whole = client.completions.create(prompt=prompts, echo=True, **asked)
    assert whole.object == "text_completion" and [c.index for c in whole.choices] == [0, 1]
    for prompt, choice in zip(prompts, whole.choices):
        assert choice.text.startswith(prompt) and len(choice.text) > len(prompt)
    assert whole.usage.completion_tokens <= 10 < whole.usage.total_tokens
    one = client.completions.create(prompt=prompts[0], logprobs=2, **asked).choices[0]
    assert prompts[0] + one.text == whole.choices[0].text, "alone it is another text"
    assert len(one.logprobs.tokens) == len(one.logprobs.text_offset)
    assert all(value <= 0 for value in one.logprobs.token_logprobs)
    streamed = client.completions.create(prompt=prompts[0], stream=True, **asked)
    assert "".join(chunk.choices[0].text for chunk in streamed) == one.text
    error = refused(openai.BadRequestError,
                    lambda: client.completions.create(prompt=prompts[0], suffix="x", **asked))
    assert error.param == "suffix"


def check_models(client, model):
    listed = client.models.list()
    assert model in [entry.id for entry in listed.data]
    assert client.models.retrieve(model).id == model


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def check_errors(client, model):
    create = client.chat.completions.create
    error = refused(openai.NotFoundError, lambda: create(model="no-such", messages=QUESTION))
    assert error.code == "model_not_found" and error.request_id
    error = refused(openai.BadRequestError, lambda: create(
        model=model, messages=QUESTION, temperature=9))
    assert error.param == "temperature" and error.type == "invalid_request_error"
    error = refused(openai.BadRequestError, lambda: create(
        model=model, messages=QUESTION, response_format={
            "type": "json_schema", "json_schema": {"name": "x y", "schema": {}}}))
    assert error.param == "response_format.json_schema.name"
    error = refused(openai.BadRequestError, lambda: create(model=model, messages=[]))
    assert error.param == "messages"
    error = refused(openai.BadRequestError, lambda: create(model=model, messages=QUESTION, n=9))
    assert error.param == "n"
    refused(openai.NotFoundError, lambda: client.models.retrieve("no-such"))
    refused(openai.BadRequestError, lambda: client.embeddings.create(model=model, input="x"))


def main():
    base_url, model = sys.argv[1:]
    client = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)
    answer = check_answer(client, model)
    check_stream(client, model, answer)
    check_left_stream(client, model)
    check_text(client, model)
    check_models(client, model)
    check_errors(client, model)
    print(f"openai {openai.__version__}: answers, streams, models and errors as expected")


main()
