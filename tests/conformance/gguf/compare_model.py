"""A small real model out of GGUF, against mlx-lm.

The model is imported; mlx-lm loads the folder that came out. Its own code runs, with products by
numpy over the dequantised weights in float32: on a CPU, MLX sums float16 in float16, and takes
minutes for what numpy does in seconds. Held against it: the tokens of 30 chats as transformers
renders and cuts them, greedy answers to them from gangs of every shape with eight asked at a time,
and the perplexity of a fixed text. mlx-lm is given each answer and must choose every one of its
tokens itself; another token may stand only where mlx-lm's likeliest one is as near as the engine's
bound for quantised models (tests/conformance/engine).
"""

import json
import os
import subprocess
import sys
import tempfile

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten
from mlx_lm.utils import load

from importing import import_gguf

ANSWER_TOKENS = 48
NEAR = 5e-4  # of the largest logit
PROBE_MAX_S = 1200
PERPLEXITY_BOUND = 1e-3
MOST_NEAR = 5  # of the tokens of a shape's 30 answers
SUBJECTS = ("the moon", "bread", "rivers", "a bicycle", "snow")
QUESTIONS = [form.format(subject) for subject in SUBJECTS for form in (
    "What is {}?", "Write one sentence about {}.", "Why do people like {}?",
    "List three words that go with {}.", "Tell me a very short story about {}.",
    "Translate \"{}\" into French.")]
TEXT = """The lighthouse keeper counted the steps every evening, although their number never changed. There
were two hundred and eleven of them, worn in the middle, and at the top stood the lamp with its great glass
lens. When fog came in from the sea he lit the lamp early, wound the clockwork that turned it, and sat down with
a book. Ships passed in the dark; he knew some of them by the sound of their engines. In the morning he wrote
the weather into a ledger: wind, cloud, the height of the waves. Nobody read the ledger, as far as he knew, but
it went back a hundred and twenty years without a gap, and he did not want to be the one who left a page empty.
"""


class NumpyLinear(nn.Module):
    """A linear map, or an embedding, whose products numpy makes."""

    def __init__(self, weight, bias):
        super().__init__()
        self._weight, self._bias = weight, bias

    def as_linear(self, x):
        y = np.array(x) @ self._weight.T
        return mx.array(y if self._bias is None else y + self._bias)

    def __call__(self, x):
        if x.dtype in (mx.int32, mx.uint32, mx.int64):
            return mx.array(self._weight[np.array(x)])
        return self.as_linear(x)


def in_numpy(module):
    weight = module.weight
    if hasattr(module, "scales"):
        weight = mx.dequantize(weight, module.scales, module.biases, module.group_size, module.bits)
    bias = getattr(module, "bias", None)
    return NumpyLinear(np.array(weight.astype(mx.float32)),
                       None if bias is None else np.array(bias.astype(mx.float32)))


def reference(folder):
    model, tokenizer = load(folder)
    model.update(tree_map(lambda p: p.astype(mx.float32) if mx.issubdtype(p.dtype, mx.floating) else p,
                          model.parameters()))
    leaves = tree_flatten(model.leaf_modules(), is_leaf=nn.Module.is_module)
    model.update_modules(tree_unflatten([(name, in_numpy(leaf)) for name, leaf in leaves
                                         if hasattr(leaf, "weight") and leaf.weight.ndim == 2]))
    return model, tokenizer


def rows_of(model, tokens):
    """Logits behind each of the tokens."""
    return np.array(model(mx.array([tokens]))[0].astype(mx.float32))


def perplexity(rows, tokens):
    """Of tokens[1:] under the rows of logits before them."""
    rows = rows[:-1].astype(np.float64)
    log_sums = np.log(np.exp(rows - rows.max(axis=1, keepdims=True)).sum(axis=1)) + rows.max(axis=1)
    chosen = rows[np.arange(len(rows)), tokens[1:]]
    return float(np.exp(np.mean(log_sums - chosen)))


def our_perplexity(build, folder, tokens, vocabulary):
    logits = os.path.join(os.path.dirname(folder), "logits.f32")
    subprocess.run([f"{build}/bin/rankd", "--generate", "--model", folder, "--logits", logits,
                    "--prompt-tokens", ",".join(map(str, tokens)), "--max-tokens", "1"],
                   check=True, timeout=PROBE_MAX_S)
    rows = np.fromfile(logits, dtype=np.float32).reshape(-1, vocabulary)
    return perplexity(rows[:len(tokens)], tokens)


def check_answer(rows, prompt, answer, ends):
    """What is wrong with it, or None; and how many tokens were as good as mlx-lm's."""
    near = 0
    if answer["prompt_tokens"] != len(prompt):
        return f"has a prompt of {answer['prompt_tokens']} tokens, not {len(prompt)}", near
    chosen = answer["tokens"]
    for at, row in enumerate(rows[len(prompt) - 1:]):
        best = int(row.argmax())
        if at == len(chosen):  # the token that ends an answer is not part of it
            if len(chosen) < ANSWER_TOKENS and best not in ends:
                return f"ends at token {at}, mlx-lm goes on: {answer['text']!r}", near
        elif best != chosen[at]:
            if row[best] - row[chosen[at]] > 2 * NEAR * np.abs(row).max():
                return f"parts at token {at}: {answer['text']!r}", near
            near += 1
    return None, near


class Checked:
    """mlx-lm's rows for an answer, made once for all shapes that gave it."""

    def __init__(self, model):
        self.model, self.known = model, {}

    def rows(self, prompt, answer):
        key = (*prompt, *answer["tokens"])
        if key not in self.known:
            self.known[key] = rows_of(self.model, list(key))
        return self.known[key]


def main():
    build, gguf_file = sys.argv[1:]
    mx.set_default_device(mx.cpu)
    with tempfile.TemporaryDirectory() as models:
        folder = import_gguf(build, gguf_file, models, "smollm2")
        model, tokenizer = reference(folder)
        with open(os.path.join(folder, "generation_config.json")) as file:
            ends = set(json.load(file)["eos_token_id"])
        prompts = [tokenizer.apply_chat_template([{"role": "user", "content": question}],
                                                 add_generation_prompt=True)
                   for question in QUESTIONS]
        done = subprocess.run([f"{build}/tests/greedy_probe", folder, str(ANSWER_TOKENS)], check=True,
                              input=json.dumps(QUESTIONS), stdout=subprocess.PIPE, text=True,
                              timeout=PROBE_MAX_S)
        failed, checked = [], Checked(model)
        for shape, answers in json.loads(done.stdout).items():
            near = count = 0
            for question, prompt, answer in zip(QUESTIONS, prompts, answers):
                wrong, near_here = check_answer(checked.rows(prompt, answer), prompt, answer, ends)
                near += near_here
                count += len(answer["tokens"])
                if wrong:
                    failed.append(f"{shape}: the answer to '{question}' {wrong}")
            if near > MOST_NEAR:
                failed.append(f"{shape}: {near} tokens are only near mlx-lm's, more than {MOST_NEAR}")
            print(f"{shape}: {len(answers)} answers, {count} tokens, {near} of them not mlx-lm's "
                  "likeliest but as likely")
        tokens = tokenizer.encode(TEXT)
        theirs = perplexity(rows_of(model, tokens), tokens)
        ours = our_perplexity(build, folder, tokens, model.args.vocab_size)
    print(f"perplexity of {len(tokens)} tokens: {ours:.4f}, mlx-lm's {theirs:.4f}")
    if abs(ours - theirs) > PERPLEXITY_BOUND * theirs:
        failed.append("the perplexities differ by more than a thousandth")
    for message in failed:
        print("FAILED", message)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
