// The grammars of tool calls by family: what stands in them, which calls have none, and what
// becomes of tools that are written wrongly.

#include "runtime/serving/structure/call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "runtime/serving/structure/grammar_constraint.h"

namespace macrame::runtime::engine {
namespace {

using markup::Dialect;
using ::testing::HasSubstr;
using ::testing::Not;

const std::map<int32_t, std::string> kNoSpecial;

Dialect DialectOf(const char* chat_template) {
  return markup::ChooseDialect(chat_template, [](std::string_view) { return false; });
}

constexpr char kHermes[] = "tools <tool_call>";
constexpr char kNewMistral[] = "[TOOL_CALLS]name[ARGS]";
constexpr char kOldMistral[] = "[TOOL_CALLS] [";
constexpr char kKimi[] = "<|tool_calls_section_begin|>";

constexpr char kTwoTools[] = R"([
  {"type": "function", "function": {"name": "find", "strict": true,
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "stop",
    "parameters": {"type": "object", "properties": {"why": {"type": "number"}}}}}])";

TEST(CallGrammarTest, OfAnyToolThereIsARuleForEach) {
  const auto call = GrammarOfForcedCall(DialectOf(kHermes), kTwoTools, "", 0, kNoSpecial);
  ASSERT_TRUE(call.has_value());
  EXPECT_TRUE(call->is_strict);
  EXPECT_THAT(call->lark, HasSubstr("start: call0 | call1\n"));
  // The opening that any call has was said: what comes is the rest.
  EXPECT_THAT(call->lark, HasSubstr("call0: \"find\\\", \\\"arguments\\\": \" %json {"));
  EXPECT_THAT(call->lark, HasSubstr("call1: \"stop\\\", \\\"arguments\\\": \" %json {"));
  EXPECT_THAT(call->lark, HasSubstr("\"q\":{\"type\":\"string\"}"));
  EXPECT_THAT(call->lark, HasSubstr("\"why\":{\"type\":\"number\"}"));
  EXPECT_THAT(call->lark, HasSubstr("</tool_call>"));
}

TEST(CallGrammarTest, OfANamedToolThereIsItsOwnAlone) {
  const auto call = GrammarOfForcedCall(DialectOf(kHermes), kTwoTools, "stop", 0, kNoSpecial);
  ASSERT_TRUE(call.has_value());
  EXPECT_FALSE(call->is_strict) << "the other one asks for it";
  EXPECT_THAT(call->lark, HasSubstr("start: call1\n"));
  EXPECT_THAT(call->lark, Not(HasSubstr("find")));
  EXPECT_THAT(call->lark, Not(HasSubstr("\"stop\\\""))) << "the name was said already";
  EXPECT_FALSE(
      GrammarOfForcedCall(DialectOf(kHermes), kTwoTools, "none", 0, kNoSpecial).has_value());
}

TEST(CallGrammarTest, SpecialTokensStandByTheirNumbers) {
  const std::map<int32_t, std::string> special = {{9, "<|tool_call_end|>"},
                                                  {12, "<|tool_calls_section_end|>"},
                                                  {15, "<|tool_call_argument_begin|>"},
                                                  {20, ""}};
  const auto call = GrammarOfForcedCall(DialectOf(kKimi), kTwoTools, "", 4, special);
  ASSERT_TRUE(call.has_value());
  EXPECT_THAT(call->lark, HasSubstr("call0: \"find:4\" <[15]> %json {"));
  EXPECT_THAT(call->lark, HasSubstr(" <[9]> <[12]> \n"));
  EXPECT_THAT(call->lark, Not(HasSubstr("tool_call_end")));
  EXPECT_THAT(call->lark, Not(HasSubstr("<[20]>"))) << "a token without a spelling is nowhere";
}

// What a family ends a call with behind its arguments.
TEST(CallGrammarTest, ACallEndsAsItsFamilyEndsCalls) {
  const std::pair<const char*, const char*> cases[] = {
      {kHermes, "\"}\\n</tool_call>\" \n"},
      {"<TOOLCALL>", "\"}]</TOOLCALL>\" \n"},
      {kOldMistral, "\"}]\" \n"},
      {kNewMistral, "} \n"},
      {"<|channel|><|message|>", "} \n"},
      {"<|python_tag|>", "\"}\" \n"},
      {"<｜tool▁calls▁begin｜>```json", "\"\\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>\" \n"},
      {"<｜tool▁calls▁begin｜>", "\"<｜tool▁call▁end｜><｜tool▁calls▁end｜>\" \n"}};
  for (const auto& [chat_template, ending] : cases) {
    const auto call = GrammarOfForcedCall(DialectOf(chat_template), kTwoTools, "", 0, kNoSpecial);
    ASSERT_TRUE(call.has_value()) << chat_template;
    EXPECT_TRUE(std::string_view(call->lark).ends_with(ending)) << chat_template << call->lark;
  }
  for (const char* no_json : {"<function=", "<arg_key>", "<minimax:tool_call>", "{{ messages }}",
                              "<|tool_call_start|>", "<start_function_call>"}) {
    EXPECT_FALSE(GrammarOfForcedCall(DialectOf(no_json), kTwoTools, "", 0, kNoSpecial).has_value())
        << no_json;
  }
}

