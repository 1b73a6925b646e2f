"""Checkpoints as makers publish them, where that is not MLX's form."""

import json

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

def folded_experts(weights):
    """As some copies of MiniMax M3 have them: the expert that all tokens take behind the others,
    gates above what goes up, a dense layer's feed-forward in the experts' place."""
    out, block = {}, ".block_sparse_moe."
    for name, value in weights.items():
        if ".mlp." in name:
            out[name.replace(".mlp.", block)] = value
        elif f"{block}switch_mlp.gate_proj" in name:
            shared = name.replace("switch_mlp", "shared_experts")
            both = [mx.concatenate([weights[n], weights[s][None]], axis=0)
                    for n, s in ((name, shared), (name.replace("gate_", "up_"),
                                                  shared.replace("gate_", "up_")))]
            out[name.replace("gate_proj", "gate_up_proj")] = mx.concatenate(both, axis=1)
        elif f"{block}switch_mlp.down_proj" in name:
            shared = weights[name.replace("switch_mlp", "shared_experts")]
            out[name] = mx.concatenate([value, shared[None]], axis=0)
        elif "shared_experts." not in name and "switch_mlp." not in name:
            out[name] = value
    return out


MAPS_BY_NUMBER = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}


def mxfp8_weights(model):
    """The model's weights as MiniMax publishes M3 in 8-bit floats, 32 of a row with a power of two;
    experts one by one. The model itself then has the numbers that they mean."""
    stored, meant = {}, {}
    for name, value in tree_flatten(model.parameters()):
        meant[name] = value
        if not name.endswith("_proj.weight"):
            stored[name] = value
            continue
        sizes = {"group_size": 32, "bits": 8, "mode": "mxfp8"}
        words, scales = mx.quantize(value, **sizes)
        meant[name] = mx.dequantize(words, scales, **sizes).astype(mx.bfloat16)
        eighths = words.view(mx.uint8)
        if ".switch_mlp." not in name:
            stored[name], stored[name + "_scale_inv"] = eighths, scales
            continue
        module, _, own = name.removesuffix(".weight").partition(".switch_mlp.")
        for i in range(value.shape[0]):
            expert = f"{module}.experts.{i}.{MAPS_BY_NUMBER[own]}.weight"
            stored[expert], stored[expert + "_scale_inv"] = eighths[i], scales[i]
    model.load_weights(list(meant.items()))
    types = {name: "U8" for name in stored if name.endswith("_scale_inv")}
    return stored, types


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


def fused_experts(weights, turned):
    """All experts of a layer in two tensors, gates above what goes up; or each turned over."""
    out = {}
    for name, value in weights.items():
        if ".switch_mlp." not in name:
            out[name] = value
            continue
        if name.endswith("up_proj.weight"):
            continue
        stored = name[: -len(".weight")].replace("switch_mlp", "experts")
        if stored.endswith("gate_proj"):
            ups = weights[name.replace("gate_proj", "up_proj")]
            value = mx.concatenate([value, ups], axis=1)
            stored = stored.replace("gate_proj", "gate_up_proj")
        out[stored] = value.swapaxes(1, 2) if turned else value
    return out


def gpt_oss_in_floats(model):
    """All experts of a layer in two tensors, the rows of gate and up in turn, each turned over."""
    weights = dict(tree_flatten(model.parameters()))
    out = {}
    for name, value in weights.items():
        if ".experts." not in name:
            out[name] = value
            continue
        if ".gate_proj." in name:
            ups = weights[name.replace("gate_proj", "up_proj")]
            value = mx.stack([value, ups], axis=2).flatten(1, 2)
            name = name.replace("gate_proj", "gate_up_proj")
        elif ".up_proj." in name:
            continue
        module, _, part = name.rpartition(".")
        turned = part == "weight"
        out[module if turned else f"{module}_bias"] = value.swapaxes(1, 2) if turned else value
    return {name: mx.contiguous(value) for name, value in out.items()}


def fused_gemma_experts(weights):
    """Gemma's, in a module of its own."""
    named = {name.replace("experts.switch_glu.", "switch_mlp."): value
             for name, value in weights.items()}
    return fused_experts(named, turned=False)


def published_name(name):
    inside, behind = "language_model.model.", "language_model."
    if name.startswith(inside):
        return "model.language_model." + name[len(inside):]
    return name[len(behind):] if name.startswith(behind) else name


