// What a template is given of any chat, and what a model's own files say of sampling, however they
// are written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "runtime/serving/chat_voice.h"
#include "runtime/serving/generation_job.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// Text that is hard to put into JSON, broken UTF-8 too.
std::string RandomText(std::mt19937_64& random) {
  static const std::vector<std::string> parts = {
      "a", "\"",   "\\",   "\n", "{",    "}",     "\xff", "\xc3", "é",
      "😀", "\x01", "null", "[",  "</s>", "\\u00", " ",    "'",    "\xed\xa0\x80"};
  std::string text;
  for (size_t i = random() % 8; i > 0; --i) text += parts[random() % parts.size()];
  return text;
}

// As a message's JSON shows it.
std::string Shown(const std::string& text) {
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace));
}

v1::GenerateRequest RandomChat(std::mt19937_64& random) {
  v1::GenerateRequest request;
  const char* const roles[] = {"system", "developer", "user", "assistant", "tool", "user"};
  for (size_t i = 1 + random() % 8; i > 0; --i) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(roles[random() % std::size(roles)]);
    message.set_content(RandomText(random) + std::to_string(request.messages_size()));
    if (random() % 4 == 0) message.set_name(RandomText(random));
    if (message.role() == "tool") message.set_tool_call_id("id" + std::to_string(random() % 3));
    if (message.role() != "assistant") continue;
    message.set_reasoning(RandomText(random));
    for (size_t calls = random() % 3; calls > 0; --calls) {
      v1::ToolCall& call = *message.add_tool_calls();
      call.set_id("id" + std::to_string(random() % 3));
      call.set_name(RandomText(random));
      call.set_arguments(random() % 2 == 0 ? R"({"x": [1, "y"]})" : RandomText(random));
    }
  }
  return request;
}

TEST(ChatMessages, AnyChatIsJsonWithEverythingInIt) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const v1::GenerateRequest request = RandomChat(random);
    ChatVoice voice;
    voice.arguments_as_text = random() % 2 == 0;
    voice.nine_letter_ids = random() % 2 == 0;
    const json messages =
        json::parse(MessagesJson(request, request.messages_size(), voice), nullptr, false);
    ASSERT_TRUE(messages.is_array()) << "seed " << seed;
    ASSERT_EQ(messages.size(), static_cast<size_t>(request.messages_size()));
    for (int i = 0; i < request.messages_size(); ++i) {
      const v1::ChatMessage& given = request.messages(i);
      const json& message = messages[static_cast<size_t>(i)];
      EXPECT_EQ(message["role"], given.role());
      EXPECT_EQ(message["content"], Shown(given.content()));
      EXPECT_EQ(message.contains("reasoning_content"), !given.reasoning().empty());
      const json calls = message.value("tool_calls", json::array());
      ASSERT_EQ(calls.size(), static_cast<size_t>(given.tool_calls_size()));
      for (size_t j = 0; j < calls.size(); ++j) {
        const json& function = calls[j]["function"];
        EXPECT_EQ(function["name"], Shown(given.tool_calls(static_cast<int>(j)).name()));
        const json arguments = voice.arguments_as_text
                                   ? json::parse(function["arguments"].get<std::string>())
                                   : function["arguments"];
        EXPECT_TRUE(arguments.is_object()) << "templates take them apart";
        if (voice.nine_letter_ids) {
          EXPECT_EQ(calls[j]["id"].get<std::string>().size(), 9u);
        }
      }
    }
  }
}

// Results of tools name the call that they are of, by the same id as the call.
TEST(ChatMessages, AResultKeepsItsCallsIdHoweverIdsAreWritten) {
  for (const bool nine : {false, true}) {
    v1::GenerateRequest request;
    v1::ChatMessage& answer = *request.add_messages();
    answer.set_role("assistant");
    for (const char* id : {"call_aaaaaaaaaaaaaaaa", "call_bbbbbbbbbbbbbbbb", "abc123DEF"}) {
      v1::ToolCall& call = *answer.add_tool_calls();
      call.set_id(id);
      call.set_name(std::string("f_") + id);
      v1::ChatMessage& result = *request.add_messages();
      result.set_role("tool");
      result.set_tool_call_id(id);
    }
    v1::ChatMessage& stray = *request.add_messages();
    stray.set_role("tool");
    stray.set_tool_call_id("of no call");
    ChatVoice voice;
    voice.nine_letter_ids = nine;
    const json messages = json::parse(MessagesJson(request, 5, voice));
    std::set<std::string> ids;
    for (size_t i = 0; i < 3; ++i) {
      const json& call = messages[0]["tool_calls"][i];
      EXPECT_EQ(messages[i + 1]["tool_call_id"], call["id"]);
      EXPECT_EQ(messages[i + 1]["name"], call["function"]["name"]);
      ids.insert(call["id"].get<std::string>());
    }
    EXPECT_EQ(ids.size(), 3u) << "no two calls have one id";
    EXPECT_FALSE(messages[4].contains("name"));
  }
}

