// What holds of contexts, spans, queues and tries for every input, tried on many made from seeds.

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agentd/tracing/export_decision.h"
#include "agentd/tracing/otlp_json.h"
#include "agentd/tracing/span_queue.h"
#include "agentd/tracing/trace_context.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string SomeBytes(std::mt19937_64& random, absl::string_view alphabet, size_t most) {
  std::string text;
  for (size_t i = random() % (most + 1); i > 0; --i) text += alphabet[random() % alphabet.size()];
  return text;
}

// --- contexts ------------------------------------------------------------------------------------

// What was passed on once is passed on by the next program as it is: nothing grows on the way.
TEST(TracestateProperty, WhatIsPassedOnIsPassedOnAgainUnchanged) {
  int passed = 0;
  for (uint64_t seed = 1; seed <= 5'000; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> headers;
    for (uint64_t i = 1 + random() % 3; i > 0; --i) {
      std::vector<std::string> members;
      for (uint64_t j = random() % 5; j > 0; --j) {
        members.push_back(absl::StrCat(
            SomeBytes(random, " \t", 1), random() % 40, SomeBytes(random, "abc9@_-*/", 3),
            random() % 40 == 0 ? "" : "=", SomeBytes(random, "xYz019 ~!", 4),
            random() % 40 == 0 ? "" : "v", SomeBytes(random, " \t", 1)));
      }
      headers.push_back(absl::StrJoin(members, ","));
    }
    const std::vector<absl::string_view> views(headers.begin(), headers.end());
    const std::string state = ParseTracestate(views);
    if (state.empty()) continue;
    ++passed;
    EXPECT_EQ(ParseTracestate({state}), state);
    EXPECT_LE(state.size(), kTracestateBytesMax);
    std::set<std::string> keys;
    for (const absl::string_view member : absl::StrSplit(state, ',')) {
      EXPECT_EQ(member, absl::StripAsciiWhitespace(member)) << state;
      EXPECT_TRUE(keys.emplace(member.substr(0, member.find('='))).second) << state;
    }
    // It goes into a header of the gateway's answers and of its calls.
    EXPECT_EQ(state.find_first_of("\r\n"), std::string::npos);
  }
  EXPECT_GT(passed, 500);
}

TEST(TracestateProperty, ItsBoundsAreExact) {
  const auto state_of = [](size_t bytes) {
    // Members of 2 + 200 bytes and a comma, and a last one that fills up.
    std::string state;
    for (char key = 'a'; bytes - state.size() > 258; ++key) {
      absl::StrAppend(&state, std::string(1, key), "=", std::string(200, 'v'), ",");
    }
    return absl::StrCat(state, "z=", std::string(bytes - state.size() - 2, 'w'));
  };
  EXPECT_EQ(ParseTracestate({state_of(kTracestateBytesMax)}), state_of(kTracestateBytesMax));
  EXPECT_EQ(ParseTracestate({state_of(kTracestateBytesMax + 1)}), "");
  EXPECT_EQ(ParseTracestate({"k=" + std::string(256, 'v')}).size(), 258u);
  EXPECT_EQ(ParseTracestate({"k=" + std::string(257, 'v')}), "");
  EXPECT_EQ(ParseTracestate({std::string(256, 'k') + "=v"}).size(), 258u);
  EXPECT_EQ(ParseTracestate({std::string(257, 'k') + "=v"}), "");
  EXPECT_EQ(ParseTracestate({" , ,\t,"}), "") << "members may be empty";
}

// A trace that is sampled at one ratio is sampled by every program with a higher one: else traces
// would be there in part.
TEST(TraceRatioProperty, AHigherRatioKeepsWhatALowerOneKept) {
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    std::mt19937_64 random(seed);
    const std::string id = absl::StrFormat("%016x%016x", random(), random());
    bool before = false;
    for (const double ratio : {0.0, 1e-9, 0.001, 0.01, 0.25, 0.5, 0.9, 0.999999, 1.0}) {
      const bool now = IsInRatio(id, ratio);
      EXPECT_TRUE(now || !before) << id << " left at " << ratio;
      before = now;
    }
    EXPECT_TRUE(before);
    EXPECT_EQ(IsInRatio(id, 0.5), IsInRatio(std::string(16, 'a') + id.substr(16), 0.5))
        << "the first half says nothing";
  }
  for (const double ratio : {-1.0, std::nan(""), 0.0}) {
    EXPECT_FALSE(IsInRatio(std::string(32, '0'), ratio));
  }
  EXPECT_FALSE(IsInRatio("short", 0.5));
  EXPECT_FALSE(IsInRatio(std::string(32, 'x'), 0.5)) << "an id that is none";
}

