// From a request with tools to what its template is given, and what is made of its answer.

#include "runtime/serving/chat_voice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/serving/generation_job.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::ordered_json;

v1::GenerateRequest Conversation() {
  v1::GenerateRequest request;
  v1::ChatMessage& user = *request.add_messages();
  user.set_role("user");
  user.set_content("say \"hi\"\n");
  v1::ChatMessage& answer = *request.add_messages();
  answer.set_role("assistant");
  answer.set_reasoning("hm");
  v1::ToolCall& call = *answer.add_tool_calls();
  call.set_id("call_1");
  call.set_name("get_weather");
  call.set_arguments("{\"b\": 1.50, \"a\": 2}");
  v1::ChatMessage& result = *request.add_messages();
  result.set_role("tool");
  result.set_tool_call_id("call_1");
  result.set_content("7 degrees");
  return request;
}

TEST(ChatVoice, MessagesKeepTheirCalls) {
  const std::string text = MessagesJson(Conversation(), 3, {});
  // Numbers and the order of members stay as the model wrote them.
  EXPECT_NE(text.find("{\"b\": 1.50, \"a\": 2}"), std::string::npos) << text;
  const ordered_json messages = ordered_json::parse(text);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0]["content"], "say \"hi\"\n");
  EXPECT_EQ(messages[1]["content"], "");
  EXPECT_EQ(messages[1]["reasoning_content"], "hm");
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"], "call_1");
  EXPECT_EQ(messages[1]["tool_calls"][0]["type"], "function");
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(messages[2]["tool_call_id"], "call_1");
  EXPECT_EQ(messages[2]["name"], "get_weather");  // some templates name the tool there
  EXPECT_EQ(ordered_json::parse(MessagesJson(Conversation(), 1, {})).size(), 1U);
}

TEST(ChatVoice, ArgumentsHaveTheFormThatTheTemplateWants) {
  ChatVoice voice;
  voice.arguments_as_text = true;
  voice.nine_letter_ids = true;
  const ordered_json messages = ordered_json::parse(MessagesJson(Conversation(), 3, voice));
  EXPECT_EQ(messages[1]["tool_calls"][0]["function"]["arguments"], "{\"b\": 1.50, \"a\": 2}");
  const std::string id = messages[1]["tool_calls"][0]["id"];
  EXPECT_EQ(id.size(), 9U);
  EXPECT_EQ(messages[2]["tool_call_id"], id);
}

TEST(ChatVoice, ArgumentsThatAreNoObjectDoNotEndTheConversation) {
  v1::GenerateRequest request = Conversation();
  v1::ToolCall& call = *request.mutable_messages(1)->mutable_tool_calls(0);
  const auto arguments = [&](const std::string& text) {
    call.set_arguments(text);
    return ordered_json::parse(
        MessagesJson(request, 3, {}))[1]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments(""), ordered_json::object());
  EXPECT_EQ(arguments("{\"a\": "), (ordered_json{{"invalid_json", "{\"a\": "}}));
  EXPECT_EQ(arguments("[1]"), (ordered_json{{"invalid_json", "[1]"}}));
}

TEST(ChatVoice, SystemMessagesAreJoinedWhereATemplateTakesOne) {
  v1::GenerateRequest request;
  const auto add = [&request](const char* role, const char* content) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(role);
    message.set_content(content);
  };
  add("system", "Brief.");
  add("system", "Sandboxed.");
  add("user", "Hi");
  add("system", "Tools changed.");
  add("assistant", "Hello");
  add("system", "It is late.");
  add("user", "So?");
  ChatVoice voice;
  EXPECT_EQ(ordered_json::parse(MessagesJson(request, 7, voice)).size(), 7U);
  voice.one_system_message = true;
  const ordered_json messages = ordered_json::parse(MessagesJson(request, 7, voice));
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[0], (ordered_json{{"role", "system"}, {"content", "Brief.\n\nSandboxed."}}));
  EXPECT_EQ(messages[1], (ordered_json{{"role", "user"}, {"content", "Hi\n\nTools changed."}}));
  EXPECT_EQ(messages[2]["content"], "Hello");
  EXPECT_EQ(messages[3], (ordered_json{{"role", "user"}, {"content", "It is late.\n\nSo?"}}));
}

