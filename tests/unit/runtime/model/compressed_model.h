#pragma once

// A small DeepSeek-V4.1: a layer that sees its window alone, two that pool pairs of positions, two
// without pooling, of which the second chooses among the candidates that the first left.

#include <nlohmann/json.hpp>

namespace macrame::runtime::engine {

inline nlohmann::json CompressedConfig(const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json config = nlohmann::json::parse(R"({
    "model_type": "deepseek_v41", "num_hidden_layers": 5, "hidden_size": 64, "vocab_size": 101,
    "num_attention_heads": 8, "head_dim": 32, "q_lora_rank": 48, "qk_rope_head_dim": 16,
    "o_groups": 4, "o_lora_rank": 32, "n_routed_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 96, "sliding_window": 12, "compress_ratios": [0, 2, 2, 1, 1, 0],
    "kv_source_layer_ids": [1, 3], "index_source_layer_ids": [1, 3, 4],
    "candidate_source_layer_id": 3, "candidate_topk_blocks": 3, "candidate_block_size": 4,
    "index_n_heads": 8, "index_head_dim": 32, "index_topk": 8, "hc_mult": 3,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 64}})");
  config.update(changes);
  return config;
}

}  // namespace macrame::runtime::engine
