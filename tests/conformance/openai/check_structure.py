"""Answers that are held to a structure, through OpenAI's own package: what comes is what was asked
for, whatever the model would have said, alone and among others.
"""

import concurrent.futures
import enum
import json
import random
import re
import sys
from typing import List, Literal, Optional, Union

import openai
import pydantic

QUESTION = [{"role": "user", "content": "Tell me of a city. Answer in JSON."}]
SCHEMAS = 200
AT_ONCE = 8


class Kind(enum.Enum):
    VILLAGE = "village"
    TOWN = "town"


class Mayor(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    age: int = pydantic.Field(ge=18, le=99)


class City(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    kind: Kind
    mayors: List[Mayor] = pydantic.Field(max_length=2)
    twin: Optional[Literal["Paris", "Rome"]]
    size: Union[int, None] = pydantic.Field(ge=0, le=9999)


def random_schema(dice, depth):
    """A schema, and a function that says whether a value is what it says."""
    kind = dice.randrange(8 if depth > 0 else 5)
    if kind == 0:
        most = dice.randrange(1, 12)
        return {"type": "string", "maxLength": most}, lambda v: isinstance(v, str) and len(v) <= most
    if kind == 1:
        least = dice.randrange(-500, 500)
        return ({"type": "integer", "minimum": least, "maximum": least + 100},
                lambda v: type(v) is int and least <= v <= least + 100)
    if kind == 2:
        values = dice.sample([1, "zwei", None, True, "\"", "ä", 2.5], dice.randrange(1, 5))
        return {"enum": values}, lambda v: any(type(v) is type(x) and v == x for x in values)
    if kind == 3:
        return {"type": "boolean"}, lambda v: isinstance(v, bool)
    if kind == 4:
        return ({"type": "string", "pattern": "^[a-c]{2,3}-[0-9]$"},
                lambda v: isinstance(v, str) and re.fullmatch("[a-c]{2,3}-[0-9]", v))
    if kind == 5:
        item, holds = random_schema(dice, depth - 1)
        least = dice.randrange(3)
        return ({"type": "array", "items": item, "minItems": least, "maxItems": least + 2},
                lambda v: isinstance(v, list) and least <= len(v) <= least + 2 and
                all(holds(x) for x in v))
    if kind == 6:
        parts = [random_schema(dice, depth - 1) for _ in range(2)]
        return {"anyOf": [p[0] for p in parts]}, lambda v: any(p[1](v) for p in parts)
    names = dice.sample(["a", "b c", "name", "ü", "list"], dice.randrange(1, 4))
    parts = {name: random_schema(dice, depth - 1) for name in names}
    required = [name for name in names if dice.random() < 0.7]
    return ({"type": "object", "properties": {n: p[0] for n, p in parts.items()},
             "required": required, "additionalProperties": False},
            lambda v: isinstance(v, dict) and set(required) <= set(v) <= set(names) and
            all(parts[n][1](x) for n, x in v.items()))


class Model:
    def __init__(self, client, name):
        self.client = client
        self.name = name

    def ask(self, **fields):
        fields = {"temperature": 1, "seed": 1, "max_tokens": 400, **fields}
        return self.client.chat.completions.create(model=self.name, messages=QUESTION, **fields)

    def with_schema(self, schema, **fields):
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
        return self.ask(response_format=form, **fields).choices[0]

    def text(self, **extra):
        choice = self.ask(extra_body=extra).choices[0]
        assert choice.finish_reason == "stop", choice
        return choice.message.content


def check_parse(model):
    for seed in range(5):
        answer = model.client.chat.completions.parse(
            model=model.name, messages=QUESTION, response_format=City, seed=seed, temperature=1,
            max_tokens=800)
        city = answer.choices[0].message.parsed
        assert isinstance(city, City) and len(city.name) <= 20, answer
        assert list(json.loads(answer.choices[0].message.content)) == list(City.model_fields)


def check_schemas(model):
    def check(seed):
        dice = random.Random(seed)
        schema, holds = random_schema(dice, 3)
        choice = model.with_schema(schema, seed=seed)
        if choice.finish_reason == "length":
            return 0
        value = json.loads(choice.message.content)
        assert holds(value), f"{schema} gave {choice.message.content}"
        return 1
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        ended = sum(pool.map(check, range(SCHEMAS)))
    assert ended >= SCHEMAS * 0.9, f"{ended} of {SCHEMAS} answers ended by themselves"
    return ended


def check_alone_and_among_others(model):
    schema = {"type": "array", "items": {"type": "string", "maxLength": 30}, "minItems": 2,
              "maxItems": 4}
    alone = [model.with_schema(schema, seed=seed).message.content for seed in range(AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        among = list(pool.map(lambda seed: model.with_schema(schema, seed=seed).message.content,
                              range(AT_ONCE)))
    assert alone == among
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    streamed = "".join(chunk.choices[0].delta.content or ""
                       for chunk in model.ask(response_format=form, seed=3, stream=True))
    assert streamed == alone[3]


def check_other_forms(model):
    assert model.text(guided_choice=["red", "blue"]) in ("red", "blue")
    assert re.fullmatch("[a-f]{4}", model.text(guided_regex="[a-f]{4}"))
    assert re.fullmatch(r"[1-9](\+[1-9]){2}",
                        model.text(guided_grammar='start: N ("+" N){2}\nN: /[1-9]/'))
    assert json.loads(model.text(structured_outputs={"json": {"enum": [7]}})) == 7
    choice = model.ask(response_format={"type": "json_object"}, max_tokens=60).choices[0]
    assert choice.message.content.startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    choice = model.with_schema({"type": "string", "minLength": 200}, max_tokens=5)
    assert choice.finish_reason == "length"
    text = model.client.completions.create(model=model.name, prompt="A colour:", max_tokens=20,
                                           extra_body={"guided_choice": ["red", "blue"]})
    assert text.choices[0].text in ("red", "blue") and text.choices[0].finish_reason == "stop"


def refused(ask):
    try:
        ask()
    except openai.BadRequestError as error:
        return error
    raise AssertionError("it was taken")


def check_refusals(model):
    error = refused(lambda: model.with_schema({"not": {"type": "string"}}))
    assert "JSON schema" in str(error) and "not" in str(error), error
    assert error.param == "response_format", error.param
    error = refused(lambda: model.with_schema({"type": "strnig"}))
    assert "strnig" in str(error), error
    error = refused(lambda: model.text(guided_regex="("))
    assert "regular expression" in str(error), error
    error = refused(lambda: model.text(guided_choice=[]))
    assert error.param == "guided_choice", error


def main(base_url, name):
    model = Model(openai.OpenAI(base_url=base_url, api_key="none", max_retries=0), name)
    check_parse(model)
    ended = check_schemas(model)
    check_alone_and_among_others(model)
    check_other_forms(model)
    check_refusals(model)
    print(f"structure: {ended} of {SCHEMAS} random schemas' answers ended, and all are valid")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
