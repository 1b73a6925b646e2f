// Whole answers over many seeds: what is given out, when it ends and what is counted, against a
// plain look at all of the text.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/sampling/stop_matcher.h"

namespace macrame::runtime::engine {
namespace {

using Random = std::mt19937_64;
using markup::MarkupEvent;

constexpr int32_t kEnd = 99;

// Tokens are pieces of up to three letters, of a few letters so that they repeat.
std::vector<std::string> RandomVocabulary(Random& random) {
  std::vector<std::string> pieces(12);
  for (std::string& piece : pieces) {
    for (size_t i = 1 + random() % 3; i > 0; --i) piece += static_cast<char>('a' + random() % 3);
  }
  return pieces;
}

std::vector<std::string> RandomStops(Random& random) {
  std::vector<std::string> stops(random() % 4);
  for (std::string& stop : stops) {
    for (size_t i = 1 + random() % 5; i > 0; --i) stop += static_cast<char>('a' + random() % 3);
  }
  return stops;
}

TextStream StreamOf(const std::vector<std::string>& pieces) {
  return {[pieces](int32_t token) { return pieces[static_cast<size_t>(token)]; },
          [] { return std::string(); }};
}

// The stop string that is whole first within a text, the longest where several end there.
struct Stop {
  size_t at = std::string::npos;
  std::string text;
};
Stop FirstStop(const std::string& text, const std::vector<std::string>& stops) {
  Stop first;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size(), first_end = first.at + first.text.size();
    const bool is_longer = end == first_end && stop.size() > first.text.size();
    if (first.text.empty() || end < first_end || is_longer) first = {at, stop};
  }
  return first;
}

struct Whole {
  std::string text, stop;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  uint32_t tokens = 0;
};

// What the answer to these tokens ought to be.
Whole Expected(const std::vector<int32_t>& tokens, const std::vector<std::string>& pieces,
               const std::vector<std::string>& stops, const GenerationLimits& limits) {
  Whole whole;
  std::string before, text;  // of the first min_tokens tokens, and behind them
  for (const int32_t token : tokens) {
    ++whole.tokens;
    if (token == kEnd) {
      whole.finish = v1::FINISH_REASON_STOP;
      break;
    }
    const bool is_early = whole.tokens <= limits.min_tokens;
    (is_early ? before : text) += pieces[static_cast<size_t>(token)];
    const Stop stop = FirstStop(text, stops);
    if (stop.at != std::string::npos) {
      text.resize(stop.at);
      whole.stop = stop.text;
      whole.finish = v1::FINISH_REASON_STOP;
      break;
    }
    const bool is_full = limits.prompt_tokens + whole.tokens >= limits.context_length;
    if ((limits.max_tokens > 0 && whole.tokens >= limits.max_tokens) || is_full) {
      whole.finish = v1::FINISH_REASON_LENGTH;
      break;
    }
  }
  whole.text = before + text;
  return whole;
}

TEST(GenerationProperty, AnAnswerIsItsTextUpToWhatEndsIt) {
  int stopped = 0, cut = 0, ended = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const std::vector<std::string> pieces = RandomVocabulary(random);
    const std::vector<std::string> stops = RandomStops(random);
    GenerationLimits limits;
    limits.prompt_tokens = static_cast<uint32_t>(random() % 5);
    limits.max_tokens = random() % 2 == 0 ? 0 : 1 + static_cast<uint32_t>(random() % 20);
    limits.context_length = limits.prompt_tokens + 1 + static_cast<uint32_t>(random() % 24);
    limits.end_tokens = {kEnd};
    limits.min_tokens = random() % 3 == 0 ? static_cast<uint32_t>(random() % 6) : 0;
    std::vector<int32_t> tokens;
    for (int i = 0; i < 30; ++i) {
      const bool may_end = tokens.size() >= limits.min_tokens;
      tokens.push_back(
          may_end && random() % 20 == 0 ? kEnd : static_cast<int32_t>(random() % pieces.size()));
    }
    const Whole expected = Expected(tokens, pieces, stops, limits);
    Generation generation(limits, {}, stops, StreamOf(pieces));
    Whole told;
    std::string of_events;
    for (const int32_t token : tokens) {
      const Generation::Outcome outcome = generation.Take(token);
      EXPECT_EQ(outcome.token, token);
      told.text += outcome.text;
      for (const MarkupEvent& event : outcome.events) of_events += event.text;
      told.finish = outcome.finish;
      EXPECT_EQ(outcome.at_stop_string, !generation.stop_string().empty());
      EXPECT_EQ(generation.given_bytes(), told.text.size());
      EXPECT_EQ(generation.position(), limits.prompt_tokens + generation.completion_tokens());
      if (outcome.finish != v1::FINISH_REASON_UNSPECIFIED) break;
      // What is held back may be the beginning of a stop string: it is shorter than the longest.
      EXPECT_TRUE(expected.text.starts_with(told.text)) << "seed " << seed;
    }
    told.tokens = generation.completion_tokens();
    told.stop = generation.stop_string();
    EXPECT_EQ(told.text, expected.text) << "seed " << seed;
    EXPECT_EQ(of_events, told.text) << "seed " << seed;
    EXPECT_EQ(told.finish, expected.finish) << "seed " << seed;
    EXPECT_EQ(told.tokens, expected.tokens) << "seed " << seed;
    EXPECT_EQ(told.stop, expected.stop) << "seed " << seed;
    stopped += expected.stop.empty() ? 0 : 1;
    cut += expected.finish == v1::FINISH_REASON_LENGTH ? 1 : 0;
    ended += expected.finish == v1::FINISH_REASON_STOP && expected.stop.empty() ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(stopped, 200);
  EXPECT_GT(cut, 200);
  EXPECT_GT(ended, 200);
}

// Text is held back no longer than it may be the beginning of a stop string.
TEST(StopMatcherProperty, WhatIsHeldBackMayBecomeAStopString) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const std::vector<std::string> pieces = RandomVocabulary(random);
    const std::vector<std::string> stops = RandomStops(random);
    StopMatcher matcher(stops);
    std::string text, given;
    for (int i = 0; i < 20 && !matcher.stopped(); ++i) {
      const std::string& piece = pieces[random() % pieces.size()];
      text += piece;
      given += matcher.Push(piece);
      ASSERT_TRUE(text.starts_with(given));
      if (matcher.stopped()) break;
      const std::string held = text.substr(given.size());
      const bool may_begin =
          held.empty() || std::any_of(stops.begin(), stops.end(), [&held](const std::string& stop) {
            return stop.size() > held.size() && stop.starts_with(held);
          });
      EXPECT_TRUE(may_begin) << held << " is held back, seed " << seed;
    }
    if (matcher.stopped()) {
      EXPECT_EQ(given + matcher.found(), text.substr(0, given.size() + matcher.found().size()));
      EXPECT_EQ(matcher.Push("abc"), "") << "nothing more is given out";
      EXPECT_EQ(matcher.Finish(), "");
    } else {
      EXPECT_EQ(given + matcher.Finish(), text);
      EXPECT_TRUE(matcher.found().empty());
    }
  }
}

