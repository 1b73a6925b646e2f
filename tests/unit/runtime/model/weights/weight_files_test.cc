// The weight files of a folder: which are opened, what tensors are called, that their bytes are
// those of the file, and which sentence a folder gets that is not as its index says.

#include "runtime/model/weights/weight_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/reasons.h"
#include "runtime/model/weights/fp8_weights.h"
#include "runtime/model/weights/packed_weights.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Tensors = std::map<std::string, FixtureTensor>;

constexpr char kIndex[] = "model.safetensors.index.json";

FixtureTensor Bytes(size_t count) {
  return {"U8", {static_cast<int64_t>(count)}, std::string(count, 'x')};
}

std::vector<std::string> NamesIn(const std::string& folder) {
  const auto files = WeightFiles::Open(folder);
  EXPECT_TRUE(files.ok()) << files.status();
  std::vector<std::string> names;
  if (!files.ok()) return names;
  for (const auto& [name, tensor] : (*files)->tensors()) {
    EXPECT_EQ(tensor.name, name);
    names.push_back(name);
  }
  return names;
}

// With its reason's code before it.
std::string Refusal(const std::string& folder) {
  const auto files = WeightFiles::Open(folder);
  if (files.ok()) return "";
  return ReasonOf(files.status()).code() + ": " + std::string(files.status().message());
}

TEST(WeightFilesTest, TensorsAreCalledAsInATextModel) {
  const std::pair<const char*, const char*> names[] = {
      {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
      {"model.language_model.layers.0.x", "model.layers.0.x"},
      {"language_model.model.layers.0.x", "model.layers.0.x"},
      {"language_model.lm_head.weight", "lm_head.weight"},
      {"backbone.embeddings.weight", "model.embed_tokens.weight"},
      {"backbone.norm_f.weight", "model.norm.weight"},
      {"backbone.layers.3.mixer.D", "model.layers.3.mixer.D"},
      {"layers.0.attn_hc.fn", "layers.0.attn_hc.fn.weight"},
      {"layers.0.attn_hc.fn.weight", "layers.0.attn_hc.fn.weight"},
      {"_hc.fn", "_hc.fn"},
      {"vision_tower.patch.weight", "vision_tower.patch.weight"},
      {"", ""},
  };
  for (const auto& [stored, name] : names) {
    EXPECT_EQ(TextTensorName(stored), name) << stored;
  }
}

TEST(WeightFilesTest, BytesAreThoseOfTheFile) {
  Tensors tensors;
  size_t odd = 1;
  for (const char* name : {"c", "a", "b"}) {
    tensors[name] = Bytes(odd += 2);
    for (size_t i = 0; i < odd; ++i) tensors[name].bytes[i] = static_cast<char>(*name + i);
  }
  const std::string file = Safetensors(tensors);
  const std::string folder = WriteFolder({{"model.safetensors", file}});
  const auto files = WeightFiles::Open(folder);
  ASSERT_TRUE(files.ok()) << files.status();
  for (const auto& [name, tensor] : tensors) {
    const StoredTensor* stored = (*files)->Find(name);
    ASSERT_NE(stored, nullptr) << name;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(stored->data), stored->bytes),
              tensor.bytes);
    EXPECT_EQ(file.substr(stored->begin, stored->bytes), tensor.bytes);
    EXPECT_EQ(stored->file, folder + "/model.safetensors");
  }
  EXPECT_EQ((*files)->Find("d"), nullptr);
  EXPECT_EQ((*files)->folder(), folder);
}

TEST(WeightFilesTest, TheIndexSaysWhichFilesAreRead) {
  const std::string stray = Safetensors({{"stray", Bytes(3)}});
  const std::string own = Safetensors({{"own", Bytes(3)}});
  const json index = {{"metadata", {{"total_size", 3}}},
                      {"weight_map", {{"own", "b.safetensors"}}}};
  EXPECT_THAT(
      NamesIn(WriteFolder(
          {{kIndex, index.dump()}, {"b.safetensors", own}, {"consolidated.safetensors", stray}})),
      ElementsAre("own"));
  EXPECT_THAT(NamesIn(WriteFolder({{"b.safetensors", own}, {"a.safetensors", stray}})),
              ElementsAre("own", "stray"));
}

