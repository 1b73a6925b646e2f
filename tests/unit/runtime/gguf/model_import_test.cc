#include "runtime/gguf/model_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <tuple>

#include "proto/reasons.h"
#include "runtime/gguf/float16.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/weights/weight_files.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool GoOn(uint64_t, uint64_t) { return true; }

ImportOptions OptionsFor(const std::string& file, const std::string& name = "") {
  return {file, (fs::path(file).parent_path() / "models").string(), name, ""};
}

std::string CodeOf(const ImportOptions& options) {
  return ReasonOf(ImportModel(options, GoOn).status()).code();
}

// All that is left in the folder of models, hidden folders too.
std::vector<std::string> Left(const ImportOptions& options) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(options.into, error)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST(ModelImport, EachArchitectureBecomesAModelFolder) {
  for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
    const auto options = OptionsFor(WriteGguf("small.Q4_0.gguf", SmallModel(architecture).Bytes()));
    uint64_t last = 0, all = 0;
    const auto result = ImportModel(options, [&](uint64_t done, uint64_t of) {
      EXPECT_GT(done, last);
      last = done;
      all = of;
      return true;
    });
    ASSERT_TRUE(result.ok()) << architecture << result.status();
    EXPECT_EQ(last, all);
    EXPECT_EQ(result->model().architecture(), architecture);
    EXPECT_EQ(result->model().name(), "small.Q4_0");
    EXPECT_EQ(result->model().path(), options.into + "/small.Q4_0");
    EXPECT_EQ(result->model().quantization().bits(), 4u);
    EXPECT_TRUE(result->has_chat_template());
    ASSERT_EQ(result->kinds_size(), 3);
    EXPECT_EQ(result->kinds(1).type(), "Q4_0");
    EXPECT_EQ(result->kinds(1).tensors(), 14u);
    EXPECT_TRUE(result->kinds(1).exact());
    EXPECT_EQ(result->kinds(1).relative_error(), 0);
    EXPECT_THAT(Left(options), testing::ElementsAre("small.Q4_0"));
  }
}

TEST(ModelImport, ExpertsStayTogether) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("qwen3moe").Bytes()));
  const auto result = ImportModel(options, GoOn);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->model().architecture(), "qwen3_moe");
  EXPECT_EQ(result->model().experts(), 3u);
  EXPECT_EQ(result->model().experts_active(), 2u);
  const auto files = engine::WeightFiles::Open(options.into + "/m");
  const auto* down = (*files)->Find("model.layers.1.mlp.switch_mlp.down_proj.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_THAT(down->shape, testing::ElementsAre(3, 64, 96 * 4 / 32));
  const auto* router = (*files)->Find("model.layers.1.mlp.gate.weight");
  ASSERT_NE(router, nullptr);
  EXPECT_EQ(router->dtype, "F32");
}

// The numbers of the file, through to the model's folder: a q row in its new place.
TEST(ModelImport, NumbersAreTheFiles) {
  const GgufWriter writer = SmallModel("llama");
  const std::string file = WriteGguf("m.gguf", writer.Bytes());
  const auto options = OptionsFor(file);
  ASSERT_TRUE(ImportModel(options, GoOn).ok());
  const auto gguf = GgufModel::Open(file);
  const auto files = engine::WeightFiles::Open(options.into + "/m");
  ASSERT_TRUE(files.ok()) << files.status();
  const std::byte* source = (*gguf)->FindTensor("blk.1.attn_q.weight")->data;
  const auto* weight = (*files)->Find("model.layers.1.self_attn.q_proj.weight");
  const auto* scales = (*files)->Find("model.layers.1.self_attn.q_proj.scales");
  const auto* biases = (*files)->Find("model.layers.1.self_attn.q_proj.biases");
  ASSERT_TRUE(weight != nullptr && scales != nullptr && biases != nullptr);
  constexpr size_t kRow = 9,
                   kSourceRow = 3;  // second half's second row: the first pair's neighbour
  for (size_t column = 0; column < 64; ++column) {
    const size_t group = column / 32, within = column % 32;
    const std::byte* block = source + (kSourceRow * 2 + group) * 18;
    uint16_t scale, stored_scale, stored_bias;
    std::memcpy(&scale, block, 2);
    std::memcpy(&stored_scale, scales->data + (kRow * 2 + group) * 2, 2);
    std::memcpy(&stored_bias, biases->data + (kRow * 2 + group) * 2, 2);
    const int pair = static_cast<int>(block[2 + within % 16]);
    const int number = (within < 16 ? pair & 15 : pair >> 4) - 8;
    const int stored = static_cast<int>(weight->data[kRow * 32 + column / 2]);
    EXPECT_EQ(FloatFromHalf(stored_scale) *
                      static_cast<float>(column % 2 == 0 ? stored & 15 : stored >> 4) +
                  FloatFromHalf(stored_bias),
              FloatFromHalf(scale) * static_cast<float>(number))
        << column;
  }
}

