// Every family's folders: what its config says, and that a bad checkpoint gets its own sentence
// before anything is loaded.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/config/rope.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig Read(const json& config) {
  auto parsed = ParseModelConfig(config.dump(), "m");
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return parsed.ok() ? *parsed : ModelConfig();
}

// With its reason's code before it.
std::string Refusal(const json& config) {
  const auto parsed = ParseModelConfig(config.dump(), "m");
  if (parsed.ok()) return "";
  return ReasonOf(parsed.status()).code() + ": " + std::string(parsed.status().message());
}

// A family's config with other values; of a checkpoint with a vision tower, in its text part.
json With(const std::string& name, const json& changes) {
  json config = FamilyConfig({name});
  (config.contains("text_config") ? config["text_config"] : config).update(changes);
  return config;
}

TEST(FamilyConfigTest, SizesAreBoundedTogetherToo) {
  EXPECT_THAT(Refusal(With("glm4", {{"num_attention_heads", 1 << 20},
                                    {"num_key_value_heads", 1 << 20},
                                    {"head_dim", 1 << 12}})),
              HasSubstr("1048576 attention heads of 4096 numbers"));
  EXPECT_THAT(Refusal(With("glm4_moe", {{"n_shared_experts", 1 << 24}})),
              HasSubstr("'n_shared_experts' is 16777216"));
}

TEST(FamilyConfigTest, RopesAsTheyArePublished) {
  const json yarn = {{"type", "yarn"},
                     {"factor", 32.0},
                     {"beta_fast", 1.0},
                     {"beta_slow", 1.0},
                     {"original_max_position_embeddings", 64}};
  const ModelConfig kimi = Read(With("olmo2", {{"rope_scaling", yarn}}));
  EXPECT_EQ(kimi.rope.scaling, RopeScalingKind::kYarn);
  for (const float divisor : MakeRopeTable(kimi.rope, 2048).divisors) {
    EXPECT_TRUE(std::isfinite(divisor) && divisor > 0);
  }
  const json hidden = {{"rope_parameters", nullptr}, {"rope_scaling", yarn}};
  EXPECT_EQ(Read(With("olmo2", hidden)).rope.scaling, RopeScalingKind::kYarn)
      << "null is as if it were not there";
  const json ones = std::vector<double>(4, 1.0);
  EXPECT_THAT(Refusal(With("minimax_m2", {{"partial_rotary_factor", 0.25},
                                          {"head_dim", 32},
                                          {"rotary_dim", 32},
                                          {"rope_scaling",
                                           {{"type", "longrope"},
                                            {"original_max_position_embeddings", 64},
                                            {"short_factor", ones},
                                            {"long_factor", ones}}}})),
              HasSubstr("longrope"));
}

std::string CheckFiles(const std::map<std::string, std::string>& files) {
  const std::string folder = WriteFolder(files);
  const auto config = LoadModelConfig(folder);
  const auto weights = WeightFiles::Open(folder);
  EXPECT_TRUE(config.ok() && weights.ok());
  const absl::Status status = CheckWeights(*config, {0, config->layer_count}, **weights);
  return status.ok() ? "" : std::string(status.message());
}

class FamilyFolderTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FamilyFolderTest, AMatchingFolderPasses) {
  for (const int bits : {0, 3, 4}) EXPECT_EQ(CheckFiles(FamilyModel({GetParam(), bits})), "");
}

// Of each tensor of the last layer: renamed within the header, so that it is there no more.
TEST_P(FamilyFolderTest, EveryMissingTensorIsNamed) {
  const auto files = FamilyModel({GetParam()});
  const ModelConfig config = Read(json::parse(files.at("config.json")));
  const LayerNeeds needs = NeedsOfLayer(config, ShardPlace(), config.layer_count - 1);
  std::vector<std::string> names;
  const bool fused = json::parse(files.at("config.json")).contains("test_experts");
  for (const LinearNeed* need : LinearsOf(needs, /*is_by_head=*/true)) {
    names.push_back(fused && need->experts > 0 ? need->fused : need->module + ".weight");
  }
  for (const VectorNeed* need : VectorsOf(needs)) {
    if (!need->name.empty()) names.push_back(need->name);
  }
  for (const std::string& name : names) {
    auto broken = files;
    std::string& bytes = broken["model.safetensors"];
    const size_t at = bytes.find("\"" + name + "\"");
    ASSERT_NE(at, std::string::npos) << name;
    bytes[at + 1] = 'X';
    const std::string said = CheckFiles(broken);
    const bool expert = name.find("switch_mlp") != std::string::npos ||
                        name.find("mlp.experts.") != std::string::npos;
    EXPECT_THAT(said, HasSubstr("is in no weights file")) << name;
    if (!expert) {
      EXPECT_THAT(said, HasSubstr("'" + name + "'"));
    }
  }
}