// A Mac that copies a folder to another file system leaves such a file beside each.
TEST(WeightFilesTest, HiddenFilesAreNoShards) {
  const std::string own = Safetensors({{"own", Bytes(3)}});
  EXPECT_THAT(NamesIn(WriteFolder({{"model.safetensors", own},
                                   {"._model.safetensors", std::string("\0\5\26\7", 4)},
                                   {".model.safetensors", own}})),
              ElementsAre("own"));
  EXPECT_THAT(Refusal(WriteFolder({{"._model.safetensors", own}})),
              HasSubstr("holds no *.safetensors file"));
}

TEST(WeightFilesTest, AFolderWithoutWeightsIsNamed) {
  const std::string empty = WriteFolder({{"config.json", "{}"}});
  for (const std::string& folder : {empty, empty + "/nowhere"}) {
    EXPECT_THAT(Refusal(folder),
                StartsWith("MODEL_FILE_MISSING: " + folder + " holds no *.safetensors file"));
  }
}

TEST(WeightFilesTest, AnIndexThatIsNoneIsBroken) {
  const std::string shard = Safetensors({{"own", Bytes(3)}});
  const std::pair<std::string, const char*> cases[] = {
      {"", "holds no 'weight_map'"},
      {"{", "holds no 'weight_map'"},
      {"[]", "holds no 'weight_map'"},
      {"{}", "holds no 'weight_map'"},
      {R"({"weight_map": null})", "holds no 'weight_map'"},
      {R"({"weight_map": ["a.safetensors"]})", "holds no 'weight_map'"},
      {R"({"weight_map": {"t": 7}})", "tensor 't' is in something, which is not the name"},
      {R"({"weight_map": {"t": ""}})", "tensor 't' is in \"\", which is not the name"},
      {R"({"weight_map": {"t": "/etc/passwd"}})", "tensor 't' is in \"/etc/passwd\", which"},
      {R"({"weight_map": {"t": "sub/a.safetensors"}})", "which is not the name of a file"},
      {R"({"weight_map": {"t": ".."}})", ""},
      {R"({"weight_map": {"t": "."}})", ""},
  };
  for (const auto& [index, words] : cases) {
    const std::string said = Refusal(WriteFolder({{kIndex, index}, {"a.safetensors", shard}}));
    EXPECT_THAT(said, AllOf(HasSubstr("MODEL_FILE_BROKEN: "), HasSubstr(words))) << index;
  }
}

TEST(WeightFilesTest, MoreShardsThanAModelHasAreRefused) {
  json map = json::object();
  std::map<std::string, std::string> files;
  for (size_t i = 0; i <= WeightFiles::kShardsMax; ++i) {
    const std::string name = std::to_string(i) + ".safetensors";
    files[name] = "";
    map["t" + std::to_string(i)] = name;
  }
  files[kIndex] = json({{"weight_map", map}}).dump();
  EXPECT_THAT(Refusal(WriteFolder(files)),
              AllOf(HasSubstr("MODEL_FILE_BROKEN"), HasSubstr("holds 2049 shards, above 2048")));
}

// Copies of one model in two layouts, and two models in one folder.
TEST(WeightFilesTest, ATensorThatTwoFilesHaveAlikeIsReadOnce) {
  const std::string first = Safetensors({{"model.norm.weight", Bytes(3)}});
  // Under another name that means the same.
  const std::string second = Safetensors({{"language_model.model.norm.weight", Bytes(3)}});
  const std::string folder = WriteFolder({{"a.safetensors", first}, {"b.safetensors", second}});
  EXPECT_THAT(NamesIn(folder), ElementsAre("model.norm.weight"));
  EXPECT_THAT((*WeightFiles::Open(folder))->Find("model.norm.weight")->file,
              HasSubstr("/a.safetensors"));
}