def as_qwen_publishes(model, experts):
    """Convolutions as PyTorch has them, and then norms as differences from one. The model itself
    has the numbers that mlx-lm makes of them."""
    out = {}
    weights = experts(dict(tree_flatten(model.parameters())))
    is_hybrid = any(name.endswith("conv1d.weight") for name in weights)
    for name, value in weights.items():
        if name.endswith("conv1d.weight"):
            value = value.swapaxes(1, 2)
        elif is_hybrid and name.endswith("norm.weight") and ".linear_attn." not in name:
            value = value - 1.0
        out[published_name(name)] = mx.contiguous(value)
    # In 16 bits its own sum with one would be rounded.
    exact = {name: value.astype(mx.float32) for name, value in out.items()}
    model.load_weights(list(model.sanitize(exact).items()))
    return out


# How makers publish what these are named after, in floats alone.
PUBLISHED = {
    "qwen3_next-published": lambda model: as_qwen_publishes(model, as_published),
    "qwen3_5_moe-published": lambda model: as_qwen_publishes(
        model, lambda weights: fused_experts(weights, turned=False)
    ),
    "qwen3_vl_moe-published": lambda model: as_qwen_publishes(
        model, lambda weights: fused_experts(weights, turned=True)
    ),
    "gpt_oss-published": gpt_oss_in_floats,
    "gemma4_text-experts-published": lambda model: as_qwen_publishes(model, fused_gemma_experts),
}


# Of packed storages, bits and numbers with a scale.
PACKED = {"int4-packed": (4, 32), "int8-packed": (8, 128)}