TEST(TraceContextProperty, WhatWeWriteIsReadBackTheSame) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    const std::string trace = absl::StrFormat("%016x%016x", random(), random() | 1);
    const std::string span = absl::StrFormat("%016x", random() | 1);
    const auto flags = static_cast<uint32_t>(random() % 4);
    const auto read = ParseTraceparent({TraceparentOf(trace, span, flags)});
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->trace_id, trace);
    EXPECT_EQ(read->parent_id, span);
    EXPECT_EQ(read->flags, flags);
    EXPECT_EQ(read->is_sampled(), flags % 2 == 1);
  }
}

// --- spans as JSON -------------------------------------------------------------------------------

json FirstSpan(const Span& span) {
  const json request = json::parse(OtlpJson(TraceSource(), {span}), nullptr, false);
  EXPECT_FALSE(request.is_discarded());
  if (request.is_discarded()) return {};
  return request["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
}

// A rate of something that took no time at all is no number of JSON: the mapping has words for it,
// and null would be an attribute without a value.
TEST(OtlpJsonProperty, NumbersThatJsonLacksAreWords) {
  Span span;
  span.attributes = {{"nan", std::nan("")}, {"inf", HUGE_VAL}, {"less", -HUGE_VAL}, {"one", 1.0}};
  const json attributes = FirstSpan(span)["attributes"];
  EXPECT_EQ(attributes[0]["value"]["doubleValue"], "NaN");
  EXPECT_EQ(attributes[1]["value"]["doubleValue"], "Infinity");
  EXPECT_EQ(attributes[2]["value"]["doubleValue"], "-Infinity");
  EXPECT_EQ(attributes[3]["value"]["doubleValue"], 1.0);
}

TEST(OtlpJsonProperty, LargeIntegersKeepEveryDigit) {
  Span span;
  span.begin_unix_ns = std::numeric_limits<int64_t>::max();
  span.end_unix_ns = std::numeric_limits<int64_t>::min();
  span.attributes = {{"most", std::numeric_limits<int64_t>::max()},
                     {"least", std::numeric_limits<int64_t>::min()}};
  const json told = FirstSpan(span);
  EXPECT_EQ(told["startTimeUnixNano"], "9223372036854775807");
  EXPECT_EQ(told["endTimeUnixNano"], "-9223372036854775808");
  EXPECT_EQ(told["attributes"][0]["value"]["intValue"], "9223372036854775807");
  EXPECT_EQ(told["attributes"][1]["value"]["intValue"], "-9223372036854775808");
}

TEST(OtlpJsonProperty, BytesOfEveryKindAreJsonAndUtf8) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto bytes = [&random] {
      std::string text;
      for (uint64_t i = random() % 12; i > 0; --i) text += static_cast<char>(random() % 256);
      return text;
    };
    Span span;
    span.name = bytes();
    span.status = SpanStatus::kError;
    span.status_text = bytes();
    span.trace_state = bytes();
    span.attributes = {{bytes(), bytes()}, {bytes(), std::vector<std::string>{bytes(), bytes()}}};
    span.events = {{1, bytes(), {{bytes(), bytes()}}}};
    const TraceSource source = TraceSourceOf(bytes(), bytes(), bytes());
    const std::string text = OtlpJson(source, {span, span});
    const json read = json::parse(text, nullptr, false);
    ASSERT_FALSE(read.is_discarded()) << "seed " << seed;
    EXPECT_EQ(FirstNonUtf8(text), text.size());
    EXPECT_EQ(read["resourceSpans"][0]["scopeSpans"][0]["spans"].size(), 2u);
    EXPECT_EQ(text.find('\n'), std::string::npos);
  }
}

