"""Compares what gangs of rank processes compute with mlx-lm, for tiny random models of each
architecture: two stages, two and three (uneven) slices of each layer, and two stages of two slices;
mixtures also with whole experts on each rank.

    compare_shapes.py RANKD             a fixed sample: each architecture in one shape, each native
                                        storage in one, three mixtures in every shape with whole
                                        experts
    compare_shapes.py RANKD --all       every architecture in every shape, storage and wire below
    compare_shapes.py RANKD WORD…       cases with one of these in "ARCHITECTURE STORAGE SHAPE WIRE"

Logits of the prompt and of 64 tokens that greedy decoding adds, against mlx-lm's over the same
tokens. In every storage ranks hand each other float32 (`--wire-float32`; models of float32 do so
anyway): "wide", where the bound of floats is compare.py's. Models of 16 bits also as they are served, when
what ranks hand each other is rounded to 16 bits: "served". There each token that was chosen has to
be mlx-lm's likeliest, or as likely within WIRE_BOUND. In mixtures such a rounding chooses other
experts here and there, for good: there SERVED_SHARE of the tokens have to be (of what a wrong split
chooses one in thirty is). In a quantised model integer products move what a small norm divides by,
or experts that are nearly tied: of QUANTIZED_DRAWN models one has to agree in all its logits.
"""

import os
import subprocess
import sys
import tempfile
import zlib
from functools import partial

import compare
import mlx.core as mx
import numpy as np
from cases import run_cases

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tests", "conformance"))
from held_ports import HeldPorts  # noqa: E402

STEPS = 64
CONTEXT = 128
WIRE_BOUND = 3e-2  # of the largest logit
SERVED_SHARE = 0.5
QUANTIZED_DRAWN = 3
# Each rank's slice of a row has an integer scale of its own, and there are ten times the rows of
# compare.py (seen: up to 6.4e-4).
QUANTIZED_BOUND = 1e-3
# name: (stages, slices of each of a stage's ranks)
SHAPES = {"pp2": (2, [1]), "tp2": (1, [1, 1]), "tp3-uneven": (1, [5, 2, 1]), "2x2": (2, [1, 1])}
EXACT = ("float32", "8bit-g32-float32")
ROUNDED = ("bfloat16", "4bit-g64", "8bit-g64")
WIDE, SERVED = "wide", "served"
WHOLE = "-whole"  # behind the name of a shape: ranks hold whole experts
WHOLE_SHAPES = [shape + WHOLE for shape in SHAPES if shape != "pp2"]
SAMPLED_WHOLE = ("qwen3_moe", "gpt_oss", "deepseek_v3")


def write_specs(folder, shape, layers, ports):
    """One file a rank; protoc makes the message of its text."""
    stages, widths = SHAPES[shape.removesuffix(WHOLE)]
    whole = "whole_experts: true" if shape.endswith(WHOLE) else ""
    tp = len(widths)
    world = stages * tp
    ring = "".join(f'ring_addresses: "{address}"\n' for address in ports.ring)
    paths = []
    for rank in range(world):
        stage, part = divmod(rank, tp)
        slices = ""
        if tp > 1:
            slices = (f"slice_begin: {sum(widths[:part])} slice_end: {sum(widths[:part + 1])} "
                      f"slice_count: {sum(widths)}")
        text = f"""deployment: "shapes" epoch: 1 rank: {rank} world_size: {world} tp: {tp}
pp: {stages} backend: "ring" model {{ path: "{folder}" }} {ring}
assignment {{ rank: {rank} node_id: "node-{rank}" stage: {stage} tp_rank: {part} {slices} {whole}
layer_begin: {layers * stage // stages} layer_end: {layers * (stage + 1) // stages} }}
step_address: "{ports.step}" gang_secret: "{'s' * 32}" context_length: {CONTEXT}
socket_path: "{folder}/rank{rank}.sock" """
        path = os.path.join(folder, f"rank{rank}.spec")
        with open(path, "wb") as file:
            subprocess.run(
                ["protoc", f"-I{ROOT}/proto", "--encode=macrame.v1.LaunchSpec",
                 f"{ROOT}/proto/macrame/v1/rank.proto"],
                input=text.encode(), stdout=file, check=True)
        paths.append(path)
    return paths


def run_gang(rankd, folder, shape, wire, layers, prompt, steps, vocabulary):
    stages, widths = SHAPES[shape.removesuffix(WHOLE)]
    out = os.path.join(folder, "logits.f32")
    kv = ["--kv-type", "float32"] if wire == WIDE else []
    exact = kv + ["--wire-float32"] if wire == WIDE else []
    others = []
    with HeldPorts(stages * len(widths)) as ports:
        specs = write_specs(folder, shape, layers, ports)
        try:
            for rank, spec in enumerate(specs[1:], start=1):
                options, fds = ports.handed(rank)
                with open(spec + ".log", "w") as log:
                    others.append(subprocess.Popen([rankd, "--launch-spec", spec, *options, *kv],
                                                   stdin=subprocess.PIPE, stderr=log, pass_fds=fds))
                ports.release(rank)
            options, fds = ports.handed(0)
            done = subprocess.run(
                [rankd, "--generate", "--launch-spec", specs[0], *options, "--logits", out,
                 "--max-tokens", str(steps), "--prefill-chunk", str(compare.PREFILL_CHUNK),
                 "--prompt-tokens", ",".join(map(str, prompt)), *exact],
                capture_output=True, text=True, timeout=120, pass_fds=fds)
            if done.returncode != 0:
                told = "".join(open(spec + ".log").read() for spec in specs[1:])
                raise RuntimeError(f"rank 0 ended with {done.returncode}: {done.stderr.strip()}; {told}")
            for rank, other in enumerate(others, start=1):
                if other.wait(timeout=20) != 0:
                    raise RuntimeError(f"rank {rank} ended with {other.returncode}")
        finally:
            for other in others:
                other.kill()
                other.wait()
    return np.fromfile(out, dtype=np.float32).reshape(-1, vocabulary)