TEST(WeightFilesTest, ATensorThatTwoFilesHaveDifferentlyIsToldWithBoth) {
  const std::string first = Safetensors({{"model.norm.weight", Bytes(3)}});
  FixtureTensor other = Bytes(3);
  other.bytes[1] = 'y';
  for (const FixtureTensor& tensor : {other, Bytes(4)}) {
    const std::string second = Safetensors({{"model.norm.weight", tensor}});
    const auto files =
        WeightFiles::Open(WriteFolder({{"a.safetensors", first}, {"b.safetensors", second}}));
    ASSERT_FALSE(files.ok());
    const v1::Reason reason = ReasonOf(files.status());
    EXPECT_THAT(reason.message(), AllOf(HasSubstr("'model.norm.weight'"),
                                        HasSubstr("/a.safetensors"), HasSubstr("/b.safetensors")));
    EXPECT_THAT(reason.remedy(), AllOf(HasSubstr("move"), Not(HasSubstr("fetch"))));
  }
}

TEST(WeightFilesTest, TheMakersOwnFormBesideTheWeightsIsLeftAlone) {
  const std::string model = Safetensors({{"model.norm.weight", Bytes(3)}});
  const std::string makers = Safetensors({{"norm.weight", Bytes(3)}});
  EXPECT_THAT(
      NamesIn(WriteFolder({{"model.safetensors", model}, {"consolidated.safetensors", makers}})),
      ElementsAre("model.norm.weight"));
  EXPECT_THAT(NamesIn(WriteFolder({{"model-00001-of-00001.safetensors", model},
                                   {"consolidated-00001-of-00001.safetensors", makers},
                                   {"extra.safetensors", makers}})),
              ElementsAre("model.norm.weight"));
  EXPECT_THAT(NamesIn(WriteFolder({{"weights.00.safetensors", model}})),
              ElementsAre("model.norm.weight"));
}

TEST(WeightFilesTest, AnAdapterIsRefusedByItsName) {
  const std::string model = Safetensors({{"model.norm.weight", Bytes(3)}});
  const std::string lora = Safetensors({{"model.layers.0.self_attn.q_proj.lora_a", Bytes(3)}});
  for (const char* name :
       {"adapters.safetensors", "adapter_model.safetensors", "0000100_adapters.safetensors"}) {
    const std::string index = json({{"weight_map", {{"a", "model.safetensors"}}}}).dump();
    for (const auto& more : {std::map<std::string, std::string>{},
                             std::map<std::string, std::string>{{kIndex, index}}}) {
      std::map<std::string, std::string> all = {{"model.safetensors", model}, {name, lora}};
      all.insert(more.begin(), more.end());
      const auto files = WeightFiles::Open(WriteFolder(all));
      ASSERT_FALSE(files.ok()) << name;
      const v1::Reason reason = ReasonOf(files.status());
      EXPECT_EQ(reason.code(), reasons::kModelFormatUnsupported);
      EXPECT_THAT(reason.message(), AllOf(HasSubstr(name), HasSubstr("adapter")));
      EXPECT_THAT(reason.remedy(), AllOf(HasSubstr("mlx_lm fuse"), HasSubstr("out of the folder")));
    }
  }
}

TEST(WeightFilesTest, AnIndexIsReadAsPythonReadsIt) {
  const std::string model = Safetensors({{"model.norm.weight", Bytes(3)}});
  EXPECT_THAT(
      NamesIn(WriteFolder({{"model-a.safetensors", model},
                           {kIndex,
                            "\xEF\xBB\xBF{\"metadata\": {\"total_size\": NaN}, \"weight_map\": {}, "
                            "\"weight_map\": {\"model.norm.weight\": \"model-a.safetensors\"}}"}})),
      ElementsAre("model.norm.weight"));
}

