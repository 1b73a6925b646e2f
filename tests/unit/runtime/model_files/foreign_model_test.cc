#include "runtime/model_files/foreign_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/reasons.h"
#include "runtime/model_files/model_description.h"
#include "runtime/model_files/model_folders.h"
#include "tests/unit/runtime/model_files/model_writer.h"

namespace macrame::runtime {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SecondEngine WithMlxLm() {
  SecondEngine second;
  second.mlx_lm.emplace();
  second.mlx_lm->python = "/opt/mlx/bin/python3";
  second.mlx_lm->version = "0.99.1";
  second.mlx_lm->architectures["martian"].set_tensor(true);
  second.mlx_lm->architectures["venusian"];
  return second;
}

nlohmann::json MartianConfig() {
  nlohmann::json config = SmallConfig();
  config["model_type"] = "martian";
  return config;
}

std::string Martian(const std::string& type = "martian") {
  nlohmann::json config = MartianConfig();
  config["model_type"] = type;
  const std::string folder = MakeFolder("m");
  WriteModel(folder, config, SmallTensors());
  return folder;
}

TEST(ForeignModel, IsDescribedForTheEngineThatServesIt) {
  const auto model = DescribeModel(Martian(), WithMlxLm());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->engine(), "mlx-lm");
  EXPECT_EQ(model->architecture(), "martian");
  EXPECT_TRUE(model->splits().tensor());
  EXPECT_FALSE(model->splits().uneven_tensor() || model->splits().pipeline() ||
               model->splits().tensor_in_pipeline());
  // What rankd says of the same tensors under a name that it knows.
  const std::string known = MakeFolder("k");
  WriteModel(known, SmallConfig(), SmallTensors());
  const auto own = DescribeModel(known);
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  EXPECT_FALSE(own->has_splits());
  EXPECT_EQ(model->layer_count(), own->layer_count());
  EXPECT_EQ(model->kv_heads(), own->kv_heads());
  EXPECT_EQ(model->head_dim(), own->head_dim());
  EXPECT_EQ(model->context_length_max(), own->context_length_max());
  EXPECT_EQ(model->parameter_count(), own->parameter_count());
  EXPECT_EQ(model->embedding_bytes(), own->embedding_bytes());
  EXPECT_EQ(model->head_bytes(), own->head_bytes());
  EXPECT_EQ(model->layer_bytes(1), own->layer_bytes(1));
  EXPECT_EQ(model->dtype(), own->dtype());
  EXPECT_FALSE(model->fingerprint().empty());
}

TEST(ForeignModel, WithoutSplitsNothingCountsAsDivisible) {
  const auto model = DescribeModel(Martian("venusian"), WithMlxLm());
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_TRUE(model->has_splits());
  EXPECT_FALSE(model->splits().tensor());
  EXPECT_EQ(model->layer_divisible_bytes(0), 0u);
}

// The many names of the same things, a text part, layers that stand elsewhere, experts.
TEST(ForeignModel, ReadsTheUsualNames) {
  const auto model = ReadForeignConfig(
      R"({"model_type": "m", "text_config": {"n_layer": 3, "n_embd": 96, "n_head": 6,
          "vocab_size": 77, "n_routed_experts": 8, "num_experts_per_tok": 2}})",
      "/f");
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  EXPECT_EQ(model->layer_count(), 3u);
  EXPECT_EQ(model->kv_heads(), 6u);
  EXPECT_EQ(model->head_dim(), 16u);
  EXPECT_EQ(model->intermediate_size(), 384u);
  EXPECT_EQ(model->experts(), 8u);
  EXPECT_EQ(model->experts_active(), 2u);
  const std::string folder = MakeFolder("n");
  WriteSafetensors(folder + "/model.safetensors",
                   {{"transformer.wte.weight", {"BF16", {77, 96}}},
                    {"transformer.h.0.attn.weight", {"BF16", {96, 96}}},
                    {"transformer.h.2.experts.1.up.weight", {"BF16", {32, 96}}},
                    {"transformer.h.2.shared_experts.up.weight", {"BF16", {16, 96}}},
                    {"transformer.ln_f.weight", {"BF16", {96}}},
                    {"vision_tower.layers.0.weight", {"BF16", {96, 96}}},
                    {"output.weight", {"BF16", {77, 96}}}});
  const auto files = engine::WeightFiles::Open(folder);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  v1::ModelDescription out = *model;
  AddForeignBytes("{}", **files, true, &out);
  EXPECT_THAT(out.layer_bytes(), ElementsAre(96 * 96 * 2, 0, 48 * 96 * 2));
  EXPECT_THAT(out.layer_expert_bytes(), ElementsAre(0, 0, 32 * 96 * 2));
  EXPECT_EQ(out.embedding_bytes(), 77u * 96 * 2);
  EXPECT_EQ(out.head_bytes(), 77u * 96 * 2);
  EXPECT_EQ(out.final_norm_bytes(), 96u * 2);
}

TEST(ForeignModel, AConfigThatSaysTooLittleNamesWhat) {
  const auto lacking = [](const char* config) {
    return ReasonOf(ReadForeignConfig(config, "/f").status()).message();
  };
  EXPECT_THAT(lacking(R"({"model_type": "m"})"), HasSubstr("number of layers"));
  EXPECT_THAT(lacking(R"({"model_type": "m", "n_layer": 2})"), HasSubstr("hidden size"));
  EXPECT_THAT(lacking(R"({"model_type": "m", "n_layer": 2, "d_model": 8})"),
              HasSubstr("vocab_size"));
  EXPECT_THAT(lacking(R"({"n_layer": 2})"), HasSubstr("model_type"));
  EXPECT_THAT(lacking("[]"), HasSubstr("not a JSON object"));
}

TEST(ForeignModel, WhoDoesNotServeItIsSaid) {
  SecondEngine none;
  none.why_not = "/usr/bin/python3 has no mlx_lm";
  v1::Reason reason = ReasonOf(DescribeModel(Martian(), none).status());
  EXPECT_EQ(reason.code(), "MODEL_ARCHITECTURE_UNKNOWN");
  EXPECT_THAT(reason.message(), AllOf(HasSubstr("llama, mistral"), HasSubstr(none.why_not)));
  EXPECT_THAT(reason.remedy(), AllOf(HasSubstr("pip install mlx-lm"), HasSubstr("mlx_lm_python")));
  reason = ReasonOf(DescribeModel(Martian("plutonian"), WithMlxLm()).status());
  EXPECT_EQ(reason.code(), "MODEL_ARCHITECTURE_UNKNOWN");
  EXPECT_THAT(reason.message(), HasSubstr("nor has mlx-lm 0.99.1 (/opt/mlx/bin/python3) a "
                                          "model_type 'plutonian'"));
  EXPECT_THAT(reason.remedy(), HasSubstr("install --upgrade mlx-lm"));
}

TEST(ForeignModel, FoldersAreLookedAtAnewWhenTheEngineIsFound) {
  const std::string root = MakeFolder("root");
  WriteModel(root + "/martian", MartianConfig(), SmallTensors());
  ModelFolders folders({root});
  EXPECT_TRUE(folders.Scan().empty());
  EXPECT_EQ(folders.Broken().size(), 1u);
  folders.SetSecondEngine(WithMlxLm());
  ASSERT_EQ(folders.Scan().size(), 1u);
  EXPECT_TRUE(folders.Broken().empty());
  EXPECT_EQ(folders.Resolve("martian")->description.engine(), "mlx-lm");
}

}  // namespace
}  // namespace macrame::runtime