TEST(CallGrammarTest, CallsOfItsOwnAreHeldWhereAToolAsksForItAndTheirEndIsTheirOwn) {
  const auto own = GrammarOfOwnCall(DialectOf(kHermes), kTwoTools, "<tool_call>", kNoSpecial);
  ASSERT_TRUE(own.has_value());
  EXPECT_THAT(*own, HasSubstr("call0: \"\\n{\\\"name\\\": \\\"find\\\", \\\"arguments\\\": \""));
  EXPECT_THAT(*own, HasSubstr("\"q\":{\"type\":\"string\"}"));
  EXPECT_THAT(*own, Not(HasSubstr("why"))) << "that one does not ask for it: any object will do";
  EXPECT_TRUE(
      GrammarOfOwnCall(DialectOf(kNewMistral), kTwoTools, "[TOOL_CALLS]", kNoSpecial).has_value());
  const std::string free = R"([{"function": {"name": "a", "strict": false}}])";
  EXPECT_FALSE(GrammarOfOwnCall(DialectOf(kHermes), free, "<tool_call>", kNoSpecial).has_value());
  const std::pair<const char*, const char*> others[] = {{kOldMistral, "[TOOL_CALLS]"},
                                                        {"<TOOLCALL>", "<TOOLCALL>"},
                                                        {kKimi, "<|tool_call_begin|>"},
                                                        {kHermes, ""},
                                                        {kHermes, "<other>"}};
  for (const auto& [chat_template, opener] : others) {
    EXPECT_FALSE(
        GrammarOfOwnCall(DialectOf(chat_template), kTwoTools, opener, kNoSpecial).has_value())
        << chat_template << " " << opener;
  }
}

// OpenAI's agents send formats that only they know.
TEST(CallGrammarTest, FormatsThatNobodyKnowsHoldNoCall) {
  const char* tools = R"([{"function": {"name": "read", "strict": true, "parameters": {
      "type": "object", "properties": {"default": {"type": "string", "format": "path"}},
      "propertyNames": {"type": "string"}}}}])";
  const auto forced = GrammarOfForcedCall(DialectOf(kHermes), tools, "", 0, kNoSpecial);
  const auto own = GrammarOfOwnCall(DialectOf(kHermes), tools, "<tool_call>", kNoSpecial);
  ASSERT_TRUE(forced.has_value() && own.has_value());
  for (const std::string& lark : {forced->lark, *own}) {
    EXPECT_THAT(lark, HasSubstr(R"("properties":{"default":{"type":"string"}},"x-guidance")"));
  }
}

// What is malformed in a list of tools counts as not there, as it does where calls are read.
TEST(CallGrammarTest, ToolsThatAreWrittenWronglyAreLeftOut) {
  for (const char* tools :
       {"", "{", "null", "{}", "12", "[]", "[1, \"f\", null, []]", R"([{"function": 5}])",
        R"([{"function": null}])", R"([{"function": {"name": 5}}])",
        R"([{"function": {"name": ["f"]}}])", R"([{"function": {"name": ""}}])", R"([{}])"}) {
    EXPECT_FALSE(GrammarOfForcedCall(DialectOf(kHermes), tools, "", 0, kNoSpecial).has_value())
        << tools;
    EXPECT_FALSE(GrammarOfOwnCall(DialectOf(kHermes), tools, "<tool_call>", kNoSpecial).has_value())
        << tools;
  }
  const std::string mixed = R"([7, {"function": {"name": 5}}, {"function": "f"},
      {"function": {"name": "ok", "strict": "yes", "parameters": []}}])";
  const auto call = GrammarOfForcedCall(DialectOf(kHermes), mixed, "", 0, kNoSpecial);
  ASSERT_TRUE(call.has_value());
  EXPECT_FALSE(call->is_strict);
  EXPECT_THAT(call->lark, HasSubstr("start: call3\n"));
  EXPECT_THAT(call->lark, HasSubstr("{\"type\":\"object\"")) << "any object";
}

TEST(KeepLogitsTest, LeavesWhatHasItsBitAndNothingElse) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<uint32_t> bits(random() % 6);
    for (uint32_t& word : bits) {
      const uint32_t choices[] = {0, ~uint32_t{0}, static_cast<uint32_t>(random())};
      word = choices[random() % 3];
    }
    // More logits than bits, or fewer: a model's table may be padded.
    std::vector<float> logits(random() % 200);
    for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i) - 50.0F;
    const std::vector<float> before = logits;
    KeepLogits(bits, logits);
    for (size_t i = 0; i < logits.size(); ++i) {
      const bool is_kept = i / 32 < bits.size() && (bits[i / 32] >> (i % 32) & 1U) == 1;
      EXPECT_EQ(logits[i], is_kept ? before[i] : -std::numeric_limits<float>::infinity()) << i;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