def has_experts(config):
    return any("expert" in key for key in config.get("text_config", config))


def check(rankd, architecture, storage, shape, wire):
    """How far off the logits are, of the largest one; as served, of what was chosen."""
    config = compare.ARCHITECTURES[architecture][1]
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    sparse = architecture in compare.FLOATS_ONLY
    # As many as are attended to whole: beyond, a rounding may choose the positions.
    steps = min(STEPS, CONTEXT - compare.prompt_tokens(architecture))
    if architecture in compare.LONG_PROMPTS and not compare.is_exact(storage):
        steps = compare.GREEDY_STEPS  # each further row may be torn between two blocks
    if "index_topk" in config and "window" not in architecture and not sparse:
        steps = min(STEPS, config["index_topk"] - compare.PROMPT_TOKENS)

    def run(model, prompt):
        with tempfile.TemporaryDirectory() as folder:
            compare.write_folder(folder, model, architecture, storage)
            ours = run_gang(rankd, folder, shape, wire, len(model.layers), prompt, steps,
                            vocabulary)
        if ours.shape[0] != len(prompt) + steps - 1:
            raise RuntimeError(f"rank 0 wrote {ours.shape[0]} rows of logits")
        return ours

    # What a model was drawn as before there were two wires.
    case = f"{architecture} {storage} {shape}"
    if wire == SERVED:
        model, prompt = compare.draw(architecture, storage, zlib.crc32(case.encode()))
        ours = run(model, prompt)
        compare.as_type(model, mx.float32)
        theirs = compare.reference(model, compare.greedy_tokens(prompt, ours))
        chosen = theirs[np.arange(len(theirs)), ours.argmax(axis=1)]
        off = np.sort(theirs.max(axis=1) - chosen) / np.abs(theirs).max()
        share = SERVED_SHARE if has_experts(config) else 1.0
        return float(off[int(share * len(off)) - 1])
    for attempt in range(1 if compare.is_exact(storage) else QUANTIZED_DRAWN):
        again = f" {attempt}" if attempt else ""
        model, ours, tokens = compare.draw_whole(
            architecture, storage, case + again, run, compare.greedy_tokens
        )
        theirs = compare.reference(model, tokens)
        off = compare.difference_of(ours, theirs)
        if off <= bound_of(storage, wire):
            break
    compare.check_likeliest(ours, theirs, bound_of(storage, wire) * np.abs(theirs).max())
    return off


def bound_of(storage, wire):
    if wire == SERVED:
        return WIRE_BOUND
    return compare.FLOAT_BOUND if compare.is_exact(storage) else QUANTIZED_BOUND


def cases_of(words):
    cases = []
    for architecture, (_, config) in compare.ARCHITECTURES.items():
        storages = storages_of(architecture)
        every = [(architecture, storage, shape, WIDE) for storage in storages for shape in SHAPES]
        whole = [(architecture, storage, shape, WIDE)
                 for storage in storages for shape in WHOLE_SHAPES if has_experts(config)]
        served = [(architecture, storage, shape, SERVED)
                  for storage in storages if storage in ROUNDED for shape in SHAPES]
        if words and words != ["--all"]:
            every = [case for case in every + whole + served
                     if any(word in " ".join(case) for word in words)]
        elif not words:
            every = sample_of(architecture, every + served)
            if architecture in SAMPLED_WHOLE:
                every += [case for case in whole if case[1] == storages[0]]
        else:
            every += whole + served
        cases += every
    return cases


def storages_of(architecture):
    native = tuple(storage for storage, only in compare.ONLY.items() if architecture in only)
    if compare.is_in_floats(architecture):
        return ("float32", *(storage for storage in native if storage in compare.FLOATS))
    return EXACT + ROUNDED + native


def sample_of(architecture, cases):
    """One of all, and one of each native storage."""
    native = [storage for storage in storages_of(architecture) if storage in compare.ONLY]
    sample = [cases[zlib.crc32(architecture.encode()) % len(cases)]]
    for storage in native:
        of_it = [case for case in cases if case[1] == storage]
        sample.append(of_it[zlib.crc32(f"{architecture} {storage}".encode()) % len(of_it)])
    return sample


def main():
    rankd, words = sys.argv[1], sys.argv[2:]
    cases = cases_of(words)
    failed, worst = run_cases(cases, partial(check, rankd), lambda c: bound_of(c[1], c[3]))
    told = ", ".join(f"{value:.1e} (bound {bound:.0e})" for bound, value in sorted(worst.items()))
    print(f"gang conformance: {len(cases) - failed} of {len(cases)} gangs agree with mlx-lm over "
          f"up to {STEPS} tokens, largest differences {told}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
