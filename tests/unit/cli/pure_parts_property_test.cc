// clusterctl's pure parts at random: figures of a benchmark against a clock that ticks each
// millisecond, documents against a reader of YAML, lengths of time, lines of a conversation.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/chat_session.h"
#include "cli/duration.h"
#include "cli/format/bench_statistics.h"
#include "cli/format/message_json.h"

namespace macrame::cli {
namespace {

using Random = std::mt19937_64;

// --- benchmarks ----------------------------------------------------------------------------------

BenchSample SomeSample(Random& random) {
  BenchSample sample;
  sample.sent_ms = static_cast<double>(random() % 500);
  sample.ended_ms = sample.sent_ms;
  if (random() % 6 == 0) {
    sample.error = absl::StrCat("error ", random() % 3);
    sample.ended_ms += static_cast<double>(random() % 50);
    return sample;
  }
  sample.first_token_ms = sample.sent_ms + static_cast<double>(random() % 200);
  sample.ended_ms = sample.first_token_ms;
  sample.prompt_tokens = 10 + random() % 100;
  sample.cached_tokens = random() % 120;  // an agent may say more than there are
  sample.completion_tokens = 1 + random() % 8;
  sample.first_tokens = 1 + random() % sample.completion_tokens;
  for (uint32_t i = sample.first_tokens; i < sample.completion_tokens; ++i) {
    sample.ended_ms += static_cast<double>(random() % 40);
  }
  sample.last_token_ms = sample.ended_ms;
  return sample;
}

// Milliseconds in which one of the intervals runs, counted one by one.
template <typename Interval>
double CountMs(const std::vector<BenchSample>& samples, const Interval& of) {
  std::set<int> running;
  for (const BenchSample& sample : samples) {
    if (!sample.error.empty()) continue;
    const auto [from, to] = of(sample);
    for (int ms = static_cast<int>(from); ms < static_cast<int>(to); ++ms) running.insert(ms);
  }
  return static_cast<double>(running.size());
}

double PerSecond(double tokens, double ms) { return ms > 0 ? tokens * 1000 / ms : 0; }

TEST(BenchStatisticsProperty, RatesAreThoseOfAClockThatTicks) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<BenchSample> samples(random() % 12);
    for (BenchSample& sample : samples) sample = SomeSample(random);
    const BenchRow row = Summarize({4, 64, 8}, samples);
    double computed = 0, decoded = 0;
    uint32_t errors = 0;
    std::vector<double> waits;
    for (const BenchSample& sample : samples) {
      errors += !sample.error.empty();
      if (!sample.error.empty()) continue;
      if (sample.cached_tokens < sample.prompt_tokens) {
        computed += sample.prompt_tokens - sample.cached_tokens;
      }
      decoded += sample.completion_tokens - 1;
      waits.push_back(sample.first_token_ms - sample.sent_ms);
    }
    ASSERT_EQ(row.requests, samples.size()) << "seed " << seed;
    ASSERT_EQ(row.errors, errors);
    ASSERT_EQ(row.first_error.empty(), errors == 0);
    const double waiting_ms = CountMs(
        samples, [](const auto& one) { return std::pair(one.sent_ms, one.first_token_ms); });
    const double answering_ms = CountMs(
        samples, [](const auto& one) { return std::pair(one.first_token_ms, one.ended_ms); });
    ASSERT_NEAR(row.prefill_rate, PerSecond(computed, waiting_ms), 1e-6) << "seed " << seed;
    ASSERT_NEAR(row.decode_rate, PerSecond(decoded, answering_ms), 1e-6) << "seed " << seed;
    const double longest = waits.empty() ? 0 : *std::max_element(waits.begin(), waits.end());
    ASSERT_EQ(row.ttft_max_ms, longest);
    // No answer takes less for a token than the quickest, and none more than all of its time.
    ASSERT_GE(row.tpot_p50_ms, 0);
    ASSERT_LE(row.tpot_p50_ms, row.tpot_p95_ms);
    ASSERT_LE(row.tpot_p95_ms, 40);
    ASSERT_LE(row.ttft_p50_ms, row.ttft_p95_ms);
    ASSERT_LE(row.ttft_p95_ms, row.ttft_max_ms);
  }
}

TEST(BenchStatisticsProperty, AQuantileIsExceededByNoMoreThanItsShare) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> values(1 + random() % 30);
    for (double& value : values) value = static_cast<double>(random() % 20);
    for (const double share : {0.0, 0.01, 0.5, 0.95, 0.99, 1.0, -1.0, 7.0}) {
      const double quantile = QuantileOf(values, share);
      ASSERT_NE(std::find(values.begin(), values.end(), quantile), values.end());
      const double bounded = std::clamp(share, 0.0, 1.0);
      const auto size = static_cast<double>(values.size());
      const auto within = static_cast<double>(
          std::count_if(values.begin(), values.end(), [&](double one) { return one <= quantile; }));
      const auto below = static_cast<double>(
          std::count_if(values.begin(), values.end(), [&](double one) { return one < quantile; }));
      ASSERT_GE(within + 1e-9, bounded * size);
      ASSERT_LE(below, bounded * size) << "a smaller value would have done";
    }
  }
}

