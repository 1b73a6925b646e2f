"""Uses a gateway as LangChain does, unchanged.

    check_langchain.py tools BASE_URL         the gateway that follows a script (with_script)
    check_langchain.py structure BASE_URL MODEL
"""

import sys
from typing import List, Literal

import langchain_openai
import pydantic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool


class Place(pydantic.BaseModel):
    """A place on a map."""
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = pydantic.Field(max_length=12)
    kind: Literal["city", "village"]
    tags: List[Literal["old", "new", "large"]] = pydantic.Field(max_length=2)
    people: int = pydantic.Field(ge=0, le=999)


@tool
def get_weather(city: str, days: int = 1) -> str:
    """Weather of a city."""
    return f"7 degrees in {city} for {days}"


@tool
def get_time() -> str:
    """The time."""
    return "noon"


@tool
def write_file(path: str, content: str) -> str:
    """Writes a file."""
    return f"{len(content)} characters in {path}"


def chat_of(base_url, model):
    return langchain_openai.ChatOpenAI(base_url=base_url, api_key="unused", model=model,
                                       max_retries=0, timeout=120, temperature=0, seed=1)


# The script's model calls one tool, then two, then one, and then speaks.
def check_tools(base_url):
    tools = {one.name: one for one in (get_weather, get_time, write_file)}
    bound = chat_of(base_url, "script-hermes").bind_tools(list(tools.values()))
    messages = [HumanMessage("How is the weather?")]
    called = []
    for _ in range(4):
        answer = bound.invoke(messages)
        messages.append(answer)
        assert not answer.invalid_tool_calls, answer
        for call in answer.tool_calls:
            called.append(call["name"])
            result = tools[call["name"]].invoke(call["args"])
            messages.append(ToolMessage(result, tool_call_id=call["id"]))
    assert called == ["get_weather", "get_weather", "get_time", "write_file"], called
    assert answer.content == "It is 7° in Oslo." and not answer.tool_calls, answer
    gathered = None
    for chunk in bound.stream(messages[:1]):
        gathered = chunk if gathered is None else gathered + chunk
    assert [call["args"] for call in gathered.tool_calls] == [{"city": "Oslo"}], gathered
    return "bind_tools over four turns"


def check_structure(base_url, model):
    chat = chat_of(base_url, model)
    for question in ("Name a place.", "Where is it?"):
        place = chat.with_structured_output(Place).invoke(question)
        assert isinstance(place, Place), place
    by_schema = chat.with_structured_output(Place.model_json_schema(), method="json_schema")
    assert isinstance(Place.model_validate(by_schema.invoke("Name a place.")), Place)
    return "with_structured_output"


def main(what, *arguments):
    checks = {"tools": check_tools, "structure": check_structure}
    print(f"langchain-openai: {checks[what](*arguments)}")


main(*sys.argv[1:])
