"""What a request may say of how tokens are chosen, through OpenAI's own package: each field
changes what it should. Token ids come from the model's tokenizer.json, as users take them.
"""

import collections
import json
import math
import sys

import openai

QUESTION = [{"role": "user", "content": "Explain RDMA in simple terms"}]


class Model:
    def __init__(self, client, name, tokenizer_file):
        self.client = client
        self.name = name
        with open(tokenizer_file, encoding="utf-8") as file:
            tokenizer = json.load(file)
        self.ids = dict(tokenizer["model"]["vocab"])
        self.size = len(self.ids) + len(tokenizer["added_tokens"])

    def ask(self, **fields):
        fields = {"temperature": 0, "max_tokens": 40, **fields}
        return self.client.chat.completions.create(model=self.name, messages=QUESTION, **fields)

    def text(self, **fields):
        return self.ask(**fields).choices[0].message.content

    def entries(self, **fields):
        return self.ask(logprobs=True, **fields).choices[0].logprobs.content

    def id_of(self, entry):
        """The id of a token that is whole characters, in a byte-level vocabulary."""
        return self.ids[entry.token.replace(" ", "\u0120").replace("\n", "\u010a")]


def check_logprobs(model):
    choice = model.ask(logprobs=True, top_logprobs=20).choices[0]
    entries = choice.logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == choice.message.content
    for entry in entries:
        tops = [top.logprob for top in entry.top_logprobs]
        assert len(tops) == 20 and tops == sorted(tops, reverse=True), tops
        assert entry.logprob == tops[0], "greedy takes the likeliest"
        assert entry.token == entry.top_logprobs[0].token
        total = sum(math.exp(logprob) for logprob in tops)
        assert math.exp(tops[0]) < total < 1 + 1e-5, total
    # The whole vocabulary sums up to one: the sum over twenty is what is left of it at most.
    assert any(sum(math.exp(top.logprob) for top in entry.top_logprobs) > 0.5 for entry in entries)
    assert all(entry.top_logprobs == [] for entry in model.entries())
    assert model.ask().choices[0].logprobs is None
    streamed = []
    for chunk in model.ask(logprobs=True, top_logprobs=20, stream=True):
        for choice in chunk.choices:
            streamed += choice.logprobs.content if choice.logprobs else []
    assert streamed == entries, "a stream tells the same"
    # The model's own numbers, whatever is asked of the choice.
    hot = model.entries(temperature=2, seed=1, max_tokens=1, top_logprobs=3)[0]
    assert hot.top_logprobs == entries[0].top_logprobs[:3]


def check_biases(model):
    entries = model.entries()
    first = model.id_of(entries[0])
    banned = model.entries(logit_bias={str(first): -100})
    assert banned[0].token != entries[0].token
    assert all(entry.token != entries[0].token for entry in banned)
    forced = model.entries(logit_bias={str(first): 100}, max_tokens=5)
    assert [entry.token for entry in forced] == [entries[0].token] * 5


# The bundled model is sure of its answer, so what may change is what comes behind it, at a
# temperature.
def distinct(model, seed, body=None, **fields):
    body = {"ignore_eos": True, **(body or {})}
    entries = model.entries(max_tokens=150, temperature=1.5, seed=seed, extra_body=body, **fields)
    return len({entry.token for entry in entries})


def check_penalties(model):
    for seed in range(3):
        plain = distinct(model, seed)
        for fields in ({"frequency_penalty": 2}, {"presence_penalty": 2},
                       {"body": {"repetition_penalty": 3}}):
            assert distinct(model, seed, **fields) > plain, fields
        for fields in ({"frequency_penalty": -2}, {"presence_penalty": -2},
                       {"body": {"repetition_penalty": 0.5}}):
            assert distinct(model, seed, **fields) < plain, fields