TEST(BenchPromptProperty, HasTheWordsAskedForAndSharesTheFirstOfThemAlone) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    const auto words = static_cast<uint32_t>(1 + random() % 60);
    const auto shared = static_cast<uint32_t>(random() % 70);
    const uint64_t seed = random();
    const uint64_t number = random() % 1000;
    const std::vector<std::string> one =
        absl::StrSplit(BenchPrompt(seed, number, words, shared), ' ');
    const std::vector<std::string> other =
        absl::StrSplit(BenchPrompt(seed, number + 1, words, shared), ' ');
    ASSERT_EQ(one.size(), words);
    ASSERT_EQ(other.size(), words);
    const size_t alike = static_cast<size_t>(
        std::mismatch(one.begin(), one.end(), other.begin()).first - one.begin());
    ASSERT_EQ(alike, std::min(words, shared));
    EXPECT_EQ(absl::StrJoin(one, " "), BenchPrompt(seed, number, words, shared))
        << "it is the same on every machine";
  }
}

// --- documents -----------------------------------------------------------------------------------

Json SomeJson(Random& random, int depth) {
  const char* texts[] = {"",      "plain", "a: b", "- x",       "#no",      "null", "yes",  "1.5",
                         "\"q\"", "\\n",   "\n\n", "tab\there", "{a}: [b]", " ",    "é中🚀", "\x01"};
  switch (random() % (depth > 0 ? 8 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return random() % 100000;
    case 3:
    case 4:
      return texts[random() % std::size(texts)];
    case 5:
    case 6: {
      Json object = Json::object();
      for (uint64_t n = random() % 4; n > 0; --n) {
        object[absl::StrCat("field_", n)] = SomeJson(random, depth - 1);
      }
      return object;
    }
    default: {
      Json list = Json::array();
      for (uint64_t n = random() % 4; n > 0; --n) list.push_back(SomeJson(random, depth - 1));
      return list;
    }
  }
}

// A reader of YAML finds what was written.
void ExpectSame(const YAML::Node& read, const Json& written, const std::string& text) {
  if (written.is_object()) {
    ASSERT_TRUE(read.IsMap()) << text;
    ASSERT_EQ(read.size(), written.size()) << text;
    for (const auto& [name, value] : written.items()) ExpectSame(read[name], value, text);
  } else if (written.is_array()) {
    ASSERT_TRUE(read.IsSequence()) << text;
    ASSERT_EQ(read.size(), written.size()) << text;
    for (size_t i = 0; i < written.size(); ++i) ExpectSame(read[i], written[i], text);
  } else if (written.is_null()) {
    ASSERT_TRUE(read.IsNull()) << text;
  } else if (written.is_string()) {
    ASSERT_EQ(read.as<std::string>(), written.get<std::string>()) << text;
    ASSERT_EQ(read.Tag(), "!") << "a text that reads as something else: " << text;
  } else if (written.is_boolean()) {
    ASSERT_EQ(read.as<bool>(), written.get<bool>()) << text;
  } else {
    ASSERT_EQ(read.as<uint64_t>(), written.get<uint64_t>()) << text;
  }
}

TEST(YamlProperty, AnyDocumentIsReadAsItWasWritten) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    Json document = Document("Test");
    document["body"] = SomeJson(random, 4);
    const std::string text = ToYamlText(document);
    ExpectSame(YAML::Load(text), document, text);
    ASSERT_EQ(Json::parse(ToJsonText(document)), document);
    ASSERT_EQ(Json::parse(ToJsonText(document, true)), document);
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(YamlProperty, TextThatIsNoUtf8MakesADocumentAllTheSame) {
  Json document = Document("Test");
  document["name"] =
      "a\xff"
      "b";
  EXPECT_TRUE(Json::accept(ToJsonText(document)));
  EXPECT_EQ(YAML::Load(ToYamlText(document))["name"].as<std::string>(),
            "a\xEF\xBF\xBD"
            "b");
}

// --- lengths of time -----------------------------------------------------------------------------

TEST(DurationProperty, EachNumberAndUnitWithinTheLimitIsThatLong) {
  const std::pair<const char*, int64_t> units[] = {
      {"ms", 1}, {"", 1000}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    const int64_t count = static_cast<int64_t>(random() % (uint64_t{1} << (random() % 60)));
    for (const auto& [unit, factor] : units) {
      for (const std::chrono::hours most : {kDurationMax, kLongDurationMax}) {
        const auto read = ParseDuration(absl::StrCat(count, unit), most);
        const int64_t limit = std::chrono::milliseconds(most).count();
        const bool is_allowed = count > 0 && count <= limit / factor;
        ASSERT_EQ(read.has_value(), is_allowed) << count << unit;
        if (is_allowed) {
          ASSERT_EQ(read->count(), count * factor);
        }
      }
    }
  }
}

TEST(Duration, WhatIsAlmostALengthIsNone) {
  for (const char* odd : {" 5s", "5s ", "5S", "5 m", "+5s", "0x10", "1e3", "5min", "5sm", "٥s",
                          "5\0s", "1_000", "1,5s"}) {
    EXPECT_FALSE(ParseDuration(odd).has_value() && std::string(odd) != "5") << odd;
  }
  EXPECT_EQ(ParseDuration("007s")->count(), 7000);
}

// --- lines of a conversation ---------------------------------------------------------------------

TEST(ChatLinesProperty, EveryLineEndsUpInOneQuestion) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    ChatLines lines;
    std::string typed, asked;
    for (int i = 0; i < 60; ++i) {
      const std::string word = absl::StrCat("w", i);
      typed += word;
      const char* shapes[] = {"$", "\"\"\"$", "$\"\"\"", "\"\"\"$\"\"\"", "$\\", "  $  "};
      std::string line = shapes[random() % std::size(shapes)];
      line.replace(line.find('$'), 1, word);
      const auto question = lines.Add(line);
      ASSERT_EQ(question.has_value(), !lines.is_open());
      if (question.has_value()) asked += *question + " ";
    }
    // Whatever is open is closed so.
    if (lines.is_open()) {
      auto last = lines.Add("");
      if (!last.has_value()) last = lines.Add("\"\"\"");
      ASSERT_TRUE(last.has_value());
      asked += *last;
    }
    std::erase_if(asked, [](char c) { return c == ' ' || c == '\n' || c == '"' || c == '\\'; });
    ASSERT_EQ(asked, typed) << "seed " << seed;
  }
}

