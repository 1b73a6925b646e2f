// Model folders and prompts that can't be used, through the real binary: one line and an exit code
// each.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/process/exit_codes.h"
#include "tests/unit/runtime/model/model_fixture.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ended {
  int code;
  std::string log;
};

Ended Generate(const std::string& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"--generate", "--model", folder, "--max-tokens", "2"};
  if (more.empty()) more = {"--prompt-tokens", "1,2,3"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  RankdProcess process(arguments, WriteFolder({}) + "/log");
  const int code = process.WaitForExit(seconds(30));
  return {code, process.Log()};
}

std::string Folder(const std::string& config, const std::string& weights) {
  return WriteFolder({{"config.json", config}, {"model.safetensors", weights}});
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(BadModelTest, AGoodOneRuns) {
  const Ended ended = Generate(Folder(TinyLlamaConfig(), Safetensors(TinyLlama())));
  EXPECT_EQ(ended.code, kExitOrderly) << ended.log;
}

TEST(BadModelTest, TruncatedWeights) {
  const std::string weights = Safetensors(TinyLlama());
  const Ended ended = Generate(Folder(TinyLlamaConfig(), weights.substr(0, weights.size() - 5)));
  EXPECT_EQ(ended.code, kExitModelInvalid);
  EXPECT_THAT(ended.log, AllOf(StartsWith("rankd: rank 0 of model "),
                               HasSubstr("MODEL_FILE_BROKEN"), HasSubstr("model.safetensors")));
}

TEST(BadModelTest, AMissingShard) {
  const Ended ended = Generate(WriteFolder(
      {{"config.json", TinyLlamaConfig()},
       {"model.safetensors.index.json", R"({"weight_map": {"a": "model-00001.safetensors"}})"}}));
  EXPECT_EQ(ended.code, kExitModelInvalid);
  EXPECT_THAT(ended.log, AllOf(HasSubstr("MODEL_FILE_MISSING"), HasSubstr("model-00001")));
}

TEST(BadModelTest, AnUnknownArchitecture) {
  const Ended ended =
      Generate(Folder(Replaced(TinyLlamaConfig(), "llama", "mamba2"), Safetensors(TinyLlama())));
  EXPECT_EQ(ended.code, kExitModelInvalid);
  EXPECT_THAT(ended.log, AllOf(HasSubstr("MODEL_ARCHITECTURE_UNKNOWN"), HasSubstr("mamba2")));
}

TEST(BadModelTest, AConfigThatContradictsTheWeights) {
  const Ended ended = Generate(Folder(
      Replaced(TinyLlamaConfig(), "\"intermediate_size\": 128", "\"intermediate_size\": 256"),
      Safetensors(TinyLlama())));
  EXPECT_EQ(ended.code, kExitModelInvalid);
  EXPECT_THAT(ended.log, AllOf(HasSubstr("MODEL_CONFIG_INVALID"), HasSubstr("mlp.gate_proj")));
}

// A head of 150,000 tensors: described within the memory that is allowed, or not at all.
TEST(BadModelTest, AFolderThatAsksForTooMuchMemoryEndsItsDescription) {
  std::string header = "{";
  for (int i = 0; i < 150'000; ++i) {
    header += (i == 0 ? "\"tensor." : ",\"tensor.") + std::to_string(i) +
              "\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
  }
  header += "}";
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  const std::string folder = Folder(TinyLlamaConfig(), file + header);
  const auto described = [&](const std::string& memory_mib) {
    RankdProcess process({"--describe", folder, "--memory-mib", memory_mib},
                         WriteFolder({}) + "/log");
    const int code = process.WaitForExit(seconds(60));
    return Ended{code, process.Log()};
  };
  const Ended bounded = described("60");
  EXPECT_EQ(bounded.code, kExitOutOfMemory) << bounded.log;
  EXPECT_THAT(bounded.log, HasSubstr("more than 60 MiB of memory"));
  EXPECT_EQ(described("1024").code, kExitOrderly);  // with the reason why it can't be loaded
}

TEST(BadModelTest, APromptLongerThanTheContext) {
  const Ended ended = Generate(Folder(TinyLlamaConfig(), Safetensors(TinyLlama())),
                               {"--context", "4", "--prompt-tokens", "1,2,3,4"});
  EXPECT_EQ(ended.code, kExitUsage);
  EXPECT_THAT(ended.log, AllOf(HasSubstr("PROMPT_TOO_LONG"), HasSubstr("context of 4")));
}

TEST(BadModelTest, ATextPromptNeedsATokenizer) {
  const Ended ended =
      Generate(Folder(TinyLlamaConfig(), Safetensors(TinyLlama())), {"--prompt", "hello"});
  EXPECT_EQ(ended.code, kExitModelInvalid);
  EXPECT_THAT(ended.log, HasSubstr("tokenizer.json"));
}

TEST(BadModelTest, ALaunchSpecThatIsNone) {
  const std::string folder = WriteFolder({{"spec", "\xff\xff not a message"}, {"empty", ""}});
  for (const char* name : {"/spec", "/empty", "/missing"}) {
    RankdProcess process({"--launch-spec", folder + name}, folder + "/log");
    EXPECT_EQ(process.WaitForExit(seconds(30)), kExitUsage);
    EXPECT_THAT(process.Log(), HasSubstr("holds no launch spec"));
  }
}

TEST(BadModelTest, NonFiniteWeightsAreAnErrorNotAToken) {
  auto tensors = TinyLlama();
  const std::string nan("\x00\x00\xc0\x7f", 4);
  std::string& bytes = tensors["model.norm.weight"].bytes;
  for (size_t i = 0; i < bytes.size(); i += 4) bytes.replace(i, 4, nan);
  const Ended ended = Generate(Folder(TinyLlamaConfig(), Safetensors(tensors)));
  EXPECT_EQ(ended.code, kExitInternal);
  EXPECT_THAT(ended.log, HasSubstr("not finite"));
}

}  // namespace
}  // namespace macrame::runtime::engine