def check_ends(model):
    whole = model.ask(max_tokens=400)
    assert whole.choices[0].finish_reason == "stop", "the check needs an answer that ends"
    length = whole.usage.completion_tokens
    on = model.ask(max_tokens=length + 6, extra_body={"ignore_eos": True})
    assert on.choices[0].finish_reason == "length"
    assert on.usage.completion_tokens == length + 6
    assert on.choices[0].message.content.startswith(whole.choices[0].message.content)
    longer = model.ask(max_tokens=length + 6, extra_body={"min_tokens": length + 3})
    assert longer.usage.completion_tokens >= length + 3
    entries = model.entries()
    at = next(i for i, e in enumerate(entries)
              if i > 2 and e.token not in [x.token for x in entries[:i]])
    stop = [model.id_of(entries[at])]
    cut = model.ask(extra_body={"stop_token_ids": stop})
    assert cut.choices[0].finish_reason == "stop"
    assert cut.choices[0].message.content == "".join(e.token for e in entries[:at])
    later = model.ask(extra_body={"stop_token_ids": stop, "min_tokens": at + 3})
    assert later.usage.completion_tokens >= at + 3
    # A stop string leaks neither through the text nor through its tokens.
    word = entries[at].token
    stopped = model.ask(stop=[word], logprobs=True).choices[0]
    assert word not in stopped.message.content
    assert all(word not in entry.token for entry in stopped.logprobs.content)


def check_choices(model):
    fields = {"temperature": 2, "seed": 11, "max_tokens": 40}
    one = model.ask(**fields)
    three = model.ask(n=3, **fields)
    texts = [choice.message.content for choice in three.choices]
    assert [choice.index for choice in three.choices] == [0, 1, 2]
    assert texts[0] == one.choices[0].message.content, "the first has the seed as it is"
    assert len(set(texts)) == 3, texts
    assert [c.message.content for c in model.ask(n=3, **fields).choices] == texts
    assert three.usage.prompt_tokens == one.usage.prompt_tokens
    assert three.usage.completion_tokens > one.usage.completion_tokens
    streamed = collections.Counter()
    pieces = {0: "", 1: "", 2: ""}
    for chunk in model.ask(n=3, stream=True, stream_options={"include_usage": True}, **fields):
        for choice in chunk.choices:
            pieces[choice.index] += choice.delta.content or ""
            streamed["ends"] += choice.finish_reason is not None
        if chunk.usage:
            assert chunk.usage == three.usage or (
                chunk.usage.total_tokens == three.usage.total_tokens), chunk.usage
            streamed["usage"] += 1
    assert list(pieces.values()) == texts
    assert streamed == {"ends": 3, "usage": 1}, streamed


def check_typical(model):
    texts = {model.text(temperature=2, seed=seed, extra_body={"typical_p": 0.2})
             for seed in range(4)}
    plain = {model.text(temperature=2, seed=seed) for seed in range(4)}
    assert texts != plain
    again = model.text(temperature=2, seed=0, extra_body={"typical_p": 0.2})
    assert again in texts, "the same seed, the same text"


def check_refusals(model):
    for param, fields in [
            ("top_logprobs", {"top_logprobs": 3}),
            ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
            ("frequency_penalty", {"frequency_penalty": 2.5}),
            ("logit_bias", {"logit_bias": {"7": 101}}),
            ("n", {"n": 9}),
            ("min_tokens", {"max_tokens": 3, "extra_body": {"min_tokens": 4}}),
            ("repeat_penalty", {"extra_body": {"repeat_penalty": 1.1}}),
            (None, {"logit_bias": {str(10 * model.size): 1}}),
    ]:
        try:
            model.ask(**fields)
        except openai.BadRequestError as error:
            assert error.param == param, (error.param, fields)
            assert param is not None or "logit_bias" in error.message
            continue
        raise AssertionError(f"{fields} were taken")


def main():
    base_url, name, tokenizer_file = sys.argv[1:]
    client = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)
    model = Model(client, name, tokenizer_file)
    for check in (check_logprobs, check_biases, check_penalties, check_ends, check_choices,
                  check_typical, check_refusals):
        check(model)
    print("sampling: log probabilities, biases, penalties, ends and choices as expected")


main()