TEST_P(FamilyFolderTest, AWrongShapeIsToldWithBoth) {
  auto files = FamilyModel({GetParam()});
  json config = json::parse(files["config.json"]);
  json& text = config.contains("text_config") ? config["text_config"] : config;
  text["hidden_size"] = 96;
  files["config.json"] = config.dump();
  EXPECT_THAT(CheckFiles(files), AllOf(HasSubstr("64]"), HasSubstr("96]")));
}

TEST_P(FamilyFolderTest, WhatTheEngineHasNotIsRefusedByName) {
  EXPECT_THAT(Refusal(With(GetParam(), {{"hidden_act", "relu6"}, {"hidden_activation", "relu6"}})),
              AllOf(HasSubstr("MODEL_FORMAT_UNSUPPORTED"), HasSubstr("activation 'relu6'")));
  const json spiral = {{"rope_type", "spiral"}, {"factor", 2}};
  EXPECT_THAT(Refusal(With(GetParam(), {{"rope_scaling", spiral}, {"rope_parameters", spiral}})),
              AllOf(HasSubstr("MODEL_FORMAT_UNSUPPORTED"), HasSubstr("rope scaling 'spiral'")));
  EXPECT_THAT(Refusal(With(GetParam(), {{"num_hidden_layers", nullptr},
                                        {"hybrid_override_pattern", nullptr},
                                        {"layers_block_type", nullptr}})),
              AllOf(HasSubstr("MODEL_CONFIG_INVALID"), HasSubstr("'num_hidden_layers'")));
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyFolderTest, ::testing::ValuesIn(FamilyNames()), NameOf);

TEST(FamiliesTest, UnknownRoutersAndKindsOfLayersAreRefused) {
  EXPECT_THAT(Refusal(With("glm4_moe", {{"scoring_func", "dice"}})),
              HasSubstr("router's scoring_func 'dice' is not implemented"));
  EXPECT_THAT(Refusal(With("glm4_moe", {{"topk_method", "greedy"}})),
              HasSubstr("router's topk_method 'greedy'"));
  EXPECT_THAT(Refusal(With("glm4_moe", {{"n_group", 4}})), HasSubstr("don't divide 6 experts"));
  EXPECT_THAT(Refusal(With("glm4_moe groups", {{"topk_group", 1}, {"num_experts_per_tok", 3}})),
              HasSubstr("1 of 3 groups have 2"));
  EXPECT_THAT(Refusal(With("minimax_m2", {{"scoring_func", "softmax"}})),
              HasSubstr("scoring_func 'softmax'"));
  EXPECT_THAT(Refusal(With("minimax_m2", {{"attn_type_list", {1, 0}}})),
              HasSubstr("only layers of full attention"));
  EXPECT_THAT(Refusal(With("mistral3", {{"model_type", "mistral4"}})),
              AllOf(HasSubstr("MODEL_ARCHITECTURE_UNKNOWN"), HasSubstr("'mistral4'")));
  EXPECT_THAT(Refusal(With("exaone4", {{"sliding_window_pattern", "LXG"}})),
              HasSubstr("'LXG', not of L and G"));
  EXPECT_THAT(Refusal({{"model_type", "gemma3"}}), HasSubstr("'text_config' is missing"));
  EXPECT_THAT(Refusal(With("gemma3", {{"final_logit_softcapping", 30.0}})),
              HasSubstr("'final_logit_softcapping'"));
}

TEST(FamiliesTest, LayersWithAStateThatDoNotFitAreRefused) {
  EXPECT_THAT(
      Refusal(With("qwen3_5", {{"layer_types", {"full_attention", "mamba"}}})),
      AllOf(HasSubstr("MODEL_FORMAT_UNSUPPORTED"), HasSubstr("'layer_types' names \"mamba\"")));
  EXPECT_THAT(Refusal(With("qwen3_5", {{"layer_types", {"full_attention"}}})),
              HasSubstr("'layer_types' is not a list of 2 kinds"));
  EXPECT_THAT(Refusal(With("qwen3_next", {{"linear_num_value_heads", 7}})),
              HasSubstr("'linear_num_value_heads' 7 is not a multiple"));
  EXPECT_THAT(Refusal(With("qwen3_next", {{"linear_conv_kernel_dim", 17}})),
              HasSubstr("'linear_conv_kernel_dim' 17, above 16"));
  EXPECT_THAT(Refusal(With("qwen3_next", {{"linear_key_head_dim", 1 << 24}})),
              HasSubstr("a convolution over"));
  EXPECT_THAT(Refusal(With("nemotron_h", {{"hybrid_override_pattern", "MX"}})),
              HasSubstr("a layer of kind \"X\""));
  EXPECT_THAT(Refusal(With("nemotron_h experts", {{"moe_latent_size", 16}})),
              HasSubstr("'moe_latent_size'"));
  EXPECT_THAT(Refusal(With("nemotron_h", {{"mamba_num_heads", 7}})),
              HasSubstr("'mamba_num_heads' 7 is not a multiple of 'n_groups' 3"));
  EXPECT_THAT(Refusal(With("qwen3_5_moe", {{"linear_num_key_heads", nullptr}})),
              HasSubstr("'linear_num_key_heads' is missing"));
}

