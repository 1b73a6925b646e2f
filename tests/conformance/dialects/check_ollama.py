"""Ollama's own package: chat, generate, embeddings, models, tools over four turns, errors."""

import ollama

from cases import FAMILIES, FILE, NOTHING, TURNS, WEATHER, base_url, case, expect, mirrored, run

USER = [{"role": "user", "content": "How is the weather?"}]
TOOLS = [{"type": "function", "function": {"name": name, "description": name,
                                           "parameters": schema}}
         for name, schema in (("get_weather", WEATHER), ("write_file", FILE),
                              ("get_time", NOTHING))]


def whole(client, model, messages=None, **more):
    return client.chat(model=model, messages=messages or USER, **more)


def streamed(client, model, messages=None, **more):
    text, thinking, calls, last = "", "", [], None
    for last in client.chat(model=model, messages=messages or USER, stream=True, **more):
        text += last.message.content or ""
        thinking += last.message.thinking or ""
        calls += last.message.tool_calls or []
    assert last.done
    last.message.content, last.message.thinking = text, thinking or None
    last.message.tool_calls = calls or None
    return last


def mirror(client, messages=None, **more):
    return mirrored(whole(client, "mirror", messages, **more).message.content)


@case(*[(family, ask) for family in FAMILIES for ask in (whole, streamed)])
def an_agent_of_four_turns(client, how):
    family, ask = how
    messages = list(USER)
    for turn, expected in enumerate(TURNS):
        answer = ask(client, f"script-{family}", messages, tools=TOOLS)
        calls = answer.message.tool_calls or []
        assert [(call.function.name, dict(call.function.arguments)) for call in calls] == \
            expected, (turn, answer)
        if turn == 0 and family != "llama3":
            assert answer.message.thinking == "The user asks for Oslo."
            assert answer.message.content == "I look."
        messages.append(answer.message)
        messages += [{"role": "tool", "tool_name": call.function.name, "content": "7"}
                     for call in calls]
    assert answer.message.content == "It is 7° in Oslo."


@case(whole, streamed)
def the_end_has_counts(client, ask):
    answer = ask(client, "mirror")
    assert answer.done and answer.done_reason == "stop"
    assert (answer.prompt_eval_count, answer.eval_count) == (11, 5)
    assert answer.created_at.endswith("Z")


@case(whole, streamed)
def num_predict_ends_it(client, ask):
    answer = ask(client, "tiny", options={"num_predict": 2})
    assert answer.done_reason == "length" and answer.message.content == "RDMA lets"


@case()
def options_reach_the_sampler(client):
    seen = mirror(client, options={"temperature": 0.5, "top_k": 40, "top_p": 0.25, "seed": 7,
                                   "repeat_penalty": 1.5, "num_ctx": 8192})
    assert seen["sampling"] == {"temperature": 0.5, "topK": 40, "topP": 0.25, "seed": "7",
                                "repetitionPenalty": 1.5}


@case(("json", "jsonObject"), (WEATHER, "jsonSchema"))
def formats(client, how):
    form, expected = how
    assert expected in mirror(client, format=form)["structure"]


@case((True, True), (False, False))
def think(client, how):
    asked, expected = how
    assert mirror(client, think=asked)["reasoning"]["enabled"] is expected


@case()
def effort_reaches_the_template(client):
    assert "high" in mirror(client, think="high")["templateArgumentsJson"]


@case(False, True)
def generate(client, stream):
    answer = client.generate(model="tiny", prompt="Hi", stream=stream)
    text = "".join(piece.response for piece in answer) if stream else answer.response
    assert text == "RDMA lets a card write."


@case()
def generate_is_a_chat_or_raw(client):
    seen = mirrored(client.generate(model="mirror", prompt="Hi", system="Brief.").response)
    assert [m["role"] for m in seen["messages"]] == ["system", "user"]
    raw = mirrored(client.generate(model="mirror", prompt="Hi", raw=True).response)
    assert raw["prompt"] == "Hi" and "messages" not in raw and "maxTokens" not in raw


@case()
def without_a_prompt_the_model_is_asked_for(client):
    assert client.generate(model="tiny").done_reason == "load"
    expect(ollama.ResponseError, lambda: client.generate(model="unknown"), "unknown")
    expect(ollama.ResponseError, lambda: client.generate(model="tiny", keep_alive=0), "unload")


@case("a", ["a", "b", "c"])
def embed(client, texts):
    answer = client.embed(model="embedder", input=texts)
    assert len(answer.embeddings) == (1 if texts == "a" else 3)
    assert abs(sum(x * x for x in answer.embeddings[0]) - 1) < 1e-6


@case()
def embeddings_of_old(client):
    assert len(client.embeddings(model="embedder", prompt="a").embedding) == 2


@case()
def models(client):
    assert "tiny" in [model.model for model in client.list().models]
    assert "tiny" in [model.model for model in client.ps().models]
    shown = client.show("tiny:latest")
    assert shown.modelinfo["macrame.context_length"] == 4096
    assert "completion" in shown.capabilities


@case(("busy", 429), ("loading", 503), ("broken", 500), ("narrow", 400), ("unknown", 404))
def failures(client, how):
    model, status = how
    for ask in (whole, streamed):
        expect(ollama.ResponseError, lambda: ask(client, model), status=status)


@case("pull", "push", "delete")
def models_are_not_changed_here(client, what):
    expect(ollama.ResponseError, lambda: getattr(client, what)("tiny"), "clusterctl", status=501)


@case()
def images_are_refused_by_name(client):
    message = {"role": "user", "content": "x", "images": ["aGVsbG8="]}
    expect(ollama.ResponseError, lambda: whole(client, "tiny", [message]), "images", status=400)


if __name__ == "__main__":
    run(ollama.Client(host=base_url()), "ollama")
