// DeepSeek-V4.1's config and files: what they say, and that what can't be served has its own
// sentence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Refusal(const json& changes) {
  const auto parsed = ParseModelConfig(CompressedConfig(changes).dump(), "m");
  return parsed.ok()
             ? ""
             : ReasonOf(parsed.status()).code() + ": " + std::string(parsed.status().message());
}

TEST(CompressedConfigTest, WhatAPositionCarries) {
  const auto config = ParseModelConfig(CompressedConfig().dump(), "m");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const int own = 3 * 64 + 3;  // streams and what the next half layer weighs them by
  for (const int layer : {0, 1, 3, 5}) {
    const CarriedRow row = CarriedInto(*config, layer);
    EXPECT_EQ(row.hidden, 3 * 64);
    EXPECT_EQ(row.width, own) << "layers from " << layer << " make and choose for themselves";
    EXPECT_TRUE(row.as_float32);
  }
  const CarriedRow second = CarriedInto(*config, 2);
  EXPECT_EQ(second.entry.begin, own);
  EXPECT_EQ(second.entry.size, 32 + 32);
  EXPECT_EQ(second.chosen.begin, own + 64);
  EXPECT_EQ(second.chosen.size, 8);
  EXPECT_EQ(second.candidates.size, 0);
  EXPECT_EQ(second.width, own + 64 + 8);
  const CarriedRow last = CarriedInto(*config, 4);
  EXPECT_EQ(last.entry.begin, own);
  EXPECT_EQ(last.chosen.size, 0) << "it chooses itself, among candidates";
  EXPECT_EQ(last.candidates.begin, own + 64);
  EXPECT_EQ(last.width, own + 64 + 3);
  EXPECT_EQ(CarriedWidthMax(*config), second.width);
  EXPECT_EQ(config->kv_heads, 4) << "output groups are what a tensor split cuts";
  EXPECT_EQ(config->compress.SourceOf(0), -1);
  EXPECT_EQ(config->compress.SourceOf(2), 1);
  EXPECT_EQ(config->compress.SourceOf(4), 3);
  EXPECT_EQ(config->experts.scores, RouterScores::kRootSoftplus);
}

TEST(CompressedConfigTest, TheTextOfACheckpointWithVision) {
  json nested = {{"model_type", "deepseek_v41"}, {"text_config", CompressedConfig()}};
  const auto config = ParseModelConfig(nested.dump(), "m");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->layer_count, 5);
}

TEST(CompressedConfigTest, WhatIsNotServedHasItsOwnSentence) {
  EXPECT_THAT(Refusal({{"engram_layer_ids", {1, 4}}}),
              AllOf(HasSubstr("MODEL_FORMAT_UNSUPPORTED"), HasSubstr("n-gram memory")));
  EXPECT_THAT(Refusal({{"kv_source_layer_ids", {3}}}), HasSubstr("layer 1 compresses, and no"));
  EXPECT_THAT(Refusal({{"kv_source_layer_ids", {1, 2, 3}}}),
              HasSubstr("layer 2 is in 'kv_source_layer_ids' and not in 'index_source"));
  EXPECT_THAT(Refusal({{"compress_ratios", {0, 2, 1, 1, 1}}}),
              HasSubstr("layer 2 has the compress ratio 1, its KV source, layer 1, 2"));
  EXPECT_THAT(Refusal({{"compress_ratios", {0, 3, 3, 1, 1}}}), HasSubstr("a compress ratio of 3"));
  EXPECT_THAT(Refusal({{"compress_ratios", {0, 0, 2, 1, 1}}}),
              HasSubstr("layer 1 is a KV or index source, and its ratio"));
  EXPECT_THAT(Refusal({{"index_source_layer_ids", {1, 9}}}),
              HasSubstr("'index_source_layer_ids' holds 9"));
  EXPECT_THAT(Refusal({{"candidate_source_layer_id", 2}}),
              HasSubstr("'candidate_source_layer_id' 2 is not among"));
  EXPECT_THAT(Refusal({{"candidate_source_layer_id", 1}}), HasSubstr("a KV source behind"));
  EXPECT_THAT(Refusal({{"candidate_topk_blocks", 2}}), HasSubstr("too few for 'index_topk' 8"));
  EXPECT_THAT(Refusal({{"scoring_func", "softmax"}}), HasSubstr("scoring_func 'softmax'"));
  EXPECT_THAT(Refusal({{"hc_mult", 17}}), HasSubstr("at most 16 residual streams"));
  EXPECT_THAT(Refusal({{"o_groups", 3}}), HasSubstr("not a multiple of 'o_groups' 3"));
  EXPECT_THAT(Refusal({{"head_dim", 40}}), HasSubstr("multiples of 16"));
  EXPECT_THAT(Refusal({{"n_shared_experts", 2}}), HasSubstr("'n_shared_experts' 2"));
}

