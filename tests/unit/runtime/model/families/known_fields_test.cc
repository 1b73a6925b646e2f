// Fields of a config.json that change what a model computes: each is read, or the model is refused
// by the field's name with a step that helps. None is ignored in silence.

#include "runtime/model/families/known_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/reasons.h"
#include "runtime/model/families/config_file.h"
#include "tests/unit/runtime/model/family_model.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What families need beside the sizes that all have, where family_model.h has no config of theirs.
json Extras() {
  json latent = {
      {"kv_lora_rank", 32},     {"q_lora_rank", 48},        {"qk_nope_head_dim", 32},
      {"qk_rope_head_dim", 16}, {"v_head_dim", 32},         {"n_routed_experts", 8},
      {"n_shared_experts", 1},  {"num_experts_per_tok", 2}, {"moe_intermediate_size", 96}};
  json indexed = latent;
  indexed.update({{"index_topk", 8}, {"index_n_heads", 4}, {"index_head_dim", 32}});
  const json vision = {{"text_config", {{"head_dim", 32}}}};
  return {{"deepseek_v2", latent},
          {"deepseek_v3", latent},
          {"glm4_moe_lite", latent},
          {"deepseek_v32", indexed},
          {"glm_moe_dsa", indexed},
          {"qwen2_moe",
           {{"num_experts", 4},
            {"num_experts_per_tok", 2},
            {"moe_intermediate_size", 96},
            {"shared_expert_intermediate_size", 96}}},
          {"gpt_oss", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}}},
          {"gemma3_text", {{"sliding_window", 24}, {"sliding_window_pattern", 2}}},
          {"qwen3_vl", vision}};
}

json With(const std::string& name, const json& changes) {
  const std::vector<std::string> known = FamilyNames();
  json config;
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    config = FamilyConfig({name});
  } else {
    config = FamilyConfig({"seed_oss"});
    config["model_type"] = name;
    const json extras = Extras().value(name, json::object());
    if (extras.contains("text_config")) {
      json text = config;
      text.update(extras["text_config"]);
      config["text_config"] = text;
    } else {
      config.update(extras);
    }
  }
  (config.contains("text_config") ? config["text_config"] : config).update(changes);
  return config;
}

ModelConfig Read(const json& config) {
  auto parsed = ParseModelConfig(config.dump(), "m");
  EXPECT_TRUE(parsed.ok()) << parsed.status().ToString();
  return parsed.ok() ? *parsed : ModelConfig();
}

struct Case {
  const char* family;
  const char* field;
  json right;  // what the engine computes
  json other;
};

std::vector<Case> Cases() {
  const json full = {"full", "full"}, shared = {"full", "shared"};
  const json chunked = {"full_attention", "chunked_attention"};
  return {
      {"glm_moe_dsa", "indexer_types", full, shared},
      {"glm_moe_dsa", "index_topk_freq", 1, 4},
      {"glm_moe_dsa", "index_topk_pattern", "FF", "FS"},
      {"deepseek_v32", "indexer_types", full, shared},
      {"deepseek_v32", "index_topk_freq", nullptr, 2},
      {"deepseek_v32", "mlp_bias", false, true},
      {"deepseek_v2", "mlp_bias", false, true},
      {"qwen2_moe", "qkv_bias", true, false},
      {"nemotron_h", "mamba_hidden_act", "silu", "gelu"},
      {"nemotron_h", "mlp_hidden_act", "relu2", "silu"},
      {"gemma3_text", "use_bidirectional_attention", false, true},
      {"gemma4_text large", "use_bidirectional_attention", "vision", "all"},
      {"gpt_oss", "attention_bias", true, false},
      {"llama", "layer_types", {"full_attention", "full_attention"}, chunked},
      {"glm4", "layer_types", {"full_attention", "full_attention"}, chunked},
  };
}

TEST(KnownFieldsTest, AFieldThatIsNotComputedIsRefusedByItsName) {
  for (const Case& one : Cases()) {
    const auto refused = ParseModelConfig(With(one.family, {{one.field, one.other}}).dump(), "m");
    ASSERT_FALSE(refused.ok()) << one.family << " " << one.field;
    const v1::Reason reason = ReasonOf(refused.status());
    EXPECT_EQ(reason.code(), reasons::kModelFormatUnsupported) << one.family;
    EXPECT_THAT(reason.message(), HasSubstr(std::string("'") + one.field + "'")) << one.family;
    EXPECT_THAT(reason.remedy(), AllOf(Not(HasSubstr("fetch")), HasSubstr("another model")));
  }
}

TEST(KnownFieldsTest, TheValueThatIsComputedIsTaken) {
  for (const Case& one : Cases()) {
    EXPECT_TRUE(ParseModelConfig(With(one.family, {{one.field, one.right}}).dump(), "m").ok())
        << one.family << " " << one.field;
    EXPECT_TRUE(ParseModelConfig(With(one.family, {{one.field, nullptr}}).dump(), "m").ok());
  }
}

