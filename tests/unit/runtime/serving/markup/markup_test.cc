#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {
namespace {

std::string NameOf(const TranscriptCase& transcript) {
  return transcript.family + ": " + transcript.what;
}

TEST(MarkupTest, TranscriptsAreWhatTheyAre) {
  for (const TranscriptCase& transcript : TranscriptCases()) {
    EXPECT_EQ(Told(EventsOf(transcript, {})), transcript.told) << NameOf(transcript);
  }
}

// One cut at every place, each byte alone, and random cuts: all tell the same.
TEST(MarkupTest, CutsChangeNothing) {
  std::mt19937_64 random(20261122);
  for (const TranscriptCase& transcript : TranscriptCases()) {
    const size_t size = transcript.text.size();
    std::vector<std::vector<size_t>> cuttings;
    std::vector<size_t> every;
    for (size_t cut = 1; cut < size; ++cut) {
      cuttings.push_back({cut});
      every.push_back(cut);
    }
    cuttings.push_back(every);
    for (int i = 0; i < 200; ++i) {
      std::set<size_t> cuts;
      const size_t count = random() % 12;
      for (size_t j = 0; j < count; ++j) cuts.insert(random() % (size + 1));
      cuttings.emplace_back(cuts.begin(), cuts.end());
    }
    for (const auto& cuts : cuttings) {
      ASSERT_EQ(Told(EventsOf(transcript, cuts)), transcript.told)
          << NameOf(transcript) << " cut before " << testing::PrintToString(cuts);
    }
  }
}

// However an answer breaks off, it can be read, and what was told of it before stays true.
TEST(MarkupTest, EveryBeginningCanBeRead) {
  for (const TranscriptCase& transcript : TranscriptCases()) {
    for (size_t size = 0; size < transcript.text.size(); ++size) {
      TranscriptCase part = transcript;
      part.text.resize(size);
      for (const bool is_cut : {false, true}) {
        part.is_cut = is_cut;
        const std::string told = Told(EventsOf(part, {}));
        EXPECT_EQ(told.find("stray"), std::string::npos) << NameOf(part) << "\n" << told;
      }
    }
  }
}

// Arguments come while the model writes them, not at the call's end.
TEST(MarkupTest, ArgumentsComeInPieces) {
  for (const char* family : {"hermes", "qwen3_coder", "gemma4", "harmony"}) {
    const std::map<std::string, std::pair<std::string, std::string>> around = {
        {"hermes",
         {"<tool_call>{\"name\": \"write_file\", \"arguments\": {\"content\": \"",
          "\"}}</tool_call>"}},
        {"qwen3_coder",
         {"<tool_call>\n<function=write_file>\n<parameter=content>\n",
          "\n</parameter>\n</function>\n</tool_call>"}},
        {"gemma4", {"<|tool_call>call:write_file{content:<|\"|>", "<|\"|>}<tool_call|>"}},
        {"harmony",
         {"<|channel|>commentary to=functions.write_file<|message|>{\"content\": \"",
          "\"}<|call|>"}}};
    AnswerMarkup markup(TraitsOf({family, "", "", "", "", false}));
    markup.Push(around.at(family).first);
    for (int i = 0; i < 5; ++i) {
      const auto events = markup.Push("word ");
      ASSERT_EQ(events.size(), 1U) << family;
      EXPECT_EQ(events[0].kind, MarkupEvent::Kind::kArguments);
      EXPECT_EQ(events[0].text, "word ");
    }
    markup.Push(around.at(family).second);
    EXPECT_EQ(markup.calls_ended(), 1U) << family;
  }
}

// Content is not held back but for what may be a marker.
TEST(MarkupTest, ContentComesAtOnce) {
  AnswerMarkup markup(TraitsOf({"hermes", "", "", "", "", false}));
  EXPECT_EQ(Told(markup.Push("Hello")), "say: Hello\n");
  EXPECT_EQ(Told(markup.Push(" <")), "");
  EXPECT_EQ(Told(markup.Push("b> there ")), "say:  <b> there\n");
  EXPECT_EQ(Told(markup.Push("you")), "say:  you\n");
}

// A request without tools; the tags come in pieces.
TEST(MarkupTest, AnswerTagsAreDroppedWhileTheAnswerComes) {
  MarkupTraits traits = TraitsOf({"granite", "", "", "", "", false});
  traits.tools = nullptr;
  AnswerMarkup markup(traits);
  EXPECT_EQ(Told(markup.Push("<think>Hm.</think>")), "think: Hm.\n");
  EXPECT_FALSE(markup.is_reasoning());
  EXPECT_EQ(Told(markup.Push("\n<resp")), "");
  EXPECT_EQ(Told(markup.Push("onse>\nHi")), "say: Hi\n");
  EXPECT_EQ(Told(markup.Push(" you.\n")), "say:  you.\n");
  EXPECT_EQ(Told(markup.Push("</resp")), "");
  EXPECT_EQ(Told(markup.Push("onse>\n")), "");
  EXPECT_EQ(Told(markup.Finish(/*is_cut=*/false)), "");
}

TEST(MarkupTest, IdsAreUniqueAndStable) {
  std::set<std::string> seen;
  for (const char* family : {"hermes", "mistral_old", "kimi"}) {
    const MarkupTraits traits = TraitsOf({family, "", "", "", "", false});
    for (uint32_t call = 0; call < 100; ++call) {
      const std::string id = MakeCallId(traits.ids, call, "get_time");
      EXPECT_TRUE(seen.insert(id).second) << id;
      EXPECT_EQ(id, MakeCallId(traits.ids, call, "get_time"));
    }
  }
  CallIds other;
  other.salt = "another request";
  EXPECT_TRUE(seen.insert(MakeCallId(other, 0, "get_time")).second);
  EXPECT_EQ(MakeCallId(other, 0, "x").size(), 29U);
  EXPECT_EQ(MakeCallId({CallIdStyle::kNine, "s", 0}, 0, "x").size(), 9U);
  EXPECT_EQ(MakeCallId({CallIdStyle::kIndex, "s", 4}, 1, "f"), "functions.f:5");
  EXPECT_EQ(NineLetterId("abcDEF123"), "abcDEF123");
  EXPECT_EQ(NineLetterId("call_0123").size(), 9U);
  EXPECT_NE(NineLetterId("call_1"), NineLetterId("call_2"));
}

// An answer that must call is made to begin so; what the family goes on with is a call.
TEST(MarkupTest, ForcedOpeningsBeginCalls) {
  const std::map<std::string, std::string> goes_on = {
      {"hermes", "{}}\n</tool_call>"},
      {"qwen3_coder", "</function>\n</tool_call>"},
      {"glm", "</tool_call>"},
      {"minimax", "</invoke>\n</minimax:tool_call>"},
      {"minimax_m3", "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"},
      {"dsml", "</｜DSML｜invoke>\n</｜DSML｜function_calls>"},
      {"kimi", "{}<|tool_call_end|><|tool_calls_section_end|>"},
      {"deepseek_v3", "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"deepseek_v31", "{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
      {"mistral_old", "{}}]"},
      {"mistral", "{}"},
      {"gemma4", "}<tool_call|>"},
      {"function_gemma", "}<end_function_call>"},
      {"harmony", "{}"},
      {"pythonic", ")]"},
      {"lfm2", ")]<|tool_call_end|>"},
      {"llama3", "{}}"},
      {"nemotron", "{}}]</TOOLCALL>"},
      {"granite", "{}}]"},
      {"seed", "</function>\n</seed:tool_call>"}};
  for (const auto& [family, rest] : goes_on) {
    TranscriptCase transcript{family, "forced", "", "", "", false};
    const auto dialect = TraitsOf(transcript).dialect;
    transcript.text = ForcedOpening(*dialect, "get_time", 0) + rest;
    EXPECT_EQ(Told(EventsOf(transcript, {})), "call 0 get_time: {}\n")
        << family << ": " << transcript.text;
    const std::string any = ForcedOpening(*dialect, "", 0);
    EXPECT_FALSE(any.empty()) << family;
  }
}

// References that lead back to themselves by a thousand ways.
TEST(MarkupTest, ASchemaThatUnfoldsWithoutEndIsReadAsFarAsItsBound) {
  std::string ways;
  for (int i = 0; i < 1000; ++i) {
    ways += std::string(i > 0 ? "," : "") + R"({"$ref":"#/$defs/a"})";
  }
  const ToolSet tools(R"([{"function":{"name":"f","parameters":{"properties":{"p":)"
                      R"({"type":"string","$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[)" +
                      ways + "]}}}}}]");
  EXPECT_TRUE(tools.Has("f"));
}

TEST(MarkupTest, ACallWithinReasoningEndsIt) {
  auto dialect = std::make_shared<Dialect>(
      ChooseDialect("tools <function= </think>", [](std::string_view) { return false; }));
  MarkupTraits traits;
  traits.dialect = dialect;
  traits.tools = std::make_shared<const ToolSet>(R"([{"function":{"name":"f"}}])");
  traits.opens_reasoning = true;
  AnswerMarkup markup(traits);
  markup.Push("I think");
  EXPECT_TRUE(markup.is_reasoning());
  markup.Push(" so.\n<tool_call>\n<function=f>\n<parameter=a>");
  ASSERT_EQ(markup.calls_begun(), 1u);
  EXPECT_FALSE(markup.is_reasoning()) << "a budget of reasoning has no say in a call";
}

TEST(MarkupTest, AHeaderThatIsCutOffIsNoContent) {
  const auto dialect = std::make_shared<const Dialect>(
      ChooseDialect("<|channel|> <|message|>", [](std::string_view) { return false; }));
  for (const char* cut : {"<|start|>", "<|start|>assistant", "<|start|>assistant<|channel|>fi"}) {
    MarkupTraits traits;
    traits.dialect = dialect;
    AnswerMarkup markup(traits);
    std::string content;
    const auto hear = [&content](const std::vector<MarkupEvent>& events) {
      for (const MarkupEvent& event : events) {
        if (event.kind == MarkupEvent::Kind::kContent) content += event.text;
      }
    };
    hear(markup.Push("<|channel|>analysis<|message|>x<|end|>"));
    hear(markup.Push(cut));
    hear(markup.Finish(/*is_cut=*/true));
    EXPECT_EQ(content, "") << cut;
  }
}

TEST(MarkupTest, CallsWithinCallsWithinCallsAreBounded) {
  MarkupTraits traits;
  traits.dialect = std::make_shared<const Dialect>(
      ChooseDialect("tools <tool_call>", [](std::string_view) { return false; }));
  traits.tools = std::make_shared<const ToolSet>(R"([{"function":{"name":"f"}}])");
  AnswerMarkup markup(traits);
  markup.Push("<tool_call>");
  for (int i = 0; i < 200'000; ++i) markup.Push(R"({"function":)");
  EXPECT_EQ(markup.calls_begun(), 0u);
}

TEST(MarkupTest, ValuesAreReadByTheirSchema) {
  ValueKinds text, number, either;
  text.is_known = text.string = true;
  number.is_known = number.number = true;
  either.is_known = either.string = either.null = true;
  EXPECT_EQ(ValueAsJson("12", text), "\"12\"");
  EXPECT_EQ(ValueAsJson(" 12\n", number), "12");
  EXPECT_EQ(ValueAsJson("twelve", number), "\"twelve\"");
  EXPECT_EQ(ValueAsJson("12", either), "\"12\"");
  EXPECT_EQ(ValueAsJson("None", either), "null");
  EXPECT_EQ(ValueAsJson("{\"a\": 1}", ValueKinds()), "{\"a\": 1}");
  EXPECT_EQ(ValueAsJson("{'a': (1, 2.50)}", ValueKinds()), "{\"a\": [1, 2.50]}");
  EXPECT_EQ(ValueAsJson("it's", ValueKinds()), "\"it's\"");
}

// Whatever the model chooses, the arguments of a whole call are JSON.
TEST(MarkupTest, WholeCallsHaveJsonArguments) {
  for (const TranscriptCase& transcript : TranscriptCases()) {
    if (transcript.is_cut || transcript.what.find("broken") != std::string::npos) continue;
    std::map<uint32_t, std::string> arguments;
    for (const MarkupEvent& event : EventsOf(transcript, {})) {
      if (event.kind == MarkupEvent::Kind::kArguments) arguments[event.call] += event.text;
    }
    for (const auto& [call, text] : arguments) {
      EXPECT_TRUE(nlohmann::json::accept(text)) << NameOf(transcript) << ": " << text;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::markup