TEST(ModelImport, AnExistingModelIsKept) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("llama").Bytes()), "mine");
  ASSERT_TRUE(ImportModel(options, GoOn).ok());
  EXPECT_EQ(CodeOf(options), "MODEL_EXISTS");
  EXPECT_THAT(Left(options), testing::ElementsAre("mine"));
}

TEST(ModelImport, AStoppedImportLeavesNothing) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("llama").Bytes()));
  int calls = 0;
  const auto result = ImportModel(options, [&](uint64_t, uint64_t) { return ++calls < 5; });
  EXPECT_TRUE(absl::IsCancelled(result.status())) << result.status();
  EXPECT_THAT(Left(options), testing::IsEmpty());
}

TEST(ModelImport, AFaultLeavesNothing) {
  GgufWriter writer = SmallModel("llama");
  writer.Remove("blk.1.ffn_up.weight");
  auto options = OptionsFor(WriteGguf("m.gguf", writer.Bytes()));
  EXPECT_EQ(CodeOf(options), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(std::string(ImportModel(options, GoOn).status().message()), HasSubstr("mlp.up_proj"));
  EXPECT_THAT(Left(options), testing::IsEmpty());
  options.name = "../elsewhere";
  EXPECT_EQ(CodeOf(options), "BAD_REQUEST");
}

// What a killed import left behind is no model and does not stand in the way.
TEST(ModelImport, LeftoversAreReplaced) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("llama").Bytes()));
  fs::create_directories(options.into + "/.m.importing");
  std::ofstream(options.into + "/.m.importing/model.safetensors") << "half";
  EXPECT_TRUE(ImportModel(options, GoOn).ok());
  EXPECT_THAT(Left(options), testing::ElementsAre("m"));
}

TEST(ModelImport, ATokenizerOfAnotherModelIsRefused) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("llama").Bytes()), "first");
  ASSERT_TRUE(ImportModel(options, GoOn).ok());
  auto again = options;
  again.name = "second";
  again.tokenizer_folder = options.into + "/first";
  EXPECT_TRUE(ImportModel(again, GoOn).ok()) << "its own";
  again.name = "third";
  again.tokenizer_folder = "deploy/models/knot-5m-4bit";
  EXPECT_EQ(CodeOf(again), "TOKENIZER_INVALID");
}

TEST(ModelImport, MixtralBecomesAModelFolder) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallMixtral().Bytes()));
  const auto result = ImportModel(options, GoOn);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->model().architecture(), "mixtral");
  EXPECT_EQ(result->model().experts(), 3u);
  EXPECT_EQ(result->model().experts_active(), 2u);
}

// It becomes a folder's name: nothing in it may lead elsewhere or hide the folder.
TEST(ModelImport, NamesAreThoseOfAFolderOrRefusedBeforeAnythingIsRead) {
  for (const std::string& name : std::vector<std::string>{
           "..", ".hidden", "a/b", "/etc", "./x", std::string(201, 'n'), std::string("a\0b", 3)}) {
    ImportOptions options = OptionsFor("/nowhere/at/all.gguf", name);
    const v1::Reason reason = ReasonOf(ImportModel(options, GoOn).status());
    EXPECT_EQ(reason.code(), "BAD_REQUEST") << name;
    EXPECT_THAT(reason.remedy(), HasSubstr("--name")) << name;
  }
  for (const std::string file : {"/x/.gguf", "/x/", "/x/..gguf"}) {
    EXPECT_EQ(CodeOf(OptionsFor(file)), "BAD_REQUEST") << file;
  }
}

TEST(ModelImport, WithoutANameItIsTheFiles) {
  struct Case {
    const char* file;
    const char* name;
  };
  for (const Case& each :
       {Case{"Model-Q4.gguf", "Model-Q4"}, Case{"a.b.GGUF", "a.b"},
        Case{"m-00001-of-00001.gguf", "m"}, Case{"plain", "plain"},
        Case{"x-00001-of-3.gguf", "x-00001-of-3"}, Case{"two words.gguf", "two words"}}) {
    const auto options = OptionsFor(WriteGguf(each.file, SmallModel("llama").Bytes()));
    const auto result = ImportModel(options, GoOn);
    ASSERT_TRUE(result.ok()) << each.file << result.status();
    EXPECT_EQ(result->model().name(), each.name);
    EXPECT_THAT(Left(options), testing::ElementsAre(each.name));
  }
}