def to_packed(weight, bits, group):
    """Whole numbers as compressed-tensors packs them, and scales of groups along a row."""
    rows, columns = weight.shape
    middle, each = 1 << (bits - 1), 32 // bits
    groups = weight.astype(mx.float32).reshape(rows, columns // group, group)
    scales = (mx.abs(groups).max(axis=-1) / (middle - 0.5)).astype(mx.bfloat16)
    whole = mx.round(groups / scales.astype(mx.float32)[..., None])
    numbers = (mx.clip(whole, -middle, middle - 1) + middle).astype(mx.uint32)
    numbers = numbers.reshape(rows, columns // each, each)
    words = (numbers << (bits * mx.arange(each, dtype=mx.uint32))).sum(axis=-1)
    return words.astype(mx.uint32).view(mx.int32), scales


def as_affine(stored, bits):
    """What packed numbers mean to MLX, as mlx-lm reads Kimi's."""
    out = {}
    for name, value in stored.items():
        module, _, part = name.rpartition(".")
        if part == "weight_packed":
            out[f"{module}.weight"] = value.view(mx.uint32)
        elif part == "weight_scale":
            out[f"{module}.scales"] = value
            out[f"{module}.biases"] = -(1 << (bits - 1)) * value
        elif part != "weight_shape":
            out[name] = value
    return out


def packed_weights(model, architecture, storage):
    """The model's weights as published: of Kimi the experts are packed, of others all linear maps.
    The model itself then has the numbers that mlx-lm makes of them."""
    bits, group = PACKED[storage]
    is_kimi = architecture.startswith("kimi")
    stored = {}
    for name, value in as_published(dict(tree_flatten(model.parameters()))).items():
        if not name.endswith("_proj.weight") or (is_kimi and ".experts." not in name):
            stored[name] = value
            continue
        stored[name + "_packed"], stored[name + "_scale"] = to_packed(value, bits, group)
        stored[name + "_shape"] = mx.array(value.shape, dtype=mx.int32)
    meant = model.sanitize(dict(stored)) if is_kimi else as_affine(stored, bits)
    nn.quantize(model, group_size=group, bits=bits,
                class_predicate=lambda path, _: f"{path}.scales" in meant)
    model.load_weights(list(meant.items()))
    return stored


def packed_config(storage):
    bits, group = PACKED[storage]
    weights = {"num_bits": bits, "group_size": group, "strategy": "group", "symmetric": True,
               "type": "int", "actorder": None, "dynamic": False}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
            "ignore": ["lm_head"]}


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


# DeepSeek-V4.1's own names, from MLX's.
OWN_NAMES = (
    ("model.embed_tokens.", "embed."),
    ("lm_head.", "head."),
    ("model.", ""),
    (".self_attn.sinks", ".attn.attn_sink"),
    (".self_attn.", ".attn."),
    (".indexer.k_proj.", ".indexer.wk."),
    (".compressor.kv_norm.", ".compressor.norm."),
    (".compressor.gate_proj.", ".compressor.wgate."),
    (".q_a_norm.", ".q_norm."),
    (".q_a_proj.", ".wq_a."),
    (".q_b_proj.", ".wq_b."),
    (".kv_proj.", ".wkv."),
    (".o_a_proj.", ".wo_a."),
    (".o_b_proj.", ".wo_b."),
    (".mlp.", ".ffn."),
    (".input_layernorm.", ".attn_norm."),
    (".post_attention_layernorm.", ".ffn_norm."),
    (".attn_hc.", ".hc_attn_"),
    (".ffn_hc.", ".hc_ffn_"),
    (".e_score_correction_bias", ".bias"),
    (".gate_proj.", ".w1."),
    (".down_proj.", ".w2."),
    (".up_proj.", ".w3."),
)


def own_name(name):
    for theirs, own in OWN_NAMES:
        name = name.replace(theirs, own)
    return name


def in_tiles(weight):
    """As 8-bit floats, with a power of two for each tile of 32 x 32: bytes, scales, meaning."""
    height, width = weight.shape
    tiles = weight.astype(mx.float32).reshape(height // 32, 32, width // 32, 32)
    powers = mx.ceil(mx.log2(mx.maximum(mx.abs(tiles).max(axis=(1, 3)), 1e-4) / 448.0))
    each = mx.power(2.0, powers)[:, None, :, None]
    eighths = mx.to_fp8(tiles / each)
    meant = (mx.from_fp8(eighths, dtype=mx.float32) * each).reshape(height, width)
    return eighths.reshape(height, width), (powers + 127).astype(mx.uint8), meant


def deepseek_weights(model, fp4):
    """The model's weights as DeepSeek publishes V4.1, and the types that safetensors has for them:
    experts one by one in packed 4-bit floats if `fp4`, and large maps in 8-bit floats. The model
    itself then has the numbers that they mean."""
    stored, types, meant = {}, {}, {}

    def put(name, numbers, scales, dtype):
        scale = name.replace(".weight", ".scale")
        stored[name], stored[scale] = numbers, scales
        types[name], types[scale] = dtype, "F8_E8M0"

    for name, value in tree_flatten(model.parameters()):
        meant[name] = value
        large = ("_a_proj.weight", "_b_proj.weight", "self_attn.kv_proj.weight")
        if ".switch_mlp." in name and fp4:
            packed, scales = mx.quantize(value, group_size=32, bits=4, mode="mxfp4")
            meant[name] = mx.dequantize(packed, scales, group_size=32, bits=4, mode="mxfp4")
            for i in range(value.shape[0]):
                own = own_name(name.replace("switch_mlp.", f"{i}."))
                put(own, packed[i].view(mx.uint8), scales[i], "I8")
        elif ".switch_mlp." in name:
            experts = [in_tiles(one) for one in value]
            meant[name] = mx.stack([one for _, _, one in experts])
            for i, (numbers, scales, _) in enumerate(experts):
                put(own_name(name.replace("switch_mlp.", f"{i}.")), numbers, scales, "F8_E4M3")
        elif (name.endswith(large) or ".shared_experts." in name) and value.shape[-2] % 32 == 0:
            numbers, scales, one = in_tiles(value.reshape(-1, value.shape[-1]))
            put(own_name(name), numbers, scales, "F8_E4M3")
            meant[name] = one.reshape(value.shape)
        else:
            stored[own_name(name)] = value
    model.load_weights(list(meant.items()))
    return stored, types


DEEPSEEK_CONFIG = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "scale_fmt": "ue8m0",
    "weight_block_size": [32, 32],
    "expert_dtype": "fp4",
}


def save_safetensors(path, weights, own_types=None):
    """As mx.save_safetensors, but bytes are 8-bit floats, for which MLX has no type, or what
    `own_types` says by name."""
    types = {mx.uint8: "F8_E4M3", mx.bfloat16: "BF16", mx.float32: "F32"}
    header, data = {}, b""
    for name, value in weights.items():
        bits = value.view(mx.uint16) if value.dtype == mx.bfloat16 else value
        array = np.ascontiguousarray(np.array(bits)).tobytes()
        header[name] = {
            "dtype": (own_types or {}).get(name) or types[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(array)],
        }
        data += array
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
