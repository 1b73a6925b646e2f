// A folder whose text files can't be used fails before its gang forms, and the file is named.

#include "runtime/serving/text_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "proto/reasons.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TextProbeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = text::NewFolder("probe");
    std::filesystem::copy(text::Fixture("byte_level"), folder_,
                          std::filesystem::copy_options::recursive);
    Write("chat_template.jinja",
          "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
  }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + "/" + name, std::ios::binary | std::ios::trunc) << content;
  }
  // What rank 0 does before it connects; the code stands first.
  std::string Refusal(int vocab_size = 1 << 20) {
    const auto loaded = LoadModelText(folder_);
    const absl::Status status =
        loaded.ok() ? ProbeText(folder_, **loaded, vocab_size) : loaded.status();
    return status.ok() ? ""
                       : ReasonOf(status).code() + ": " + ReasonOf(status).message() + " -> " +
                             ReasonOf(status).remedy();
  }

  std::string folder_;
};

TEST_F(TextProbeTest, AWholeFolderPasses) { EXPECT_EQ(Refusal(), ""); }

TEST_F(TextProbeTest, WhatPythonReadsPasses) {
  Write(
      "generation_config.json",
      "\xEF\xBB\xBF{\"temperature\": 0.5, \"do_sample\": true, \"x\": NaN, \"temperature\": 0.25}");
  EXPECT_EQ(Refusal(), "");
  EXPECT_EQ((*LoadModelText(folder_))->sampling_defaults.temperature, 0.25);
}

// A hang is what this test fails by: no program ever writes into the pipes.
TEST_F(TextProbeTest, APipeInThePlaceOfAFileIsNamedAtOnce) {
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "tokenizer.json",
                           "special_tokens_map.json", "config.json", "chat_template.jinja",
                           "additional_chat_templates/tool_use.jinja"}) {
    SetUp();
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_THAT(Refusal(), HasSubstr(path.string() + " is a pipe, not a file"));
  }
  // Nothing but the worker's look at the files opens it: the .jinja comes first.
  SetUp();
  ASSERT_EQ(::mkfifo((folder_ + "/chat_template.json").c_str(), 0600), 0);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(TextProbeTest, ABrokenGenerationConfigIsNamed) {
  Write("generation_config.json", "{\"temperature\": 0.5,");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("MODEL_CONFIG_INVALID"),
                               HasSubstr("generation_config.json"), HasSubstr("put a whole one")));
}

TEST_F(TextProbeTest, ABrokenTokenizerConfigIsNamed) {
  Write("tokenizer_config.json", "<html>404</html>");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("TOKENIZER_INVALID"), HasSubstr("tokenizer_config.json")));
}

TEST_F(TextProbeTest, ATemplateThatDoesNotCompileIsNamed) {
  Write("chat_template.jinja", "{% for m in messages %}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("TOKENIZER_INVALID"), HasSubstr("chat_template.jinja")));
}

TEST_F(TextProbeTest, ATemplateThatFailsOnEachConversationIsNamed) {
  Write("chat_template.jinja", "{{ messages[0].nothing.at_all.here }}");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("TOKENIZER_INVALID"), HasSubstr("chat_template.jinja"),
                               HasSubstr("can't be rendered")));
}

TEST_F(TextProbeTest, ATemplateMayRefuseAConversation) {
  Write("chat_template.jinja", "{{ raise_exception('only with documents') }}");
  EXPECT_EQ(Refusal(), "");
}

TEST_F(TextProbeTest, AModelWithoutATemplatePasses) {
  std::filesystem::remove(folder_ + "/chat_template.jinja");
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(Refusal(), "");
}

TEST_F(TextProbeTest, ATokenizerOfAnotherModelIsNamed) {
  EXPECT_THAT(Refusal(4), AllOf(HasSubstr("TOKENIZER_INVALID"), HasSubstr("tokenizer.json"),
                                HasSubstr("the model has 4")));
}

}  // namespace
}  // namespace macrame::runtime::engine
