"""Tokens of rankd's serving path, by the graph of a GPU on MLX's CPU device, against mlx-lm's.

    compare_tokens.py SERVING_PROBE [FAMILY …]

Each model is tiny, random and in float32: on a CPU, MLX adds bfloat16 in bfloat16, which says
nothing about either program. mlx-lm answers each prompt alone and greedily; rankd answers them
alone, eight together that join and leave, in chunks, behind cached prefixes in memory and on disk,
with drafts of what stood before and of a draft model, and with so few blocks that answers are
preempted. All tokens have to be equal. A model is drawn again where two likeliest
tokens, or two experts, are so nearly tied that the order of a sum decides.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import zlib
from functools import partial

root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(root, "engine"))

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402
from cases import run_cases  # noqa: E402
from bases import BASE, COMPRESSED  # noqa: E402
from compare import ARCHITECTURES, FLOAT_BOUND, TORN, draw, is_torn, write_folder  # noqa: E402
from mlx_lm.models import deepseek_v41, llama  # noqa: E402
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache  # noqa: E402

FAMILIES = (
    "llama",
    "qwen3",
    "qwen3_moe",
    "gpt_oss",
    "mistral-sliding",
    "gemma3_text",
    "deepseek_v3",
    "glm4_moe",
    "qwen3_next",
    "nemotron_h",
    "deepseek_v41-few-rounds",
)
# With keys and values in few bits, as mlx-lm's --kv-bits keeps them: the heads' width decides the
# group of dimensions that share a scale.
NARROW = (("qwen3", 8), ("llama-wide-heads", 8), ("llama-wide-heads", 4))
GROUPS = {"qwen3": 32, "llama-wide-heads": 64}
WIDE_BITS = 16
ARCHITECTURES["llama-wide-heads"] = (llama, {**BASE, "model_type": "llama", "head_dim": 64})
# mlx-lm computes each round of balancing streams as six operations.
ARCHITECTURES["deepseek_v41-few-rounds"] = (deepseek_v41, {**COMPRESSED, "hc_sinkhorn_iters": 3})
# Their keys are rounded, where a last bit may decide what a number becomes: of so many models one has
# to agree.
ROUNDING = ("deepseek_v41-few-rounds",)
ROUNDING_TURNS = 6
# mlx-lm takes too long for answers that repeat themselves.
WITHOUT_LOOKUP = ("deepseek_v41-few-rounds",)
RECURRENT = ("qwen3_next", "nemotron_h")
CONTEXT = 128
BLOCKS = 128
BLOCK_TOKENS = 32
# Of models with experts: by how much norms are moved, about ten times what two programs in float32
# differ by.
TREMOR = 2e-5
DRAWS_MAX = 60
LONG_ANSWER = 60
# Of narrow keys and values: two sums that differ in their last bit may round a number to the next
# integer.
NARROW_BOUND = 0.0002
# As runtime/serving/prompt_lookup.h looks for them.
LOOKUP_TOKENS = 3
PROBE_TIMEOUT_S = 100


class OtherTokens(RuntimeError):
    """An answer is not mlx-lm's."""


def request(prompt, max_tokens, arrival=0):
    return {"prompt": prompt, "max_tokens": max_tokens, "arrival": arrival}


def run(requests, blocks=BLOCKS, chunk=256, drafts=0, draft_model=False, **disk):
    common = {"blocks": blocks, "chunk": chunk, "drafts": drafts, "draft_model": draft_model}
    return {**common, **disk, "requests": requests}


def found_again(tokens, begin):
    """How many tokens from `begin` on follow three that stood before with the same one behind them."""
    last, count = {}, 0
    for at in range(LOOKUP_TOKENS, len(tokens)):
        key = tuple(tokens[at - LOOKUP_TOKENS : at])
        count += at >= begin and last.get(key) == tokens[at]
        last[key] = tokens[at]
    return count


def cache_of(model, narrow):
    """Of keys and values as they come, or narrow: in such groups and so many bits."""
    caches = make_prompt_cache(model)
    if not narrow:
        return caches
    group, bits = narrow
    return [QuantizedKVCache(group_size=group, bits=bits) for _ in caches]


