#include "runtime/gguf/import_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "proto/reasons.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

using testing::HasSubstr;

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

const PlannedTensor& Find(const ImportPlan& plan, const std::string& module, bool is_bias = false) {
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.module == module && tensor.is_bias == is_bias) return tensor;
  }
  ADD_FAILURE() << module;
  return plan.tensors.front();
}

TEST(ImportPlan, ConfigIsThatOfTheMetadata) {
  const auto [model, plan] = PlanOf(SmallModel("llama"));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->config["model_type"], "llama");
  EXPECT_EQ(plan->config["hidden_size"], 64);
  EXPECT_EQ(plan->config["num_key_value_heads"], 2);
  EXPECT_EQ(plan->config["head_dim"], 16);
  EXPECT_EQ(plan->config["vocab_size"], 300);
  EXPECT_EQ(plan->config["tie_word_embeddings"], true);
  EXPECT_EQ(plan->config["attention_bias"], false);
  EXPECT_EQ(plan->config["quantization"]["bits"], 4);
  EXPECT_EQ(plan->config["quantization"]["group_size"], 32);
  EXPECT_EQ(plan->config["quantization"]["model.embed_tokens"]["bits"], 8);
  EXPECT_EQ(plan->vector_type, "F16") << "the norms' numbers are exact in it";
  EXPECT_EQ(plan->tensors.size(), 2u + 2 * 9);
}

// Rows that GGUF's llama keeps as neighbours go back to the halves of a head; others stay.
TEST(ImportPlan, OnlyLlamasRowsChangeOrder) {
  const auto [model, plan] = PlanOf(SmallModel("llama"));
  const PlannedTensor& q = Find(*plan, "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(q.SourceRow(0), 0u);
  EXPECT_EQ(q.SourceRow(1), 2u);
  EXPECT_EQ(q.SourceRow(8), 1u);
  EXPECT_EQ(q.SourceRow(15), 15u);
  EXPECT_EQ(q.SourceRow(16 + 9), 16u + 3);
  std::set<uint64_t> rows;
  for (uint64_t row = 0; row < 64; ++row) rows.insert(q.SourceRow(row));
  EXPECT_EQ(rows.size(), 64u);
  EXPECT_EQ(Find(*plan, "model.layers.0.self_attn.v_proj").SourceRow(1), 1u);
  const auto [qwen_model, qwen] = PlanOf(SmallModel("qwen2"));
  ASSERT_TRUE(qwen.ok()) << qwen.status();
  EXPECT_EQ(Find(*qwen, "model.layers.0.self_attn.q_proj").SourceRow(1), 1u);
  EXPECT_TRUE(Find(*qwen, "model.layers.0.self_attn.q_proj", true).is_vector());
}

TEST(ImportPlan, VectorsGetTheSmallestTypeThatIsExact) {
  GgufWriter writer = SmallModel("llama");
  std::vector<float> norm(64, 1.0F);
  norm[3] = 1.0F + std::ldexp(1.0F, -20);
  writer.Tensor("output_norm.weight", 0, {64}, FloatBytesOf(norm));
  EXPECT_EQ(PlanOf(writer).plan->vector_type, "F32");
  norm[3] = 131072.0F;
  writer.Tensor("output_norm.weight", 0, {64}, FloatBytesOf(norm));
  EXPECT_EQ(PlanOf(writer).plan->vector_type, "BF16") << "too large for float16";
}

TEST(ImportPlan, Llama3sFactorsBecomeItsScaling) {
  GgufWriter writer = SmallModel("llama");
  writer.Number("llama.rope.freq_base", 500000.0F);
  std::vector<float> factors;
  for (int i = 0; i < 8; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(500000.0, i / 8.0);
    const double smooth = (8192 / wave - 1) / 3;
    factors.push_back(wave < 2048   ? 1.0F
                      : wave > 8192 ? 32.0F
                                    : static_cast<float>(1 / ((1 - smooth) / 32 + smooth)));
  }
  writer.Tensor("rope_freqs.weight", 0, {8}, FloatBytesOf(factors));
  const auto [model, plan] = PlanOf(writer);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->config["rope_scaling"]["rope_type"], "llama3");
  EXPECT_NEAR(plan->config["rope_scaling"]["factor"].get<double>(), 32.0, 1e-6);
  factors[4] *= 2;
  writer.Tensor("rope_freqs.weight", 0, {8}, FloatBytesOf(factors));
  EXPECT_THAT(MessageOf(writer), HasSubstr("'rope_freqs.weight' is not Llama 3's scaling"));
}

TEST(ImportPlan, WhatIsNotKnownIsRefusedByName) {
  GgufWriter moe = SmallModel("qwen3");
  moe.Integer("qwen3.expert_count", 8);
  EXPECT_THAT(MessageOf(moe), HasSubstr("architecture 'qwen3' with experts is not known"));
  GgufWriter other = SmallModel("llama");
  other.Text("general.architecture", "mamba");
  EXPECT_THAT(MessageOf(other), HasSubstr("architecture 'mamba' is not known"));
  GgufWriter kind = SmallModel("llama");
  kind.Tensor("blk.0.attn_v.weight", 15, {64, 32}, std::string(32 * 36, 'x'));
  EXPECT_THAT(MessageOf(kind), HasSubstr("'blk.0.attn_v.weight' is stored as Q8_K"));
  GgufWriter extra = SmallModel("llama");
  extra.Tensor("blk.0.ssm_a", 0, {4}, FloatBytesOf({1, 2, 3, 4}));
  EXPECT_THAT(MessageOf(extra), HasSubstr("'blk.0.ssm_a' is none of a llama"));
  GgufWriter rope = SmallModel("qwen2");
  rope.Text("qwen2.rope.scaling.type", "martian").Number("qwen2.rope.scaling.factor", 4);
  EXPECT_THAT(MessageOf(rope), HasSubstr("rope scaling 'martian'"));
  GgufWriter key = SmallModel("qwen2");
  key.Number("qwen2.logit_scale", 0.5F);
  EXPECT_THAT(MessageOf(key), HasSubstr("'qwen2.logit_scale', which the import does not know"));
  GgufWriter tower = SmallModel("llama");
  tower.Text("general.type", "mmproj");
  EXPECT_THAT(MessageOf(tower), HasSubstr("general.type is 'mmproj'"));
  GgufWriter heads = SmallModel("llama");
  heads.Integer("llama.attention.head_count", 8).Integer("llama.attention.key_length", 16);
  EXPECT_THAT(MessageOf(heads), HasSubstr("not 8 heads of 16"));
}

}  // namespace
}  // namespace macrame::runtime::gguf
