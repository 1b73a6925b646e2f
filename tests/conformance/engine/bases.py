"""Small configs that the compared architectures are made from."""

BASE = {
    "num_hidden_layers": 3,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 160,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}

LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

YARN_SCALING = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 8.0,
}

LONGROPE_SCALING = {
    "type": "longrope",
    "original_max_position_embeddings": 64,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0, 1.1, 1.3, 1.9, 2.8, 4.0, 6.5, 9.0],
}


EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 128}

GEMMA3 = {
    **BASE,
    "model_type": "gemma3_text",
    "num_hidden_layers": 4,
    "head_dim": 32,
    "rope_theta": 1e6,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 48,
    "sliding_window": 12,
    "sliding_window_pattern": 3,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}

MINISTRAL3 = {
    **BASE,
    "model_type": "ministral3",
    "head_dim": 32,
    "rope_parameters": {
        **YARN_SCALING,
        "type": "yarn",
        "rope_theta": 1e6,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3,
        "original_max_position_embeddings": 16,
    },
}

GLM4_MOE = {
    **BASE,
    "model_type": "glm4_moe",
    "num_hidden_layers": 3,
    "moe_intermediate_size": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 3,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "first_k_dense_replace": 1,
    "head_dim": 32,
    "rope_scaling": None,
    "use_qk_norm": False,
    "attention_bias": True,
    "partial_rotary_factor": 0.5,
    "num_nextn_predict_layers": 1,
}

YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}

# Multi-head latent attention, and experts in groups. Two layers: where four products with
# quantised weights follow each other in a half layer, each rounds its activations.
LATENT = {
    **BASE,
    "num_hidden_layers": 2,
    "num_key_value_heads": 8,
    "kv_lora_rank": 64,
    "q_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 16,
    "v_head_dim": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 128,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "rope_scaling": YARN,
}

# An indexer that chooses 12 positions.
SPARSE = {"index_topk": 12, "index_n_heads": 16, "index_head_dim": 32}

# DeepSeek-V4.1: a layer that sees its window alone, two that pool pairs of positions, two without
# pooling, of which the second chooses among what the first left of the entries.
COMPRESSED = {
    **BASE,
    "model_type": "deepseek_v41",
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "head_dim": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "o_groups": 4,
    "o_lora_rank": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 128,
    "sliding_window": 12,
    "compress_ratios": [0, 2, 2, 1, 1, 0],
    "kv_source_layer_ids": [1, 3],
    "index_source_layer_ids": [1, 3, 4],
    "candidate_source_layer_id": 3,
    "candidate_topk_blocks": 3,
    "candidate_block_size": 4,
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 8,
    "hc_mult": 3,
    "rope_theta": 10000.0,
    "compress_rope_theta": 40000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
    },
    "swiglu_limit": 2.0,
    "gate_temp": 1.25,
}


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}