TEST(ModelImport, AFolderThatCannotBeMadeIsNamed) {
  auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("llama").Bytes()));
  options.into = options.file;  // a file
  const absl::Status failed = ImportModel(options, GoOn).status();
  EXPECT_EQ(ReasonOf(failed).code(), "DISK_WRITE_FAILED") << failed;
  EXPECT_THAT(ReasonOf(failed).message(), HasSubstr(options.file));
}

// Half of a tensor is converted by then.
TEST(ModelImport, AScaleThatIsNoNumberNamesItsTensorAndLeavesNothing) {
  for (const uint16_t scale : {0x7C00, 0xFC00, 0x7E00}) {  // infinity, its negative, NaN
    GgufWriter writer = SmallModel("llama");
    std::string blocks(64 * 32 / 32 * 18, '\0');
    std::memcpy(blocks.data() + blocks.size() - 18, &scale, sizeof(scale));
    writer.Tensor("blk.1.attn_k.weight", 2, {64, 32}, blocks);
    const auto options = OptionsFor(WriteGguf("m.gguf", writer.Bytes()));
    const absl::Status failed = ImportModel(options, GoOn).status();
    EXPECT_EQ(ReasonOf(failed).code(), "MODEL_FILE_BROKEN") << failed;
    EXPECT_THAT(ReasonOf(failed).message(), HasSubstr("tensor 'blk.1.attn_k.weight' has a scale"));
    EXPECT_THAT(Left(options), testing::IsEmpty());
  }
}

// Stopped at any call: nothing of it is left, and the same import then succeeds.
TEST(ModelImport, MayBeStoppedAnywhere) {
  const auto options = OptionsFor(WriteGguf("m.gguf", SmallModel("qwen3").Bytes()));
  int calls = 0;
  for (int stop_at = 1;; ++stop_at) {
    calls = 0;
    const auto result = ImportModel(options, [&](uint64_t, uint64_t) { return ++calls < stop_at; });
    if (result.ok()) break;
    ASSERT_TRUE(absl::IsCancelled(result.status())) << result.status();
    ASSERT_EQ(calls, stop_at) << "it is not asked again";
    ASSERT_THAT(Left(options), testing::IsEmpty());
  }
  EXPECT_GT(calls, 20) << "once for each tensor at least";
  EXPECT_THAT(Left(options), testing::ElementsAre("m"));
}

// Floats are not touched: each matrix keeps its type and its bytes.
TEST(ModelImport, MatricesOfFloatsKeepTheirBytes) {
  GgufWriter writer = SmallModel("qwen2");
  std::map<std::string, std::pair<std::string, std::string>> stored;  // name → type, bytes
  uint32_t seed = 1;
  for (const auto& [name, type, dtype] :
       {std::tuple{"ffn_up", 0U, "F32"}, std::tuple{"ffn_gate", 1U, "F16"},
        std::tuple{"attn_v", 30U, "BF16"}}) {
    const uint64_t rows = std::string(name) == "attn_v" ? 32 : 96;
    std::string bytes(rows * 64 * (type == 0 ? 4 : 2), '\0');
    for (char& byte : bytes) byte = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
    writer.Tensor(std::string("blk.1.") + name + ".weight", type, {64, rows}, bytes);
    const std::string module = std::string(name) == "attn_v"   ? "self_attn.v_proj"
                               : std::string(name) == "ffn_up" ? "mlp.up_proj"
                                                               : "mlp.gate_proj";
    stored["model.layers.1." + module + ".weight"] = {dtype, bytes};
  }
  const auto options = OptionsFor(WriteGguf("m.gguf", writer.Bytes()));
  ASSERT_TRUE(ImportModel(options, GoOn).ok());
  const auto files = engine::WeightFiles::Open(options.into + "/m");
  ASSERT_TRUE(files.ok()) << files.status();
  for (const auto& [name, wanted] : stored) {
    const auto* tensor = (*files)->Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->dtype, wanted.first) << name;
    EXPECT_EQ(std::memcmp(tensor->data, wanted.second.data(), wanted.second.size()), 0) << name;
  }
}

TEST(ModelImport, LayersThatTheModelDoesNotHaveAreRefused) {
  GgufWriter writer = SmallModel("llama");
  writer.Tensor("blk.2.ffn_norm.weight", 0, {64}, FloatBytesOf(std::vector<float>(64, 1.0F)));
  const auto options = OptionsFor(WriteGguf("m.gguf", writer.Bytes()));
  const absl::Status failed = ImportModel(options, GoOn).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("2 layers, the weights have 3")) << failed;
  EXPECT_THAT(Left(options), testing::IsEmpty());
}

}  // namespace
}  // namespace macrame::runtime::gguf