// What a model says is one text, however it is cut into tokens.
TEST(StopMatcherProperty, EveryCutOfATextStopsAtOnePlace) {
  int stopped = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const std::vector<std::string> stops = RandomStops(random);
    std::string text;
    for (int i = 0; i < 12; ++i) text += static_cast<char>('a' + random() % 3);
    StopMatcher whole(stops), cut(stops);
    std::string expected = whole.Push(text);
    expected += whole.Finish();
    std::string given;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 5;
      given += cut.Push(std::string_view(text).substr(at, size));
      at += size;
    }
    given += cut.Finish();
    EXPECT_EQ(given, expected) << text << ", seed " << seed;
    EXPECT_EQ(cut.found(), whole.found()) << text << ", seed " << seed;
    stopped += whole.stopped() ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(stopped, 500);
}

// The same answer with its reasoning and calls: stop strings count in content alone, whatever
// pieces the text comes in.
TEST(GenerationProperty, StopStringsCountInContentAloneHoweverTheTextIsCut) {
  markup::MarkupTraits traits;
  traits.dialect = std::make_shared<const markup::Dialect>(markup::ChooseDialect(
      "tools <tool_call> <think> </think>", [](std::string_view) { return false; }));
  traits.tools = std::make_shared<const markup::ToolSet>("[]");
  const std::string call =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \"END\"}}</tool_call>";
  const struct {
    std::string text, content, reasoning;
    uint32_t calls;
    bool stops;
  } cases[] = {{"<think>END</think>one END two", "one ", "END", 0, true},
               {"<think>END</think>one " + call + "EN",
                "one"
                "EN",
                "END", 1, false},
               {"one EN" + call + "D two", "one END two", "", 1, false},
               {call + call + "END", "", "", 2, true},
               {"<think>a</think>EN <think>END", "EN <think>", "a", 0, true},
               {"END", "", "", 0, true},
               {"<think>never closed END", "", "never closed END", 0, false}};
  Random random(11);
  for (const auto& one : cases) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::string> pieces;
      for (size_t at = 0; at < one.text.size();) {
        const size_t size = round == 0 ? one.text.size() : 1 + random() % 7;
        pieces.push_back(one.text.substr(at, size));
        at += size;
      }
      GenerationLimits limits;
      limits.context_length = 1000;
      limits.end_tokens = {kEnd + 1000};
      AnswerShape shape;
      shape.markup = traits;
      Generation generation(limits, {}, {"END"}, StreamOf(pieces), shape);
      std::string content, reasoning;
      uint32_t calls = 0;
      Generation::Outcome outcome;
      for (size_t i = 0; i <= pieces.size(); ++i) {
        outcome = generation.Take(i < pieces.size() ? static_cast<int32_t>(i) : kEnd + 1000);
        for (const MarkupEvent& event : outcome.events) {
          if (event.kind == MarkupEvent::Kind::kContent) content += event.text;
          if (event.kind == MarkupEvent::Kind::kReasoning) reasoning += event.text;
          calls += event.kind == MarkupEvent::Kind::kCallEnd ? 1 : 0;
        }
        if (outcome.finish != v1::FINISH_REASON_UNSPECIFIED) break;
      }
      EXPECT_EQ(content, one.content) << one.text;
      EXPECT_EQ(reasoning, one.reasoning) << one.text;
      EXPECT_EQ(calls, one.calls) << one.text;
      EXPECT_EQ(outcome.at_stop_string, one.stops) << one.text;
      EXPECT_EQ(outcome.finish, v1::FINISH_REASON_STOP) << one.text;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
