// What a GGUF model must say before it is imported, what is refused, and by which name; and that
// the config says of each weight how it is stored, whatever mixture the file has.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/gguf/import_plan.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint32_t kF32 = 0, kF16 = 1, kBF16 = 30;

struct Planned {
  std::unique_ptr<const GgufModel> model;
  absl::StatusOr<ImportPlan> plan;
  v1::Reason WhyNot() const { return ReasonOf(plan.status()); }
};

Planned PlanOf(const GgufWriter& writer) {
  auto model = GgufModel::Open(WriteGguf("m.gguf", writer.Bytes()));
  EXPECT_TRUE(model.ok()) << model.status();
  auto plan = PlanImport(**model);
  return {*std::move(model), std::move(plan)};
}

// The code, and that the message names the file and `name`.
void ExpectRefused(const GgufWriter& writer, const std::string& code, const std::string& name) {
  const Planned planned = PlanOf(writer);
  ASSERT_FALSE(planned.plan.ok()) << name;
  EXPECT_EQ(planned.WhyNot().code(), code) << name;
  EXPECT_THAT(planned.WhyNot().message(), AllOf(HasSubstr("m.gguf: "), HasSubstr(name)));
}

std::string Blocks(uint32_t type, uint64_t numbers) {
  const BlockForm& form = *FindBlockForm(type);
  return std::string(numbers / form.elements * form.bytes, '\0');
}

TEST(ImportNeeds, EachKeyThatIsMissingIsNamed) {
  for (const std::string key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    GgufWriter writer = SmallModel("llama");
    writer.Text("llama." + key, "not a number");
    ExpectRefused(writer, "MODEL_CONFIG_INVALID", "the metadata has no llama." + key);
  }
  GgufWriter used = SmallModel("qwen3moe");
  used.Text("qwen3moe.expert_used_count", "not a number");
  ExpectRefused(used, "MODEL_CONFIG_INVALID", "the metadata has no qwen3moe.expert_used_count");
  GgufWriter width = SmallModel("qwen3moe");
  width.Text("qwen3moe.feed_forward_length", "no")
      .Text("qwen3moe.expert_feed_forward_length", "no");
  ExpectRefused(width, "MODEL_CONFIG_INVALID",
                "the metadata has no qwen3moe.expert_feed_forward_length");
  GgufWriter nothing;
  nothing.Text("general.name", "x");
  ExpectRefused(nothing, "MODEL_ARCHITECTURE_UNKNOWN", "architecture '' is not known");
}

TEST(ImportNeeds, SizesThatNoModelHasAreNamedWithTheirValue) {
  for (const std::string key :
       {"block_count", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv", "context_length"}) {
    for (const uint32_t value : {0U, (1U << 24) + 1, UINT32_MAX}) {
      GgufWriter writer = SmallModel("llama");
      writer.Integer("llama." + key, value);
      ExpectRefused(writer, "MODEL_CONFIG_INVALID", absl::StrCat("llama.", key, " is ", value));
    }
  }
}

// A number that is none would stand as null in the config, and a default be taken for it in
// silence.
TEST(ImportNeeds, NumbersThatAreNoneAreNamed) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::string key : {"attention.layer_norm_rms_epsilon", "rope.freq_base"}) {
    for (const float value : {0.0F, -1.0F, infinity, -infinity, std::nanf("")}) {
      GgufWriter writer = SmallModel("llama");
      writer.Number("llama." + key, value);
      ExpectRefused(writer, "MODEL_CONFIG_INVALID", "llama." + key);
    }
  }
  for (const float value : {0.0F, -2.0F, infinity, std::nanf("")}) {
    GgufWriter writer = SmallModel("llama");
    writer.Text("llama.rope.scaling.type", "linear").Number("llama.rope.scaling.factor", value);
    ExpectRefused(writer, "MODEL_CONFIG_INVALID", "llama.rope.scaling.factor");
  }
}

