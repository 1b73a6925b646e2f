// MiniMax M3's config: what it says in either spelling, and that what can't be served has its own
// sentence.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/block_needs.h"
#include "runtime/model/weights/joined_experts.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json With(const json& changes, const json& sparse = json::object()) {
  json config = FamilyConfig({"minimax_m3_vl"});
  config["text_config"]["sparse_attention_config"].update(sparse);
  config["text_config"].update(changes);
  return config;
}

ModelConfig Read(const json& config) {
  auto parsed = ParseModelConfig(config.dump(), "m");
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return parsed.ok() ? *parsed : ModelConfig();
}

std::string Refusal(const json& config) {
  const auto parsed = ParseModelConfig(config.dump(), "m");
  if (parsed.ok()) return "";
  return ReasonOf(parsed.status()).code() + ": " + std::string(parsed.status().message());
}

TEST(MiniMaxM3ConfigTest, WhatItSays) {
  const ModelConfig config = Read(With({{"rotary_dim", nullptr}}));
  EXPECT_EQ(config.rope.theta, 5e6);
  EXPECT_EQ(config.rope.dims, 16) << "half of a head";
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.qk_norm_whole);
  EXPECT_TRUE(config.norm_adds_one);
  EXPECT_EQ(config.intermediate_size, 352);
  EXPECT_EQ(config.has_experts, (std::vector<bool>{false, true}));
  EXPECT_EQ(config.experts.width, 96);
  EXPECT_EQ(config.experts.shared_width, 64);
  EXPECT_EQ(config.experts.scores, RouterScores::kSigmoid);
  EXPECT_EQ(config.experts.weight_scale, 2.0);
  EXPECT_FLOAT_EQ(config.experts.swiglu_limit, 1.5F);
  EXPECT_FLOAT_EQ(config.experts.swiglu_alpha, 1.702F);
  EXPECT_TRUE(config.clamped_feeds);
  EXPECT_FALSE(config.ChoosesBlocks(0));
  EXPECT_TRUE(config.ChoosesBlocks(1));
  EXPECT_EQ(config.block_index.top, 1);
  EXPECT_EQ(config.block_index.size, 32);
  EXPECT_EQ(BlockIndexLayersOf(config, {0, 2}), std::vector<int>{1});
}

// transformers 5 says the same without an object, and by words.
TEST(MiniMaxM3ConfigTest, TheFlatSpelling) {
  json config = With({{"index_n_heads", 1},
                      {"index_head_dim", 32},
                      {"index_topk_blocks", 3},
                      {"index_block_size", 64},
                      {"moe_layer_freq", nullptr},
                      {"hidden_act", "silu"},
                      {"rope_parameters", {{"rope_theta", 1e4}, {"rope_type", "default"}}},
                      {"layer_types", {"minimax_m3_sparse", "full_attention"}},
                      {"mlp_layer_types", {"sparse", "dense"}}});
  config["text_config"].erase("sparse_attention_config");
  const ModelConfig flat = Read(config);
  EXPECT_EQ(flat.rope.theta, 1e4);
  EXPECT_EQ(flat.block_index.top, 3);
  EXPECT_EQ(flat.block_index.size, 64);
  EXPECT_EQ(flat.block_index.local, 1);
  EXPECT_TRUE(flat.ChoosesBlocks(0));
  EXPECT_FALSE(flat.ChoosesBlocks(1));
  EXPECT_EQ(flat.has_experts, (std::vector<bool>{true, false}));
  config["text_config"].erase("index_block_size");
  EXPECT_FALSE(Read(config).ChoosesBlocks(0)) << "without an indexer all is attended to";
}

