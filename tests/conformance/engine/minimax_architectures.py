"""MiniMax M3's text, small: layers whose key-value heads choose blocks of positions. Prompts are
long enough that there are more blocks than are chosen; each row that chooses may be torn between
two."""

from bases import BASE, without
from mlx_lm.models import minimax_m3_vl

TEXT = {
    **without(BASE, "rope_theta"),
    "head_dim": 32,
    "rotary_dim": 16,
    "intermediate_size": 128,
    "dense_intermediate_size": 256,
    "shared_intermediate_size": 128,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "hidden_act": "swigluoai",
    "swiglu_limit": 3.0,
}

# As its makers spell it: of three blocks and more the last one, and another.
PUBLISHED = {
    "model_type": "minimax_m3_vl",
    "text_config": {
        **TEXT,
        "moe_layer_freq": [0, 1, 1],
        "sparse_attention_config": {
            "use_sparse_attention": True,
            "sparse_num_index_heads": 2,
            "sparse_index_dim": 32,
            "sparse_topk_blocks": 2,
            "sparse_block_size": 32,
            "sparse_score_type": "max",
            "sparse_init_block": 0,
            "sparse_local_block": 1,
            "sparse_attention_freq": [0, 1, 1],
            "sparse_disable_index_value": [0, 1, 1],
        },
    },
}

MINIMAX_ARCHITECTURES = {
    "minimax_m3": (minimax_m3_vl, PUBLISHED),
    # Some copies' tensors.
    "minimax_m3-folded": (minimax_m3_vl, PUBLISHED),
    # As transformers 5 does; one query serves all heads, and the last block has to be chosen too.
    "minimax_m3-flat": (
        minimax_m3_vl,
        {
            "model_type": "minimax_m3_vl",
            "text_config": {
                **without(TEXT, "rotary_dim"),
                "hidden_act": "silu",
                "num_hidden_layers": 2,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 10000.0,
                    "partial_rotary_factor": 0.25,
                },
                "mlp_layer_types": ["sparse", "dense"],
                "layer_types": ["minimax_m3_sparse", "minimax_m3_sparse"],
                "index_n_heads": 1,
                "index_head_dim": 48,
                "index_topk_blocks": 1,
                "index_block_size": 64,
                "index_local_blocks": 0,
            },
        },
    ),
}

PROMPT_TOKENS = {name: 68 for name in MINIMAX_ARCHITECTURES}
