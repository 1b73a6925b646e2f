"""OpenAI's own package: responses whole and streamed, tools over four turns, stored turns, errors."""

import json

import openai

from cases import FAMILIES, FILE, NOTHING, TURNS, WEATHER, base_url, case, expect, mirrored, run

TOOLS = [{"type": "function", "name": name, "parameters": schema, "strict": False}
         for name, schema in (("get_weather", WEATHER), ("write_file", FILE),
                              ("get_time", NOTHING))]


def whole(client, model, **more):
    return client.responses.create(model=model, **{"input": "How is the weather?", **more})


def streamed(client, model, **more):
    with client.responses.stream(model=model, **{"input": "How is the weather?", **more}) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def mirror(client, **more):
    return mirrored(whole(client, "mirror", **more).output_text)


def calls_of(response):
    return [item for item in response.output if item.type == "function_call"]


def outputs(calls):
    return [{"type": "function_call_output", "call_id": call.call_id, "output": "7 degrees"}
            for call in calls] or [{"role": "user", "content": "Thanks."}]


def check_turn(turn, response):
    calls = calls_of(response)
    assert [(call.name, json.loads(call.arguments)) for call in calls] == TURNS[turn], response
    assert response.status == "completed"
    return calls


@case(*[(family, ask) for family in FAMILIES for ask in (whole, streamed)])
def an_agent_that_sends_all_items(client, how):
    family, ask = how
    items = [{"role": "user", "content": "How is the weather?"}]
    for turn in range(4):
        response = ask(client, f"script-{family}", input=items, tools=TOOLS, store=False)
        calls = check_turn(turn, response)
        if turn == 0 and family != "llama3":
            assert [item.type for item in response.output] == \
                ["reasoning", "message", "function_call"]
            assert response.output[0].content[0].text == "The user asks for Oslo."
            assert response.output_text == "I look."
        items += [item.to_dict() for item in response.output] + outputs(calls)
    assert response.output_text == "It is 7° in Oslo."


@case(whole, streamed)
def an_agent_that_names_the_turn_before(client, ask):
    response = ask(client, "script-hermes", tools=TOOLS)
    for turn in range(1, 4):
        response = ask(client, "script-hermes", input=outputs(check_turn(turn - 1, response)),
                       previous_response_id=response.id, tools=TOOLS)
    assert response.output_text == "It is 7° in Oslo."


@case("script-hermes", "script-harmony", "tiny", "threaded")
def a_stream_says_what_the_whole_answer_says(client, model):
    def plain(response):
        return [item.model_dump(exclude={"id", "call_id"}) for item in response.output]
    options = {"tools": TOOLS} if model.startswith("script") else {}
    assert plain(whole(client, model, **options)) == \
        [{key: value for key, value in item.items() if not key.startswith("parsed")}
         if item["type"] == "function_call" else
         {**item, **({"content": [{k: v for k, v in part.items() if k != "parsed"}
                                  for part in item["content"]]} if item.get("content") else {})}
         for item in plain(streamed(client, model, **options))]


@case()
def sequence_numbers_count_up(client):
    events = list(client.responses.create(model="tiny", input="Hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == events[-1].response.output_text


@case(whole, streamed)
def max_output_tokens_leaves_it_incomplete(client, ask):
    if ask is streamed:
        events = list(client.responses.create(model="tiny", input="Hi", max_output_tokens=2,
                                              stream=True))
        assert events[-1].type == "response.incomplete"
        response = events[-1].response
    else:
        response = ask(client, "tiny", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text == "RDMA lets"


@case()
def instructions_sampling_and_limits_reach_the_model(client):
    seen = mirror(client, instructions="Brief.", temperature=0.5, top_p=0.25,
                  max_output_tokens=9, user="u")
    assert [m["role"] for m in seen["messages"]] == ["system", "user"]
    assert seen["sampling"] == {"temperature": 0.5, "topP": 0.25} and seen["maxTokens"] == 9


@case()
def usage_is_told(client):
    usage = whole(client, "mirror").usage
    assert (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens,
            usage.total_tokens) == (11, 4, 5, 16)


@case(("auto", "TOOL_CHOICE_KIND_AUTO"), ("required", "TOOL_CHOICE_KIND_REQUIRED"),
      ({"type": "function", "name": "get_time"}, "TOOL_CHOICE_KIND_NAMED"), ("none", None))
def tool_choices(client, how):
    choice, expected = how
    seen = mirror(client, tools=TOOLS, tool_choice=choice)
    assert seen.get("tools", {}).get("choice") == expected


@case()
def allowed_tools_are_all_that_is_seen(client):
    seen = mirror(client, tools=TOOLS, tool_choice={
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function",
                                                            "name": "get_time"}]})
    assert "get_weather" not in seen["tools"]["toolsJson"]


@case(({"type": "json_schema", "name": "w", "schema": WEATHER, "strict": True}, "jsonSchema"),
      ({"type": "json_object"}, "jsonObject"))
def formats(client, how):
    form, expected = how
    assert expected in mirror(client, text={"format": form})["structure"]


@case()
def effort_reaches_the_template(client):
    assert "low" in mirror(client, reasoning={"effort": "low"})["templateArgumentsJson"]


@case()
def instructions_are_not_carried_over(client):
    first = whole(client, "tiny", instructions="Brief.")
    seen = mirror(client, previous_response_id=first.id, input="More")
    assert [m["role"] for m in seen["messages"]] == ["user", "assistant", "user"]


@case()
def a_stored_response_can_be_read_and_deleted(client):
    made = whole(client, "tiny", metadata={"a": "b"})
    assert client.responses.retrieve(made.id).to_dict() == made.to_dict()
    client.responses.delete(made.id)
    expect(openai.NotFoundError, lambda: client.responses.retrieve(made.id), made.id)
    # Clients that go on from an answer know by 400 and this code to send the whole conversation.
    gone = expect(openai.BadRequestError, lambda: whole(client, "tiny", previous_response_id=made.id), "input")
    assert gone.code == "previous_response_not_found", gone.code


@case()
def others_do_not_find_it(client):
    made = whole(client, "tiny")
    other = client.with_options(api_key="another")
    expect(openai.NotFoundError, lambda: other.responses.retrieve(made.id))


@case()
def store_false_stores_nothing(client):
    made = whole(client, "tiny", store=False)
    expect(openai.NotFoundError, lambda: client.responses.retrieve(made.id))


@case(("busy", openai.RateLimitError, 429), ("loading", openai.InternalServerError, 503),
      ("broken", openai.InternalServerError, 500), ("narrow", openai.BadRequestError, 400),
      ("unknown", openai.NotFoundError, 404))
def failures(client, how):
    model, error, status = how
    for ask in (whole, streamed):
        expect(error, lambda: ask(client, model), status=status)


@case(("background", {"background": True}), ("web_search", {"tools": [{"type": "web_search"}]}),
      ("truncation", {"truncation": "auto"}), ("conversation", {"conversation": "conv_1"}),
      ("input_image", {"input": [{"role": "user", "content": [
          {"type": "input_image", "image_url": "https://example.org/a", "detail": "auto"}]}]}))
def what_cannot_be_is_refused_by_name(client, how):
    word, more = how
    expect(openai.BadRequestError, lambda: whole(client, "tiny", **more), word)


if __name__ == "__main__":
    run(openai.OpenAI(base_url=base_url() + "/v1", api_key="key", max_retries=0), "responses")