TEST(ImportNeeds, HeadsThatTheEngineHasNotAreRefused) {
  const auto with = [](const char* key, uint32_t value) {
    GgufWriter writer = SmallModel("qwen3");
    writer.Integer(std::string("qwen3.") + key, value);
    return writer;
  };
  const std::string code = "MODEL_FORMAT_UNSUPPORTED";
  ExpectRefused(with("attention.value_length", 8), code, "keys and values have different widths");
  ExpectRefused(with("rope.dimension_count", 8), code, "only a part of each head");
  ExpectRefused(with("attention.key_length", 15), code, "heads have an odd width, 15");
  GgufWriter none = SmallModel("llama");
  none.Remove("token_embd.weight");
  ExpectRefused(none, "MODEL_FILE_BROKEN", "'token_embd.weight' is missing");
}

TEST(ImportNeeds, TensorsInFormsThatTheyCannotHaveAreNamed) {
  const std::string code = "MODEL_FORMAT_UNSUPPORTED";
  GgufWriter cube = SmallModel("llama");
  cube.Tensor("blk.0.attn_q.weight", kF32, {64, 32, 2}, std::string(64 * 64 * 4, '\0'));
  ExpectRefused(cube, code, "tensor 'blk.0.attn_q.weight' has 3 dimensions in F32");
  GgufWriter norm = SmallModel("llama");
  norm.Tensor("output_norm.weight", 8, {64}, Blocks(8, 64));
  ExpectRefused(norm, code, "tensor 'output_norm.weight' has 1 dimensions in Q8_0");
  GgufWriter experts = SmallModel("qwen3");
  experts.Tensor("blk.0.ffn_up_exps.weight", kF32, {64, 8, 3}, std::string(64 * 24 * 4, '\0'));
  ExpectRefused(experts, code, "tensor 'blk.0.ffn_up_exps.weight' is none of a qwen3");
  for (const std::string name :
       {"blk.0.attn_q", "blk.0.attn_q.scale", "blk.x.attn_q.weight", "blk.-1.attn_q.weight",
        "layers.0.attn_q.weight", "output.0", "blk.0.attn_q.0.weight", ".weight", "weight"}) {
    GgufWriter writer = SmallModel("llama");
    writer.Tensor(name, kF32, {64, 64}, std::string(64 * 64 * 4, '\0'));
    ExpectRefused(writer, code, "tensor '" + name + "'");
  }
}

// Two tensors of the file for one of the model: which of them counts, nobody could say.
TEST(ImportNeeds, ALayersNumberIsSpelledInOneWay) {
  for (const std::string number : {"01", "+1", "00001"}) {
    GgufWriter writer = SmallModel("llama");
    const std::string name = "blk." + number + ".attn_q.weight";
    writer.Tensor(name, kF32, {64, 64}, std::string(64 * 64 * 4, '\0'));
    ExpectRefused(writer, "MODEL_FORMAT_UNSUPPORTED", "tensor '" + name + "'");
  }
}

TEST(ImportNeeds, ARefusedFormatSaysWhatToFetchInstead) {
  GgufWriter writer = SmallModel("llama");
  writer.Tensor("blk.1.ffn_up.weight", 26, {64, 96}, std::string(96 * 256, '\0'));
  const Planned planned = PlanOf(writer);
  EXPECT_THAT(planned.WhyNot().message(), HasSubstr("'blk.1.ffn_up.weight' is stored as I32"));
  EXPECT_THAT(planned.WhyNot().remedy(), AllOf(HasSubstr("MLX's format"), HasSubstr("K-quants")));
}

// ---- the rotary form

