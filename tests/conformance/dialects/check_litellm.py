"""LiteLLM over each of the three APIs: answers whole and streamed, tools over four turns, schemas, errors, a request that
is given up."""

import asyncio
import json
import os
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks a server for prices

import litellm  # noqa: E402

from cases import (FAMILIES, FILE, NOTHING, TURNS, WEATHER, base_url, case,  # noqa: E402
                   expect, mirrored, run)

litellm.suppress_debug_info = True
litellm.telemetry = False
litellm.num_retries = 0

PROVIDERS = ("openai", "anthropic", "ollama_chat")
USER = [{"role": "user", "content": "How is the weather?"}]
TOOLS = [{"type": "function", "function": {"name": name, "description": name,
                                           "parameters": schema}}
         for name, schema in (("get_weather", WEATHER), ("write_file", FILE),
                              ("get_time", NOTHING))]


def options(url, provider, model):
    base = url + "/v1" if provider == "openai" else url
    return {"model": f"{provider}/{model}", "api_base": base, "api_key": "key", "max_retries": 0}


def whole(url, provider, model, messages=None, **more):
    return litellm.completion(messages=messages or USER, **options(url, provider, model), **more)


def streamed(url, provider, model, messages=None, **more):
    messages = messages or USER
    stream = litellm.completion(messages=messages, stream=True, **options(url, provider, model),
                                **more)
    return litellm.stream_chunk_builder(list(stream), messages=messages)


@case(*[(provider, family, ask) for provider in PROVIDERS for family in FAMILIES
        for ask in (whole, streamed)])
def an_agent_of_four_turns(url, how):
    provider, family, ask = how
    messages = list(USER)
    for turn, expected in enumerate(TURNS):
        answer = ask(url, provider, f"script-{family}", messages, tools=TOOLS).choices[0]
        calls = answer.message.tool_calls or []
        assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == \
            expected, (turn, answer)
        assert answer.finish_reason == ("tool_calls" if expected else "stop"), (turn, answer)
        messages.append({"role": "assistant", "content": answer.message.content, **(
            {"tool_calls": [call.model_dump() for call in calls]} if calls else {})})
        messages += [{"role": "tool", "tool_call_id": call.id, "name": call.function.name,
                      "content": "7 degrees"} for call in calls]
    assert answer.message.content == "It is 7° in Oslo."


@case(*[(provider, ask) for provider in PROVIDERS for ask in (whole, streamed)])
def text_and_usage(url, how):
    provider, ask = how
    more = {"stream_options": {"include_usage": True}} if ask is streamed else {}
    answer = ask(url, provider, "tiny", **more)
    assert answer.choices[0].message.content == "RDMA lets a card write."
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (11, 6), answer.usage


@case("openai", "ollama_chat")  # for Anthropic's API it makes a tool of it
def a_schema_reaches_the_model(url, provider):
    answer = whole(url, provider, "mirror", response_format={
        "type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER}})
    assert "city" in mirrored(answer.choices[0].message.content)["structure"]["jsonSchema"]


@case(*[(provider, model, error) for provider in PROVIDERS for model, error in (
    ("busy", litellm.RateLimitError), ("narrow", litellm.BadRequestError),
    ("unknown", litellm.NotFoundError))])
def failures(url, how):
    provider, model, error = how
    for ask in (whole, streamed):
        expect(error, lambda: ask(url, provider, model))


@case("openai", "ollama")
def embeddings(url, provider):
    made = litellm.embedding(input=["a", "b"], **options(url, provider, "embedder"))
    assert len(made.data) == 2


@case()
def responses(url):
    made = litellm.responses(input="Hi", **options(url, "openai", "tiny"))
    assert made.output[0].content[0].text == "RDMA lets a card write."


@case(*PROVIDERS)
def given_up(url, provider):
    async def ask():
        begun = time.monotonic()
        try:
            await asyncio.wait_for(litellm.acompletion(
                messages=USER, **options(url, provider, "manual")), 0.5)
        except (asyncio.TimeoutError, litellm.Timeout):
            return time.monotonic() - begun
        raise AssertionError("it was answered")
    assert asyncio.run(ask()) < 5
    assert whole(url, provider, "tiny").choices[0].message.content == "RDMA lets a card write."


if __name__ == "__main__":
    run(base_url(), "litellm")
