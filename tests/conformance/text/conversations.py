"""Conversations on which chat templates are compared."""

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Says how the weather is: \"now\" & here, in <b>°C</b>.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Größe\tund\nOrt"},
        "days": {"type": "integer", "default": 3, "minimum": 0.5},
        "units": {"type": "string", "enum": ["°C", "°F"]}}, "required": ["city"]}}}


def call(arguments, name="get_weather", id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations(strings):
    """(messages, tools, variables) by the dozen; some are refused by some templates."""
    yield [{"role": "user", "content": "Hello"}], None, {}
    yield [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}], None, {}
    yield [{"role": "user", "content": "One"}, {"role": "assistant", "content": " Two "},
           {"role": "user", "content": "Three\n"}], None, {}
    yield [{"role": "user", "content": "One"}, {"role": "user", "content": "Again"}], None, {}
    yield [{"role": "assistant", "content": "I begin"}], None, {}
    yield [{"role": "tool", "content": "{\"a\": 1}"}], None, {}
    yield [{"role": "weird", "content": "?"}], None, {}
    yield [{"role": "user", "content": None}], None, {}
    yield [{"role": "user"}], None, {}
    yield [{"role": "user", "content": [{"type": "text", "text": "part one"},
                                        {"type": "text", "text": " part two "}]}], None, {}
    yield [{"role": "user", "content": "Think"},
           {"role": "assistant", "content": "<think>\nhm\n</think>\n\nDone"},
           {"role": "user", "content": "More"}], None, {"enable_thinking": False}
    yield [{"role": "user", "content": "Think"},
           {"role": "assistant", "content": "Done", "reasoning_content": "\nhm\n"}], None, {}
    yield [{"role": "user", "content": "Think"},
           {"role": "assistant", "content": "Done", "reasoning": "old name"}], None, {}
    yield [{"role": "user", "content": "Weather?"}], [TOOL], {}
    yield [{"role": "user", "content": "Weather?"}], [], {}
    yield [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather?"},
           {"role": "assistant", "content": None, "tool_calls": [call({"city": "Köln", "days": 2.0})]},
           {"role": "tool", "content": "{\"t\": 21.5, \"ok\": true}", "tool_call_id": "abcdefghi"},
           {"role": "assistant", "content": "21.5 degrees."}, {"role": "user", "content": "Thanks"}], [TOOL], {}
    yield [{"role": "user", "content": "Weather?"},
           {"role": "assistant", "content": "Let me see",
            "tool_calls": [call("{\"city\": \"Paris\"}"), call({}, id="short")]},
           {"role": "tool", "content": "one"}, {"role": "tool", "content": "two"}], [TOOL, TOOL], {}
    yield [{"role": "user", "content": "Date?"}], None, {"date_string": "1 Jan 2030"}
    yield [{"role": "user", "content": "Tokens?"}], None, {"bos_token": "<mine>"}
    for text in strings:
        yield [{"role": "user", "content": text}], None, {}
        yield [{"role": "system", "content": text}, {"role": "user", "content": "q" + text},
               {"role": "assistant", "content": text + "a"}, {"role": "user", "content": text}], None, {}