// Templates that take one system message: what any says stays in the chat, in order, and none
// stands behind the first message.
TEST(ChatMessages, WhereOneSystemMessageIsTakenNothingIsLostOrPutElsewhere) {
  ChatVoice voice;
  voice.one_system_message = true;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 random(seed);
    const v1::GenerateRequest request = RandomChat(random);
    const int count = 1 + static_cast<int>(random() % static_cast<size_t>(request.messages_size()));
    const json messages = json::parse(MessagesJson(request, count, voice));
    ASSERT_FALSE(messages.empty());
    EXPECT_EQ(messages[0]["role"], request.messages(0).role());
    std::string all;
    size_t assistants = 0;
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string role = messages[i]["role"];
      if (i > 0) {
        EXPECT_TRUE(role != "system" && role != "developer") << "seed " << seed;
      }
      all += messages[i]["content"].get<std::string>() + "\n\n";
      assistants += role == "assistant" ? 1 : 0;
    }
    std::string given;
    size_t given_assistants = 0;
    for (int i = 0; i < count; ++i) {
      given += Shown(request.messages(i).content()) + "\n\n";
      given_assistants += request.messages(i).role() == "assistant" ? 1 : 0;
    }
    EXPECT_EQ(all, given) << "seed " << seed;
    EXPECT_EQ(assistants, given_assistants) << "no answer is joined to anything";
  }
}

TEST(ChatMessages, TheSwitchOfReasoningLeavesTheCallersOwnArguments) {
  v1::GenerateRequest request;
  EXPECT_EQ(TemplateArgumentsJson(request), "");
  request.set_template_arguments_json("{\"a\": 1");
  EXPECT_EQ(TemplateArgumentsJson(request), "{\"a\": 1");
  request.mutable_reasoning()->set_enabled(false);
  for (const char* not_an_object : {"{\"a\": 1", "[1]", "7", "null"}) {
    request.set_template_arguments_json(not_an_object);
    EXPECT_EQ(TemplateArgumentsJson(request), not_an_object) << "the template says what is wrong";
  }
  request.set_template_arguments_json(R"({"thinking": "yes", "enable_thinking": null, "z": [1]})");
  const json arguments = json::parse(TemplateArgumentsJson(request));
  EXPECT_EQ(arguments["thinking"], "yes");
  EXPECT_EQ(arguments["enable_thinking"], nullptr) << "set to nothing is set";
  EXPECT_EQ(arguments["z"], json::array({1}));
  EXPECT_EQ(arguments["thinking_mode"], "disabled");
}

TEST(SamplingDefaults, FilesThatAreWrittenWronglyAreNoReasonToFail) {
  const struct {
    const char* config;
    double temperature, top_p, min_p, typical_p;
    uint32_t top_k;
  } cases[] = {
      {"not JSON", 1, 1, 0, 1, 0},
      {"[]", 1, 1, 0, 1, 0},
      {"null", 1, 1, 0, 1, 0},
      {R"({"temperature": 0.6})", 0, 1, 0, 1, 0},
      {R"({"do_sample": "true", "temperature": 0.6})", 0, 1, 0, 1, 0},
      {R"({"do_sample": null})", 0, 1, 0, 1, 0},
      {R"({"do_sample": true})", 1, 1, 0, 1, 0},
      {R"({"do_sample": true, "temperature": "hot", "top_p": null, "top_k": []})", 1, 1, 0, 1, 0},
      {R"({"do_sample": true, "top_k": -1})", 1, 1, 0, 1, 0},
      {R"({"do_sample": true, "top_k": 1e300})", 1, 1, 0, 1, 0},
      {R"({"do_sample": true, "top_k": 20.7, "min_p": 0.05})", 1, 1, 0.05, 1, 20},
      {R"({"do_sample": true, "typical_p": 0.9, "top_p": 0.8})", 1, 0.8, 0, 0.9, 0},
      // A field that can't be is left; the others are the model's.
      {R"({"do_sample": true, "temperature": 0.6, "top_p": -3})", 0.6, 1, 0, 1, 0},
      {R"({"do_sample": true, "temperature": -1, "top_p": 0.9, "top_k": 40})", 1, 0.9, 0, 1, 40},
      {R"({"do_sample": true, "temperature": 0.7, "min_p": 2, "typical_p": 0})", 0.7, 1, 0, 1, 0}};
  for (const auto& one : cases) {
    const SamplingTraits traits = ParseSamplingDefaults(one.config);
    EXPECT_EQ(traits.temperature, one.temperature) << one.config;
    EXPECT_EQ(traits.top_p, one.top_p) << one.config;
    EXPECT_EQ(traits.min_p, one.min_p) << one.config;
    EXPECT_EQ(traits.typical_p, one.typical_p) << one.config;
    EXPECT_EQ(traits.top_k, one.top_k) << one.config;
    EXPECT_TRUE(CheckSampling(traits).ok()) << one.config;
  }
}

TEST(CheckPromptTest, SaysWhichTokenIsNoneOfTheModelsAndHowLongThePromptIs) {
  EXPECT_TRUE(CheckPrompt({0, 9}, 10, 3).ok());
  const struct {
    std::vector<int32_t> prompt;
    uint32_t behind;
    const char* words;
  } cases[] = {{{}, 1, "the prompt is empty"},
               {{1, 10}, 1, "token 10, the model has 10"},
               {{-1}, 1, "token -1"},
               {{1, 2, 3}, 1, "the prompt has 3 tokens, the model was loaded with a context of 3"},
               {{1, 2, 3, 4}, 0, "the prompt has 4 tokens"}};
  for (const auto& one : cases) {
    const absl::Status status = CheckPrompt(one.prompt, 10, 3, one.behind);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.words));
  }
  EXPECT_TRUE(CheckPrompt({1, 2, 3}, 10, 3, 0).ok()) << "nothing is to come behind it";
}

}  // namespace
}  // namespace macrame::runtime::engine
