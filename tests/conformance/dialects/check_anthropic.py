"""Anthropic's own package: messages whole and streamed, tools over four turns, errors, counts."""

import anthropic

from cases import FAMILIES, FILE, NOTHING, TURNS, WEATHER, base_url, case, expect, mirrored, run

USER = [{"role": "user", "content": "How is the weather?"}]
TOOLS = [{"name": "get_weather", "description": "Weather of a city", "input_schema": WEATHER},
         {"name": "write_file", "input_schema": FILE},
         {"name": "get_time", "input_schema": NOTHING}]


def whole(client, model, messages=None, **more):
    return client.messages.create(model=model, max_tokens=1000, messages=messages or USER, **more)


def streamed(client, model, messages=None, **more):
    with client.messages.stream(model=model, max_tokens=1000, messages=messages or USER,
                                **more) as stream:
        return stream.get_final_message()


def mirror(client, messages=None, **more):
    return mirrored(whole(client, "mirror", messages, **more).content[0].text)


def without_ids(message):
    blocks = [block.model_dump(exclude={"id", "signature"}) for block in message.content]
    return blocks, message.stop_reason, message.usage.output_tokens


@case(*[(family, ask) for family in FAMILIES for ask in (whole, streamed)])
def an_agent_of_four_turns(client, how):
    family, ask = how
    messages = list(USER)
    for turn, expected in enumerate(TURNS):
        answer = ask(client, f"script-{family}", messages, tools=TOOLS)
        calls = [block for block in answer.content if block.type == "tool_use"]
        assert [(call.name, call.input) for call in calls] == expected, (turn, answer)
        assert answer.stop_reason == ("tool_use" if expected else "end_turn")
        if turn == 0 and family != "llama3":
            kinds = [block.type for block in answer.content]
            assert kinds == ["thinking", "text", "tool_use"], kinds
            assert answer.content[0].thinking == "The user asks for Oslo."
            assert answer.content[0].signature
            assert answer.content[1].text == "I look."
        messages.append({"role": "assistant", "content": answer.content})
        messages.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": "7 degrees"}
            for call in calls] or "Thanks."})
    assert answer.content[-1].text == "It is 7° in Oslo."


@case("script-hermes", "script-harmony", "tiny", "threaded")
def a_stream_says_what_the_whole_answer_says(client, model):
    options = {"tools": TOOLS} if model.startswith("script") else {}
    assert without_ids(whole(client, model, **options)) == \
        without_ids(streamed(client, model, **options))


@case()
def events_come_in_order(client):
    kinds = [event.type for event in client.messages.create(
        model="tiny", max_tokens=100, messages=USER, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert kinds[1] == "content_block_start" and kinds[-3] == "content_block_stop"


@case()
def usage_and_identity(client):
    answer = whole(client, "mirror")
    assert answer.id.startswith("msg_") and answer.role == "assistant" and answer.model == "mirror"
    assert (answer.usage.input_tokens, answer.usage.cache_read_input_tokens,
            answer.usage.output_tokens) == (7, 4, 5)
    assert answer._request_id.startswith("req_")


@case()
def max_tokens_ends_it(client):
    answer = client.messages.create(model="tiny", max_tokens=2, messages=USER)
    assert answer.stop_reason == "max_tokens" and answer.content[0].text == "RDMA lets"


@case(whole, streamed)
def a_stop_sequence_is_named(client, ask):
    answer = ask(client, "mirror", stop_sequences=["NEVER", "messages"])
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "messages"), answer


@case()
def system_and_sampling_reach_the_model(client):
    seen = mirror(client, system=[{"type": "text", "text": "Brief.",
                                   "cache_control": {"type": "ephemeral"}}],
                  metadata={"user_id": "u"},
                  extra_body={"temperature": 0.5, "top_p": 0.25, "top_k": 40})
    assert [m["role"] for m in seen["messages"]] == ["system", "user"]
    assert seen["sampling"] == {"temperature": 0.5, "topP": 0.25, "topK": 40}
    assert seen["maxTokens"] == 1000 and seen["fairnessKey"]


@case(("auto", "TOOL_CHOICE_KIND_AUTO"), ("any", "TOOL_CHOICE_KIND_REQUIRED"),
      ("tool", "TOOL_CHOICE_KIND_NAMED"), ("none", None))
def tool_choices(client, choice):
    kind, expected = choice
    asked = {"type": kind, **({"name": "get_time"} if kind == "tool" else {})}
    seen = mirror(client, tools=TOOLS, tool_choice=asked)
    assert seen.get("tools", {}).get("choice") == expected, seen


@case()
def one_call_at_a_time(client):
    answer = whole(client, "script-hermes", [*USER, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "get_time", "input": {}}]}, {
            "role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
                                         "content": "noon"}]}],
                   tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert len([block for block in answer.content if block.type == "tool_use"]) == 1


