// Templates that show neither `tool_calls` nor tool messages: a session's calls and results reach
// the prompt in the way that the family's own code tells them.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "runtime/serving/chat_voice.h"
#include "runtime/serving/generation_job.h"
#include "runtime/serving/markup/call_text.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::engine {
namespace {

// The forms of GLM 4 0414, LFM2, Granite 3 and of a model without tools, in few words.
constexpr char kGlm[] =
    "{%- if tools %}<|system|>{% for t in tools %}{{ t.function | tojson }}{% endfor %}{% endif %}"
    "{%- for m in messages %}{% set meta = m.get('metadata', '') %}"
    "{%- if m.role == 'user' %}<|user|>\n{{ m.content }}"
    "{%- elif m.role == 'assistant' and not meta %}<|assistant|>\n{{ m.content }}"
    "{%- elif m.role == 'assistant' %}<|assistant|>{{ meta }}\n{{ m.content }}"
    "{%- elif m.role == 'observation' %}<|observation|>\n{{ m.content }}{% endif %}{% endfor %}";
constexpr char kContent[] =
    "{%- if tools %}<|im_start|>system\nList of tools: [{% for t in tools %}{{ t | tojson }}"
    "{% endfor %}]<|im_end|>{% endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}";
constexpr char kGranite[] =
    "{%- if tools %}Respond with <|tool_call|> and a JSON list. {{ tools | tojson }}{% endif %}"
    "{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
constexpr char kPlain[] =
    "{%- for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
    "{%- elif m.role == 'assistant' %}<|assistant|>{{ m.content }}{% endif %}{% endfor %}";

// As gpt-oss has it: the first call of a message alone.
constexpr char kFirstCall[] =
    "{%- if tools %}{{ tools | tojson }}{% endif %}<|channel|><|message|>"
    "{%- for m in messages %}{% if m.tool_calls %}<|{{ m.content }} "
    "{{ m.tool_calls[0].function.name }} {{ m.tool_calls[0].function.arguments | tojson }}"
    "{% else %}<|{{ m.role }}|>{{ m.content }}{% endif %}{% endfor %}";
// As DeepSeek's distilled models have it: no tools, and arguments that are joined to text.
constexpr char kJoined[] =
    "{%- for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
    "<call>{{ c['function']['name'] + ' ' + c['function']['arguments'] }}</call>{% endfor %}"
    "{% else %}<|{{ m.role }}|>{{ m.content }}{% endif %}{% endfor %}";

class PastCallsTest : public ::testing::Test {
 protected:
  // The prompt of a session with two calls, their results, and one more question.
  std::string PromptOf(const std::string& chat_template, bool with_tools) {
    const std::string folder = text::NewFolder("model");
    std::filesystem::copy(text::Fixture("byte_level"), folder,
                          std::filesystem::copy_options::recursive);
    text::WriteFile(folder + "/chat_template.jinja", chat_template);
    const auto model = LoadModelText(folder);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return "";
    v1::GenerateRequest request;
    Add(request, "user", "How warm?");
    v1::ChatMessage& calls = Add(request, "assistant", "I look.");
    for (const char* city : {"Bonn", "Rome"}) {
      v1::ToolCall& call = *calls.add_tool_calls();
      call.set_id(city);
      call.set_name("weather");
      call.set_arguments(std::string(R"({"city": ")") + city + R"(", "now": true})");
    }
    Add(request, "tool", "7 degrees").set_tool_call_id("Bonn");
    Add(request, "tool", "19 degrees").set_tool_call_id("Rome");
    Add(request, "user", "Thanks");
    if (with_tools) {
      request.mutable_tools()->set_tools_json(
          R"([{"type": "function", "function": {"name": "weather", "description": "d",)"
          R"( "parameters": {"type": "object", "properties": {}}}}])");
    }
    const auto job = PrepareJob(request, **model, 568, 4096, 1, 0);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? (*model)->tokenizer.Decode(job->prompt, false).value_or("no text") : "";
  }

 private:
  static v1::ChatMessage& Add(v1::GenerateRequest& request, const char* role, const char* content) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(role);
    message.set_content(content);
    return message;
  }
};

void ExpectIn(const std::string& part, const std::string& prompt) {
  EXPECT_NE(prompt.find(part), std::string::npos) << part << "\n" << prompt;
}

TEST_F(PastCallsTest, Glm4HasAMessageForEachCallAndObservations) {
  const std::string prompt = PromptOf(kGlm, true);
  ExpectIn(
      "<|user|>\nHow warm?<|assistant|>\nI look.<|assistant|>weather\n{\"city\": \"Bonn\", "
      "\"now\": true}<|assistant|>weather\n{\"city\": \"Rome\", \"now\": true}<|observation|>\n"
      "7 degrees<|observation|>\n19 degrees<|user|>\nThanks",
      prompt);
}

TEST_F(PastCallsTest, WhereNoneAreShownTheyStandInTheContentAsTheModelWritesThem) {
  const std::string python = PromptOf(kContent, true);
  ExpectIn(
      "I look.\n<|tool_call_start|>[weather(city=\"Bonn\", now=True), weather(city=\"Rome\", "
      "now=True)]<|tool_call_end|><|im_end|><|im_start|>tool\n7 degrees<|im_end|>",
      python);
  const std::string json = PromptOf(kGranite, true);
  ExpectIn(
      "I look.\n<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn\", "
      "\"now\": true}}, {\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\", \"now\": "
      "true}}]<|tool|>7 degrees",
      json);
}

TEST_F(PastCallsTest, AModelWithoutToolsIsToldOfThemInWords) {
  const std::string prompt = PromptOf(kPlain, false);
  ExpectIn("I call the tool weather with {\"city\": \"Bonn\", \"now\": true}", prompt);
  ExpectIn("The tool weather answered:\n19 degrees", prompt);
}

TEST_F(PastCallsTest, EachOfSeveralCallsIsTold) {
  const std::string prompt = PromptOf(kFirstCall, true);
  ExpectIn("<|I look. weather {\"city\": \"Bonn\", \"now\": true}<|tool|>7 degrees", prompt);
  ExpectIn("weather {\"city\": \"Rome\", \"now\": true}<|tool|>19 degrees", prompt);
}

TEST_F(PastCallsTest, ArgumentsAreTextWhereATemplateWithoutToolsJoinsThem) {
  ExpectIn("<call>weather {\"city\": \"Rome\", \"now\": true}</call>", PromptOf(kJoined, false));
}

TEST(CallText, OfHermesAndOfFormsThatTemplatesShowThemselves) {
  const auto dialect = [](const char* source) {
    return markup::ChooseDialect(source, [](std::string_view) { return false; });
  };
  const std::vector<markup::PastCall> calls = {{"f", "{}"}, {"g", R"({"a": [1, null]})"}};
  EXPECT_EQ(markup::CallText(dialect("<tool_call>"), calls),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": [1, null]}}\n</tool_call>");
  EXPECT_EQ(markup::CallText(dialect("List of tools: ["), {calls[1]}),
            "<|tool_call_start|>[g(a=[1, None])]<|tool_call_end|>");
  for (const char* source : {"[TOOL_CALLS]", "<|channel|><|message|>", "<arg_key>", "nothing"}) {
    EXPECT_EQ(markup::CallText(dialect(source), calls), "") << source;
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
