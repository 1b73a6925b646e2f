"""Requests as Cline (its providers openai.ts and ollama.ts) and Open WebUI (its routers openai.py and ollama.py) send them,
whole: a field that the gateway does not take would be a 400 on every turn. The model `mirror` answers with what reached it."""

import json

from cases import WEATHER, answered, base_url, case, mirrored, run

SYSTEM = "You are Cline, a highly skilled software engineer.\n\n====\n\nTOOL USE"
PICTURE = "data:image/png;base64,iVBORw0KGgo="
TOOLS = [{"type": "function", "function": {"name": "read_file", "description": "Reads", "strict": False,
                                           "parameters": {**WEATHER, "additionalProperties": False}}}]


def chat(url, body):
    """What the model saw of a request to /v1/chat/completions."""
    text = answered(url, "/v1/chat/completions", {"model": "mirror", **body})
    if not body.get("stream"):
        return mirrored(json.loads(text)["choices"][0]["message"]["content"])
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return mirrored("".join(choice["delta"].get("content") or "" for piece in pieces for choice in piece["choices"]))


def ollama(url, body):
    lines = answered(url, "/api/chat", {"model": "mirror", **body}).splitlines()
    return mirrored("".join(json.loads(line)["message"]["content"] for line in lines))


def roles(seen):
    return [message["role"] for message in seen["messages"]]


@case()
def clines_first_turn(url):
    parts = [{"type": "text", "text": "<task>\nFix it\n</task>"},
             {"type": "text", "text": "<environment_details>\n# Files\n</environment_details>"}]
    seen = chat(url, {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": parts}],
                      "temperature": 0, "stream": True, "stream_options": {"include_usage": True}})
    assert roles(seen) == ["system", "user"]
    assert all(part["text"] in seen["messages"][1]["content"] for part in parts)


@case()
def clines_later_turns_with_tools(url):
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"city":"a.c"}'}}
    messages = [{"role": "system", "content": SYSTEM},
                {"role": "user", "content": [{"type": "text", "text": "Fix it"}]},
                {"role": "assistant", "content": "I read it.", "tool_calls": [call], "reasoning_details": []},
                {"role": "tool", "tool_call_id": "call_1", "content": "int main;"},
                {"role": "user", "content": [{"type": "text", "text": "[read_file] Result:"},
                                             {"type": "text", "text": "(see above)"}]},
                {"role": "assistant", "tool_calls": [{**call, "id": "call_2"}]},
                {"role": "tool", "tool_call_id": "call_2", "content": "(tool failed)"}]
    seen = chat(url, {"messages": messages, "temperature": 0, "max_tokens": 8192, "stream": True, "tools": TOOLS,
                      "tool_choice": "auto", "parallel_tool_calls": False, "stream_options": {"include_usage": True}})
    assert roles(seen) == ["system", "user", "assistant", "tool", "user", "assistant", "tool"]


@case()
def a_picture_in_clines_history_does_not_end_the_tanswered(url):
    seen = chat(url, {"messages": [{"role": "system", "content": SYSTEM},
                                   {"role": "user", "content": [{"type": "text", "text": "The page:"},
                                                                {"type": "image_url", "image_url": {"url": PICTURE}}]},
                                   {"role": "assistant", "content": "It is blue."},
                                   {"role": "user", "content": [{"type": "text", "text": "Make it red."}]}],
                      "temperature": 0, "stream": True, "stream_options": {"include_usage": True}})
    assert "The page:" in seen["messages"][1]["content"] and PICTURE not in json.dumps(seen)


@case()
def cline_over_ollama(url):
    seen = ollama(url, {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Fix it"},
                                     {"role": "assistant", "content": "<read_file>"}, {"role": "user", "content": "ok"}],
                        "stream": True, "options": {"num_ctx": 32768}})
    assert roles(seen) == ["system", "user", "assistant", "user"]


@case(True, False)
def open_webui_chats(url, stream):
    seen = chat(url, {"stream": stream, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.8, "top_p": 0.9,
                      "frequency_penalty": 0, "presence_penalty": 0, "seed": 0, "max_tokens": 512,
                      "logit_bias": {}, **({"stream_options": {"include_usage": True}} if stream else {})})
    assert seen["messages"][0]["content"] == "Hi" and seen["sampling"]["temperature"] == 0.8


@case()
def open_webui_calls_tools(url):
    """Calls are told back with the index that their pieces had, the answer's own pieces of text between them."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is the weather?"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"index": 0, "id": "call_1", "type": "function",
                     "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "7"}]
    seen = chat(url, {"stream": True, "messages": messages,
                      "tools": [{"type": "function", "function": {"name": "get_weather", "description": "Weather",
                                                                  "parameters": {"type": "object", "properties": {
                                                                      "city": {"type": "str", "description": ""}},
                                                                      "required": ["city"]}}}]})
    assert roles(seen) == ["system", "user", "assistant", "tool"]


@case({"max_tokens": 1000}, {"max_completion_tokens": 1000})
def open_webui_asks_for_a_title(url, limit):
    prompt = "### Task:\nGenerate a concise, 3-5 word title\n### Output:\nJSON format: { \"title\": \"…\" }"
    seen = chat(url, {"stream": False, "messages": [{"role": "user", "content": prompt}], **limit})
    assert seen["messages"][0]["content"] == prompt and seen["maxTokens"] == 1000


@case()
def open_webui_over_ollama(url):
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "", "parameters": WEATHER}}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is the weather?"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"index": 0, "name": "get_weather", "arguments": {"city": "Oslo"}}}]},
                {"role": "tool", "tool_call_id": "call_0", "content": "7"}]
    seen = ollama(url, {"stream": True, "messages": messages, "tools": tools, "keep_alive": "5m", "think": False,
                        "options": {"temperature": 0.8, "num_ctx": 8192, "num_predict": 128, "top_k": 40,
                                    "repeat_penalty": 1.1, "num_gpu": 99, "num_thread": 4,
                                    "use_mmap": True, "mirostat": 0}})
    assert roles(seen) == ["system", "user", "assistant", "tool"]


@case()
def open_webui_embeds(url):
    answer = json.loads(answered(url, "/api/embed", {"model": "embedder", "input": ["a", "b"], "truncate": True}))
    assert len(answer["embeddings"]) == 2
    answer = json.loads(answered(url, "/v1/embeddings", {"model": "embedder", "input": ["a", "b"]}))
    assert [item["index"] for item in answer["data"]] == [0, 1]


run(base_url(), "bodies of Cline and Open WebUI")