@case(({"type": "enabled", "budget_tokens": 2048}, {"enabled": True, "tokensMax": 2048}),
      ({"type": "disabled"}, {"enabled": False}), ({"type": "adaptive"}, None))
def thinking(client, how):
    asked, expected = how
    assert mirror(client, thinking=asked).get("reasoning") == expected


@case()
def a_schema_holds_the_answer(client):
    seen = mirror(client, output_config={"format": {"type": "json_schema", "schema": WEATHER}})
    assert "city" in seen["structure"]["jsonSchema"]


@case()
def text_documents_and_failed_tools_are_text(client):
    seen = mirror(client, [
        {"role": "user", "content": [{"type": "document", "source": {
            "type": "text", "media_type": "text/plain", "data": "Facts."}},
            {"type": "text", "text": "Sum up."}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "get_time", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
                                      "is_error": True, "content": "no clock"}]}])
    assert "Facts." in seen["messages"][0]["content"]
    assert seen["messages"][2]["content"] == "Error: no clock"


@case(("busy", anthropic.RateLimitError, 429), ("loading", anthropic.InternalServerError, 503),
      ("broken", anthropic.InternalServerError, 500), ("narrow", anthropic.BadRequestError, 400),
      ("unknown", anthropic.NotFoundError, 404))
def failures(client, how):
    model, error, status = how
    for ask in (whole, streamed):
        failure = expect(error, lambda: ask(client, model), status=status)
        assert failure.body["type"] == "error" and failure.body["request_id"]


@case(("image", [{"type": "image", "source": {"type": "url", "url": "https://example.org/a"}}]),
      ("document", [{"type": "document", "source": {"type": "url", "url": "https://x.org"}}]))
def what_is_no_text_is_refused_by_name(client, how):
    word, content = how
    expect(anthropic.BadRequestError,
           lambda: whole(client, "tiny", [{"role": "user", "content": content}]), word)


@case()
def a_prefilled_answer_is_refused(client):
    expect(anthropic.BadRequestError, lambda: whole(
        client, "tiny", [*USER, {"role": "assistant", "content": "It"}]), "messages[1]")


@case()
def server_tools_are_refused_by_name(client):
    expect(anthropic.BadRequestError, lambda: whole(
        client, "tiny", tools=[{"type": "web_search_20250305", "name": "web_search"}]),
        "web_search_20250305")


@case()
def tokens_are_counted(client):
    counted = client.messages.count_tokens(model="tiny", messages=[
        {"role": "user", "content": "12345"}], system="123")
    assert counted.input_tokens == 8


@case()
def a_count_may_end_with_an_answer(client):
    counted = client.messages.count_tokens(model="tiny", messages=[
        *USER, {"role": "assistant", "content": "It"}])
    assert counted.input_tokens > 0


if __name__ == "__main__":
    run(anthropic.Anthropic(base_url=base_url(), api_key="key", max_retries=0), "anthropic")