// What a collector says goes into a line of the log and into an alert.
TEST(PartialSuccessProperty, AReasonIsCutBetweenCharacters) {
  for (size_t before = 0; before < 8; ++before) {
    std::string why(before, 'a');
    while (why.size() < 600) why += "日";
    const json body = {{"partialSuccess", {{"rejectedSpans", "1"}, {"errorMessage", why}}}};
    const PartialSuccess read = ReadPartialSuccess(body.dump());
    EXPECT_EQ(FirstNonUtf8(read.why), read.why.size()) << before;
    EXPECT_LE(read.why.size(), 256u);
    EXPECT_GT(read.why.size(), 252u);
    EXPECT_TRUE(absl::StartsWith(why, read.why));
  }
}

TEST(PartialSuccessProperty, AnythingMayBeAnswered) {
  const std::string whole = R"({"partialSuccess":{"rejectedSpans":"12","errorMessage":"too old"}})";
  for (uint64_t seed = 1; seed <= 3'000; ++seed) {
    std::mt19937_64 random(seed);
    std::string body = whole;
    for (int i = 0; i < 3; ++i) body[random() % body.size()] = static_cast<char>(random() % 256);
    body.resize(random() % (body.size() + 1));
    const PartialSuccess read = ReadPartialSuccess(body);
    EXPECT_LE(read.why.size(), 256u);
  }
  EXPECT_EQ(ReadPartialSuccess(std::string(100'000, '[')).rejected, 0u);
  EXPECT_EQ(
      ReadPartialSuccess(R"({"partialSuccess":{"rejectedSpans":"18446744073709551615"}})").rejected,
      UINT64_MAX);
}

// --- the queue -----------------------------------------------------------------------------------

// Against a list of requests: whole ones in their order, never more than there is place for.
TEST(SpanQueueProperty, GivesWhatItTookInOrderAndWhole) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const size_t places = 1 + random() % 40;
    SpanQueue queue(places);
    std::deque<std::vector<Span>> model;
    size_t held = 0;
    for (int step = 0; step < 200; ++step) {
      if (random() % 3 > 0) {
        std::vector<Span> spans(random() % 12);
        for (Span& span : spans) span.name = absl::StrCat(step);
        const bool fits = held + spans.size() <= places;
        EXPECT_EQ(queue.Add(spans), fits) << "seed " << seed;
        if (fits && !spans.empty()) {
          held += spans.size();
          model.push_back(spans);
        }
      } else {
        const size_t most = random() % 20;
        const std::vector<Span> taken = queue.Take(most);
        std::vector<std::string> expected;
        while (!model.empty() &&
               (expected.empty() || expected.size() + model.front().size() <= most)) {
          for (const Span& span : model.front()) expected.push_back(span.name);
          held -= model.front().size();
          model.pop_front();
        }
        ASSERT_EQ(taken.size(), expected.size()) << "seed " << seed;
        for (size_t i = 0; i < taken.size(); ++i) EXPECT_EQ(taken[i].name, expected[i]);
      }
      EXPECT_EQ(queue.size(), held);
      EXPECT_EQ(queue.empty(), model.empty());
    }
  }
}

// --- tries ---------------------------------------------------------------------------------------

// However a collector answers, tries end, and no pause is beyond its bounds.
TEST(ExportProperty, TriesAreBoundedAndPausesToo) {
  using Kind = ExportDecision::Kind;
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    std::mt19937_64 random(seed);
    ExportLimits limits;
    limits.tries = 1 + static_cast<int>(random() % 8);
    limits.first_pause = milliseconds(1 + random() % 3'000);
    limits.pause_max = limits.first_pause + milliseconds(random() % 20'000);
    int tries = 0;
    ExportDecision decision;
    do {
      TryOutcome outcome;
      outcome.http_status = static_cast<int>(random() % 7 == 0 ? random() % 600 : 503);
      if (random() % 3 == 0) {
        outcome.retry_after = seconds(static_cast<int64_t>(random() % 200'000) - 100'000);
      }
      const double chance = std::uniform_real_distribution<>(-1, 2)(random);
      decision = DecideExport(outcome, ++tries, chance, limits);
      if (decision.kind != Kind::kAgain) break;
      EXPECT_GE(decision.pause, Duration(0));
      EXPECT_LE(decision.pause, limits.pause_max);
      if (!outcome.retry_after.has_value()) {
        EXPECT_GE(decision.pause, limits.first_pause / 2) << "nobody is asked without a pause";
      }
    } while (tries < 100);
    EXPECT_LE(tries, limits.tries) << "seed " << seed;
  }
}

}  // namespace
}  // namespace macrame::agentd
