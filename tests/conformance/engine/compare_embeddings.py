"""Embeddings of rankd against mlx-lm's hidden states, on the tiny random models of compare.py.

mlx-lm gives the states of all positions behind the final norm; what sentence-transformers makes of
them (the mean or the last one, of length 1) is a line of Python here. Each model is read as a whole
checkpoint and as one of the bare model: without its head and without "model." before its tensors.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

import compare
from cases import run_cases

ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral-sliding", "gemma3_text", "qwen3_moe")
STORAGES = ("float32", "bfloat16", "4bit-g64", "8bit-g64")
MODES = {"pooling_mode_mean_tokens": lambda states: states.mean(axis=0),
         "pooling_mode_lasttoken": lambda states: states[-1]}


def write_folder(folder, model, config, quantization, mode, bare):
    config = dict(config)
    if quantization:
        config["quantization"] = quantization
    weights = dict(tree_flatten(model.parameters()))
    if bare:
        config["architectures"] = ["Qwen3Model"]
        weights = {name[len("model."):]: value for name, value in weights.items()
                   if name.startswith("model.")}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    path = os.path.join(folder, "model.safetensors")
    mx.save_safetensors(path, weights, metadata={"format": "mlx"})
    os.mkdir(os.path.join(folder, "1_Pooling"))
    with open(os.path.join(folder, "1_Pooling", "config.json"), "w") as file:
        json.dump({mode: True, "word_embedding_dimension": config["hidden_size"]}, file)
    with open(os.path.join(folder, "modules.json"), "w") as file:
        kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
        json.dump([{"path": path, "type": f"sentence_transformers.models.{kind}"}
                   for path, kind in kinds], file)


def run_rankd(rankd, folder, prompt):
    out = os.path.join(folder, "embedding.f32")
    command = [rankd, "--generate", "--model", folder, "--embedding", out, "--kv-type", "float32"]
    command += ["--prompt-tokens", ",".join(map(str, prompt))]
    command += ["--prefill-chunk", str(compare.PREFILL_CHUNK)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"rankd ended with {done.returncode}: {done.stderr.strip()}")
    return np.fromfile(out, dtype=np.float32)


def difference(rankd, architecture, storage, mode, bare):
    config = compare.ARCHITECTURES[architecture][1]

    def run(model, prompt):
        with tempfile.TemporaryDirectory() as folder:
            write_folder(folder, model, config, compare.quantization_of(storage), mode, bare)
            return run_rankd(rankd, folder, prompt)

    case = f"{architecture} {storage} {mode}"
    model, ours, prompt = compare.draw_whole(
        architecture, storage, case, run, lambda prompt, _: prompt
    )
    states = np.array(model.model(mx.array([prompt]))[0].astype(mx.float32), dtype=np.float64)
    theirs = MODES[mode](states)
    theirs /= np.linalg.norm(theirs)
    if ours.shape != theirs.shape:
        raise RuntimeError(f"{ours.shape} numbers, not {theirs.shape}")
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def main():
    rankd = sys.argv[1]
    cases = [(a, s, m, b) for a in ARCHITECTURES for s in STORAGES for m in MODES
             for b in (False, True)]
    failed, worst = run_cases(
        cases, partial(difference, rankd), lambda case: compare.bound_of(case[1])
    )
    print(f"embedding conformance: {len(cases) - failed} of {len(cases)} agree with mlx-lm, "
          f"largest difference {worst.get(compare.FLOAT_BOUND, 0):.1e} of the largest number in floats "
          f"(bound {compare.FLOAT_BOUND:.0e}), {worst.get(compare.QUANTIZED_BOUND, 0):.1e} quantised "
          f"(bound {compare.QUANTIZED_BOUND:.0e})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