TEST(WeightFilesTest, ABareModelIsCalledLikeAWholeOne) {
  const auto open = [](Tensors tensors) {
    return *WeightFiles::Open(WriteFolder({{"model.safetensors", Safetensors(tensors)}}));
  };
  const auto bare = open({{"embed_tokens.weight", Bytes(1)}, {"layers.0.x", Bytes(1)}});
  EXPECT_TRUE(bare->is_bare());
  EXPECT_NE(bare->Find("model.layers.0.x"), nullptr);
  EXPECT_EQ(bare->Find("layers.0.x"), nullptr);
  const auto headed = open({{"embed_tokens.weight", Bytes(1)}, {"lm_head.weight", Bytes(1)}});
  EXPECT_FALSE(headed->is_bare());
  EXPECT_NE(headed->Find("lm_head.weight"), nullptr);
  EXPECT_NE(headed->Find("model.embed_tokens.weight"), nullptr);
  EXPECT_FALSE(open({{"model.embed_tokens.weight", Bytes(1)}})->is_bare());
}

// What the planner counts a loaded tensor as.
TEST(WeightFilesTest, TensorsThatAreUnpackedTakeWhatTheyBecome) {
  Tensors tensors;
  tensors["a.weight"] = {"F8_E4M3", {4, 8}, std::string(32, '\0')};
  tensors["a.weight_scale_inv"] = {"F32", {1, 1}, std::string(4, '\0')};
  tensors["b.weight_packed"] = {"I32", {4, 4}, std::string(64, '\0')};
  tensors["b.weight_scale"] = {"BF16", {4, 1}, std::string(8, '\0')};
  tensors["b.weight_shape"] = {"I32", {2}, std::string(8, '\0')};
  tensors["c.weight"] = {"F32", {4}, std::string(16, '\0')};
  tensors["c.weight_scale"] = {"F32", {1}, std::string(4, '\0')};  // of no 8-bit floats
  tensors["weight_scale"] = {"F32", {1}, std::string(4, '\0')};
  const auto files = *WeightFiles::Open(WriteFolder({{"model.safetensors", Safetensors(tensors)}}));
  const std::pair<const char*, uint64_t> held[] = {
      {"a.weight", 64},       {"a.weight_scale_inv", 0}, {"b.weight_packed", 64},
      {"b.weight_scale", 16}, {"b.weight_shape", 0},     {"c.weight", 16},
      {"c.weight_scale", 4},  {"weight_scale", 4},
  };
  for (const auto& [name, bytes] : held) {
    EXPECT_EQ(HeldBytes(*files->Find(name), *files), bytes) << name;
  }
  EXPECT_EQ(FindFp8Scale(*files->Find("a.weight"), *files), files->Find("a.weight_scale_inv"));
  EXPECT_FALSE(IsFp8Scale(*files->Find("c.weight_scale"), *files));
  EXPECT_TRUE(IsPackedWeight(*files->Find("b.weight_packed")));
}

// Scales of powers of two, with the one that stands for none.
TEST(WeightFilesTest, ScalesOfEightBitFloatsAreReadInEachType) {
  Tensors tensors;
  tensors["w"] = {"F8_E4M3", {2, 2}, std::string(4, '\x38')};
  const std::string f32("\0\0\x20\xC0\0\0\0\x3F", 8), bf16("\x20\xC0\0\x3F", 4);
  tensors["f32"] = {"F32", {2, 1}, f32};
  tensors["bf16"] = {"BF16", {2, 1}, bf16};
  tensors["powers"] = {"F8_E8M0", {2, 1}, std::string("\x80\x7E", 2)};
  tensors["none"] = {"U8", {2, 1}, std::string("\xFF\0", 2)};
  const auto files = *WeightFiles::Open(WriteFolder({{"model.safetensors", Safetensors(tensors)}}));
  const auto scales = [&](const char* name) {
    return ReadFp8Scales(ModelConfig(), *files->Find("w"), *files->Find(name)).numbers;
  };
  EXPECT_THAT(scales("f32"), ElementsAre(-2.5F, 0.5F));
  EXPECT_THAT(scales("bf16"), ElementsAre(-2.5F, 0.5F));
  EXPECT_THAT(scales("powers"), ElementsAre(2.0F, 0.5F));
  EXPECT_THAT(scales("none"), ElementsAre(::testing::IsNan(), std::ldexp(1.0F, -127)));
}

}  // namespace
}  // namespace macrame::runtime::engine