// As Python's json writes it.
TEST(FamiliesTest, InfinityIsReadAsANumber) {
  const json read = ParseConfigJson(R"({"a\"Infinity": [-Infinity, NaN], "b": "NaN"})");
  EXPECT_TRUE(std::isinf(read["a\"Infinity"][0].get<double>()));
  EXPECT_TRUE(std::isnan(read["a\"Infinity"][1].get<double>()));
  EXPECT_EQ(read["b"], "NaN");
  std::string config = With("nemotron_h", {{"time_step_limit", {0.5, 7.5}}}).dump();
  config.replace(config.find("7.5"), 3, "Infinity");
  const auto parsed = ParseModelConfig(config, "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed->recurrent.step_min, 0.5F);
  EXPECT_TRUE(std::isinf(parsed->recurrent.step_max));
}

TEST(FamiliesTest, AConvolutionOfAnotherShapeIsToldWithBoth) {
  auto files = FamilyModel({"qwen3_next"});
  json config = json::parse(files["config.json"]);
  config["linear_conv_kernel_dim"] = 3;
  files["config.json"] = config.dump();
  EXPECT_THAT(CheckFiles(files),
              AllOf(HasSubstr("conv1d.weight' is [240, 4, 1]"), HasSubstr("[240, 3, 1]")));
}

TEST(FamiliesTest, RotaryFormsThatDoNotFitAreRefused) {
  EXPECT_THAT(Refusal(With("glm4", {{"partial_rotary_factor", 0.03}})),
              HasSubstr("no even number of dimensions"));
  EXPECT_THAT(Refusal(With("minimax_m2", {{"rotary_dim", 64}})), HasSubstr("'rotary_dim' 64"));
  const json few = {{"type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1}}};
  EXPECT_THAT(Refusal(With("phi3", {{"rope_scaling", few}})), HasSubstr("list of 8 numbers"));
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  EXPECT_THAT(Refusal(With("olmo2", {{"rope_scaling", yarn}})),
              HasSubstr("'original_max_position_embeddings' is missing"));
}

// Its configs have both; the pattern alone is older.
TEST(FamiliesTest, LayerTypesComeBeforeAPattern) {
  const ModelConfig types = Read(FamilyConfig({"exaone4 types"}));
  EXPECT_EQ(types.sliding_windows, (std::vector<int>{0, 24}));
  EXPECT_EQ(types.rope_uses, (std::vector<RopeUse>{RopeUse::kNone, RopeUse::kGlobal}));
  EXPECT_EQ(Read(FamilyConfig({"exaone4"})).sliding_windows, (std::vector<int>{24, 0}));
  const ModelConfig all = Read(With("exaone4 types", {{"sliding_window", nullptr}}));
  EXPECT_THAT(all.rope_uses, testing::Each(RopeUse::kGlobal)) << "all see everything, and turn";
}

TEST(FamiliesTest, GemmasLayersTakeTurns) {
  const ModelConfig gemma = Read(FamilyConfig({"gemma3"}));
  EXPECT_EQ(gemma.sliding_windows, (std::vector<int>{24, 0}));
  EXPECT_EQ(gemma.rope_uses, (std::vector<RopeUse>{RopeUse::kLocal, RopeUse::kGlobal}));
  EXPECT_EQ(gemma.local_rope->theta, 10000.0);
  EXPECT_EQ(gemma.rope.theta, 1e6);
  EXPECT_EQ(gemma.rope.factor, 8.0);
  // Since transformers 5.
  const json both = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 5e5}}},
                     {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  const ModelConfig newer =
      Read(With("gemma3", {{"rope_parameters", both},
                           {"layer_types", {"full_attention", "sliding_attention"}}}));
  EXPECT_EQ(newer.rope.theta, 5e5);
  EXPECT_EQ(newer.local_rope->theta, 2e4);
  EXPECT_EQ(newer.sliding_windows, (std::vector<int>{0, 24}));
}

