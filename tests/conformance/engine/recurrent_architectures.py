# Architectures whose layers keep a state, for compare.py.

from bases import BASE, EXPERTS, without
from mlx_lm.models import nemotron_h, qwen3_5, qwen3_5_moe, qwen3_next

# Gated delta rule beside gated attention. Two layers, as of bases.LATENT.
HYBRID = {
    **BASE,
    "num_hidden_layers": 2,
    "head_dim": 32,
    "full_attention_interval": 2,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 48,
    "linear_conv_kernel_dim": 4,
}

HYBRID_EXPERTS = {
    **EXPERTS,
    "shared_expert_intermediate_size": 192,
    "decoder_sparse_step": 1,
    "norm_topk_prob": True,
}

# State spaces beside attention, feed-forwards and experts: each half layer by itself.
NEMOTRON = {
    **without(BASE, "rms_norm_eps", "num_hidden_layers"),
    "model_type": "nemotron_h",
    "hybrid_override_pattern": ["M", "*", "-", "M"],
    "layer_norm_epsilon": 1e-5,
    "attention_bias": False,
    "mamba_num_heads": 4,
    "mamba_head_dim": 32,
    "mamba_proj_bias": False,
    "ssm_state_size": 32,
    "conv_kernel": 4,
    "n_groups": 2,
    "mlp_bias": False,
    "use_bias": False,
    "use_conv_bias": True,
    "head_dim": 32,
}

NEXT = {
    **HYBRID,
    **HYBRID_EXPERTS,
    "model_type": "qwen3_next",
    "partial_rotary_factor": 0.5,
    "mlp_only_layers": [0],
}

MOE = {
    **without(HYBRID, "rope_theta"),
    **HYBRID_EXPERTS,
    "model_type": "qwen3_5_moe",
    "tie_word_embeddings": True,
}

RECURRENT_ARCHITECTURES = {
    "nemotron_h": (nemotron_h, NEMOTRON),
    "nemotron_h-experts": (
        nemotron_h,
        {
            **NEMOTRON,
            "hybrid_override_pattern": ["M", "E", "*"],
            "mamba_proj_bias": True,
            "time_step_limit": [0.01, 1.5],
            "n_routed_experts": 6,
            "moe_intermediate_size": 128,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "moe_shared_expert_intermediate_size": 192,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
        },
    ),
    "qwen3_next": (qwen3_next, NEXT),
    "qwen3_next-published": (qwen3_next, NEXT),
    "qwen3_5": (
        qwen3_5,
        {
            "model_type": "qwen3_5",
            "text_config": {
                **without(HYBRID, "rope_theta"),
                "model_type": "qwen3_5_text",
                "linear_num_key_heads": 4,
                "rope_parameters": {
                    "type": "default",
                    "rope_theta": 1e6,
                    "partial_rotary_factor": 0.25,
                    "mrope_section": [1, 1, 2],
                },
            },
        },
    ),
    "qwen3_5_moe": (qwen3_5_moe, MOE),
    "qwen3_5_moe-published": (
        qwen3_5_moe,
        {"model_type": "qwen3_5_moe", "text_config": {**MOE, "tie_word_embeddings": False}},
    ),
}