absl::Status CheckFolder(const json& config, const std::string& folder) {
  const auto parsed = ParseModelConfig(config.dump(), folder);
  EXPECT_TRUE(parsed.ok());
  const auto files = WeightFiles::Open(folder);
  EXPECT_TRUE(files.ok());
  return CheckWeights(*parsed, {0, parsed->layer_count}, **files);
}

TEST(CompressedConfigTest, FilesAreHeldAgainstTheConfig) {
  const std::string folder = WriteFolder(ModelOfConfig(CompressedConfig()));
  EXPECT_TRUE(CheckFolder(CompressedConfig(), folder).ok());
  const auto fault = [&](const json& changes) {
    return std::string(CheckFolder(CompressedConfig(changes), folder).message());
  };
  EXPECT_THAT(fault({{"hc_mult", 2}}),
              HasSubstr("'model.layers.0.attn_hc.fn.weight' is [15, 192], config.json implies "
                        "[8, 128]"));
  EXPECT_THAT(fault({{"index_source_layer_ids", {1, 2, 3, 4}}}),
              HasSubstr("'model.layers.2.self_attn.indexer.q_b_proj.weight' [256, 48] is in no"));
  EXPECT_THAT(fault({{"o_lora_rank", 48}}), HasSubstr("self_attn.o_a_proj.weight'"));
}

// One layer's tensors as DeepSeek names and stores them.
TEST(CompressedConfigTest, PublishedNamesAndNumbers) {
  std::map<std::string, FixtureTensor> tensors;
  const auto bytes = [&](const std::string& name, const std::string& type,
                         const std::vector<int64_t>& shape, size_t size) {
    tensors[name] = {type, shape, std::string(size, '\0')};
  };
  bytes("embed.weight", "F32", {2, 4}, 32);
  bytes("head.weight", "F32", {2, 4}, 32);
  bytes("norm.weight", "F32", {4}, 16);
  bytes("layers.0.attn.wq_a.weight", "F8_E4M3", {32, 64}, 2048);
  bytes("layers.0.attn.wq_a.scale", "F8_E8M0", {1, 2}, 2);
  bytes("layers.0.attn.attn_sink", "F32", {4}, 16);
  bytes("layers.0.attn.compressor.norm.weight", "F32", {4}, 16);
  bytes("layers.0.hc_attn_fn", "F32", {3, 4}, 48);
  bytes("layers.0.hc_ffn_scale", "F32", {3}, 12);
  bytes("layers.0.ffn.gate.bias", "F32", {4}, 16);
  bytes("layers.0.ffn.gate.bias_vl", "F32", {4}, 16);
  bytes("layers.0.ffn.experts.3.w2.weight", "I8", {8, 32}, 256);
  bytes("layers.0.ffn.experts.3.w2.scale", "F8_E8M0", {8, 2}, 16);
  const auto files = WeightFiles::Open(WriteFolder({{"model.safetensors", Safetensors(tensors)}}));
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : (*files)->tensors()) names.push_back(name);
  EXPECT_THAT(
      names,
      ::testing::UnorderedElementsAre(
          "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
          "model.layers.0.self_attn.q_a_proj.weight",
          "model.layers.0.self_attn.q_a_proj.weight_scale", "model.layers.0.self_attn.sinks",
          "model.layers.0.self_attn.compressor.kv_norm.weight", "model.layers.0.attn_hc.fn.weight",
          "model.layers.0.ffn_hc.scale", "model.layers.0.mlp.gate.e_score_correction_bias",
          "model.layers.0.mlp.gate.bias_vl", "model.layers.0.mlp.experts.3.down_proj.weight",
          "model.layers.0.mlp.experts.3.down_proj.scales"));
  const StoredTensor* expert = (*files)->Find("model.layers.0.mlp.experts.3.down_proj.weight");
  EXPECT_EQ(expert->dtype, "U32");
  EXPECT_EQ(expert->shape, (std::vector<int64_t>{8, 8}));
}

}  // namespace
}  // namespace macrame::runtime::engine
