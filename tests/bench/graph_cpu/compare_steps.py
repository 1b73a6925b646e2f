"""Decode steps by the graph of a GPU on MLX's CPU device, beside mlx-lm's in the same run.

    compare_steps.py BENCH

Prints a line for each number of streams, context and pool of positions: the median step of both,
and the ratio; each is measured in turn, three times, and the least median counts. Exit 1 where a
ratio is above 1, or where the answers differ.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": 512,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}
# Streams, context, positions of the pool.
CASES = (
    (1, 16, 512),
    (1, 16, 65536),
    (8, 16, 512),
    (8, 16, 65536),
    (1, 2000, 2304),
    (1, 2000, 65536),
    (8, 2000, 18432),
    (8, 2000, 65536),
)
STEPS_BEFORE = 3
STEPS = 15
TIMES = 3
CHUNK = 256


def prompt_of(slot, context, vocabulary):
    return [(i * i * 7 + i * 13 + slot * 31) % vocabulary for i in range(context)]


def filled(model, prompt, chunk):
    """A sequence's cache, the first token of its answer, and the time, in milliseconds."""
    begun = time.perf_counter()
    cache = make_prompt_cache(model)
    for begin in range(0, len(prompt), chunk):
        logits = model(mx.array([prompt[begin : begin + chunk]]), cache=cache)
        mx.eval(logits, [layer.state for layer in cache])
    return cache, int(mx.argmax(logits[0, -1]).item()), 1e3 * (time.perf_counter() - begun)


def theirs(model, prompts, chunk=CHUNK):
    """The median step as mlx-lm's own loop runs them, the first sequence's answer, and the last
    sequence's prompt, in milliseconds."""
    caches, first, prompt_ms = zip(*(filled(model, prompt, chunk) for prompt in prompts))
    streams = len(prompts)
    cache = caches[0]
    if streams > 1:
        cache = [cache[i].merge([one[i] for one in caches]) for i in range(len(cache))]

    def step(tokens):
        logits = model(tokens[:, None], cache=cache)[:, -1]
        return mx.argmax(logits - mx.logsumexp(logits, axis=-1, keepdims=True), axis=-1)

    took, answer = [], [first[0]]
    tokens = step(mx.array(first))
    mx.async_eval(tokens)
    for number in range(STEPS_BEFORE + STEPS):
        begun = time.perf_counter()
        following = step(tokens)
        mx.async_eval(following)
        answer.append(int(tokens[0].item()))
        tokens = following
        if number >= STEPS_BEFORE:
            took.append(1e3 * (time.perf_counter() - begun))
    return sorted(took)[len(took) // 2], answer, prompt_ms[-1]


def ours(bench, folder, streams, context, pool, *device, environment=None):
    command = [bench, folder, *map(str, (streams, context, pool, STEPS)), *device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    result = json.loads(done.stdout)
    return result["median_ms"], result["tokens"], result["prompt_ms"]


def main():
    mx.set_default_device(mx.cpu)
    mx.random.seed(7)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    model.set_dtype(mx.float32)
    weights = dict(tree_flatten(model.parameters()))
    mx.eval(weights)
    print(f"{'streams':>8}{'context':>9}{'pool':>8}{'ours, ms':>10}{'mlx-lm, ms':>12}{'ratio':>7}")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        mx.save_safetensors(path, weights, metadata={"format": "mlx"})
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(CONFIG, file)
        for streams, context, pool in CASES:
            prompts = [prompt_of(slot, context, CONFIG["vocab_size"]) for slot in range(streams)]
            pairs = [
                (ours(sys.argv[1], folder, streams, context, pool), theirs(model, prompts))
                for _ in range(TIMES)
            ]
            own, peer = (min(pair[side][0] for pair in pairs) for side in (0, 1))
            note = "" if pairs[0][0][1] == pairs[0][1][1] else "  other tokens"
            good = good and own <= peer and not note
            print(
                f"{streams:>8}{context:>9}{pool:>8}{own:>10.2f}{peer:>12.2f}{own / peer:>7.2f}{note}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
