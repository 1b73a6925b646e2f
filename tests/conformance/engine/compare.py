"""Logits of rankd against mlx-lm's, on tiny random models.

Each case is an architecture (with its own traits) in one storage. mlx-lm's model is made, its
weights are brought to the storage, saved as a model folder and run by rankd: a prompt in chunks,
then greedy steps through the KV cache. mlx-lm runs the same tokens in one go, over the very numbers
that were stored but in float32: on a CPU, MLX sums bf16 in bf16, which says nothing about either
engine. rankd computes in float32 on a CPU anyway, so the bound of models in floats is that of two
float32 programs that add in different orders. Products with quantised weights are integer dot
products over activations of 16 bits a number, which has a bound of its own; whichever it is, the
likeliest token must be mlx-lm's wherever the two likeliest are further apart than the bound. MLX's
mxfp8 and nvfp4 are multiplied as the floats that they are, within the bound of floats.
"""

import contextlib
import copy
import io
import json
import os
import subprocess
import sys
import tempfile
import zlib
from functools import partial

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from bases import (
    BASE,
    COMPRESSED,
    EXPERTS,
    GEMMA3,
    GLM4_MOE,
    LATENT,
    LLAMA3_SCALING,
    LONGROPE_SCALING,
    MINISTRAL3,
    SPARSE,
    YARN,
    YARN_SCALING,
    without,
)
from cases import run_cases
from checkpoints import (
    DEEPSEEK_CONFIG,
    PACKED,
    PUBLISHED,
    as_published,
    deepseek_weights,
    fp8_config,
    folded_experts,
    fp8_weights,
    mxfp8_weights,
    packed_config,
    packed_weights,
    save_safetensors,
)
from gemma4_architectures import GEMMA4_ARCHITECTURES
from minimax_architectures import MINIMAX_ARCHITECTURES
from minimax_architectures import PROMPT_TOKENS as LONG_PROMPTS
from mlx.utils import tree_flatten, tree_map, tree_map_with_path
from mlx_lm.models import (
    deepseek_v2,
    deepseek_v3,
    deepseek_v32,
    deepseek_v41,
    ernie4_5,
    exaone4,
    gemma3,
    gemma3_text,
    glm4,
    glm4_moe,
    glm4_moe_lite,
    glm_moe_dsa,
    gpt_oss,
    granite,
    kimi_k25,
    llama,
    mimo,
    minimax,
    ministral3,
    mistral3,
    mixtral,
    olmo2,
    olmoe,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    seed_oss,
    smollm3,
)
from more_architectures import MORE_ARCHITECTURES
from mlx_lm.utils import quantize_model
from recurrent_architectures import RECURRENT_ARCHITECTURES

PROMPT_TOKENS = 40
GREEDY_STEPS = 8
PREFILL_CHUNK = 16
# Largest difference of any logit, as a share of the largest logit.
FLOAT_BOUND = 5e-5
QUANTIZED_BOUND = 5e-4
# Models with experts: by how much norms are moved, how often, and what counts as a jump (seen: up
# to 6e-3 where none is, 1.5e-2 and more where one is).
TREMOR = 5e-4
TREMORS = 6
TORN = 1.2e-2
# Of models that choose positions, which all rows do in all layers.
SPARSE_TREMOR = (1e-5, 4e-4)
DRAWS_MAX = 10
# Until one is found in which no rounding chooses an expert: over 64 tokens of many experts few are.
WHOLE_DRAWS_MAX = 300

def llama_with_rope(scaling, **more):
    return (llama, {**BASE, "model_type": "llama", "rope_scaling": scaling, **more})


GPT_OSS = {
    **BASE,
    "model_type": "gpt_oss",
    "num_hidden_layers": 2,
    "head_dim": 32,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention"],
    "rope_theta": 150000,
    "rope_scaling": YARN_SCALING,
}