TEST(ImportRope, LinearScalingIsKeptAndNoScalingIsNone) {
  const auto config = [](const char* type, float factor) {
    GgufWriter writer = SmallModel("qwen2");
    writer.Text("qwen2.rope.scaling.type", type).Number("qwen2.rope.scaling.factor", factor);
    const Planned planned = PlanOf(writer);
    EXPECT_TRUE(planned.plan.ok()) << planned.plan.status();
    return planned.plan->config;
  };
  EXPECT_EQ(config("linear", 4.0F)["rope_scaling"],
            nlohmann::json({{"rope_type", "linear"}, {"factor", 4.0}}));
  EXPECT_FALSE(config("linear", 1.0F).contains("rope_scaling"));
  EXPECT_FALSE(config("none", 8.0F).contains("rope_scaling"));
}

// 1e-05 and 10000, as people wrote them, not the nearest float's many digits.
TEST(ImportRope, NumbersAreWrittenAsTheyWereMeant) {
  GgufWriter writer = SmallModel("llama");
  writer.Number("llama.attention.layer_norm_rms_epsilon", 1e-6F);
  writer.Number("llama.rope.freq_base", 500000.0F);
  const Planned planned = PlanOf(writer);
  ASSERT_TRUE(planned.plan.ok()) << planned.plan.status();
  EXPECT_EQ(planned.plan->config["rms_norm_eps"].get<double>(), 1e-6);
  EXPECT_EQ(planned.plan->config["rope_theta"].get<double>(), 500000.0);
}

TEST(ImportRope, FactorsThatAreNoNumbersAreNotLlama3s) {
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity(), 0.0F, -1.0F}) {
    for (size_t at = 0; at < 8; ++at) {
      std::vector<float> factors(8, 1.0F);
      factors[at] = wrong;
      GgufWriter writer = SmallModel("llama");
      writer.Tensor("rope_freqs.weight", kF32, {8}, FloatBytesOf(factors));
      ExpectRefused(writer, "MODEL_FORMAT_UNSUPPORTED", "'rope_freqs.weight' is not Llama 3's");
    }
  }
}

TEST(ImportRope, FactorsOfAnotherShapeAreBroken) {
  for (const size_t count : {7, 9, 16}) {
    GgufWriter writer = SmallModel("llama");
    writer.Tensor("rope_freqs.weight", kF32, {count},
                  FloatBytesOf(std::vector<float>(count, 1.0F)));
    ExpectRefused(writer, "MODEL_FILE_BROKEN", "not a float for each pair of a head");
  }
}

// ---- what the plan says of the weights

TEST(ImportPlanWeights, BiasesAndAHeadOfItsOwnAreToldInTheConfig) {
  GgufWriter writer = SmallModel("qwen2");
  const Planned tied = PlanOf(writer);
  ASSERT_TRUE(tied.plan.ok()) << tied.plan.status();
  EXPECT_EQ(tied.plan->config["attention_bias"], true);
  EXPECT_EQ(tied.plan->config["mlp_bias"], false);
  EXPECT_EQ(tied.plan->config["tie_word_embeddings"], true);
  writer.Tensor("output.weight", 8, {64, 300}, Blocks(8, 64 * 300));
  const Planned own = PlanOf(writer);
  ASSERT_TRUE(own.plan.ok()) << own.plan.status();
  EXPECT_EQ(own.plan->config["tie_word_embeddings"], false);
  EXPECT_EQ(own.plan->config["quantization"]["lm_head"]["bits"], 8);
}

// GGUF's llama turns neighbours: its converter takes rows [head, half, pair] to [head, pair, half].
// The way back must be just that, for any shape of heads, and lose no row.
TEST(ImportPlanWeights, RowsGoBackThroughTheConvertersPermutation) {
  for (const auto& [heads, head_dim] :
       {std::pair<uint64_t, uint64_t>{1, 2}, {1, 64}, {4, 16}, {7, 6}, {32, 128}, {3, 10}}) {
    GgufModel::Tensor source;
    source.dimensions = 2;
    source.rows = heads * head_dim;
    PlannedTensor planned;
    planned.source = &source;
    planned.heads = heads;
    std::vector<uint64_t> in_file(
        source.rows);  // by the converter: which row of the model it holds
    uint64_t next = 0;
    for (uint64_t head = 0; head < heads; ++head) {
      for (uint64_t pair = 0; pair < head_dim / 2; ++pair) {
        for (uint64_t half = 0; half < 2; ++half) {
          in_file[next++] = head * head_dim + half * (head_dim / 2) + pair;
        }
      }
    }
    for (uint64_t row = 0; row < source.rows; ++row) {
      ASSERT_EQ(in_file[planned.SourceRow(row)], row) << heads << " heads of " << head_dim;
    }
    planned.heads = 0;
    EXPECT_EQ(planned.SourceRow(source.rows - 1), source.rows - 1) << "others stay";
  }
}