TEST(ChatVoice, TheSwitchOfReasoningGoesToTheTemplate) {
  v1::GenerateRequest request;
  EXPECT_EQ(TemplateArgumentsJson(request), "");
  request.set_template_arguments_json(R"({"thinking": true, "x": 1})");
  request.mutable_reasoning()->set_enabled(false);
  const ordered_json arguments = ordered_json::parse(TemplateArgumentsJson(request));
  EXPECT_EQ(arguments["enable_thinking"], false);
  EXPECT_EQ(arguments["thinking"], true);  // the caller's own word
  EXPECT_EQ(arguments["x"], 1);
  EXPECT_EQ(arguments["thinking_mode"], "disabled");
}

TEST(ChatVoice, ATemplateWithoutToolsRefusesThem) {
  v1::GenerateRequest request;
  ChatVoice voice;
  EXPECT_TRUE(CheckTools(request, voice).ok());
  request.mutable_tools()->set_tools_json("[{}]");
  const absl::Status refused = CheckTools(request, voice);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_NE(refused.message().find("template takes no tools"), std::string::npos);
  voice.takes_tools = true;
  EXPECT_TRUE(CheckTools(request, voice).ok());
}

// A model whose template takes tools and switches reasoning, with a small tokenizer.
class ChatModel : public ::testing::Test {
 protected:
  void SetUp() override { Load("chatml_tools"); }
  void Load(const std::string& chat_template) {
    const std::string folder = text::NewFolder("model");
    std::filesystem::copy(text::Fixture("byte_level"), folder,
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy_file("tests/conformance/text/templates/" + chat_template + ".jinja",
                               folder + "/chat_template.jinja",
                               std::filesystem::copy_options::overwrite_existing);
    auto loaded = LoadModelText(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    model_ = *loaded;
    request_ = Conversation();
    request_.set_request_id("req_1");
    request_.mutable_tools()->set_tools_json(
        R"([{"type": "function", "function": {"name": "get_weather", "description": "",)"
        R"( "parameters": {"type": "object", "properties": {}}}}])");
  }

  GenerationJob Prepared() {
    auto job = PrepareJob(request_, *model_, 568, 4096, 1, 0);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *std::move(job) : GenerationJob();
  }
  std::string Text(const std::vector<int32_t>& tokens) {
    return model_->tokenizer.Decode(tokens, false).value_or("no text");
  }

  std::shared_ptr<const ModelText> model_;
  v1::GenerateRequest request_;
};

TEST_F(ChatModel, ToolsCallsAndResultsReachThePrompt) {
  EXPECT_EQ(model_->voice.dialect->name, "hermes");
  const std::string prompt = Text(Prepared().prompt);
  EXPECT_NE(prompt.find("{\"name\": \"get_weather\", \"description\""), std::string::npos)
      << prompt;
  EXPECT_NE(prompt.find("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"b\": 1.5"),
            std::string::npos)
      << prompt;
  EXPECT_NE(prompt.find("<tool_response>\n7 degrees"), std::string::npos) << prompt;
}

TEST_F(ChatModel, ALaterSystemMessageReachesTemplatesThatRefuseIt) {
  EXPECT_FALSE(model_->voice.one_system_message);
  Load("instruct_brackets");
  EXPECT_TRUE(model_->voice.one_system_message);
  request_.clear_tools();
  request_.mutable_messages()->DeleteSubrange(1, request_.messages_size() - 1);
  v1::ChatMessage& message = *request_.add_messages();
  message.set_role("system");
  message.set_content("It is late.");
  const std::string prompt = Text(Prepared().prompt);
  EXPECT_NE(prompt.find("It is late."), std::string::npos) << prompt;
}

TEST_F(ChatModel, ReasoningIsSwitchedOffByTheTemplateAndByABudget) {
  EXPECT_FALSE(Prepared().shape.steering.reasoning_tokens_max.has_value());
  EXPECT_FALSE(Prepared().shape.markup.follows_reasoning);
  request_.mutable_reasoning()->set_enabled(false);
  const GenerationJob job = Prepared();
  EXPECT_TRUE(Text(job.prompt).ends_with("<think>\n\n</think>\n\n")) << Text(job.prompt);
  EXPECT_FALSE(job.shape.markup.opens_reasoning);
  EXPECT_TRUE(job.shape.markup.follows_reasoning);
  EXPECT_EQ(job.shape.steering.reasoning_tokens_max, 0U);
  EXPECT_EQ(Text(job.shape.steering.close), "\n</think>\n\n");
}

TEST_F(ChatModel, AChosenToolOpensItsCall) {
  request_.mutable_tools()->set_choice(v1::TOOL_CHOICE_KIND_NAMED);
  request_.mutable_tools()->set_name("get_weather");
  const markup::SteeringPlan plan = Prepared().shape.steering;
  EXPECT_EQ(Text(plan.call), "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ");
  EXPECT_EQ(plan.call[0], 565);  // the token, and not its letters
  EXPECT_EQ(plan.think_open, 563);
  request_.mutable_tools()->set_choice(v1::TOOL_CHOICE_KIND_REQUIRED);
  EXPECT_EQ(Text(Prepared().shape.steering.call), "<tool_call>\n{\"name\": \"");
}

TEST_F(ChatModel, PlainTextIsLeftAlone) {
  request_.set_plain_text(true);
  EXPECT_EQ(Prepared().shape.markup.dialect, nullptr);
}

// Tokens of one letter each, and control tokens that a decoder leaves out.
TextStream Letters() {
  return {[](int32_t token) {
            return token < 128 ? std::string(1, static_cast<char>(token)) : std::string();
          },
          [] { return std::string(); }};
}

struct Told {
  std::string content, reasoning, calls;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
};

class ShapedAnswer {
 public:
  ShapedAnswer() {
    shape.markup.dialect = std::make_shared<const markup::Dialect>(markup::ChooseDialect(
        "tools <tool_call> <think> </think>", [](std::string_view) { return false; }));
    shape.markup.tools = std::make_shared<const markup::ToolSet>("[]");
    shape.shown_tokens = std::make_shared<const TokenSpellings>(
        TokenSpellings{{200, "<tool_call>"}, {201, "</tool_call>"}});
  }

  // The model's tokens until the answer is over; 0 is the end token.
  Told Take(const std::vector<int32_t>& tokens, const std::vector<std::string>& stops = {}) {
    GenerationLimits limits;
    limits.max_tokens = static_cast<uint32_t>(tokens.size());
    limits.context_length = 1000;
    limits.end_tokens = {0};
    Generation generation(limits, {}, stops, Letters(), shape);
    Told told;
    for (const int32_t token : tokens) {
      const Generation::Outcome outcome = generation.Take(token);
      taken.push_back(outcome.token);
      Add(outcome, told);
      if (outcome.finish != v1::FINISH_REASON_UNSPECIFIED) break;
    }
    reasoning_tokens = generation.reasoning_tokens();
    return told;
  }

  static std::vector<int32_t> Spelled(const std::string& text) {
    return std::vector<int32_t>(text.begin(), text.end());
  }

  AnswerShape shape;
  std::vector<int32_t> taken;
  uint32_t reasoning_tokens = 0;

 private:
  static void Add(const Generation::Outcome& outcome, Told& told) {
    using Kind = markup::MarkupEvent::Kind;
    for (const markup::MarkupEvent& event : outcome.events) {
      if (event.kind == Kind::kContent) told.content += event.text;
      if (event.kind == Kind::kReasoning) told.reasoning += event.text;
      if (event.kind == Kind::kCallBegin) told.calls += event.text + ":";
      if (event.kind == Kind::kArguments) told.calls += event.text;
      if (event.kind == Kind::kCallEnd) told.calls += ";";
    }
    told.finish = outcome.finish;
  }
};

std::vector<int32_t> Joined(const std::vector<std::vector<int32_t>>& parts) {
  std::vector<int32_t> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(ShapedAnswerTest, SpecialTokensReachTheReader) {
  ShapedAnswer answer;
  const Told told = answer.Take(Joined(
      {ShapedAnswer::Spelled("Hi"), {200}, ShapedAnswer::Spelled("{\"name\": \"f\"}"), {201, 0}}));
  EXPECT_EQ(told.content, "Hi");
  EXPECT_EQ(told.calls, "f:{};");
  EXPECT_EQ(told.finish, v1::FINISH_REASON_STOP);
}

TEST(ShapedAnswerTest, StopStringsCountInContentAlone) {
  ShapedAnswer answer;
  const std::string text =
      "<think>STOP</think>a<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"STOP\"}}"
      "</tool_call>b STOP c";
  const Told told = answer.Take(ShapedAnswer::Spelled(text), {"STOP"});
  EXPECT_EQ(told.reasoning, "STOP");
  EXPECT_EQ(told.calls, "f:{\"x\": \"STOP\"};");
  EXPECT_EQ(told.content, "ab ");
  EXPECT_EQ(told.finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.taken.back(), 'P');
}

TEST(ShapedAnswerTest, ASpentBudgetClosesReasoningAndTheAnswerGoesOn) {
  ShapedAnswer answer;
  answer.shape.markup.opens_reasoning = true;
  answer.shape.steering.reasoning_tokens_max = 3;
  answer.shape.steering.close = ShapedAnswer::Spelled("</think>");
  const Told told = answer.Take(ShapedAnswer::Spelled("abcdefghijkYes"));
  EXPECT_EQ(told.reasoning, "abc");
  EXPECT_EQ(told.content, "Yes");
  EXPECT_EQ(answer.reasoning_tokens, 11U);  // with the closing tag's
}

TEST(ShapedAnswerTest, AnAnswerThatMustCallIsMadeToAndEndsWithIt) {
  ShapedAnswer answer;
  answer.shape.steering.call = Joined({{200}, ShapedAnswer::Spelled("{\"name\": \"f\"")});
  answer.shape.steering.ends_with_first_call = true;
  std::vector<int32_t> tokens(answer.shape.steering.call.size(), 'x');
  tokens.push_back('}');
  tokens.push_back('z');
  const Told told = answer.Take(tokens);
  EXPECT_EQ(told.calls, "f:{};");
  EXPECT_EQ(told.content, "");
  EXPECT_EQ(told.finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.taken.back(), '}');
}

// Small models go on talking; what comes behind `tool_choice: required` is calls alone.
TEST(ShapedAnswerTest, BehindACallThatHadToBeMadeOnlyCallsAreSaid) {
  ShapedAnswer answer;
  answer.shape.steering.call = Joined({{200}, ShapedAnswer::Spelled("{\"name\": \"f\"")});
  const Told told =
      answer.Take(Joined({std::vector<int32_t>(answer.shape.steering.call.size(), 'x'),
                          ShapedAnswer::Spelled("}"),
                          {201},
                          ShapedAnswer::Spelled("\n"),
                          {200},
                          ShapedAnswer::Spelled("{\"name\": \"f\"}"),
                          {201},
                          ShapedAnswer::Spelled("\n\nThe weather is fine.")}));
  EXPECT_EQ(told.calls, "f:{};f:{};");
  EXPECT_EQ(told.content, "");
  EXPECT_EQ(told.finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.taken.back(), 'T') << "it ends where it would speak";
}

TEST(ShapedAnswerTest, ACutCallHasItsArgumentsSoFar) {
  ShapedAnswer answer;
  const Told told =
      answer.Take(ShapedAnswer::Spelled("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"y"));
  EXPECT_EQ(told.finish, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(told.calls.rfind("f:{\"x\": \"y", 0), 0U) << told.calls;
}

}  // namespace
}  // namespace macrame::runtime::engine