def repeating(model, prompts, narrow):
    """The two whose answers repeat themselves most, and how often they do."""
    counts = []
    for prompt in prompts:
        tokens, _ = answer(model, prompt, LONG_ANSWER, narrow)
        counts.append((found_again(prompt + tokens, len(prompt)), prompt))
    best = sorted(counts, reverse=True)[:2]
    return [prompt for _, prompt in best], sum(count for count, _ in best)


def runs_for(architecture, prompts, repeated):
    """What is asked: name -> run. `last` is later than any step: when the one before has ended."""
    last = 100_000
    long, tail = prompts[7], prompts[4]
    eight = [
        request(prompt, tokens, arrival)
        for prompt, tokens, arrival in zip(
            prompts, (12, 20, 8, 16, 24, 10, 14, 12), (0, 0, 1, 3, 4, 6, 9, 12)
        )
    ]
    shared = [
        request(long, 8),
        request(long, 12, last),
        request(long + tail[:7], 8, last + 1),
        request(long[:40] + tail, 8, last + 2),
    ]
    runs = {
        "alone": run(eight[:1]),
        "eight streams": run(eight),
        "chunks": run([eight[3], eight[0], eight[7]], chunk=16),
        "prefixes": run(shared),
        # Each begins in one block and ends in three.
        "preemption": run([request(prompts[i][:19], 48) for i in (1, 2, 4, 6)], blocks=6, chunk=64),
    }
    if architecture in RECURRENT:  # they take no drafts, and keep nothing on disk
        return runs
    # What repeats itself is found again, also while another one runs that does not.
    if architecture not in WITHOUT_LOOKUP:
        asked = [request(prompt, LONG_ANSWER, 3 * i) for i, prompt in enumerate(repeated)]
        runs["drafts"] = run(asked + eight[:1], drafts=4)
    runs["a draft model"] = run(eight[:3], drafts=3, draft_model=True)
    whole = len(long) // BLOCK_TOKENS
    runs["to disk"] = run([shared[0]], disk={"found": 0, "left": whole})
    runs["from disk"] = run(shared[:1] + shared[2:3], disk={"found": whole, "left": whole})
    return runs


def prompts_of(architecture, seed):
    config = ARCHITECTURES[architecture][1]
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    chosen = random.Random(seed)
    lengths = (40, 19, 33, 64, 17, 50, 25, 71)
    return [[chosen.randrange(vocabulary) for _ in range(length)] for length in lengths]


def answer(model, prompt, count, narrow):
    """mlx-lm's greedy tokens, and whether no choice among them was nearly tied."""
    cache = cache_of(model, narrow)
    bound = NARROW_BOUND if narrow else FLOAT_BOUND
    tokens, clear = [], True
    given = mx.array([prompt])
    for _ in range(count):
        row = np.array(model(given, cache=cache)[0, -1])
        first, second = np.sort(row)[-1:-3:-1]
        clear = clear and first - second > 2 * bound * np.abs(row).max()
        tokens.append(int(row.argmax()))
        given = mx.array([[tokens[-1]]])
    return tokens, clear


def answers_to(architecture, model, runs, narrow):
    """mlx-lm's tokens for each prompt; None where a rounding decides."""
    config = ARCHITECTURES[architecture][1]
    has_experts = any("expert" in key for key in config.get("text_config", config))
    wanted = {}
    for run in runs.values():
        for one in run["requests"]:
            prompt = tuple(one["prompt"])
            wanted[prompt] = max(wanted.get(prompt, 0), one["max_tokens"])
    answers = {}
    for prompt, count in wanted.items():
        tokens, clear = answer(model, list(prompt), count, narrow)
        if not clear:
            return None
        is_rounding = architecture in ROUNDING  # moved norms would move what is rounded
        if has_experts and not is_rounding and is_torn(model, list(prompt) + tokens, TREMOR, TORN):
            return None
        answers[prompt] = tokens
    return answers


def draw_clear(architecture, narrow, turn=0):
    first = zlib.crc32(f"graph {architecture}".encode()) + turn * DRAWS_MAX
    for seed in range(first, first + DRAWS_MAX):
        model, _ = draw(architecture, "float32", seed)
        prompts = prompts_of(architecture, seed)
        repeated = []
        if architecture not in RECURRENT + WITHOUT_LOOKUP:
            repeated, times = repeating(model, [prompt[:17] for prompt in prompts], narrow)
            if times < 2:
                continue
        runs = runs_for(architecture, prompts, repeated)
        answers = answers_to(architecture, model, runs, narrow)
        if answers is not None:
            return model, runs, answers
    raise RuntimeError(f"nearly tied, or without a repetition, in {DRAWS_MAX} models")