// Bits by the config: the module's own entry, or what holds for all.
int BitsIn(const nlohmann::json& config, const std::string& module) {
  const auto found = config.find("quantization");
  if (found == config.end()) return 0;
  EXPECT_EQ((*found)["group_size"], 32);
  const auto own = found->find(module);
  if (own == found->end()) return (*found)["bits"].get<int>();
  EXPECT_EQ((*own)["group_size"], 32);
  return (*own)["bits"].get<int>();
}

TEST(ImportPlanWeights, AnyMixtureOfFormsIsToldModuleByModule) {
  const std::vector<uint32_t> types = {kF32, kF16, kBF16, 2, 3, 6, 7, 8};
  const std::map<std::string, std::pair<uint64_t, uint64_t>> matrices = {
      {"attn_q", {64, 64}},      {"attn_k", {64, 32}},   {"attn_v", {64, 32}},
      {"attn_output", {64, 64}}, {"ffn_gate", {64, 96}}, {"ffn_up", {64, 96}},
      {"ffn_down", {96, 64}}};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    GgufWriter writer = SmallModel("llama");
    for (const std::string layer : {"blk.0.", "blk.1."}) {
      for (const auto& [name, sides] : matrices) {
        const uint32_t type = types[random() % types.size()];
        writer.Tensor(layer + name + ".weight", type, {sides.first, sides.second},
                      Blocks(type, sides.first * sides.second));
      }
    }
    const Planned planned = PlanOf(writer);
    ASSERT_TRUE(planned.plan.ok()) << "seed " << seed << planned.plan.status();
    std::map<int, uint64_t> numbers;
    for (const PlannedTensor& tensor : planned.plan->tensors) {
      if (tensor.form->bits == 0) continue;
      EXPECT_EQ(BitsIn(planned.plan->config, tensor.module), tensor.form->bits)
          << "seed " << seed << ": " << tensor.module;
      numbers[tensor.form->bits] += tensor.source->rows * tensor.source->columns;
    }
    for (const auto& [bits, count] : numbers) {
      const int common = planned.plan->config["quantization"]["bits"].get<int>();
      EXPECT_LE(count, numbers[common]) << "seed " << seed << ": most weights need no entry";
    }
  }
}

// The type that all vectors get loses nothing of any of them.
TEST(ImportPlanWeights, TheTypeOfVectorsIsExactForAllOfThem) {
  struct Case {
    std::vector<float> values;
    const char* type;
    const char* dtype;
  };
  const float fine = 1.0F + std::ldexp(1.0F, -10), finer = 1.0F + std::ldexp(1.0F, -11);
  for (const Case& each :
       {Case{{1.0F, 0.5F, -2.0F}, "F16", "float16"}, Case{{fine}, "F16", "float16"},
        Case{{finer}, "F32", "float32"}, Case{{std::ldexp(1.0F, 20)}, "BF16", "bfloat16"},
        Case{{std::ldexp(1.0F, 20), fine}, "F32", "float32"},
        Case{{std::ldexp(1.0F, -24)}, "F16", "float16"},
        Case{{std::ldexp(1.0F, -25)}, "BF16", "bfloat16"}, Case{{-0.0F}, "F16", "float16"}}) {
    std::vector<float> norm(64, 1.0F);
    std::copy(each.values.begin(), each.values.end(), norm.begin() + 7);
    GgufWriter writer = SmallModel("llama");
    writer.Tensor("blk.1.ffn_norm.weight", kF32, {64}, FloatBytesOf(norm));
    const Planned planned = PlanOf(writer);
    ASSERT_TRUE(planned.plan.ok()) << planned.plan.status();
    EXPECT_EQ(planned.plan->vector_type, each.type) << each.values[0];
    EXPECT_EQ(planned.plan->config["torch_dtype"], each.dtype);
  }
}

