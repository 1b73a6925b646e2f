# Architectures whose layers keep a state, for compare.py.

from bases import BASE, EXPERTS, without
from mlx_lm.models import qwen3_5, qwen3_5_moe, qwen3_next

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

RECURRENT_ARCHITECTURES = {
    "qwen3_next": (
        qwen3_next,
        {
            **HYBRID,
            **HYBRID_EXPERTS,
            "model_type": "qwen3_next",
            "partial_rotary_factor": 0.5,
            "mlp_only_layers": [0],
        },
    ),
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
    "qwen3_5_moe": (
        qwen3_5_moe,
        {
            **without(HYBRID, "rope_theta"),
            **HYBRID_EXPERTS,
            "model_type": "qwen3_5_moe",
            "tie_word_embeddings": True,
        },
    ),
}
