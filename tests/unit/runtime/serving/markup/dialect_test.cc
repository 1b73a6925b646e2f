// Which family a model's template says that it is, and what follows from that for prompts, control
// tokens and answers that are made to call.

#include "runtime/serving/markup/dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

bool HasNone(std::string_view) { return false; }

std::vector<std::string> Families() {
  std::set<std::string> families;
  for (const TranscriptCase& one : TranscriptCases()) families.insert(one.family);
  return {families.begin(), families.end()};
}

TEST(DialectTest, ATemplatesWordsTellTheFamily) {
  const std::pair<const char*, const char*> cases[] = {{"hermes", "hermes"},
                                                       {"qwen3_coder", "qwen3_coder"},
                                                       {"glm", "glm"},
                                                       {"minimax", "minimax_m2"},
                                                       {"minimax_m3", "minimax_m3"},
                                                       {"dsml", "deepseek_dsml"},
                                                       {"kimi", "kimi_k2"},
                                                       {"deepseek_v3", "deepseek_v3"},
                                                       {"deepseek_v31", "deepseek_v3"},
                                                       {"mistral_old", "mistral"},
                                                       {"mistral", "mistral"},
                                                       {"gemma4", "gemma4"},
                                                       {"function_gemma", "function_gemma"},
                                                       {"harmony", "harmony"},
                                                       {"pythonic", "llama4_pythonic"},
                                                       {"lfm2", "lfm2"},
                                                       {"llama3", "llama3_json"},
                                                       {"nemotron", "nemotron"},
                                                       {"seed", "seed_oss"},
                                                       {"olmo3", "olmo3"},
                                                       {"solar", "solar_open"},
                                                       {"json_functions", "json_functions"},
                                                       {"functionary", "functionary_v3"},
                                                       {"glm4", "glm4"},
                                                       {"minicpm5", "minicpm5"},
                                                       {"hunyuan", "hunyuan"},
                                                       {"hunyuan_a13b", "minimax_m1"},
                                                       {"granite", "granite"},
                                                       {"phi4", "phi4"},
                                                       {"functools", "functools"},
                                                       {"cohere", "cohere"},
                                                       {"apertus", "apertus"},
                                                       {"unknown", "none"},
                                                       {"plain", "none"}};
  for (const auto& [family, name] : cases) {
    EXPECT_EQ(ChooseDialect(TemplateOf(family), HasNone).name, name) << family;
  }
  const std::pair<const char*, const char*> others[] = {
      {"<|tool_call|> {{ tools }} <|/tool_call|>", "phi4"},
      {"<tool_calls> {{ tools }} </tool_calls>", "minimax_m1"},
      {"<longcat_tool_call><longcat_arg_key>", "longcat"},
      {"[func_name1(params_name1=params_value1)]", "llama4_pythonic"},
      {"List of tools: [", "lfm2"},
      {"{% if tools %}{{ tools | tojson }}{% endif %}", "none"},
      {"", "none"}};
  for (const auto& [text, name] : others)
    EXPECT_EQ(ChooseDialect(text, HasNone).name, name) << text;
}

// DeepSeek V4 says tool_calls where V3.2 said function_calls: the block that the template names is
// looked for.
TEST(DialectTest, TheBlocksNameIsTheTemplates) {
  const Dialect old = ChooseDialect("<｜DSML｜function_calls> or tool_calls>", HasNone);
  const Dialect later = ChooseDialect("<｜DSML｜tool_calls>", HasNone);
  EXPECT_THAT(old.openers, Contains("<｜DSML｜function_calls>"));
  EXPECT_EQ(old.closer, "</｜DSML｜function_calls>");
  EXPECT_THAT(later.openers, Contains("<｜DSML｜tool_calls>"));
  EXPECT_EQ(later.closer, "</｜DSML｜tool_calls>");
}

TEST(DialectTest, ReasoningIsTheTemplatesOrElseTheVocabularys) {
  const auto has_think = [](std::string_view token) {
    return token == "<think>" || token == "</think>";
  };
  const auto has_open = [](std::string_view token) { return token == "<think>"; };
  const auto has_seed = [](std::string_view token) {
    return token == "<seed:think>" || token == "</seed:think>";
  };
  EXPECT_EQ(ChooseDialect("{{ messages }}", has_think).think_open, "<think>");
  EXPECT_EQ(ChooseDialect("{{ messages }}", has_open).think_open, "") << "half a pair is none";
  EXPECT_EQ(ChooseDialect("{{ messages }}", HasNone).think_close, "");
  EXPECT_EQ(ChooseDialect("[THINK] {{ messages }}", has_seed).think_close, "[/THINK]");
  EXPECT_EQ(ChooseDialect("only </think>", HasNone).think_open, "<think>");
  EXPECT_EQ(ChooseDialect("<|channel|><|message|>", has_think).think_open, "")
      << "gpt-oss reasons in messages";
}

// What a decoder leaves out must reach the reader: each spelling that the dialect is read by.
TEST(DialectTest, EverySpellingThatIsReadByIsControl) {
  for (const std::string& family : Families()) {
    const Dialect dialect = ChooseDialect(TemplateOf(family), HasNone);
    std::vector<std::string> read_by = dialect.openers;
    for (const std::string& one :
         {dialect.closer, dialect.think_open, dialect.think_close, dialect.quote, dialect.mark,
          dialect.section.section_end, dialect.section.call_begin, dialect.section.separator,
          dialect.section.call_end}) {
      if (!one.empty()) read_by.push_back(one);
    }
    for (const std::string& one : read_by) {
      EXPECT_THAT(dialect.control, Contains(one)) << family;
    }
    EXPECT_THAT(dialect.control, Not(Contains(""))) << family;
    const std::set<std::string> once(dialect.control.begin(), dialect.control.end());
    EXPECT_EQ(once.size(), dialect.control.size()) << family << " names one twice";
  }
}