TEST(ChatSessionProperty, ARequestIsTheSystemTheTurnsInOrderAndTheQuestion) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    ChatSession session("m", {});
    std::string system;
    std::vector<std::pair<std::string, std::string>> turns;
    for (int step = 0; step < 60; ++step) {
      const std::string text = absl::StrCat("text ", step);
      switch (random() % 6) {
        case 0:
          system = random() % 2 == 0 ? text : "";
          session.Command(absl::StrCat("/system ", system));
          break;
        case 1:
          EXPECT_EQ(session.ForgetOldest(), !turns.empty());
          if (!turns.empty()) turns.erase(turns.begin());
          break;
        case 2:
          if (random() % 4 != 0) break;
          session.Command("/clear");
          turns.clear();
          break;
        default: {
          const bool has_answer = random() % 4 != 0;
          session.NoteAnswer(text, has_answer ? "yes" : "");
          if (has_answer) turns.emplace_back(text, "yes");
        }
      }
      std::vector<std::string> expected;
      if (!system.empty()) expected.push_back("system: " + system);
      for (const auto& [question, answer] : turns) {
        expected.push_back("user: " + question);
        expected.push_back("assistant: " + answer);
      }
      expected.emplace_back("user: now?");
      std::vector<std::string> found;
      const v1::GenerateRequest request = session.Request("now?");
      for (const v1::ChatMessage& message : request.messages()) {
        found.push_back(absl::StrCat(message.role(), ": ", message.content()));
      }
      ASSERT_EQ(found, expected) << "seed " << seed << ", step " << step;
    }
  }
}

struct Setting {
  const char* typed;
  bool is_taken;
};

TEST(ChatSession, SettingsAtAndBeyondTheirLimits) {
  const Setting settings[] = {{"temperature 0", true},      {"temperature 2", true},
                              {"temperature 2.01", false},  {"temperature -0.1", false},
                              {"temperature nan", false},   {"temperature inf", false},
                              {"temperature 1e-9", true},   {"top_p 1", true},
                              {"top_p 1.5", false},         {"min_p 0", true},
                              {"min_p -1", false},          {"top_k 0", true},
                              {"top_k 1.5", false},         {"top_k 4294967296", false},
                              {"max_tokens 1", true},       {"max_tokens 0", false},
                              {"max_tokens default", true}, {"seed 0", true},
                              {"seed -1", false},           {"seed 99999999999999999999", false},
                              {"thinking on", true},        {"thinking ON", false},
                              {"thinking maybe", false},    {"temperature \x1b[2J", false}};
  for (const Setting& setting : settings) {
    ChatSession session("m", {});
    const ChatSession::Outcome outcome = session.Command(absl::StrCat("/set ", setting.typed));
    EXPECT_EQ(outcome.told.empty(), setting.is_taken) << setting.typed << ": " << outcome.told;
    EXPECT_EQ(outcome.told.find('\x1b'), std::string::npos);
    EXPECT_FALSE(outcome.is_over);
    if (setting.is_taken) continue;
    const v1::GenerateRequest request = session.Request("x");
    EXPECT_EQ(request.max_tokens(), 0u) << setting.typed;
    EXPECT_EQ(request.sampling().ByteSizeLong(), 0u) << setting.typed << " is in force";
  }
}

}  // namespace
}  // namespace macrame::cli