def serve(probe, folder, cache, runs, kv_bits):
    call = {
        "folder": folder,
        # It is its own draft model: all that it drafts is right.
        "draft": folder if "a draft model" in runs else "",
        "cache": cache,
        "context": CONTEXT,
        "sequences": 16,
        "kv_bits": kv_bits,
        "runs": list(runs.values()),
    }
    done = subprocess.run(
        [probe], input=json.dumps(call), capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"serving_probe ended with {done.returncode}: {done.stderr.strip()}")
    told = json.loads(done.stdout)
    return dict(zip(runs, told["runs"])), told["steady_rows"]


def check_tokens(name, run, result, answers):
    for number, (one, got) in enumerate(zip(run["requests"], result["answers"])):
        expected = answers[tuple(one["prompt"])][: one["max_tokens"]]
        if got["tokens"] == expected:
            continue
        at = next(
            (i for i, pair in enumerate(zip(got["tokens"], expected)) if pair[0] != pair[1]),
            min(len(got["tokens"]), len(expected)),
        )
        raise OtherTokens(
            f"{name}, request {number}: another token at {at} of {len(expected)}, "
            f"{got['tokens'][at:at + 3]} for {expected[at:at + 3]}"
        )


def check_happened(architecture, results):
    """That a run did what it is for."""
    if results["eight streams"]["running_most"] < 6:
        raise RuntimeError(f"only {results['eight streams']['running_most']} streams at a time")
    if results["preemption"]["preemptions"] == 0:
        raise RuntimeError("nothing was preempted")
    cached = [one["cached_tokens"] for one in results["prefixes"]["answers"]]
    # Recurrent layers go on only where their state was kept.
    least = (0, BLOCK_TOKENS, 0, 0) if architecture in RECURRENT else (0,) + 3 * (BLOCK_TOKENS,)
    if any(have < need for have, need in zip(cached, least)):
        raise RuntimeError(f"cached tokens of the prefixes {cached}, at least {least} expected")
    if "drafts" in results and results["drafts"]["drafted"] == 0:
        raise RuntimeError("nothing was drafted of what stood before")
    if "a draft model" in results:
        if results["a draft model"]["accepted"] == 0:
            raise RuntimeError("nothing that the model drafted for itself was right")
        cold = [one["cold_tokens"] for one in results["from disk"]["answers"]]
        if cold[0] < BLOCK_TOKENS:
            raise RuntimeError(f"tokens from disk {cold}, at least {BLOCK_TOKENS} expected at first")


def compare_family(probe, architecture, kv_bits):
    """Tokens that differ, 0; raises where there are any."""
    turns = ROUNDING_TURNS if architecture in ROUNDING else 1
    for turn in range(turns):
        try:
            return compare_model(probe, architecture, kv_bits, turn)
        except OtherTokens:
            if turn + 1 == turns:
                raise
    return 0.0


def compare_model(probe, architecture, kv_bits, turn):
    narrow = None if kv_bits == WIDE_BITS else (GROUPS[architecture], kv_bits)
    model, runs, answers = draw_clear(architecture, narrow, turn)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        write_folder(folder, model, architecture, "float32")
        results, steady_rows = serve(probe, folder, cache, runs, kv_bits)
    for name, asked in runs.items():
        check_tokens(name, asked, results[name], answers)
    check_happened(architecture, results)
    if architecture not in RECURRENT and not 1 <= steady_rows <= 8:
        raise RuntimeError(f"{steady_rows} rows of a step are said to have steady bits")
    return 0.0


def main():
    probe, *wanted = sys.argv[1:]
    cases = [(family, WIDE_BITS) for family in FAMILIES] + list(NARROW)
    cases = [case for case in cases if not wanted or case[0] in wanted]
    failed, _ = run_cases(cases, partial(compare_family, probe), lambda _: 0.0)
    print(
        f"graph on a CPU: {len(cases) - failed} of {len(cases)} families and widths of the KV cache "
        "answer as mlx-lm does, "
        "alone, together, in chunks, behind prefixes in memory and on disk, with drafts and after preemption"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
