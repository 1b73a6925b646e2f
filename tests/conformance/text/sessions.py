"""What real clients send, for the templates that real models ship: see `template_table`."""

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Say how the weather is: \"now\" & here, in <b>°C</b>.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Größe\tund\nOrt"},
            "days": {"type": "integer", "default": 3, "minimum": 0.5, "maximum": 18446744073709551615},
            "units": {"type": "string", "enum": ["°C", "°F"]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {
        "type": "object", "properties": {}}}}]
NULLABLE = [{"type": "function", "function": {
    "name": "search", "description": "Search the files.\nTwice.", "strict": True, "parameters": {
        "type": "object", "additionalProperties": False, "required": ["query"], "properties": {
            "query": {"type": ["string", "null"], "default": None, "description": "What for"},
            "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": 1e-7},
            "filters": {"type": "array", "items": {"type": "object", "properties": {
                "field": {"type": "string"}, "not": {"type": "boolean", "default": False}}}},
            "kind": {"oneOf": [{"const": "a"}, {"enum": [1, 2.5, None, True]}]},
            "nested": {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}},
        "$defs": {"x": {"type": "string", "format": "uri"}}}}}]


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def tool(text, name="get_weather", id="abcdefghi"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": text}


def agent(steps, system=True):
    """A session of an agent that calls a tool at every step."""
    messages = [{"role": "system", "content": "You are an agent."}] * system + [user("Go on.")]
    for i in range(steps):
        id = f"call{i:05d}"
        messages.append(assistant("", tool_calls=[call("get_weather", {"city": f"c{i}"}, id)]))
        messages.append(tool(f"{{\"t\": {i}.5}}", id=id))
    return messages + [assistant("All done."), user("Thanks")]


def sessions():
    """(name, messages, tools, variables)"""
    hello = [user("Hello")]
    yield "no tools", hello, None, {}
    yield "system", [{"role": "system", "content": "Be brief."}] + hello, None, {}
    yield "turns", [user("One "), assistant(" Two\n"), user("\nThree")], None, {}
    yield "tools", [user("How is the weather?")], TOOLS, {}
    yield "calls and results", [
        {"role": "system", "content": "Use tools."}, user("Weather?"),
        assistant("Let me see.", tool_calls=[call("get_weather", {"city": "Köln", "days": 2.0, "x": None})]),
        tool("{\"t\": 21.5, \"ok\": true}"), assistant("21.5 degrees."), user("Thanks")], TOOLS, {}
    yield "calls without text", [
        user("Weather?"), assistant("", tool_calls=[call("get_weather", {"city": "Paris"}),
                                                    call("now", {}, "jklmnopqr")]),
        tool("one"), tool("two", "now", "jklmnopqr")], TOOLS, {}
    yield "arguments as text", [
        user("Weather?"), assistant(None, tool_calls=[call("get_weather", "{\"city\": \"Paris\"}")]),
        tool("sunny"), user("And?")], TOOLS, {}
    yield "nullable types", [user("Find it")], NULLABLE, {}
    yield "reasoning", [
        user("Think"), assistant("Done", reasoning_content="First this.\nThen that."), user("More"),
        assistant("<think>\nhm\n</think>\n\nYes", tool_calls=[call("now", {})]), tool("12:00", "now")], TOOLS, {}
    yield "no thinking", hello, None, {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}
    yield "images left out", [{"role": "user", "content": [
        {"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": "this?"}]}], None, {}
    yield "text parts", [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
                         {"role": "user", "content": [{"type": "text", "text": "Hi"}]}], None, {}
    yield "two systems", [{"role": "system", "content": "A"}, {"role": "system", "content": "B"}, user("C"),
                          {"role": "developer", "content": "D"}, user("E")], None, {}
    yield "long history", [message for i in range(40) for message in (user(f"q{i}"), assistant(f"a{i}"))] + hello, None, {}
    yield "long agent", agent(60), TOOLS + NULLABLE, {}
