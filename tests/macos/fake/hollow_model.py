"""Model folders without weights: a real config.json and safetensors header, and a file of the right
size that holds nothing (it is sparse and takes no room on disk). Enough to be planned with; nothing
can be computed from it. Standard library only.
"""

import json
import os
import struct

# What their publishers' config.json say of these shapes.
LLAMA_70B = {"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
             "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
             "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0}
QWEN3_32B = {"model_type": "qwen3", "hidden_size": 5120, "intermediate_size": 25600, "head_dim": 128,
             "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
             "vocab_size": 151936, "max_position_embeddings": 40960, "rope_theta": 1000000.0}


def quantised(name, rows, columns, bits, group):
    return {f"{name}.weight": ("U32", [rows, columns * bits // 32]),
            f"{name}.scales": ("BF16", [rows, columns // group]),
            f"{name}.biases": ("BF16", [rows, columns // group])}


def tensors_of(config, bits, group):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    made = quantised("model.embed_tokens", config["vocab_size"], hidden, bits, group)
    made |= quantised("lm_head", config["vocab_size"], hidden, bits, group)
    made["model.norm.weight"] = ("BF16", [hidden])
    for layer in range(config["num_hidden_layers"]):
        place = f"model.layers.{layer}"
        for name, rows, columns in (
                ("self_attn.q_proj", queries, hidden), ("self_attn.k_proj", keys, hidden),
                ("self_attn.v_proj", keys, hidden), ("self_attn.o_proj", hidden, queries),
                ("mlp.gate_proj", inner, hidden), ("mlp.up_proj", inner, hidden),
                ("mlp.down_proj", hidden, inner)):
            made |= quantised(f"{place}.{name}", rows, columns, bits, group)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            made[f"{place}.{norm}.weight"] = ("BF16", [hidden])
        if config["model_type"] == "qwen3":
            for norm in ("self_attn.q_norm", "self_attn.k_norm"):
                made[f"{place}.{norm}.weight"] = ("BF16", [head])
    return made


def write_hollow_model(folder, config, bits, group=64):
    """The folder of a model whose weights have `bits` bits, in groups of `group`. Returns bytes."""
    os.makedirs(folder)
    whole = dict(config, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=False,
                 torch_dtype="bfloat16", attention_bias=False, bos_token_id=1, eos_token_id=2,
                 quantization={"group_size": group, "bits": bits})
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(whole, out, indent=1)
    with open(os.path.join(folder, "tokenizer.json"), "w") as out:
        out.write("{}")  # it is never read
    header, offset = {"__metadata__": {"format": "mlx"}}, 0
    for name, (kind, shape) in tensors_of(config, bits, group).items():
        size = {"U32": 4, "BF16": 2}[kind]
        for side in shape:
            size *= side
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + offset)
    return offset
