#!/usr/bin/env python3
"""Writes a checkpoint of train.py as an MLX model with affine 4-bit weights.

    quantize.py --run RUN --corpus OUT --to ../knot-5m-4bit

Needs MLX (see requirements.txt) and no PyTorch model code: a checkpoint is read as plain arrays.
The model card, README.md in the target, is written by hand and left alone.
"""

import argparse
import json
import pathlib
import shutil

import mlx.core as mx
import numpy as np
import torch

GROUP_SIZE, BITS = 64, 4
BYTES_MAX = 8 * 1024 * 1024

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 3072,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "rms_norm_eps": 1e-05,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
    "use_cache": True,
    "quantization": {"group_size": GROUP_SIZE, "bits": BITS},
}

# "<|" inside a message becomes "< |", so that no text can close its own turn or open another's.
CHAT_TEMPLATE = (
    "{{- bos_token -}}"
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'system' or message['role'] == 'developer' -%}"
    "{{- '<|system|>' -}}"
    "{%- elif message['role'] == 'assistant' -%}"
    "{{- '<|assistant|>' -}}"
    "{%- else -%}"
    "{{- '<|user|>' -}}"
    "{%- endif -%}"
    "{{- message['content'] | trim | replace('<|', '< |') -}}"
    "{{- '<|end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)

TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "model_max_length": 1024,
    "bos_token": "<|begin|>",
    "eos_token": "<|end|>",
    "pad_token": "<|pad|>",
    "additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>"],
    "add_bos_token": False,
    "add_prefix_space": False,
    "clean_up_tokenization_spaces": False,
    "added_tokens_decoder": {
        str(i): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                 "single_word": False, "special": True}
        for i, t in enumerate(["<|pad|>", "<|begin|>", "<|end|>", "<|system|>", "<|user|>",
                               "<|assistant|>"])
    },
    "chat_template": CHAT_TEMPLATE,
}

SPECIAL_TOKENS_MAP = {
    "bos_token": "<|begin|>",
    "eos_token": "<|end|>",
    "pad_token": "<|pad|>",
    "additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>"],
}

GENERATION_CONFIG = {
    "bos_token_id": 1,
    "eos_token_id": [2],
    "pad_token_id": 0,
    "do_sample": False,
    "max_new_tokens": 256,
}


def quantise(state):
    out = {}
    for name, tensor in state.items():
        array = mx.array(tensor.float().numpy().astype(np.float32))
        if array.ndim == 2:
            base = name.removesuffix(".weight")
            weight, scales, biases = mx.quantize(array, group_size=GROUP_SIZE, bits=BITS)
            out |= {f"{base}.weight": weight, f"{base}.scales": scales, f"{base}.biases": biases}
        else:
            out[name] = array
    return out


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=pathlib.Path, required=True)
    parser.add_argument("--corpus", type=pathlib.Path, required=True)
    parser.add_argument("--to", type=pathlib.Path, required=True)
    args = parser.parse_args()
    mx.set_default_device(mx.cpu)
    args.to.mkdir(parents=True, exist_ok=True)
    saved = torch.load(args.run / "checkpoint.pt", map_location="cpu")
    weights = quantise(saved["model"])
    mx.save_safetensors(str(args.to / "model.safetensors"), weights, metadata={"format": "mlx"})
    write_json(args.to / "config.json", CONFIG)
    write_json(args.to / "tokenizer_config.json", TOKENIZER_CONFIG)
    write_json(args.to / "special_tokens_map.json", SPECIAL_TOKENS_MAP)
    write_json(args.to / "generation_config.json", GENERATION_CONFIG)
    shutil.copyfile(args.corpus / "tokenizer.json", args.to / "tokenizer.json")
    size = sum(p.stat().st_size for p in args.to.iterdir())
    if size > BYTES_MAX:
        raise SystemExit(f"{args.to} has {size} bytes, more than the {BYTES_MAX} it may have")
    print(f"step {saved['step']}, {saved['tokens']} tokens, {saved['seconds'] / 60:.1f} minutes: "
          f"{args.to} has {size} bytes")


if __name__ == "__main__":
    main()