// As its makers publish it in 8-bit floats.
TEST(MiniMaxM3ConfigTest, EightBitFloatsInBlocksOfARow) {
  json config = With(json::object());
  config["quantization_config"] = {{"quant_method", "mxfp8"}};
  const ModelConfig parsed = Read(config);
  EXPECT_EQ(parsed.fp8_block_rows, 1);
  EXPECT_EQ(parsed.fp8_block_columns, 32);
  const std::string folder = WriteFolder(ModelOfConfig(config));
  const auto files = WeightFiles::Open(folder);
  ASSERT_TRUE(files.ok());
  EXPECT_NE((*files)->Find("model.layers.1.block_sparse_moe.experts.4.w2.weight_scale_inv"),
            nullptr);
  const absl::Status status = CheckWeights(parsed, {0, 2}, **files);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Copies that hold the shared expert as one more, and gates and ups as one.
TEST(MiniMaxM3ConfigTest, ExpertsThatAreOneTensorAreToldApart) {
  TensorsByName tensors;
  const auto put = [&](const std::string& name, std::vector<int64_t> shape, uint64_t begin) {
    StoredTensor tensor;
    tensor.name = name;
    tensor.shape = std::move(shape);
    tensor.begin = begin;
    tensor.bytes = 4;
    for (const int64_t size : tensor.shape) tensor.bytes *= static_cast<size_t>(size);
    tensors[name] = tensor;
  };
  const std::string block = "model.layers.1.block_sparse_moe.";
  put(block + "gate.weight", {2, 8}, 0);
  put(block + "switch_mlp.gate_up_proj.scales", {3, 10, 4}, 1000);
  put(block + "switch_mlp.down_proj.weight", {3, 8, 5}, 5000);
  put("model.layers.0.block_sparse_moe.up_proj.weight", {6, 8}, 9000);
  put("model.norm.weight", {8}, 9500);
  std::map<std::string, std::pair<std::vector<int64_t>, uint64_t>> split;
  for (const auto& [name, tensor] : SplitJoinedExperts(tensors)) {
    EXPECT_EQ(name, tensor.name);
    split[name] = {tensor.shape, tensor.begin};
  }
  using Place = std::pair<std::vector<int64_t>, uint64_t>;
  const std::map<std::string, Place> expected = {
      {block + "gate.weight", Place({2, 8}, 0)},
      {block + "experts.0.w1.scales", Place({5, 4}, 1000)},
      {block + "experts.0.w3.scales", Place({5, 4}, 1080)},
      {block + "experts.1.w1.scales", Place({5, 4}, 1160)},
      {block + "experts.1.w3.scales", Place({5, 4}, 1240)},
      {block + "shared_experts.gate_proj.scales", Place({5, 4}, 1320)},
      {block + "shared_experts.up_proj.scales", Place({5, 4}, 1400)},
      {block + "switch_mlp.down_proj.weight", Place({2, 8, 5}, 5000)},
      {block + "shared_experts.down_proj.weight", Place({8, 5}, 5320)},
      {"model.layers.0.mlp.up_proj.weight", Place({6, 8}, 9000)},
      {"model.norm.weight", Place({8}, 9500)},
  };
  EXPECT_EQ(split, expected);
}

// Queries of an indexer go to the ranks whose heads they serve.
TEST(MiniMaxM3ConfigTest, QueriesAreCutWithTheirHeads) {
  ModelConfig config = Read(With(json::object()));
  EXPECT_EQ(IndexHeadsOf(config, {1, 3}), (Range{1, 3}));
  config = Read(With(json::object(), {{"sparse_num_index_heads", 1}}));
  EXPECT_EQ(IndexHeadsOf(config, {0, 2}), (Range{0, 1}));
  EXPECT_EQ(IndexHeadsOf(config, {2, 3}), (Range{0, 1}));
  EXPECT_EQ(IndexHeadsOf(config, {1, 1}).size(), 0);
}

TEST(MiniMaxM3ConfigTest, WhatIsNotServedHasItsOwnSentence) {
  const auto sparse = [](const json& changes) { return Refusal(With(json::object(), changes)); };
  EXPECT_THAT(sparse({{"sparse_block_size", 48}}),
              AllOf(HasSubstr("MODEL_FORMAT_UNSUPPORTED"), HasSubstr("'sparse_block_size' 48")));
  EXPECT_THAT(sparse({{"sparse_num_index_heads", 2}}),
              HasSubstr("'sparse_num_index_heads' 2 don't divide 'num_key_value_heads' 3"));
  EXPECT_THAT(sparse({{"sparse_index_dim", 8}}), HasSubstr("'sparse_index_dim' 8"));
  EXPECT_THAT(sparse({{"sparse_index_dim", nullptr}}), HasSubstr("'sparse_index_dim' is missing"));
  EXPECT_THAT(sparse({{"sparse_local_block", 2}}),
              HasSubstr("'sparse_local_block' 2 is above 'sparse_topk_blocks' 1"));
  EXPECT_THAT(sparse({{"sparse_score_type", "mean"}}), HasSubstr("'sparse_score_type' 'mean'"));
  EXPECT_THAT(sparse({{"sparse_init_block", 1}}), HasSubstr("'sparse_init_block'"));
  EXPECT_THAT(sparse({{"use_sparse_attention", false}}), HasSubstr("'use_sparse_attention'"));
  EXPECT_THAT(sparse({{"sparse_disable_index_value", {0, 0}}}),
              HasSubstr("layer 1 of 2 has index values"));
  EXPECT_EQ(sparse({{"sparse_disable_index_value", {0, 1}}}), "");
  EXPECT_THAT(sparse({{"sparse_attention_freq", {1}}}),
              HasSubstr("'sparse_attention_freq' is no list of 2 entries"));
  EXPECT_THAT(sparse({{"sparse_attention_freq", {1, "x"}}}), HasSubstr("holds \"x\""));
  EXPECT_THAT(sparse({{"sparse_topk_blocks", 1 << 24}}), HasSubstr("more than 16777216"));
  EXPECT_THAT(Refusal(With({{"layer_types", {"full_attention", "linear_attention"}}})),
              HasSubstr("'layer_types' names \"linear_attention\""));
  EXPECT_THAT(Refusal(With({{"hidden_act", "gelu_pytorch_tanh"}})), HasSubstr("beside silu"));
  EXPECT_THAT(Refusal(With({{"scoring_func", "softmax"}})), HasSubstr("scoring_func 'softmax'"));
  EXPECT_THAT(Refusal(With({{"qk_norm_type", "per_layer"}})), HasSubstr("'per_layer'"));
  EXPECT_THAT(Refusal(With({{"n_shared_experts", 2}})), HasSubstr("'n_shared_experts' 2"));
  EXPECT_THAT(Refusal(With({{"dense_intermediate_size", nullptr}})),
              HasSubstr("'dense_intermediate_size' is missing"));
  EXPECT_THAT(Refusal(With({{"rotary_dim", 64}})), HasSubstr("'rotary_dim' 64 of a head of 32"));
}

}  // namespace
}  // namespace macrame::runtime::engine
