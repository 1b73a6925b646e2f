"""Plays an agent of four turns through OpenAI's own package, for each family of models.

The gateway is tests/unit/agentd/gateway/gateway_with_script: its models write calls as their family
does, and the readers that a rank uses tell them apart.
"""

import json
import sys

import openai

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city",
        "parameters": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}}}}},
    {"type": "function", "function": {
        "name": "write_file", "parameters": {"type": "object", "properties": {
            "path": {"type": "string"}, "content": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "get_time"}},
]
FILE = {"path": "report.md", "content": "# Tromsø\n\nsays \"<b>7°</b>\" & more\n"}
EXPECTED = [
    [("get_weather", {"city": "Oslo"})],
    [("get_weather", {"city": "Rome", "days": 2}), ("get_time", {})],
    [("write_file", FILE)],
    [],
]
FAMILIES = ["hermes", "qwen3_coder", "glm", "minimax", "kimi", "deepseek_v31", "mistral", "gemma4",
            "harmony", "pythonic", "llama3"]
MARKUP = ["<", "[TOOL", "[THINK", "functions", "arg_key", "｜"]


def whole(client, model, messages, **options):
    choice = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, **options).choices[0]
    message = choice.message
    calls = [{"id": call.id, "type": call.type,
              "function": {"name": call.function.name, "arguments": call.function.arguments}}
             for call in message.tool_calls or []]
    if calls and not message.content:
        assert message.content is None, message
    reasoning = (message.model_extra or {}).get("reasoning_content")
    return message.content or "", reasoning or "", calls, choice.finish_reason


def streamed(client, model, messages, **options):
    text, reasoning, calls, finish, pieces = "", "", [], None, 0
    with client.chat.completions.create(model=model, messages=messages, tools=TOOLS, stream=True,
                                        **options) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasoning += (choice.delta.model_extra or {}).get("reasoning_content") or ""
                for delta in choice.delta.tool_calls or []:
                    if delta.id is not None:  # with the first piece of a call, and no other
                        assert delta.index == len(calls), "calls come one behind the other"
                        assert delta.type == "function" and delta.function.name
                        calls.append({"id": delta.id, "type": "function", "function": {
                            "name": delta.function.name, "arguments": ""}})
                    else:
                        assert delta.function.name is None and delta.type is None
                        pieces += 1
                    calls[delta.index]["function"]["arguments"] += delta.function.arguments or ""
                finish = choice.finish_reason or finish
    return text, reasoning, calls, finish, pieces


def check_turn(turn, family, answer):
    text, reasoning, calls, finish = answer
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in calls] == EXPECTED[turn], (family, turn, calls)
    assert finish == ("tool_calls" if calls else "stop"), (family, turn, finish)
    for markup in MARKUP:
        assert markup not in text + reasoning, (family, turn, text, reasoning)
    speaks = family not in ("pythonic", "llama3")  # these call or speak
    if turn == 0 and speaks:
        assert (text, reasoning) == ("I look.", "The user asks for Oslo."), (family, answer)
    if turn == 3:
        assert text == "It is 7° in Oslo.", (family, text)


def check_family(client, family):
    model = f"script-{family}"
    messages = [{"role": "user", "content": "How is the weather?"}]
    ids = set()
    for turn in range(4):
        answer = whole(client, model, messages)
        check_turn(turn, family, answer)
        *again, pieces = streamed(client, model, messages)
        check_turn(turn, family, tuple(again))
        assert answer[:2] == tuple(again)[:2], (family, answer, again)
        if turn == 2:
            assert pieces > 3, f"{family}: the arguments came in {pieces} pieces"
        text, reasoning, calls, _ = answer
        if not calls:
            break
        for call in calls:
            assert call["id"] not in ids, "an id comes twice"
            ids.add(call["id"])
        messages.append({"role": "assistant", "content": text or None, "tool_calls": calls,
                         "reasoning_content": reasoning})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "7 degrees"}
                     for call in calls]
    assert turn == 3


def check_choices(client):
    model = "script-hermes"
    second = [{"role": "user", "content": "x"},
              {"role": "assistant", "content": None, "tool_calls": [
                  {"id": "call_a", "type": "function",
                   "function": {"name": "get_time", "arguments": "{}"}}]},
              {"role": "tool", "tool_call_id": "call_a", "content": "noon"}]
    assert len(whole(client, model, second)[2]) == 2
    assert len(whole(client, model, second, parallel_tool_calls=False)[2]) == 1
    first = second[:1]
    text, reasoning, calls, _ = whole(client, model, first, tool_choice="none")
    assert not calls and reasoning, "with none, no call is looked for"
    shown = whole(client, model, first, extra_body={"include_reasoning": False})
    assert shown[1] == "" and shown[2]
    for bad in ({"tool_choice": "sometimes"}, {"tool_choice": {
            "type": "function", "function": {"name": "other"}}}):
        try:
            whole(client, model, first, **bad)
        except openai.BadRequestError as error:
            assert error.param == "tool_choice", error
        else:
            raise AssertionError(f"{bad} was taken")


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="unused", max_retries=0, timeout=60)
    for family in FAMILIES:
        check_family(client, family)
    check_choices(client)
    print(f"openai {openai.__version__}: four turns with tools as {len(FAMILIES)} families write "
          "them, whole and streamed")


main()
