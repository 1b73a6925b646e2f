// Each tensor of models of every family and form of storage, made wrong in each way that a header
// can be: missing, of another type, with its axes changed. The folder is refused before anything is
// loaded, with the tensor's module and what is wrong with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "proto/reasons.h"
#include "runtime/model/config/model_config.h"
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
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Files = std::map<std::string, std::string>;

// A folder whose weights' header is changed in place, and back.
class PatchedFolder {
 public:
  explicit PatchedFolder(const Files& files)
      : folder_(WriteFolder(files)), bytes_(files.at("model.safetensors")) {
    uint64_t size = 0;
    std::memcpy(&size, bytes_.data(), sizeof(size));
    header_ = bytes_.substr(sizeof(size), size);
    const auto config = ParseModelConfig(files.at("config.json"), folder_);
    EXPECT_TRUE(config.ok()) << config.status();
    if (config.ok()) config_ = *config;
  }

  json Tensors() const { return json::parse(header_); }
  const ModelConfig& config() const { return config_; }

  // What is said of the folder with this entry of the header, of as many bytes as the old one's.
  absl::Status With(const std::string& from, const std::string& to) {
    const size_t at = header_.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    EXPECT_EQ(from.size(), to.size());
    std::string changed = header_;
    Write(changed.replace(at, from.size(), to));
    const absl::Status said = Check();
    Write(header_);
    return said;
  }
  absl::Status Check(const std::optional<ShardPlace>& place = std::nullopt) const {
    const auto files = WeightFiles::Open(folder_);
    if (!files.ok()) return files.status();
    return CheckWeights(config_, place.value_or(ShardPlace{0, config_.layer_count}), **files);
  }

