"""Further architectures: those that differ from others by little."""

from bases import BASE, EXPERTS, GLM4_MOE, LATENT, YARN_SCALING, without
from mlx_lm.models import (
    dots1,
    exaone4,
    exaone_moe,
    helium,
    internlm3,
    kimi_vl,
    minicpm,
    olmo3,
    qwen3_vl,
    qwen3_vl_moe,
    solar_open,
    youtu_llm,
)

MROPE = {"rope_type": "default", "mrope_section": [4, 6, 6], "mrope_interleaved": True}
WINDOWED = {
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}

VL_MOE = {
    "model_type": "qwen3_vl_moe",
    "text_config": {
        **BASE,
        **EXPERTS,
        "model_type": "qwen3_vl_moe_text",
        "head_dim": 32,
        "rope_scaling": MROPE,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
}

MORE_ARCHITECTURES = {
    # As it is published: both say which layers look at a window.
    "exaone4-types": (
        exaone4,
        {
            **BASE,
            **WINDOWED,
            "model_type": "exaone4",
            "head_dim": 32,
            "rope_scaling": None,
            "sliding_window_pattern": "LGL",
        },
    ),
    "olmo3": (
        olmo3,
        {**BASE, **WINDOWED, "model_type": "olmo3", "rope_scaling": YARN_SCALING},
    ),
    "dots1": (
        dots1,
        {
            **without(GLM4_MOE, "partial_rotary_factor", "num_nextn_predict_layers"),
            "model_type": "dots1",
            "n_group": 4,
            "topk_group": 2,
            "scoring_func": "noaux_tc",
            "attention_bias": False,
        },
    ),
    "solar_open": (
        solar_open,
        {
            **without(GLM4_MOE, "num_nextn_predict_layers"),
            "model_type": "solar_open",
            "partial_rotary_factor": 1.0,
            "attention_bias": False,
        },
    ),
    "exaone_moe": (
        exaone_moe,
        {
            **BASE,
            **EXPERTS,
            **WINDOWED,
            "model_type": "exaone_moe",
            "head_dim": 32,
            "num_shared_experts": 1,
            "is_moe_layer": [False, True, True],
        },
    ),
    "qwen3_vl": (
        qwen3_vl,
        {
            "model_type": "qwen3_vl",
            "text_config": {
                **BASE,
                "model_type": "qwen3_vl_text",
                "head_dim": 32,
                "rope_scaling": MROPE,
                "tie_word_embeddings": True,
            },
        },
    ),
    "qwen3_vl_moe": (qwen3_vl_moe, VL_MOE),
    "qwen3_vl_moe-published": (qwen3_vl_moe, VL_MOE),
    "kimi_vl": (
        kimi_vl,
        {
            "model_type": "kimi_vl",
            "text_config": {**LATENT, "q_lora_rank": None, "rope_scaling": None},
        },
    ),
    "youtu_llm": (
        youtu_llm,
        {
            **BASE,
            "model_type": "youtu_llm",
            "num_key_value_heads": 8,
            "kv_lora_rank": 64,
            "q_lora_rank": 128,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 16,
            "v_head_dim": 64,
            "tie_word_embeddings": True,
        },
    ),
    "internlm3": (
        internlm3,
        {**BASE, "model_type": "internlm3", "qkv_bias": True, "bias": True},
    ),
    "helium": (
        helium,
        {
            **BASE,
            "model_type": "helium",
            "attention_bias": True,
            "mlp_bias": True,
            "head_dim": 16,
        },
    ),
    "minicpm": (
        minicpm,
        {
            **BASE,
            "model_type": "minicpm",
            "scale_emb": 12.0,
            "scale_depth": 1.4,
            "dim_model_base": 64,
        },
    ),
}
