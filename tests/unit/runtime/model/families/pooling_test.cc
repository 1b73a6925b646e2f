// Which models make embeddings, by the files beside them.

#include "runtime/model/families/pooling.h"
#include "runtime/model/families/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/reasons.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

constexpr char kLast[] = R"({"word_embedding_dimension": 64, "pooling_mode_cls_token": false,
  "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "include_prompt": true})";
constexpr char kModules[] = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
])";

// The same model as a checkpoint of the bare model: without "model." and without a head.
Files Bare(const ModelShape& shape) {
  Files files = RandomModel(shape);
  std::string& bytes = files["model.safetensors"];
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(bytes[i]);
  const json header = json::parse(bytes.substr(8, size));
  std::map<std::string, FixtureTensor> bare;
  for (const auto& [name, tensor] : header.items()) {
    if (name.rfind("model.", 0) != 0) continue;
    const auto begin = tensor["data_offsets"][0].get<size_t>();
    const auto end = tensor["data_offsets"][1].get<size_t>();
    bare[name.substr(6)] = {tensor["dtype"], tensor["shape"].get<std::vector<int64_t>>(),
                            bytes.substr(8 + size + begin, end - begin)};
  }
  bytes = Safetensors(bare);
  return files;
}

struct Read {
  absl::Status status;
  ModelConfig config;
};
Read ReadFolder(Files files, const Files& beside = {}) {
  const std::string folder = WriteFolder(files);
  for (const auto& [name, content] : beside) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  Read read{absl::OkStatus(), *LoadModelConfig(folder)};
  const auto opened = WeightFiles::Open(folder);
  EXPECT_TRUE(opened.ok()) << opened.status();
  read.status = ReadPooling(**opened, read.config);
  if (!read.status.ok()) return read;
  ShardPlace whole;
  whole.layer_end = read.config.layer_count;
  read.status = CheckWeights(read.config, whole, **opened);
  return read;
}

std::string Refused(const Files& beside, const json& more = json::object()) {
  ModelShape shape;
  shape.more = more;
  const Read read = ReadFolder(RandomModel(shape), beside);
  EXPECT_EQ(ReasonOf(read.status).code(), "MODEL_FORMAT_UNSUPPORTED");
  return std::string(read.status.message());
}

TEST(PoolingTest, AChatModelMakesTextAlone) {
  const Read read = ReadFolder(RandomModel({}));
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.config.pooling, Pooling::kNone);
  EXPECT_TRUE(read.config.has_head);
}

TEST(PoolingTest, SentenceTransformersFilesSayHow) {
  const Read last =
      ReadFolder(RandomModel({}), {{"modules.json", kModules}, {"1_Pooling/config.json", kLast}});
  ASSERT_TRUE(last.status.ok()) << last.status;
  EXPECT_EQ(last.config.pooling, Pooling::kLast);
  EXPECT_TRUE(last.config.has_head) << "it can make text, too";
  EXPECT_EQ(*ParsePooling(R"({"pooling_mode_mean_tokens": true})"), Pooling::kMean);
  EXPECT_EQ(*ParsePooling(R"({"pooling_mode_cls_token": true})"), Pooling::kFirst);
  EXPECT_EQ(*ParsePooling(R"({"pooling_mode": "lasttoken"})"), Pooling::kLast);
}

TEST(PoolingTest, WhatIsNotComputedIsRefusedByName) {
  EXPECT_THAT(std::string(ParsePooling(R"({"pooling_mode_max_tokens": true})").status().message()),
              HasSubstr("'max'"));
  EXPECT_THAT(std::string(ParsePooling(R"({"pooling_mode_mean_tokens": true,
                                           "pooling_mode_cls_token": true})")
                              .status()
                              .message()),
              HasSubstr("joins"));
  EXPECT_FALSE(ParsePooling("[]").ok());
  EXPECT_FALSE(ParsePooling("{}").ok());
  const std::string dense = R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])";
  EXPECT_THAT(Refused({{"modules.json", dense}, {"1_Pooling/config.json", kLast}}),
              HasSubstr("'Dense'"));
  const std::string outside =
      R"([{"path": "../x", "type": "sentence_transformers.models.Pooling"}])";
  EXPECT_THAT(Refused({{"modules.json", outside}}), HasSubstr("names no folder"));
  EXPECT_THAT(Refused({{"modules.json", "{"}}), HasSubstr("modules.json"));
}

TEST(PoolingTest, LayersThatAttendBothWaysAreRefused) {
  const Files beside = {{"1_Pooling/config.json", kLast}};
  EXPECT_THAT(Refused(beside, {{"is_causal", false}}), HasSubstr("'is_causal' is false"));
  EXPECT_THAT(Refused(beside, {{"use_bidirectional_attention", true}}),
              HasSubstr("attends to those behind it"));
  EXPECT_THAT(Refused(beside, {{"architectures", {"LlamaBidirectionalModel"}}}),
              HasSubstr("LlamaBidirectionalModel"));
  EXPECT_THAT(Refused(beside, {{"auto_map", {{"AutoModel", "modeling_qwen.Qwen2Model"}}}}),
              HasSubstr("modeling_qwen.Qwen2Model"));
}

TEST(PoolingTest, ABareCheckpointIsReadAndMakesEmbeddingsAlone) {
  for (const bool tied : {true, false}) {
    ModelShape shape;
    shape.architecture = "qwen3";
    shape.tied = tied;
    shape.bits = tied ? 4 : 0;
    shape.more = {{"architectures", {"Qwen3Model"}}};
    const Read read = ReadFolder(Bare(shape));
    ASSERT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(read.config.pooling, Pooling::kLast);
    EXPECT_FALSE(read.config.has_head);
    const Read mean = ReadFolder(
        Bare(shape), {{"1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})"}});
    EXPECT_EQ(mean.config.pooling, Pooling::kMean);
  }
}

TEST(PoolingTest, ATokenizerThatEndsEveryTextMeansTheLastPosition) {
  const std::string ends = R"({"added_tokens": [], "post_processor": {"type": "Sequence",
    "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single":
    [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<e>", "type_id": 0}}]}]},
    "decoder": null, "model": )";  // cut off, as a large file is
  EXPECT_TRUE(EndsTexts(ends));
  EXPECT_FALSE(EndsTexts(R"({"post_processor": {"type": "TemplateProcessing", "single":
    [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}})"));
  EXPECT_FALSE(EndsTexts(R"({"post_processor": null})"));
  EXPECT_FALSE(EndsTexts(R"({"post_processor": {"type": "Temp)"));
  EXPECT_FALSE(EndsTexts(""));
  const Read read = ReadFolder(RandomModel({}), {{"tokenizer.json", ends}});
  EXPECT_EQ(read.config.pooling, Pooling::kLast);
  EXPECT_TRUE(read.config.has_head);
}

}  // namespace
}  // namespace macrame::runtime::engine
