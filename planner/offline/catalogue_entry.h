#pragma once

// Models that are not at hand: entries in YAML (deploy/catalogue/models.yaml), and the description
// that a model's files would give, at a number of bits a weight. Text in, values out: no file is
// opened here.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/model.pb.h"

namespace macrame::planner {

// Compressed keys and values (multi-head latent attention): widths of its projections.
struct LatentAttention {
  uint32_t kv_rank = 0, q_rank = 0, nope = 128, rope = 64, value = 128;
  uint32_t index = 0;  // of the keys by which positions are chosen; 0: all are attended to
};

// As deploy/catalogue/models.yaml explains them; 0: not known or not so.
struct CatalogueEntry {
  std::string name;
  std::vector<std::string> aliases;
  uint32_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  uint32_t vocab = 0, context = 0;
  uint32_t experts = 0, active = 0, shared = 0, expert_width = 0, dense_layers = 0;
  uint32_t full_attention_every = 0, sliding_window = 0;
  uint32_t kv_index = 0;           // numbers of an indexer's key, beside keys and values by head
  uint32_t residual_streams = 0;   // vectors that a position carries from layer to layer
  uint32_t expert_hidden = 0;      // that routed experts work in, where it is not `hidden`
  double attention_weights = 0;    // of one layer, where its widths don't say it
  uint32_t fixed_state_bytes = 0;  // of a sequence, in each layer that does not attend
  std::optional<LatentAttention> latent;
  std::string architecture;         // model_type of its config.json, where this release serves it
  std::string engine;               // that serves it: empty: rankd's own; "mlx-lm"
  std::vector<std::string> splits;  // that mlx-lm can do of it: "tensor"
  bool tied_embeddings = false;     // the head is the embedding table
  double parameters = 0, active_parameters = 0;  // 10^9
  uint32_t group = 64;                           // weights that share a scale and a bias
  uint32_t bits = 0;                             // of a weight as its makers publish it; 0: 16
  double rest_bits = 0;                // of all that is not a routed expert; 0: as the experts
  std::map<uint32_t, uint64_t> bytes;  // of published builds, by bits
  uint64_t vision_bytes = 0;           // of those, a tower that text does not need
};

// INVALID_ARGUMENT with the line or the entry and what is wrong; a key that is not known is.
absl::StatusOr<std::vector<CatalogueEntry>> ReadCatalogue(const std::string& yaml);

// By name or alias, whatever the case and the separators; "mlx-community/…", "-4bit", "-Q5_K_M"
// and "-it" are left out of the comparison. NOT_FOUND says what may have been meant.
absl::StatusOr<const CatalogueEntry*> FindEntry(const std::vector<CatalogueEntry>& entries,
                                                std::string_view name);
// "MiniMax-M2.5-6bit" → 6, "…-IQ4_XS" → 4; nothing when the name says none.
std::optional<uint32_t> BitsInName(std::string_view name);
// Of the copy that is meant: as asked for (0: not said), else as the name says, else as the model
// is published.
uint32_t BitsOf(const CatalogueEntry& entry, std::string_view name, uint32_t asked);

// Architectures that rankd serves (runtime/model/config/model_config.h; a test holds the two
// together).
inline constexpr std::string_view kServedArchitectures[] = {
    "llama",          "qwen2",         "qwen3",        "mistral",      "qwen2_moe",
    "qwen3_moe",      "mixtral",       "ministral3",   "mistral3",     "phi3",
    "gemma3_text",    "gemma3",        "glm4",         "glm4_moe",     "minimax",
    "minimax_m2",     "minimax_m3_vl", "olmo2",        "olmoe",        "granite",
    "smollm3",        "seed_oss",      "ernie4_5",     "gpt_oss",      "deepseek_v2",
    "kimi_k2",        "kimi_k25",      "deepseek_v32", "deepseek_v3",  "glm4_moe_lite",
    "glm_moe_dsa",    "exaone4",       "mimo",         "olmo3",        "dots1",
    "solar_open",     "exaone_moe",    "qwen3_vl",     "qwen3_vl_moe", "kimi_vl",
    "youtu_llm",      "internlm3",     "helium",       "minicpm",      "qwen3_next",
    "qwen3_5",        "qwen3_5_moe",   "nemotron_h",   "gemma4",       "gemma4_text",
    "gemma4_unified", "deepseek_v41"};
// "this release predicts X but can't serve it yet: …"; empty when it can be served.
std::string WhyNotServed(const v1::ModelDescription& model);

// What the files of the model would say at `bits` a weight (16 and more: not quantised). Sizes
// follow from the shapes; where a published build's size is known, layers are scaled to it.
v1::ModelDescription DescribeEntry(const CatalogueEntry& entry, uint32_t bits);
// The same as it is planned: rankd keeps and reads the keys and values of all positions, so of a
// model that it serves no window makes the cache smaller.
v1::ModelDescription DescribeForPlan(const CatalogueEntry& entry, uint32_t bits);

}  // namespace macrame::planner
