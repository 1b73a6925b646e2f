// Answers that models might have written: the transcripts of all families with something left out,
// said twice, put elsewhere or said in another family's words.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/unit/runtime/serving/markup/transcripts.h"

namespace macrame::runtime::markup {
namespace {

using Random = std::mt19937_64;

size_t Below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

// Pieces that mean something to a reader, and characters that end or begin things in JSON, Python
// and tags.
std::vector<std::string> PiecesOf(const Dialect& dialect) {
  std::vector<std::string> pieces = dialect.control;
  const FunctionTags& function = dialect.function;
  const PairTags& pair = dialect.pair;
  for (const std::string* tag :
       {&function.function_open, &function.function_close, &function.parameter_open,
        &function.parameter_close, &pair.key_open, &pair.key_close, &pair.value_open,
        &pair.value_close, &dialect.mark, &dialect.forced_any}) {
    if (!tag->empty()) pieces.push_back(*tag);
  }
  for (const char* piece :
       {"{", "}", "[", "]", "\"", "'",  "\\", ",",        ":",     ";",
        "=", "(", ")", "<", ">",  "\n", " ",  "get_time", "call:", "{\"name\": \"get_time\"}"}) {
    pieces.emplace_back(piece);
  }
  return pieces;
}

std::string Mutated(std::string text, const std::vector<std::string>& pieces, Random& random) {
  const size_t changes = 1 + Below(random, 3);
  for (size_t change = 0; change < changes; ++change) {
    const size_t begin = Below(random, text.size() + 1);
    const size_t count = Below(random, std::min<size_t>(text.size() - begin, 24) + 1);
    switch (random() % 4) {
      case 0:
        text.erase(begin, count);
        break;
      case 1:
        text.insert(Below(random, text.size() + 1), text.substr(begin, count));
        break;
      case 2:
        text.replace(begin, count, pieces[Below(random, pieces.size())]);
        break;
      default:
        text.insert(begin, pieces[Below(random, pieces.size())]);
    }
  }
  return text;
}

// What holds of the events of any answer: calls are numbered from 0, one is open at a time, pieces
// of arguments lie in it, and no other thing comes before its end.
void ExpectInOrder(const std::vector<MarkupEvent>& events, bool is_cut, const std::string& text) {
  using Kind = MarkupEvent::Kind;
  uint32_t begun = 0;
  bool is_open = false;
  std::set<std::string> ids;
  for (const MarkupEvent& event : events) {
    switch (event.kind) {
      case Kind::kCallBegin:
        EXPECT_FALSE(is_open) << text;
        EXPECT_EQ(event.call, begun++) << text;
        EXPECT_FALSE(event.text.empty()) << "a call without a name: " << text;
        EXPECT_TRUE(ids.insert(event.id).second) << "an id twice: " << text;
        is_open = true;
        break;
      case Kind::kArguments:
      case Kind::kCallEnd:
        EXPECT_TRUE(is_open && event.call + 1 == begun) << text;
        if (event.kind == Kind::kCallEnd) is_open = false;
        break;
      case Kind::kContent:
      case Kind::kReasoning:
        EXPECT_FALSE(is_open) << "something within a call: " << text;
        break;
    }
    if (event.kind != Kind::kCallEnd) {
      EXPECT_FALSE(event.text.empty()) << "an event of nothing: " << text;
    }
  }
  EXPECT_TRUE(is_cut || !is_open) << "a call that never ends: " << text;
}

std::vector<size_t> RandomCuts(size_t size, Random& random) {
  std::set<size_t> cuts;
  const size_t count = 1 + Below(random, 8);
  for (size_t i = 0; i < count; ++i) cuts.insert(Below(random, size + 1));
  return {cuts.begin(), cuts.end()};
}

TEST(MutatedAnswersTest, TellTheSameHoweverTheyAreCutAndKeepTheirOrder) {
  Random random(20261126);
  for (const TranscriptCase& original : TranscriptCases()) {
    const std::vector<std::string> pieces = PiecesOf(*TraitsOf(original).dialect);
    for (int round = 0; round < 40; ++round) {
      TranscriptCase mutant = original;
      mutant.text = Mutated(original.text, pieces, random);
      mutant.is_cut = random() % 2 == 0;
      const std::vector<MarkupEvent> events = EventsOf(mutant, {});
      ExpectInOrder(events, mutant.is_cut, mutant.family + ": " + mutant.text);
      const std::string told = Told(events);
      std::vector<size_t> every;
      for (size_t cut = 1; cut < mutant.text.size(); ++cut) every.push_back(cut);
      EXPECT_EQ(Told(EventsOf(mutant, every)), told) << mutant.family << ": " << mutant.text;
      for (int i = 0; i < 3; ++i) {
        const std::vector<size_t> cuts = RandomCuts(mutant.text.size(), random);
        EXPECT_EQ(Told(EventsOf(mutant, cuts)), told)
            << mutant.family << " cut before " << testing::PrintToString(cuts) << ": "
            << mutant.text;
      }
      if (HasFailure()) return;
    }
  }
}

// A model of one family may write as another: that is content, or a call, and never both.
TEST(MutatedAnswersTest, AnotherFamilysWordsAreReadTheSameHoweverTheyAreCut) {
  const auto& cases = TranscriptCases();
  std::map<std::string, const TranscriptCase*> families;
  for (const TranscriptCase& one : cases) families.emplace(one.family, &one);
  for (const auto& [family, reader] : families) {
    for (const TranscriptCase& writer : cases) {
      if (writer.family == family) continue;
      TranscriptCase mixed = *reader;
      mixed.text = writer.text;
      mixed.is_cut = writer.is_cut;
      const std::vector<MarkupEvent> events = EventsOf(mixed, {});
      ExpectInOrder(events, mixed.is_cut, family + ": " + mixed.text);
      std::vector<size_t> every;
      for (size_t cut = 1; cut < mixed.text.size(); ++cut) every.push_back(cut);
      ASSERT_EQ(Told(EventsOf(mixed, every)), Told(events)) << family << ": " << mixed.text;
    }
  }
}

// What is called without its own end, where the block ends: the block's tag is no content, however
// the text comes.
TEST(MutatedAnswersTest, ABlocksEndEndsTheCallThatIsOpenInIt) {
  struct Case {
    const char* family;
    std::string text, told;
  };
  const std::string mark = "]<]minimax[>[";
  const std::vector<Case> cases = {
      {"minimax_m3",
       mark + "<tool_call>" + mark + "<invoke name=\"get_time\">" + mark + "</tool_call>ok",
       "call 0 get_time: {}\nsay: ok\n"},
      {"minimax_m3",
       mark + "<tool_call>" + mark + "<invoke name=\"get_weather\">" + mark + "<days>2" + mark +
           "</days>\n" + mark + "</tool_call>ok",
       "call 0 get_weather: {\"days\": 2}\nsay: ok\n"},
      {"minimax",
       "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"days\">2</parameter>"
       "\n</minimax:tool_call>ok",
       "call 0 get_weather: {\"days\": 2}\nsay: ok\n"},
      {"qwen3_coder",
       "<tool_call>\n<function=get_weather>\n<parameter=days>\n2\n</parameter>\n</tool_call>ok",
       "call 0 get_weather: {\"days\": 2}\nsay: ok\n"},
      {"kimi",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0"
       "<|tool_call_argument_begin|>{}<|tool_calls_section_end|>ok",
       "call 0 get_time: {}\nsay: ok\n"},
      {"glm", "<tool_call>get_weather<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>ok",
       "call 0 get_weather: {\"days\": 2}\nsay: ok\n"}};
  for (const Case& one : cases) {
    const TranscriptCase transcript{one.family, "", one.text, one.told, "", false};
    EXPECT_EQ(Told(EventsOf(transcript, {})), one.told) << one.family;
    for (size_t cut = 1; cut < one.text.size(); ++cut) {
      ASSERT_EQ(Told(EventsOf(transcript, {cut})), one.told) << one.family << " cut at " << cut;
    }
  }
}

// What comes next is what it was said to be: reasoning where the answer was within reasoning, and
// nowhere else. A budget of reasoning and a structure are counted by that.
TEST(MutatedAnswersTest, WhatIsSaidToBeReasoningIsReasoning) {
  const std::string next = "xyzzy";
  for (const TranscriptCase& transcript : TranscriptCases()) {
    for (size_t size = 0; size <= transcript.text.size(); ++size) {
      AnswerMarkup markup(TraitsOf(transcript));
      std::vector<MarkupEvent> events = markup.Push(transcript.text.substr(0, size));
      const bool is_reasoning = markup.is_reasoning();
      EXPECT_FALSE(is_reasoning && (markup.is_content() || markup.is_before_content()));
      for (const bool is_end : {false, true}) {
        const auto more = is_end ? markup.Finish(/*is_cut=*/true) : markup.Push(next);
        events.insert(events.end(), more.begin(), more.end());
      }
      std::string reasoning;
      for (const MarkupEvent& event : events) {
        if (event.kind == MarkupEvent::Kind::kReasoning) reasoning += event.text;
      }
      ASSERT_EQ(reasoning.find(next) != std::string::npos, is_reasoning)
          << transcript.family << ": " << transcript.text.substr(0, size);
    }
  }
}

// A reader that has seen a call's end holds nothing back: content behind it comes as it is said.
// So does content that only begins as calls do.
TEST(MutatedAnswersTest, BehindACallContentComesAtOnce) {
  const std::string mark = "]<]minimax[>[";
  const std::pair<const char*, std::string> calls[] = {
      {"hermes", "<tool_call>{\"name\": \"get_time\", \"arguments\": {}}</tool_call>"},
      {"qwen3_coder", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>"},
      {"glm", "<tool_call>get_time</tool_call>"},
      {"minimax", "<minimax:tool_call><invoke name=\"get_time\"></invoke></minimax:tool_call>"},
      {"minimax_m3", mark + "<tool_call>" + mark + "<invoke name=\"get_time\">" + mark +
                         "</invoke>" + mark + "</tool_call>"},
      {"kimi",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_time:0"
       "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>"},
      {"gemma4", "<|tool_call>call:get_time{}<tool_call|>"},
      {"nemotron", "<TOOLCALL>[{\"name\": \"get_time\", \"arguments\": {}}]</TOOLCALL>"},
      {"granite", "<|tool_call|>[{\"name\": \"get_time\", \"arguments\": {}}]"},
      {"granite", "<tool_call>[{\"name\": \"get_time\", \"arguments\": {}}]"},
      {"lfm2", "<|tool_call_start|>[get_time()]<|tool_call_end|>"},
      {"lfm2", "<|tool_call_start|>get_time()<|tool_call_end|>"},
      {"pythonic", "[get_time()]"},
      {"pythonic", "<|python_start|>[get_time()]<|python_end|>"},
      {"llama3", "{\"name\": \"get_time\", \"parameters\": {}}"},
      {"mistral", "[TOOL_CALLS]get_time[ARGS]{}"},
      {"mistral_old", "[TOOL_CALLS][{\"name\": \"get_time\", \"arguments\": {}}]"},
      {"deepseek_v31",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_time<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>"},
      {"function_gemma", "<start_function_call>call:get_time{}<end_function_call>"},
      {"seed", "<seed:tool_call><function=get_time></function></seed:tool_call>"},
      {"dsml",
       "<｜DSML｜function_calls><｜DSML｜invoke name=\"get_time\"></｜DSML｜invoke>"
       "</｜DSML｜function_calls>"},
      {"harmony",
       "<|channel|>commentary to=functions.get_time<|message|>{}<|call|><|start|>assistant"
       "<|channel|>final<|message|>"}};
  for (const auto& [family, call] : calls) {
    AnswerMarkup markup(TraitsOf({family, "", "", "", "", false}));
    EXPECT_EQ(Told(markup.Push(call)), "call 0 get_time: {}\n") << family;
    std::string said = Told(markup.Push("That "));
    said += Told(markup.Push("is all"));
    EXPECT_EQ(said, "say: That\nsay:  is all\n") << family;
  }
  for (const char* family : {"pythonic", "llama3"}) {
    for (const char* content : {"[1, 2, 3] is", "[] is", "{1: 2} is", "[<a>] is"}) {
      AnswerMarkup markup(TraitsOf({family, "", "", "", "", false}));
      EXPECT_EQ(Told(markup.Push(content)), std::string("say: ") + content + "\n") << family;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::markup