 private:
  void Write(const std::string& header) const {
    std::fstream file(folder_ + "/model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(sizeof(uint64_t));
    file << header;
    EXPECT_TRUE(file.good());
  }

  const std::string folder_, bytes_;
  std::string header_;
  ModelConfig config_;
};

// "NAME":{…"dtype":"F32"…"shape":[…]}, with a part of it replaced.
std::string EntryOf(const std::string& name, const json& tensor) {
  return json(name).dump() + ":" + tensor.dump();
}

// As many bytes of other numbers.
std::string OtherType(const std::string& type) {
  const std::map<std::string, std::string> others = {
      {"F32", "I32"}, {"U32", "F32"}, {"I32", "U32"}, {"BF16", "I16"}, {"U8", "I8"}};
  const auto found = others.find(type);
  return found == others.end() ? "" : found->second;
}

// Modules whose tensors are named by others of their layer when they are missing: experts in one
// tensor may stand by themselves as well, and what is in kv_b_proj by head.
std::string ModuleOf(const std::string& name) {
  for (const char* stack : {"switch_mlp", "switch_glu", "experts", "kv_b_proj"}) {
    const size_t at = name.find(stack);
    if (at != std::string::npos) return name.substr(0, at);
  }
  return name.substr(0, name.rfind('.'));
}

void ExpectEveryFaultTold(const Files& files) {
  PatchedFolder folder(files);
  SCOPED_TRACE(files.at("config.json"));
  ASSERT_TRUE(folder.Check().ok()) << folder.Check();
  int told = 0;
  const json tensors = folder.Tensors();
  for (const auto& [name, tensor] : tensors.items()) {
    SCOPED_TRACE(name);
    const std::string entry = EntryOf(name, tensor);
    const auto expect_told = [&](const json& changed, const std::string& stored_as) {
      const absl::Status said = folder.With(entry, EntryOf(stored_as, changed));
      const v1::Reason reason = ReasonOf(said);
      EXPECT_THAT(reason.code(), AnyOf("MODEL_CONFIG_INVALID", "MODEL_FORMAT_UNSUPPORTED"));
      EXPECT_THAT(reason.message(), HasSubstr(ModuleOf(name)));
      ++told;
    };
    expect_told(tensor, "X" + name.substr(1));
    json other = tensor;
    other["dtype"] = OtherType(tensor["dtype"]);
    if (entry.size() == EntryOf(name, other).size()) expect_told(other, name);
    // A convolution's last two axes may stand the other way round, and experts be turned over.
    json turned = tensor;
    if (turned["shape"].size() < 2 || name.ends_with("conv1d.weight")) continue;
    const bool is_fused = tensor["shape"].size() == 3 && name.ends_with("_proj");
    std::swap(turned["shape"][0], turned["shape"][turned["shape"].size() - (is_fused ? 2 : 1)]);
    if (turned != tensor) expect_told(turned, name);
  }
  EXPECT_GT(told, 20);
}

class WeightFaultsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(WeightFaultsTest, AreAllTold) {
  for (const int bits : {0, 4}) ExpectEveryFaultTold(FamilyModel({GetParam(), bits}));
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, WeightFaultsTest, ::testing::ValuesIn(FamilyNames()), NameOf);

TEST(WeightFaultsOfFormsTest, AreAllTold) {
  ExpectEveryFaultTold(SymmetricModel("phi3", /*packed=*/true));
  json fused = FamilyConfig({"qwen3_vl_moe"});
  fused["test_experts"] = "fused";
  ExpectEveryFaultTold(ModelOfConfig(fused));
  ExpectEveryFaultTold(ModelOfConfig(CompressedConfig()));
  ModelShape shape;
  shape.architecture = "gpt_oss";
  shape.mxfp4 = shape.biases = true;
  shape.experts = 3;
  shape.inner = 64;
  for (const bool blocks : {false, true}) {
    shape.blocks = blocks;
    ExpectEveryFaultTold(RandomModel(shape));
  }
  ModelShape latent;
  latent.architecture = "deepseek_v32";
  latent.latent = 48;
  latent.query_latent = 80;
  latent.index_top = 3;
  for (const bool by_head : {false, true}) {
    latent.by_head = by_head;
    ExpectEveryFaultTold(RandomModel(latent));
  }
}

// Stages look at their own layers, and the first and last at what is around them.
TEST(WeightFaultsOfStagesTest, AStageNeedsItsOwnTensorsAlone) {
  auto files = FamilyModel({"olmo2"});
  std::string& bytes = files["model.safetensors"];
  for (const std::string name : {"model.layers.1.mlp.up_proj.weight", "lm_head.weight"}) {
    bytes[bytes.find("\"" + name) + 1] = 'X';
  }
  const PatchedFolder broken(files);
  ShardPlace front{0, 1}, back{1, 2};
  front.has_head = back.embeds = false;
  EXPECT_TRUE(broken.Check(front).ok()) << broken.Check(front);
  EXPECT_THAT(std::string(broken.Check(back).message()),
              AllOf(HasSubstr("model.layers.1.mlp.up_proj.weight"), HasSubstr("lm_head.weight")));
  front.has_head = true;
  EXPECT_THAT(std::string(broken.Check(front).message()), HasSubstr("lm_head.weight"));
}

TEST(WeightFaultsOfStagesTest, LayersThatAreNotThereAreRefused) {
  const PatchedFolder folder(FamilyModel({"olmo2"}));
  const std::pair<int, int> ranges[] = {{-1, 1}, {0, 0}, {1, 1}, {2, 1}, {0, 3}, {2, 3}};
  for (const auto& [begin, end] : ranges) {
    const absl::Status said = folder.Check(ShardPlace{begin, end});
    EXPECT_EQ(ReasonOf(said).code(), "MODEL_CONFIG_INVALID");
    EXPECT_THAT(std::string(said.message()),
                HasSubstr("layers [" + std::to_string(begin) + ", " + std::to_string(end) +
                          ") of a model that has 2"));
  }
}

// The first faults are named, the others counted.
TEST(WeightFaultsOfStagesTest, ManyFaultsAreCounted) {
  auto files = FamilyModel({"olmo2"});
  std::string& bytes = files["model.safetensors"];
  int faults = 0;
  for (size_t at = bytes.find("\"model.layers.1."); at != std::string::npos;
       at = bytes.find("\"model.layers.1.", at + 1), ++faults) {
    bytes[at + 1] = 'X';
  }
  ASSERT_GT(faults, kFaultsNamedMax);
  const std::string said(PatchedFolder(files).Check().message());
  int named = 0;
  for (size_t at = said.find("is in no weights file"); at != std::string::npos;
       at = said.find("is in no weights file", at + 1)) {
    ++named;
  }
  EXPECT_EQ(named, kFaultsNamedMax);
  EXPECT_THAT(said, HasSubstr("; and " + std::to_string(faults - kFaultsNamedMax) + " more"));
}

Files Quantised(const json& quantization) {
  Files files = FamilyModel({"olmo2", 4});
  json config = json::parse(files["config.json"]);
  config["quantization"].update(quantization);
  files["config.json"] = config.dump();
  return files;
}

TEST(WeightFaultsOfQuantisationTest, AModuleIsStoredAsItsConfigSays) {
  const std::string o_proj = "model.layers.1.self_attn.o_proj";
  const std::pair<json, std::string> cases[] = {
      {{{o_proj, false}}, "'" + o_proj + "' is stored quantised, config.json says it is not"},
      {{{o_proj, {{"bits", 8}}}}, "'" + o_proj + ".weight' is [64, 24], config.json implies"},
      {{{o_proj, {{"group_size", 64}}}}, "'" + o_proj + ".scales' is [64, 6], config.json implies"},
      {{{o_proj, {{"group_size", 128}}}},
       "'" + o_proj + "' has 192 columns, not a multiple of the group size 128"},
      {{{o_proj, {{"mode", "mxfp4"}}}}, "tensor '" + o_proj + ".scales' is stored as F32"},
      {{{"language_model." + o_proj, false}}, "config.json says it is not"},
  };
  for (const auto& [quantization, words] : cases) {
    EXPECT_THAT(std::string(PatchedFolder(Quantised(quantization)).Check().message()),
                HasSubstr(words));
  }
  EXPECT_TRUE(PatchedFolder(Quantised({{o_proj, true}})).Check().ok());
  EXPECT_TRUE(PatchedFolder(Quantised({{o_proj, json::object()}})).Check().ok());
  EXPECT_TRUE(PatchedFolder(Quantised({{"lm_head", {{"bits", 4}}}})).Check().ok());
}

TEST(WeightFaultsOfQuantisationTest, NumbersThatNobodyHasAreRefused) {
  const std::pair<json, const char*> cases[] = {
      {{{"bits", 7}}, "'quantization': 7 bits"},
      {{{"bits", 9}}, "'quantization': 9 bits"},
      {{{"bits", 1}}, "'quantization': 1 bits"},
      {{{"bits", 0}}, "'bits' is 0, not in [1, "},
      {{{"bits", "4"}}, "'bits' is not a whole number"},
      {{{"bits", nullptr}}, "'quantization': 0 bits"},
      {{{"group_size", 16}}, "'quantization': groups of 16"},
      {{{"group_size", 0}}, "'group_size' is 0"},
      {{{"mode", 3}}, "'mode' is not a text"},
      {{{"model.layers.0.mlp.up_proj", {{"bits", 1}}}},
       "'quantization.model.layers.0.mlp.up_proj': 1 bits"},
  };
  for (const auto& [quantization, words] : cases) {
    const auto parsed = ParseModelConfig(Quantised(quantization).at("config.json"), "m");
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(words)) << quantization;
  }
  json config = FamilyConfig({"olmo2"});
  config["quantization"] = 4;
  EXPECT_THAT(std::string(ParseModelConfig(config.dump(), "m").status().message()),
              HasSubstr("'quantization' is not an object"));
}

}  // namespace
}  // namespace macrame::runtime::engine
