#include "runtime/gguf/architectures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/gguf/import_plan.h"
#include "runtime/gguf/model_import.h"
#include "runtime/gguf/model_name.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

using testing::HasSubstr;

constexpr uint32_t kF32Type = 0, kQ4Type = 2, kMxfp4Type = 39;

struct Planned {
  std::unique_ptr<const GgufModel> model;
  absl::StatusOr<ImportPlan> plan;
};

Planned PlanOf(const GgufWriter& writer) {
  auto model = GgufModel::Open(WriteGguf("m.gguf", writer.Bytes()));
  EXPECT_TRUE(model.ok()) << model.status();
  auto plan = PlanImport(**model);
  return {*std::move(model), std::move(plan)};
}

std::string MessageOf(const GgufWriter& writer) {
  return std::string(PlanOf(writer).plan.status().message());
}

const PlannedTensor& Find(const ImportPlan& plan, const std::string& module) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.module == module && !tensor.is_bias) return tensor;
  }
  ADD_FAILURE() << module;
  return plan.tensors.front();
}

TEST(GgufArchitectures, YarnIsKeptWithItsNumbers) {
  GgufWriter writer = SmallModel("qwen3");
  writer.Text("qwen3.rope.scaling.type", "yarn")
      .Number("qwen3.rope.scaling.factor", 4)
      .Integer("qwen3.rope.scaling.original_context_length", 64)
      .Number("qwen3.rope.scaling.yarn_beta_fast", 24);
  const auto [model, plan] = PlanOf(writer);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->config["rope_scaling"], nlohmann::json({{"rope_type", "yarn"},
                                                          {"factor", 4.0},
                                                          {"original_max_position_embeddings", 64},
                                                          {"beta_fast", 24.0}}));
  writer.Number("qwen3.rope.scaling.yarn_ext_factor", 0.5F);
  EXPECT_THAT(MessageOf(writer), HasSubstr("qwen3.rope.scaling.yarn_ext_factor is 0.5"));
}

TEST(GgufArchitectures, AKeyThatNobodyReadsIsRefusedByItsName) {
  for (const std::string key : {"attention.clamp_kqv", "rope.scaling.alpha", "logit_scale",
                                "expert_weights_scale", "attention.scale", "something.new"}) {
    GgufWriter writer = SmallModel("qwen3moe");
    writer.Number("qwen3moe." + key, 2);
    EXPECT_THAT(MessageOf(writer), HasSubstr("'qwen3moe." + key + "'"));
  }
  GgufWriter causal = SmallModel("llama");
  causal.Flag("llama.attention.causal", false);
  EXPECT_THAT(MessageOf(causal), HasSubstr("llama.attention.causal is false"));
}

TEST(GgufArchitectures, LayersThatPredictFurtherTokensAreLeftOut) {
  GgufWriter writer = SmallModel("qwen3");
  writer.Integer("qwen3.nextn_predict_layers", 1);
  writer.Tensor("blk.1.nextn.eh_proj.weight", kF32Type, {64, 64}, std::string(64 * 64 * 4, '\0'));
  const auto [model, plan] = PlanOf(writer);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->config["num_hidden_layers"], 1);
  for (const PlannedTensor& tensor : plan->tensors) {
    EXPECT_THAT(tensor.module, testing::Not(HasSubstr("layers.1."))) << tensor.module;
  }
}

// What the converter's --fuse-qkv writes; llama's rows of q and k are in GGUF's order there too.
TEST(GgufArchitectures, AJoinedMapOfQueriesKeysAndValuesIsSplit) {
  GgufWriter writer = SmallModel("llama");
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    writer.Remove(name);
  }
  writer.Tensor("blk.0.attn_qkv.weight", kQ4Type, {64, 128}, std::string(128 * 36, '\0'));
  const auto [model, plan] = PlanOf(writer);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PlannedTensor& q = Find(*plan, "model.layers.0.self_attn.q_proj");
  const PlannedTensor& k = Find(*plan, "model.layers.0.self_attn.k_proj");
  const PlannedTensor& v = Find(*plan, "model.layers.0.self_attn.v_proj");
  EXPECT_EQ(q.rows(), 64u);
  EXPECT_EQ(k.rows(), 32u);
  EXPECT_EQ(v.rows(), 32u);
  EXPECT_EQ(q.SourceRow(1), 2u) << "a pair of neighbours";
  EXPECT_EQ(k.SourceRow(16 + 1), 64u + 16 + 2);
  EXPECT_EQ(v.SourceRow(3), 96u + 3);
}

TEST(GgufArchitectures, Mxfp4StaysInItsOwnMode) {
  GgufWriter writer = SmallModel("qwen3");
  std::string blocks;
  for (int block = 0; block < 96 * 2; ++block) blocks += '\x7F' + std::string(16, '\x21');
  writer.Tensor("blk.0.ffn_up.weight", kMxfp4Type, {64, 96}, blocks);
  const std::string file = WriteGguf("m.gguf", writer.Bytes());
  const ImportOptions options{file, file + ".models", "m", ""};
  const auto result = ImportModel(options, [](uint64_t, uint64_t) { return true; });
  ASSERT_TRUE(result.ok()) << result.status();
  const auto [model, plan] = PlanOf(writer);
  const auto& own = plan->config["quantization"]["model.layers.0.mlp.up_proj"];
  EXPECT_EQ(own["mode"], "mxfp4");
  EXPECT_EQ(own["bits"], 4);
  EXPECT_EQ(plan->config["quantization"]["mode"], "affine");
  EXPECT_EQ(plan->config["quantization"]["model.embed_tokens"]["mode"], "affine");
}

TEST(GgufArchitectures, NoTwoHaveOneName) {
  std::set<std::string_view> names;
  for (const Architecture& one : Architectures()) EXPECT_TRUE(names.insert(one.gguf).second);
  EXPECT_GE(names.size(), 34u);
  EXPECT_EQ(FindArchitecture("mamba"), nullptr);
}

TEST(GgufModelName, AFileThatNamesNothingTakesTheMetadatas) {
  struct Case {
    const char* file;
    const char* name;
  };
  for (const Case& each :
       {Case{"ggml-model-q4_0.gguf", "Qwen3-4B-Instruct-Q4_0"},
        Case{"model.gguf", "Qwen3-4B-Instruct-Q4_0"}, Case{"F16.gguf", "Qwen3-4B-Instruct-Q4_0"},
        Case{"sha256-3f1a.gguf", "Qwen3-4B-Instruct-Q4_0"}, Case{"mine.gguf", "mine"},
        Case{"Model-Q4.gguf", "Qwen3-4B-Instruct-Q4_0"}, Case{"q8-tuned.gguf", "q8-tuned"}}) {
    GgufWriter writer = SmallModel("llama");
    writer.Text("general.basename", "Qwen3")
        .Text("general.size_label", "4B")
        .Text("general.finetune", "Instruct")
        .Text("general.name", "../another");
    const auto model = GgufModel::Open(WriteGguf(each.file, writer.Bytes()));
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(*ModelName(**model, ""), each.name) << each.file;
    EXPECT_EQ(*ModelName(**model, "given"), "given");
  }
  GgufWriter plain = SmallModel("llama");
  plain.Text("general.name", "../A model: 7b");
  const auto model = GgufModel::Open(WriteGguf("model.gguf", plain.Bytes()));
  EXPECT_EQ(*ModelName(**model, ""), "A-model-7b-Q4_0") << "nothing that leads elsewhere";
}

}  // namespace
}  // namespace macrame::runtime::gguf