TEST(DialectTest, APromptOpensReasoningWhereItsLastTagIsAnOpenOne) {
  const Dialect dialect = ChooseDialect(TemplateOf("hermes"), HasNone);
  const std::pair<const char*, bool> cases[] = {{"<think>", true},
                                                {"assistant\n<think>\n", true},
                                                {"<think> \r\n\t", true},
                                                {"<think></think>", false},
                                                {"<think>\n\n</think>\n\n", false},
                                                {"assistant\n", false},
                                                {"", false},
                                                {"<think>x</think><think>\n", true},
                                                {"<think>a", false},
                                                {"think>", false}};
  for (const auto& [prompt, opens] : cases) {
    EXPECT_EQ(OpensReasoning(dialect, prompt), opens) << prompt;
  }
  EXPECT_FALSE(OpensReasoning(ChooseDialect(TemplateOf("plain"), HasNone), "<think>"));
}

TEST(DialectTest, APromptClosesReasoningWhereItEndsWithItsClosingTag) {
  const Dialect dialect = ChooseDialect(TemplateOf("hermes"), HasNone);
  const std::pair<const char*, bool> cases[] = {{"<think>\n\n</think>\n\n", true},
                                                {"</think>", true},
                                                {"<think>\n", false},
                                                {"</think>\n<answer>", false},
                                                {"</think>x", false},
                                                {" \n", false},
                                                {"", false}};
  for (const auto& [prompt, closes] : cases) {
    EXPECT_EQ(ClosesReasoning(dialect, prompt), closes) << prompt;
  }
  EXPECT_FALSE(ClosesReasoning(ChooseDialect(TemplateOf("plain"), HasNone), "</think>"));
}

TEST(DialectTest, AnswersHaveTheTagsThatTheTemplateNames) {
  const Dialect granite = ChooseDialect(TemplateOf("granite"), HasNone);
  EXPECT_EQ(granite.answer_open, "<response>");
  EXPECT_EQ(granite.answer_close, "</response>");
  const Dialect hunyuan = ChooseDialect(TemplateOf("hunyuan_a13b"), HasNone);
  EXPECT_EQ(hunyuan.answer_open, "<answer>");
  EXPECT_EQ(hunyuan.answer_close, "</answer>");
  for (const char* others : {"<think> <tool_response></tool_response>", "<response></response>"}) {
    EXPECT_EQ(ChooseDialect(others, HasNone).answer_open, "") << others;
  }
}

TEST(DialectTest, AForcedOpeningNamesTheToolAndTheCallsNumber) {
  for (const std::string& family : Families()) {
    const Dialect dialect = ChooseDialect(TemplateOf(family), HasNone);
    if (dialect.forced_named.empty()) {
      EXPECT_EQ(ForcedOpening(dialect, "get_time", 7), "") << family;
      continue;
    }
    const std::string named = ForcedOpening(dialect, "get_time", 7);
    EXPECT_THAT(named, HasSubstr("get_time")) << family;
    EXPECT_THAT(named, Not(HasSubstr("$"))) << family;
    EXPECT_EQ(dialect.id_style == CallIdStyle::kIndex, named.find(":7") != std::string::npos)
        << family << ": " << named;
    // Where any tool will do, the answer begins as with a named one, up to its name.
    const std::string any = ForcedOpening(dialect, "", 7);
    EXPECT_TRUE(named.starts_with(any)) << family << ": " << any << " / " << named;
    EXPECT_LE(any.size(), named.find("get_time")) << family;
  }
}

// A tool may be called as it likes, also after what is put in the opening's places.
TEST(DialectTest, AToolsNameIsNotReadAgain) {
  const Dialect kimi = ChooseDialect(TemplateOf("kimi"), HasNone);
  EXPECT_THAT(ForcedOpening(kimi, "$INDEX", 3), HasSubstr("functions.$INDEX:3<"));
  EXPECT_THAT(ForcedOpening(kimi, "$NAME", 3), HasSubstr("functions.$NAME:3<"));
}

// What closes spent reasoning is read as its end, by the family's own reader.
TEST(DialectTest, AForcedClosingEndsReasoning) {
  for (const std::string& family : Families()) {
    const Dialect dialect = ChooseDialect(TemplateOf(family), HasNone);
    const std::string closing = ForcedClosing(dialect, /*ends_for_good=*/true);
    const bool is_harmony = dialect.syntax == CallSyntax::kHarmony;
    EXPECT_EQ(closing.empty(), dialect.think_open.empty() && !is_harmony) << family;
    if (closing.empty()) continue;
    AnswerMarkup markup(TraitsOf({family, "", "", "", "", false}));
    markup.Push(is_harmony ? "<|channel|>analysis<|message|>" : dialect.think_open);
    markup.Push("Let me think");
    EXPECT_TRUE(markup.is_reasoning()) << family;
    markup.Push(closing);
    EXPECT_FALSE(markup.is_reasoning()) << family;
    EXPECT_TRUE(markup.is_content()) << family;
    EXPECT_EQ(Told(markup.Push("Yes.")), "say: Yes.\n") << family;
  }
}

}  // namespace
}  // namespace macrame::runtime::markup
