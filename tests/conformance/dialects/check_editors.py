"""What the Ollama providers of two editors read, field by field and as strictly: Zed's (its crate `ollama`, since its
pull request 42275; Rust types refuse a missing field or another kind) and VS Code Copilot's (`ollamaProvider.ts`). Both are
editors with a window of their own, so that their readers are written anew here, from what their sources want."""

import json

from cases import FAMILIES, TURNS, answered, base_url, case, run

TEXT, NUMBER = str, int
DETAILS = {"format": TEXT, "family": TEXT, "parameter_size": TEXT, "quantization_level": TEXT}
LISTED = {"name": TEXT, "modified_at": TEXT, "size": NUMBER, "digest": TEXT, "details": DETAILS}
PIECE = {"model": TEXT, "created_at": TEXT, "done": bool, "message": {"role": TEXT, "content": TEXT}}
CALL = {"function": {"name": TEXT, "arguments": dict}}
COPILOT_NEEDS = (0, 6, 4)


def has(value, shape, where="answer"):
    """`value` has every field of `shape`, each of its kind."""
    for name, kind in shape.items():
        assert name in value, f"{where} has no {name}: {value}"
        if isinstance(kind, dict):
            has(value[name], kind, f"{where}.{name}")
        else:
            assert type(value[name]) is kind, (where, name, value[name])


def pieces(url, body):
    return [json.loads(line) for line in answered(url, "/api/chat", {"stream": True, **body}).splitlines()]


def tools():
    return [{"type": "function", "function": {"name": name, "description": None, "parameters": {"type": "object"}}}
            for name in ("get_weather", "write_file", "get_time")]


@case()
def zed_lists_models(url):
    listed = json.loads(answered(url, "/api/tags"))["models"]
    assert listed
    for model in listed:
        has(model, LISTED)
        assert model["size"] >= 0
        shown = json.loads(answered(url, "/api/show", {"model": model["name"]}))
        assert all(isinstance(ability, str) for ability in shown["capabilities"])


@case(*FAMILIES)
def zed_talks_over_four_turns(url, family):
    """As Zed's agent does: its options, its keep_alive, results by the tool's name, calls told back as they came."""
    messages = [{"role": "system", "content": "You edit."}, {"role": "user", "content": "How is the weather?"}]
    for expected in TURNS:
        body = {"model": f"script-{family}", "messages": messages, "keep_alive": -1, "think": None, "tools": tools(),
                "options": {"num_ctx": 4096, "num_predict": None, "stop": [], "temperature": 1.0, "top_p": None}}
        text, thinking, calls = "", "", []
        for piece in pieces(url, body):
            has(piece, PIECE)
            message = piece["message"]
            assert message["role"] == "assistant"
            text += message["content"]
            thinking += message.get("thinking") or ""
            for call in message.get("tool_calls") or []:
                has(call, CALL)
                assert isinstance(call.get("id", ""), str)
                calls.append(call)
        assert piece["done"] and type(piece["prompt_eval_count"]) is int and type(piece["eval_count"]) is int
        assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == expected
        told = [{"id": call["id"], "function": {"name": call["function"]["name"],
                                                "arguments": call["function"]["arguments"]}} for call in calls]
        messages.append({"role": "assistant", "content": text, "tool_calls": told or None, "thinking": thinking or None})
        messages += [{"role": "tool", "tool_name": call["function"]["name"], "content": "7"} for call in calls]
    assert text == "It is 7° in Oslo."


@case()
def copilot_finds_models(url):
    version = json.loads(answered(url, "/api/version"))["version"]
    assert tuple(int(part) for part in version.split(".")) >= COPILOT_NEEDS, version
    for model in json.loads(answered(url, "/api/tags"))["models"]:
        shown = json.loads(answered(url, "/api/show", {"model": model["model"]}))
        has(shown, {"template": TEXT, "details": {"family": TEXT}, "capabilities": list})
        facts = shown["model_info"]
        has(facts, {"general.basename": TEXT, "general.architecture": TEXT})
        context = facts[facts["general.architecture"] + ".context_length"]
        assert type(context) is int and context > 0


@case(*FAMILIES)
def copilot_talks_by_the_openai_path(url, family):
    body = {"model": f"script-{family}", "stream": True, "stream_options": {"include_usage": True}, "n": 1, "top_p": 1,
            "temperature": 0.1, "max_tokens": 4096, "tools": tools(), "tool_choice": "auto",
            "messages": [{"role": "system", "content": "You edit."},
                         {"role": "user", "content": [{"type": "text", "text": "How is the weather?"}]}]}
    name, arguments, ends, usage = "", "", [], None
    lines = [line for line in answered(url, "/v1/chat/completions", body).splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        piece = json.loads(line.removeprefix("data: "))
        usage = piece.get("usage") or usage
        for choice in piece["choices"]:
            assert type(choice["index"]) is int
            ends += [choice["finish_reason"]] if choice.get("finish_reason") else []
            for call in choice["delta"].get("tool_calls") or []:
                assert type(call["index"]) is int
                name += call["function"].get("name") or ""
                arguments += call["function"].get("arguments") or ""
    assert (name, json.loads(arguments)) == TURNS[0][0] and ends == ["tool_calls"]
    has(usage, {"prompt_tokens": NUMBER, "completion_tokens": NUMBER, "total_tokens": NUMBER})


run(base_url(), "what Zed and VS Code read")