TEST(FamiliesTest, Gemma4sLayersReadWhatEarlierOnesKeep) {
  const ModelConfig gemma = Read(FamilyConfig({"gemma4"}));
  EXPECT_EQ(gemma.kv_sources, (std::vector<int>{0, 1, 2, 1, 2})) << "the last of their kind";
  EXPECT_EQ(gemma.feed_widths, (std::vector<int>{352, 352, 352, 704, 704}));
  EXPECT_EQ(gemma.HeadsOf(0).dim, 48);
  EXPECT_EQ(gemma.HeadsOf(1).dim, 32);
  EXPECT_EQ(gemma.rope.theta, 1e6);
  EXPECT_EQ(gemma.rope.dims, 48);
  EXPECT_EQ(gemma.rope.turned, 12);
  EXPECT_EQ(gemma.local_rope->theta, 10000.0);
  EXPECT_EQ(gemma.logit_cap, 30.0F) << "where it is not said";
  EXPECT_TRUE(gemma.tied_embeddings);
  const ModelConfig large = Read(FamilyConfig({"gemma4_text large"}));
  EXPECT_EQ(large.HeadsOf(0).kv_heads, 3);
  EXPECT_EQ(large.HeadsOf(1).kv_heads, 2);
  EXPECT_FALSE(large.HeadsOf(0).keys_are_values);
  EXPECT_TRUE(large.HeadsOf(1).keys_are_values);
  EXPECT_EQ(Read(FamilyConfig({"gemma4_text experts"})).logit_cap, 0.0F) << "null: there is none";
}

TEST(FamiliesTest, Gemma4sConfigsThatDoNotFitAreRefused) {
  EXPECT_THAT(Refusal(With("gemma4", {{"num_kv_shared_layers", 5}})),
              AllOf(HasSubstr("'num_kv_shared_layers' 5"), HasSubstr("layer 0 could read")));
  EXPECT_THAT(Refusal(With("gemma4", {{"num_kv_shared_layers", 4}})),
              HasSubstr("no layer of its kind before layer 1 has keys and values that layer 1"));
  EXPECT_THAT(Refusal(With("gemma4", {{"layer_types", {"chunked_attention"}}})),
              AllOf(HasSubstr("MODEL_FORMAT_UNSUPPORTED"), HasSubstr("\"chunked_attention\"")));
  EXPECT_THAT(Refusal(With("gemma4", {{"vocab_size_per_layer_input", 64}})),
              HasSubstr("'vocab_size_per_layer_input' 64 is not 'vocab_size' 101"));
  EXPECT_THAT(Refusal(With("gemma4", {{"global_head_dim", 33}})),
              HasSubstr("'global_head_dim' 33 is odd"));
  EXPECT_THAT(Refusal(With("gemma4_text large", {{"num_global_key_value_heads", 4}})),
              HasSubstr("not a multiple of 'num_global_key_value_heads' 4"));
  EXPECT_THAT(Refusal(With("gemma4_text experts", {{"top_k_experts", 6}})),
              HasSubstr("'top_k_experts' is 6, but there are 5 experts"));
  EXPECT_THAT(Refusal(With("gemma4_text experts", {{"num_experts", nullptr}})),
              HasSubstr("'num_experts' is missing"));
}

// By token, besides the embedding.
TEST(FamiliesTest, Gemma4sTableOfInputsIsMissedByName) {
  for (const char* name :
       {"model.embed_tokens_per_layer.weight", "model.per_layer_model_projection.weight",
        "model.per_layer_projection_norm.weight"}) {
    auto files = FamilyModel({"gemma4"});
    std::string& bytes = files["model.safetensors"];
    const size_t at = bytes.find("\"" + std::string(name) + "\"");
    ASSERT_NE(at, std::string::npos) << name;
    bytes[at + 1] = 'X';
    EXPECT_THAT(CheckFiles(files), HasSubstr("'" + std::string(name) + "'"));
  }
}

// Of the checkpoints that multi-token prediction is trained into.
TEST(FamiliesTest, LayersThatPredictFurtherTokensAreLeftAlone) {
  auto files = ModelOfConfig(With("glm4_moe", {{"num_hidden_layers", 3}}));
  files["config.json"] = With("glm4_moe", {{"num_nextn_predict_layers", 1}}).dump();
  EXPECT_EQ(CheckFiles(files), "");
  files["config.json"] = FamilyConfig({"glm4_moe"}).dump();
  EXPECT_THAT(CheckFiles(files), HasSubstr("config.json says 2 layers, the weights have 3"));
}

TEST(FamiliesTest, TextPartsAreFoundWhereverTheirCheckpointsPutThem) {
  EXPECT_EQ(TextTensorName("language_model.model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(TextTensorName("model.language_model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(TextTensorName("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(TextTensorName("model.layers.0.mlp.up_proj"), "model.layers.0.mlp.up_proj");
}

}  // namespace
}  // namespace macrame::runtime::engine