# name: (mlx-lm module, config)
ARCHITECTURES = {
    "llama": (llama, {**BASE, "model_type": "llama"}),
    "llama-tied": (llama, {**BASE, "model_type": "llama", "tie_word_embeddings": True}),
    "llama-bias": (
        llama,
        {**BASE, "model_type": "llama", "attention_bias": True, "mlp_bias": True},
    ),
    "llama-rope-llama3": (llama, {**BASE, "model_type": "llama", "rope_scaling": LLAMA3_SCALING}),
    "llama-rope-linear": (
        llama,
        {**BASE, "model_type": "llama", "rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    "llama-rope-dynamic": llama_with_rope({"type": "dynamic", "factor": 2.0}),
    "llama-rope-yarn": llama_with_rope(YARN_SCALING),
    "llama-rope-yarn-kimi": llama_with_rope({**YARN_SCALING, "beta_fast": 1.0, "beta_slow": 1.0}),
    "llama-rope-yarn-mscale": llama_with_rope(
        {**YARN_SCALING, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_slow": 0.5}
    ),
    "llama-rope-longrope": llama_with_rope(LONGROPE_SCALING),
    "llama-rope-interleaved": llama_with_rope(None, rope_traditional=True),
    "llama-rope-interleaved-yarn": llama_with_rope(YARN_SCALING, rope_traditional=True),
    "qwen2": (qwen2, {**BASE, "model_type": "qwen2", "tie_word_embeddings": True}),
    "qwen3": (qwen3, {**BASE, "model_type": "qwen3", "head_dim": 32, "rope_theta": 1e6}),
    "qwen3_moe": (
        qwen3_moe,
        {
            **BASE,
            **EXPERTS,
            "model_type": "qwen3_moe",
            "head_dim": 32,
            "rope_theta": 1e6,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [1],
        },
    ),
    "qwen2_moe": (
        qwen2_moe,
        {
            **BASE,
            **EXPERTS,
            "model_type": "qwen2_moe",
            "shared_expert_intermediate_size": 192,
            "norm_topk_prob": False,
        },
    ),
    "mixtral": (
        mixtral,
        {**BASE, "model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2},
    ),
    "deepseek_v3": (deepseek_v3, {**LATENT, "model_type": "deepseek_v3"}),
    # As DeepSeek publishes it: kv_b_proj, experts one by one.
    "deepseek_v3-published": (
        deepseek_v3,
        {**LATENT, "model_type": "deepseek_v3", "q_lora_rank": None, "rope_scaling": None},
    ),
    "kimi_k2": (deepseek_v3, {**LATENT, "model_type": "kimi_k2", "n_group": 1, "topk_group": 1}),
    "kimi_k25": (kimi_k25, {"model_type": "kimi_k25", "text_config": LATENT}),
    "glm_moe_dsa": (
        glm_moe_dsa,
        {
            **without(LATENT, "rope_scaling", "rope_theta"),
            "model_type": "glm_moe_dsa",
            "index_topk": 64,
            "index_n_heads": 2,
            "index_head_dim": 64,
            "moe_layer_freq": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    # Contexts up to index_topk, where every position is seen; the next go beyond.
    "deepseek_v32": (
        deepseek_v32,
        {
            **LATENT,
            "model_type": "deepseek_v32",
            "index_topk": 64,
            "index_n_heads": 2,
            "index_head_dim": 64,
        },
    ),
    "deepseek_v32-sparse": (
        deepseek_v32,
        {**LATENT, **SPARSE, "model_type": "deepseek_v32", "topk_method": "noaux_tc"},
    ),
    "glm_moe_dsa-sparse": (
        glm_moe_dsa,
        {
            **without(LATENT, "rope_scaling", "rope_theta"),
            **SPARSE,
            "model_type": "glm_moe_dsa",
            "moe_layer_freq": 1,
            "topk_method": "noaux_tc",
            "scoring_func": "sigmoid",
            "attention_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
    ),
    "deepseek_v41": (deepseek_v41, COMPRESSED),
    # Nothing is chosen, and no key rounded: heads of no whole blocks.
    "deepseek_v41-window": (
        deepseek_v41,
        {
            **COMPRESSED,
            "num_attention_heads": 16,
            "head_dim": 48,
            "o_groups": 2,
            "compress_ratios": [],
            "kv_source_layer_ids": [],
            "index_source_layer_ids": [],
            "candidate_source_layer_id": -1,
            "num_hidden_layers": 3,
            "num_experts_per_tok": 8,
            "scoring_func": "sigmoid",
            "rope_scaling": None,
        },
    ),
    "deepseek_v2": (
        deepseek_v2,
        {
            **LATENT,
            "model_type": "deepseek_v2",
            "topk_method": "group_limited_greedy",
            "norm_topk_prob": False,
            "rope_scaling": {**YARN, "mscale": 1.2, "mscale_all_dim": 0.707},
        },
    ),
    "glm4_moe_lite": (
        glm4_moe_lite,
        {
            **LATENT,
            "model_type": "glm4_moe_lite",
            "num_attention_heads": 6,
            "num_key_value_heads": 6,
            "n_group": 1,
            "topk_group": 1,
            "rope_scaling": None,
        },
    ),
    "mistral-sliding": (
        llama,
        {
            **BASE,
            "model_type": "mistral",
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "gpt_oss": (gpt_oss, GPT_OSS),
    # In 16 bits, as transformers writes it.
    "gpt_oss-published": (gpt_oss, GPT_OSS),
}

ARCHITECTURES.update(
    {
        "phi3": (phi3, {**BASE, "model_type": "phi3"}),
        "phi3-longrope": (
            phi3,
            {
                **without(BASE, "num_key_value_heads"),
                "model_type": "phi3",
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "partial_rotary_factor": 0.5,
                "original_max_position_embeddings": 32,
                "rope_scaling": without(LONGROPE_SCALING, "original_max_position_embeddings"),
            },
        ),
        "gemma3_text": (gemma3_text, GEMMA3),
        "gemma3_text-linear": (
            gemma3_text,
            {**GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        ),
        "gemma3": (
            gemma3,
            {
                "model_type": "gemma3",
                "vocab_size": 160,
                "text_config": without(GEMMA3, "vocab_size", "rope_theta", "rms_norm_eps"),
            },
        ),
        "ministral3": (ministral3, MINISTRAL3),
        "ministral3-sliding": (
            ministral3,
            {
                **MINISTRAL3,
                "sliding_window": 12,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            },
        ),
        "mistral3": (mistral3, {"model_type": "mistral3", "text_config": MINISTRAL3}),
        "mistral3-mistral": (
            mistral3,
            {"model_type": "mistral3", "text_config": {**BASE, "model_type": "mistral"}},
        ),
        "glm4": (
            glm4,
            {
                **BASE,
                "model_type": "glm4",
                "attention_bias": True,
                "head_dim": 32,
                "partial_rotary_factor": 0.5,
            },
        ),
        "glm4_moe": (glm4_moe, GLM4_MOE),
        "glm4_moe-groups": (
            glm4_moe,
            {**GLM4_MOE, "n_group": 4, "topk_group": 2, "use_qk_norm": True},
        ),
        "glm4_moe-one": (
            glm4_moe,
            {**GLM4_MOE, "num_experts_per_tok": 1, "attention_bias": False},
        ),
        "minimax": (
            minimax,
            {
                **BASE,
                "model_type": "minimax_m2",
                "intermediate_size": 128,
                "head_dim": 32,
                "rotary_dim": 16,
                "num_experts_per_tok": 2,
                "num_local_experts": 6,
                "shared_intermediate_size": 0,
                "use_qk_norm": True,
                "attn_type_list": [1, 1, 1],
            },
        ),
        "olmo2": (olmo2, {**BASE, "model_type": "olmo2"}),
        "olmoe": (
            olmoe,
            {
                **BASE,
                "model_type": "olmoe",
                "intermediate_size": 128,
                "num_experts": 6,
                "num_experts_per_tok": 2,
            },
        ),
        "granite": (
            granite,
            {
                **BASE,
                "model_type": "granite",
                "attention_bias": False,
                "mlp_bias": False,
                "logits_scaling": 8.0,
                "attention_multiplier": 0.0625,
                "embedding_multiplier": 12.0,
                "residual_multiplier": 0.22,
                "tie_word_embeddings": True,
            },
        ),
        "smollm3": (
            smollm3,
            {**BASE, "model_type": "smollm3", "no_rope_layer_interval": 2},
        ),
        "seed_oss": (
            seed_oss,
            {**BASE, "model_type": "seed_oss", "head_dim": 32, "attention_bias": True},
        ),
        "exaone4": (
            exaone4,
            {
                **BASE,
                "model_type": "exaone4",
                "head_dim": 32,
                "rope_scaling": None,
                "sliding_window": 12,
                "sliding_window_pattern": "LG",
            },
        ),
        "exaone4-plain": (
            exaone4,
            {
                **BASE,
                "model_type": "exaone4",
                "head_dim": 32,
                "rope_scaling": LLAMA3_SCALING,
                "sliding_window": None,
                "sliding_window_pattern": None,
            },
        ),
        "mimo": (mimo, {**BASE, "model_type": "mimo", "num_nextn_predict_layers": 1}),
        "ernie4_5": (
            ernie4_5,
            {**BASE, "model_type": "ernie4_5", "head_dim": 32, "use_bias": True},
        ),
    }
)

ARCHITECTURES.update(MORE_ARCHITECTURES)
ARCHITECTURES.update(RECURRENT_ARCHITECTURES)
ARCHITECTURES.update(GEMMA4_ARCHITECTURES)
ARCHITECTURES.update(MINIMAX_ARCHITECTURES)

# name: (type of what is not packed, bits, group size), and the mode where it is not affine
STORAGES = {
    "float32": (mx.float32, 0, 0),
    "bfloat16": (mx.bfloat16, 0, 0),
    "float16": (mx.float16, 0, 0),
    "4bit-g64": (mx.bfloat16, 4, 64),
    "4bit-g32": (mx.float16, 4, 32),
    "2bit-g32": (mx.bfloat16, 2, 32),
    "3bit-g64": (mx.bfloat16, 3, 64),
    "5bit-g32": (mx.float16, 5, 32),
    "6bit-g64": (mx.bfloat16, 6, 64),
    "8bit-g64": (mx.bfloat16, 8, 64),
    "8bit-g32-float32": (mx.float32, 8, 32),
    "mxfp4": (mx.bfloat16, 4, 32, "mxfp4"),
    # All maps in one of MLX's modes, or as mlx-lm's converter chooses: it keeps some at 8 bits.
    "mlx-mxfp8": (mx.bfloat16, 8, 32, "mxfp8"),
    "mlx-nvfp4": (mx.float16, 4, 16, "nvfp4"),
    "mxfp8-converted": (mx.bfloat16, 8, 32, "mxfp8"),
    "nvfp4-converted": (mx.bfloat16, 4, 16, "nvfp4"),
    # 8-bit floats with a scale for each block, or for each row; they are computed with as bfloat16.
    "fp8": (mx.bfloat16, 0, 0),
    "fp8-rows": (mx.bfloat16, 0, 0),
    "mxfp8": (mx.bfloat16, 0, 0),
    # Under DeepSeek's names 8-bit floats in tiles; experts too, or in packed 4-bit floats.
    "deepseek-fp8": (mx.bfloat16, 0, 0),
    "deepseek-fp4": (mx.bfloat16, 0, 0),
    # Whole numbers with a scale for each group, as compressed-tensors packs them.
    **{storage: (mx.bfloat16, *sizes) for storage, sizes in PACKED.items()},
}
# Positions are chosen by scores; nearly tied ones differ by what integer products round. With the
# layers of a deep model these roundings add up.
FLOATS = ("float32", "bfloat16", "float16", "deepseek-fp8")
FLOATS_ONLY = ("deepseek_v32-sparse", "glm_moe_dsa-sparse", "gemma4_text-deep", "deepseek_v41")
# Keys are rounded to 8 and 4 bits, where the last bit of a sum may decide what a number becomes, and
# so which entries are chosen: in every third model some logits move (3e-4, or 3e-2 by a choice), the
# others agree to 3e-6. Of DRAWS_MAX models one has to agree in all its logits.
ROUNDING = ("deepseek_v41",)


def is_in_floats(architecture):
    """Whether there is no other storage of it."""
    return architecture in FLOATS_ONLY or architecture in PUBLISHED


# Of these storages only these architectures.
ONLY = {
    "mxfp4": ("gpt_oss", "qwen3"),
    "mlx-mxfp8": ("llama", "llama-tied", "qwen3_moe", "gpt_oss", "deepseek_v3"),
    "mlx-nvfp4": ("llama", "llama-tied", "qwen3_moe", "gpt_oss", "deepseek_v3"),
    "mxfp8-converted": ("llama", "qwen3_moe"),
    "nvfp4-converted": ("llama-tied", "qwen3_moe", "deepseek_v3", "granite"),
    "fp8": ("deepseek_v3-published", "qwen3", "qwen3_moe", "phi3"),
    "fp8-rows": ("glm4_moe", "llama"),
    "int4-packed": ("kimi_k2", "kimi_k25", "qwen3", "phi3"),
    "int8-packed": ("llama", "glm4"),
    "mxfp8": ("minimax_m3",),
    "deepseek-fp8": ("deepseek_v41",),
    "deepseek-fp4": ("deepseek_v41-window",),
}

# Of the others one in so many, the same ones each time.
SAMPLE_ALWAYS = ("bfloat16", "4bit-g64")
SAMPLE_ONE_OF = 6


def added_to_norms(model):
    """What the model adds to the weights of its norms."""
    family = type(model).__module__.rsplit(".", 1)[-1]
    return 1.0 if family.startswith(("gemma3", "minimax_m3")) else 0.0


def randomize(model):
    """Weights large enough that every part of the model matters to the logits."""

    def draw(path, value):
        if path.endswith(("norm.weight", "norm_1.weight", "norm_2.weight")):
            return 1.0 - added_to_norms(model) + 0.2 * mx.random.normal(value.shape)
        if path.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
            return 1.0 + 0.2 * mx.random.normal(value.shape)
        scale = 0.3 if path.endswith("bias") else 1.5 / value.shape[-1] ** 0.5
        return scale * mx.random.normal(value.shape)

    flat = tree_flatten(model.parameters())
    model.load_weights([(path, draw(path, value)) for path, value in flat])


def as_type(model, dtype):
    model.update(
        tree_map(
            lambda p: p.astype(dtype) if mx.issubdtype(p.dtype, mx.floating) else p,
            model.parameters(),
        )
    )


def write_folder(folder, model, architecture, storage):
    config = dict(ARCHITECTURES[architecture][1])
    if quantization_of(storage):
        config["quantization"] = getattr(model, "converted_to", quantization_of(storage))
    path = os.path.join(folder, "model.safetensors")
    if storage.startswith("deepseek"):
        config["quantization_config"] = DEEPSEEK_CONFIG
        save_safetensors(path, *deepseek_weights(model, storage == "deepseek-fp4"))
    elif storage == "mxfp8":
        config["quantization_config"] = {"quant_method": "mxfp8"}
        save_safetensors(path, *mxfp8_weights(model))
    elif storage.startswith("fp8"):
        config["quantization_config"] = fp8_config(architecture, storage)
        save_safetensors(path, fp8_weights(model, architecture, storage))
    elif storage in PACKED:
        said = {"quantization_config": packed_config(storage)}
        if "text_config" in config:  # Kimi K2.5 says it of its text
            said = {"text_config": {**config["text_config"], **said}}
        config.update(said)
        weights = packed_weights(model, architecture, storage)
        mx.save_safetensors(path, weights, metadata={"format": "pt"})
    elif architecture in PUBLISHED:
        mx.save_safetensors(path, PUBLISHED[architecture](model), metadata={"format": "pt"})
    else:
        weights = dict(tree_flatten(model.parameters()))
        if architecture.endswith("-published"):
            weights = as_published(weights)
        if architecture.endswith("-folded"):
            weights = folded_experts(weights)
        mx.save_safetensors(path, weights, metadata={"format": "mlx"})
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)


def run_rankd(rankd, folder, prompt, vocab):
    out = os.path.join(folder, "logits.f32")
    command = [rankd, "--generate", "--model", folder, "--logits", out, "--kv-type", "float32"]
    command += ["--prompt-tokens", ",".join(map(str, prompt))]
    command += ["--max-tokens", str(GREEDY_STEPS), "--prefill-chunk", str(PREFILL_CHUNK)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"rankd ended with {done.returncode}: {done.stderr.strip()}")
    return np.fromfile(out, dtype=np.float32).reshape(-1, vocab)


def quantization_of(storage):
    """config.json's object; empty for models in floats."""
    if storage in PACKED:
        return {}
    _, bits, group_size, *mode = STORAGES[storage]
    quantization = {"bits": bits, "group_size": group_size} if bits else {}
    if mode:
        quantization["mode"] = mode[0]
    return quantization


def draw(architecture, storage, seed):
    """A random model in its storage, and a prompt for it."""
    module, config = ARCHITECTURES[architecture]
    dtype = STORAGES[storage][0]
    quantization = quantization_of(storage)
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(copy.deepcopy(config)))
    if "gemma3" in config["model_type"]:  # it finds out from the weights that there is no head
        text = getattr(model, "language_model", model)
        text.sanitize({})
    randomize(model)
    as_type(model, dtype)
    if storage.endswith("-converted"):
        convert(model, quantization)
    elif quantization:
        nn.quantize(model, **quantization)
    mx.eval(model.parameters())
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    prompt = mx.random.randint(0, vocabulary, (prompt_tokens(architecture),)).tolist()
    return model, prompt


def convert(model, quantization):
    """Quantises as `mlx_lm.convert -q --q-mode` does, and notes what it writes to config.json."""
    sizes = [quantization[key] for key in ("group_size", "bits", "mode")]
    with contextlib.redirect_stdout(io.StringIO()):
        _, config = quantize_model(model, {}, *sizes)
    object.__setattr__(model, "converted_to", config["quantization"])  # not a parameter


def prompt_tokens(architecture):
    return LONG_PROMPTS.get(architecture, PROMPT_TOKENS)


def reference(model, tokens):
    return np.array(model(mx.array([tokens]))[0].astype(mx.float32))


def is_torn(model, tokens, tremor, torn_from):
    """Whether the model's own logits jump when its norms move a little: where two experts of a
    token, or positions, are nearly tied, a rounding decides which one is taken, and no two programs
    agree."""
    stored = model.parameters()
    added = added_to_norms(model)

    def moved(path, value):
        if "norm" not in path:
            return value
        return value + (value + added) * tremor * mx.random.normal(value.shape)

    whole = reference(model, tokens)
    torn = False
    for _ in range(TREMORS):
        model.update(tree_map_with_path(moved, stored))
        moved_by = np.abs(reference(model, tokens) - whole).max()
        torn = torn or moved_by > torn_from * np.abs(whole).max()
    model.update(stored)
    return torn


def draw_whole(architecture, storage, case, run, tokens_of):
    """The first model of this case that no rounding decides: itself in float32, what run(model,
    prompt) made of it as stored, and tokens_of(prompt, that)."""
    config = ARCHITECTURES[architecture][1]
    has_experts = any("expert" in key for key in config.get("text_config", config))
    first = zlib.crc32(case.encode())
    draws = DRAWS_MAX if architecture in ROUNDING else WHOLE_DRAWS_MAX
    for seed in range(first, first + draws):
        model, prompt = draw(architecture, storage, seed)
        ours = run(model, prompt)
        tokens = tokens_of(prompt, ours)
        as_type(model, mx.float32)
        if architecture not in ROUNDING:
            if not has_experts or not is_torn(model, tokens, *tremor_of(architecture, storage)):
                return model, ours, tokens
        elif difference_of(ours, reference(model, tokens)) <= bound_of(storage):
            return model, ours, tokens
    raise RuntimeError(f"experts nearly tied, or numbers rounded otherwise, in {draws} models")


def difference_of(ours, theirs):
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def greedy_tokens(prompt, logits):
    return prompt + [int(row.argmax()) for row in logits[len(prompt) - 1 : -1]]


def compare(rankd, architecture, storage):
    model, ours, tokens = draw_whole(
        architecture,
        storage,
        f"{architecture} {storage}",
        lambda model, prompt: logits_of_rankd(rankd, architecture, storage, model, prompt),
        greedy_tokens,
    )
    theirs = reference(model, tokens)
    check_likeliest(ours, theirs, bound_of(storage) * np.abs(theirs).max())
    return difference_of(ours, theirs)


def logits_of_rankd(rankd, architecture, storage, model, prompt):
    config = ARCHITECTURES[architecture][1]
    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, model, architecture, storage)
        ours = run_rankd(rankd, folder, prompt, vocabulary)
    rows = prompt_tokens(architecture) + GREEDY_STEPS - 1
    if ours.shape[0] != rows:
        raise RuntimeError(f"rankd wrote {ours.shape[0]} rows of logits, not {rows}")
    return ours


def tremor_of(architecture, storage):
    sparse = architecture in FLOATS_ONLY or (architecture in LONG_PROMPTS and is_exact(storage))
    return SPARSE_TREMOR if sparse else (TREMOR, TORN)


def is_exact(storage):
    return bound_of(storage) == FLOAT_BOUND


def bound_of(storage):
    packed = STORAGES[storage][1] or storage == "deepseek-fp4"
    if storage in ("mlx-mxfp8", "mlx-nvfp4"):
        return FLOAT_BOUND
    return QUANTIZED_BOUND if packed else FLOAT_BOUND


def check_likeliest(ours, theirs, bound):
    best = theirs.argmax(axis=1)
    second = np.sort(theirs, axis=1)[:, -2]
    apart = theirs.max(axis=1) - second > 2 * bound
    wrong = np.flatnonzero(apart & (ours.argmax(axis=1) != best))
    if len(wrong) > 0:
        raise RuntimeError(f"another likeliest token at position {wrong[0]}")


def is_in_sample(architecture, storage):
    """What stands for the whole table in deploy/test: it takes a second for each three models."""
    if storage in SAMPLE_ALWAYS or storage in ONLY:
        return True
    return zlib.crc32(f"{architecture} {storage}".encode()) % SAMPLE_ONE_OF == 0


def main():
    rankd = sys.argv[1]
    # Further arguments: only cases with one of these in "ARCHITECTURE STORAGE", or --all of them.
    wanted = [word for word in sys.argv[2:] if word != "--all"]
    cases = [(a, s) for a in ARCHITECTURES for s in STORAGES if a in ONLY.get(s, ARCHITECTURES)]
    cases = [(a, s) for a, s in cases if s in FLOATS or not is_in_floats(a)]
    if wanted:
        cases = [case for case in cases if any(w in " ".join(case) for w in wanted)]
    elif "--all" not in sys.argv:
        cases = [case for case in cases if is_in_sample(*case)]
    failed, worst = run_cases(cases, partial(compare, rankd), lambda c: bound_of(c[1]))
    print(
        f"engine conformance: {len(cases) - failed} of {len(cases)} models agree with mlx-lm, "
        f"largest difference {worst.get(FLOAT_BOUND, 0):.1e} of the largest logit in floats "
        f"(bound {FLOAT_BOUND:.0e}), {worst.get(QUANTIZED_BOUND, 0):.1e} quantised "
        f"(bound {QUANTIZED_BOUND:.0e})"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