TEST(ImportPlanWeights, AMixtureOfExpertsIsToldAsItsOwnArchitecture) {
  const Planned planned = PlanOf(SmallModel("qwen3moe"));
  ASSERT_TRUE(planned.plan.ok()) << planned.plan.status();
  const nlohmann::json& config = planned.plan->config;
  EXPECT_EQ(config["model_type"], "qwen3_moe");
  EXPECT_EQ(config["num_experts"], 3);
  EXPECT_EQ(config["num_experts_per_tok"], 2);
  EXPECT_EQ(config["moe_intermediate_size"], 96);
  EXPECT_EQ(config["norm_topk_prob"], true);
  EXPECT_THAT(config["architectures"], ElementsAre("Qwen3MoeForCausalLM"));
  std::set<std::string> modules;
  for (const PlannedTensor& tensor : planned.plan->tensors) {
    EXPECT_TRUE(modules.insert(tensor.module).second) << tensor.module;
  }
  EXPECT_EQ(modules.count("model.layers.1.mlp.switch_mlp.down_proj"), 1u);
  EXPECT_EQ(modules.count("model.layers.0.mlp.gate"), 1u);
}

// One width is enough: a mixture says that of its experts, of a dense layer, or leaves it to the
// tensors.
TEST(ImportPlanWeights, AMixturesWidthIsFoundWhereItIsSaid) {
  GgufWriter own = SmallModel("qwen3moe");
  own.Text("qwen3moe.feed_forward_length", "left out");
  const Planned without_dense = PlanOf(own);
  ASSERT_TRUE(without_dense.plan.ok()) << without_dense.plan.status();
  EXPECT_EQ(without_dense.plan->config["intermediate_size"], 96);
  GgufWriter dense = SmallModel("qwen3moe");
  dense.Text("qwen3moe.expert_feed_forward_length", "left out");
  dense.Integer("qwen3moe.feed_forward_length", 128);
  const Planned from_tensors = PlanOf(dense);
  ASSERT_TRUE(from_tensors.plan.ok()) << from_tensors.plan.status();
  EXPECT_EQ(from_tensors.plan->config["intermediate_size"], 128);
  EXPECT_EQ(from_tensors.plan->config["moe_intermediate_size"], 96);
}

// Mixtral is a "llama" with experts there, and says the width of its experts as that of its layers.
TEST(ImportPlanWeights, MixtralIsALlamaWithExperts) {
  const Planned planned = PlanOf(SmallMixtral());
  ASSERT_TRUE(planned.plan.ok()) << planned.plan.status();
  const nlohmann::json& config = planned.plan->config;
  EXPECT_EQ(config["model_type"], "mixtral");
  EXPECT_EQ(config["num_local_experts"], 3);
  EXPECT_EQ(config["num_experts_per_tok"], 2);
  EXPECT_EQ(config["intermediate_size"], 96);
  std::set<std::string> modules;
  for (const PlannedTensor& tensor : planned.plan->tensors) modules.insert(tensor.module);
  EXPECT_EQ(modules.count("model.layers.1.block_sparse_moe.switch_mlp.up_proj"), 1u);
  EXPECT_EQ(modules.count("model.layers.0.block_sparse_moe.gate"), 1u);
}

}  // namespace
}  // namespace macrame::runtime::gguf
