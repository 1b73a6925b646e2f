"""Checkpoints as makers publish them, where that is not MLX's form."""

import json

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

# Rows and columns with a scale. mlx-lm's own reader of DeepSeek's files has 128 of both.
FP8_BLOCKS = {"deepseek_v3-published": (128, 128), "fp8-rows": (1, 1 << 20)}
FP8_BLOCK = (48, 80)


def as_published(weights):
    """Experts one by one; both maps of a head's latent attention in one, where they are floats."""
    out = {}
    for name, value in weights.items():
        if ".switch_mlp." in name:
            for i in range(value.shape[0]):
                out[name.replace("switch_mlp", f"experts.{i}")] = value[i]
        elif name.endswith("embed_q.weight") and name[: -len("weight")] + "scales" not in weights:
            values = weights[name.replace("embed_q", "unembed_out")]
            both = mx.concatenate([value.swapaxes(-1, -2), values], axis=1)
            out[name.replace("embed_q", "kv_b_proj")] = both.reshape(-1, both.shape[-1])
        elif "unembed_out.weight" not in name or name[: -len("weight")] + "scales" in weights:
            out[name] = value
    return out


def to_fp8(weight, rows, columns):
    """A weight as 8-bit floats, and their scales by block."""
    weight = weight.astype(mx.float32)
    height, width = weight.shape
    rows, columns = min(rows, height), min(columns, width)
    down, across = -(-height // rows), -(-width // columns)
    padded = mx.pad(weight, ((0, down * rows - height), (0, across * columns - width)))
    blocks = padded.reshape(down, rows, across, columns)
    scales = mx.maximum(mx.abs(blocks).max(axis=(1, 3)), 1e-12) / 448.0
    eighths = mx.to_fp8(blocks / scales[:, None, :, None])
    return eighths.reshape(padded.shape)[:height, :width], scales


def from_fp8(eighths, scales, rows, columns):
    """What they mean: number times scale, as bfloat16."""
    height, width = eighths.shape
    each = mx.repeat(mx.repeat(scales, min(rows, height), 0), min(columns, width), 1)
    numbers = mx.from_fp8(eighths, dtype=mx.float32)
    return (numbers * each[:height, :width]).astype(mx.bfloat16)


def fp8_suffix(storage):
    return "_scale" if storage == "fp8-rows" else "_scale_inv"


def fp8_weights(model, architecture, storage):
    """The model's weights as published: linear maps in 8-bit floats, experts one by one. The model
    itself then has the numbers that they mean."""
    rows, columns = FP8_BLOCKS.get(architecture, FP8_BLOCKS.get(storage, FP8_BLOCK))
    stored, meant = {}, {}
    for name, value in as_published(dict(tree_flatten(model.parameters()))).items():
        if not name.endswith("_proj.weight"):
            stored[name] = meant[name] = value
            continue
        stored[name], scales = to_fp8(value, rows, columns)
        stored[name + fp8_suffix(storage)] = scales
        if (rows, columns) == (128, 128):  # mlx-lm reads these by itself
            meant[name], meant[name + "_scale_inv"] = stored[name], scales
        else:
            meant[name] = from_fp8(stored[name], scales, rows, columns)
    sanitize = getattr(model, "sanitize", dict)
    model.load_weights(list(sanitize(meant).items()))
    return stored


def fp8_config(architecture, storage):
    if storage == "fp8-rows":
        return {"quant_method": "compressed-tensors", "format": "float-quantized"}
    block = list(FP8_BLOCKS.get(architecture, FP8_BLOCK))
    return {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": block}


def save_safetensors(path, weights):
    """As mx.save_safetensors, but bytes are 8-bit floats, for which MLX has no type."""
    types = {mx.uint8: "F8_E4M3", mx.bfloat16: "BF16", mx.float32: "F32"}
    header, data = {}, b""
    for name, value in weights.items():
        bits = value.view(mx.uint16) if value.dtype == mx.bfloat16 else value
        array = np.ascontiguousarray(np.array(bits)).tobytes()
        header[name] = {
            "dtype": types[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(array)],
        }
        data += array
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