// GLM-5.1: where all layers carry an indexer's weights, nothing else would tell.
TEST(KnownFieldsTest, SharedIndexersAreRefusedBeforeWeightsAreLookedAt) {
  const auto refused =
      ParseModelConfig(With("glm_moe_dsa", {{"indexer_types", {"full", "shared"}}}).dump(), "m");
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("m/config.json"), HasSubstr("indexer_types"), HasSubstr("index")));
}

TEST(KnownFieldsTest, LlamaHasWindowsWhereItsLayersNameThem) {
  const ModelConfig read = Read(With(
      "llama", {{"sliding_window", 16}, {"layer_types", {"sliding_attention", "full_attention"}}}));
  EXPECT_EQ(read.sliding_windows, (std::vector<int>{16, 0}));
  EXPECT_EQ(Read(With("llama", {{"sliding_window", 16}})).sliding_windows, (std::vector<int>{0, 0}))
      << "without names of layers all attend to everything";
}

TEST(KnownFieldsTest, AWindowThatIsSwitchedOffIsNone) {
  const json sliding = {"sliding_attention", "full_attention"};
  EXPECT_EQ(Read(With("qwen3", {{"sliding_window", 16}, {"layer_types", sliding}})).sliding_windows,
            (std::vector<int>{0, 0}));
  EXPECT_EQ(
      Read(With("qwen3",
                {{"sliding_window", 16}, {"use_sliding_window", true}, {"layer_types", sliding}}))
          .sliding_windows,
      (std::vector<int>{16, 0}));
}

TEST(KnownFieldsTest, LayersHaveExpertsAsTheirKindsSay) {
  const json kinds = {"sparse", "dense"};
  EXPECT_EQ(Read(With("glm4_moe_lite", {{"mlp_layer_types", kinds}})).has_experts,
            (std::vector<bool>{true, false}));
  const auto refused = ParseModelConfig(With("llama", {{"mlp_layer_types", kinds}}).dump(), "m");
  EXPECT_THAT(refused.status().ToString(), HasSubstr("'mlp_layer_types'"));
}

TEST(KnownFieldsTest, SecondNamesOfAFieldAreRead) {
  json config = With("deepseek_v3", json::object());
  config["num_local_experts"] = config["n_routed_experts"];
  config.erase("n_routed_experts");
  EXPECT_EQ(Read(config).experts.count, Read(With("deepseek_v3", json::object())).experts.count);
  config["n_routed_experts"] = config["num_local_experts"].get<int>() * 2;
  EXPECT_EQ(Read(config).experts.count, config["n_routed_experts"]) << "its own name wins";
  EXPECT_TRUE(Read(With("internlm3", {{"qkv_bias", nullptr}, {"attention_bias", true}})).qkv_bias);
}

TEST(KnownFieldsTest, RotaryFieldsThatNobodyReadsAreRefused) {
  const json form = {{"rope_type", "dynamic"}, {"factor", 2.0}, {"alpha", 1000.0}};
  const auto refused = ParseModelConfig(With("llama", {{"rope_scaling", form}}).dump(), "m");
  EXPECT_THAT(refused.status().ToString(), HasSubstr("'alpha'"));
  const json pictures = {{"rope_type", "default"},
                         {"mrope_section", {11, 11, 10}},
                         {"mrope_interleaved", true},
                         {"rope_theta", 5e6}};
  EXPECT_EQ(Read(With("qwen3", {{"rope_parameters", pictures}})).rope.theta, 5e6);
}

// Two forms by what layers see, where the family has one: they would be read as none.
TEST(KnownFieldsTest, NestedRotaryFormsAreReadOrRefused) {
  const json forms = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 7e5}}},
                      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}};
  const ModelConfig olmo =
      Read(With("olmo3", {{"rope_parameters", forms}, {"rope_scaling", nullptr}}));
  EXPECT_EQ(olmo.rope.theta, 7e5);
  EXPECT_EQ(olmo.local_rope->theta, 3e4);
  EXPECT_THAT(
      ParseModelConfig(With("llama", {{"rope_parameters", forms}}).dump(), "m").status().ToString(),
      HasSubstr("'full_attention'"));
}

// What is written when the text model alone is saved: its own type, and no "text_config".
TEST(KnownFieldsTest, TextModelsThatWereSavedByThemselvesAreRead) {
  for (const char* name : {"qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "minimax_m3_vl"}) {
    const json whole = With(name, json::object());
    json text = whole.contains("text_config") ? whole["text_config"] : whole;
    if (!text.contains("vocab_size")) text["vocab_size"] = whole["vocab_size"];
    text["model_type"] = std::string(name) + "_text";
    const ModelConfig read = Read(text);
    EXPECT_EQ(read.architecture, name) << "chat formats and engines go by the family's name";
    EXPECT_EQ(read.layer_count, Read(whole).layer_count);
    EXPECT_EQ(read.hidden_size, Read(whole).hidden_size);
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
