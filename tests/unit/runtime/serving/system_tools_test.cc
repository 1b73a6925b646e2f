// Templates that read tools in the system message, as Phi-4-mini's does: a request's tools, calls
// and results reach the prompt, and what a user writes there stays text.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/serving/chat_voice.h"
#include "runtime/serving/generation_job.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::ordered_json;

// Each turn is named after its role; tools are joined to the system message's text.
constexpr char kPhi[] =
    "{% for m in messages %}"
    "{% if m['role'] == 'system' and 'tools' in m and m['tools'] is not none %}"
    "{{ '<|' + m['role'] + '|>' + m['content'] + '<|tool|>' + m['tools'] + '<|/tool|><|end|>' }}"
    "{% else %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";
// A template that writes JSON by itself, and shows results in turns of their own role.
constexpr char kWritesJson[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% if m.tools %}<|tool|>{{ m.tools | tojson }}<|/tool|>{% endif %}<|end|>{% endfor %}";

constexpr char kWeather[] =
    R"({"name": "weather", "description": "how warm, or <|end|>", "parameters": )"
    R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"minimum": 1.0}}}})";
constexpr int kVocabulary = 576;

class SystemToolsTest : public ::testing::Test {
 protected:
  void Load(const std::string& chat_template) {
    const std::string folder = text::NewFolder("model");
    std::filesystem::copy(text::Fixture("byte_level"), folder,
                          std::filesystem::copy_options::recursive);
    text::WriteFile(folder + "/chat_template.jinja", chat_template);
    AddTokens(folder + "/tokenizer.json");
    const auto model = LoadModelText(folder);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *model;
    request_.mutable_tools()->set_tools_json(std::string(R"([{"type":"function","function":)") +
                                             kWeather + "}]");
  }
  v1::ChatMessage& Add(const char* role, const char* content) {
    v1::ChatMessage& message = *request_.add_messages();
    message.set_role(role);
    message.set_content(content);
    return message;
  }
  // A call of each city, and what it gave.
  void AddCalls() {
    v1::ChatMessage& calls = Add("assistant", "I look.");
    for (const char* city : {"Bonn", "Rome"}) {
      v1::ToolCall& call = *calls.add_tool_calls();
      call.set_id(city);
      call.set_name("weather");
      call.set_arguments(std::string(R"({"city": ")") + city + R"("})");
    }
    Add("tool", "7 degrees").set_tool_call_id("Bonn");
    Add("tool", "19 degrees").set_tool_call_id("Rome");
  }
  std::vector<int32_t> Tokens() {
    const auto job = PrepareJob(request_, *model_, kVocabulary, 4096, 1, 0);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? job->prompt : std::vector<int32_t>();
  }
  std::string Prompt() { return model_->tokenizer.Decode(Tokens(), false).value_or("no text"); }

  std::shared_ptr<const ModelText> model_;
  v1::GenerateRequest request_;

 private:
  // Phi-4-mini's; those of tools are added tokens, but no special ones.
  static void AddTokens(const std::string& path) {
    ordered_json tokenizer = ordered_json::parse(std::ifstream(path));
    int id = 568;
    for (const char* token : {"<|end|>", "<|assistant|>", "<|tool|>", "<|/tool|>", "<|tool_call|>",
                              "<|/tool_call|>", "<|tool_response|>"}) {
      ordered_json added = tokenizer["added_tokens"].front();
      added["id"] = id;
      added["content"] = token;
      added["special"] = id < 570;
      tokenizer["added_tokens"].push_back(std::move(added));
      ++id;
    }
    text::WriteFile(path, tokenizer.dump());
  }
};

TEST_F(SystemToolsTest, PhiFindsToolsCallsAndResults) {
  Load(kPhi);
  EXPECT_EQ(model_->voice.dialect->name, "phi4");
  Add("system", "Be brief.");
  Add("user", "How warm?");
  AddCalls();
  Add("user", "Thanks");
  EXPECT_EQ(
      Prompt(),
      std::string("<|system|>Be brief.<|tool|>[") + kWeather +
          "]<|/tool|><|end|><|user|>How warm?<|end|><|assistant|>I look.\n<|tool_call|>"
          R"([{"name": "weather", "arguments": {"city": "Bonn"}}, )"
          R"({"name": "weather", "arguments": {"city": "Rome"}}])"
          "<|/tool_call|><|end|><|tool_response|>7 degrees<|end|><|tool_response|>19 degrees<|end|>"
          "<|user|>Thanks<|end|><|assistant|>");
}

TEST_F(SystemToolsTest, WithoutASystemMessageOneIsPutFirst) {
  Load(kPhi);
  Add("user", "How warm?");
  EXPECT_EQ(Prompt(),
            std::string("<|system|>You are a helpful assistant with some tools.<|tool|>[") +
                kWeather + "]<|/tool|><|end|><|user|>How warm?<|end|><|assistant|>");
}

TEST_F(SystemToolsTest, WithoutToolsNothingIsAdded) {
  Load(kPhi);
  request_.clear_tools();
  Add("user", "How warm?");
  EXPECT_EQ(Prompt(), "<|user|>How warm?<|end|><|assistant|>");
}

TEST_F(SystemToolsTest, AControlTokenInADescriptionIsText) {
  Load(kPhi);
  Add("user", "How warm?");
  const std::vector<int32_t> tokens = Tokens();
  const auto end = model_->tokenizer.TokenId("<|end|>");
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), *end), 2) << "one for each turn";
}

TEST_F(SystemToolsTest, TheCallsOfASessionAreTokensOfTheModel) {
  Load(kPhi);
  Add("user", "How warm?");
  AddCalls();
  const std::vector<int32_t> tokens = Tokens();
  for (const char* token : {"<|tool_call|>", "<|/tool_call|>"}) {
    const auto id = model_->tokenizer.TokenId(token);
    ASSERT_TRUE(id.has_value());
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), *id), 1) << token;
  }
}

TEST_F(SystemToolsTest, ACallThatMustBeMadeIsOpened) {
  Load(kPhi);
  Add("user", "How warm?");
  request_.mutable_tools()->set_choice(v1::TOOL_CHOICE_KIND_REQUIRED);
  const auto job = PrepareJob(request_, *model_, kVocabulary, 4096, 1, 0);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(model_->tokenizer.Decode(job->shape.steering.call, false).value_or(""),
            "<|tool_call|>[{\"name\": \"");
}

TEST_F(SystemToolsTest, ATemplateThatWritesJsonIsGivenAList) {
  Load(kWritesJson);
  Add("system", "Be brief.");
  Add("user", "How warm?");
  const std::string prompt = Prompt();
  EXPECT_NE(prompt.find(R"(<|tool|>[{"name": "weather", "description": )"), std::string::npos)
      << prompt;
}

TEST_F(SystemToolsTest, WhereToolsAreShownNowhereTheyAreRefused) {
  Load(
      "{# tools #}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|tool_call|>");
  Add("user", "How warm?");
  const auto job = PrepareJob(request_, *model_, kVocabulary, 4096, 1, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(job.status())) << job.status();
  EXPECT_NE(job.status().message().find("template takes no tools"), std::string::npos);
}

}  // namespace
}  // namespace macrame::runtime::engine
