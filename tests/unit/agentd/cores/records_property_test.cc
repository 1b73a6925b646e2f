// What is told and kept of a stream that others make: log lines, refused requests, events of
// several agents, beginnings of prompts. Nothing is lost without being counted, and all is bounded.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "agentd/cores/audit_chain.h"
#include "agentd/cores/event_log.h"
#include "agentd/cores/log_guard.h"
#include "agentd/cores/prefix_affinity.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Random = std::mt19937_64;

const MonotonicTime kStart = MonotonicTime() + std::chrono::hours(1);

// --- log lines -----------------------------------------------------------------------------------

// The number before `words`; 0 where they are not said.
uint64_t CountBefore(const std::string& line, const std::string& words) {
  const size_t at = line.find(words);
  if (at == std::string::npos) return 0;
  const size_t begin = line.find_last_not_of("0123456789", at - 1) + 1;
  uint64_t count = 0;
  EXPECT_TRUE(absl::SimpleAtoi(line.substr(begin, at - begin), &count)) << line;
  return count;
}

uint64_t LeftOut(const std::string& line) {
  return CountBefore(line, " lines like this one were left out") +
         CountBefore(line, " other lines were left out");
}

// A word for each number, of letters that are no hex digits.
std::string Word(size_t number) {
  std::string word;
  do {
    word.push_back(static_cast<char>('g' + number % 16));
    number /= 16;
  } while (number > 0);
  return word;
}

TEST(LogGuardProperty, EachLineIsWrittenOrCounted) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    LogGuard guard;
    MonotonicTime now = kStart;
    const size_t kinds = size_t{1} << (random() % 10);
    const uint64_t pause_ms = uint64_t{1} << (random() % 8);
    uint64_t written = 0, counted = 0;
    constexpr uint64_t kLines = 20'000;
    for (uint64_t i = 0; i < kLines; ++i) {
      now += milliseconds(random() % pause_ms);
      if (random() % 4000 == 0) now += seconds(random() % 150);
      const auto line = guard.Take("host " + Word(random() % kinds) + " is away", now);
      if (!line.has_value()) continue;
      ++written;
      counted += LeftOut(*line);
    }
    // A minute of silence, then the rest is told.
    for (int i = 0; i < 3; ++i) {
      now += kLogWindow + seconds(1);
      const auto line = guard.Take("the end", now);
      ASSERT_TRUE(line.has_value()) << "seed " << seed;
      counted += LeftOut(*line);
    }
    EXPECT_EQ(written + counted, kLines) << "seed " << seed << ", kinds " << kinds;
  }
}

TEST(LogGuardProperty, NoMinuteHasMoreThanItsShare) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    LogGuard guard;
    MonotonicTime now = kStart;
    std::map<std::string, std::vector<MonotonicTime>> of_kind;
    std::vector<MonotonicTime> of_all;
    for (int i = 0; i < 30'000; ++i) {
      now += milliseconds(random() % 12);
      const std::string name = "host " + Word(random() % 90);
      if (!guard.Take(name, now).has_value()) continue;
      of_kind[name].push_back(now);
      of_all.push_back(now);
    }
    // Two windows may meet in one minute.
    const auto expect_bounded = [](const std::vector<MonotonicTime>& times, size_t most) {
      for (size_t i = 2 * most; i < times.size(); ++i) {
        ASSERT_GE(times[i] - times[i - 2 * most], kLogWindow);
      }
    };
    for (const auto& [name, times] : of_kind) expect_bounded(times, kLinesPerKindMax);
    expect_bounded(of_all, kLinesMax);
  }
}

TEST(LogGuardProperty, OfAnyBytesALineIsOneLineOfText) {
  Random random(3);
  LogGuard guard;
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    const size_t size = random() % 40;
    for (size_t n = 0; n < size; ++n) text.push_back(static_cast<char>(random() % 256));
    const auto line = guard.Take(text, kStart + seconds(i * 61));
    ASSERT_TRUE(line.has_value());
    EXPECT_EQ(FirstNonUtf8(*line), line->size());
    const bool steers = std::any_of(line->begin(), line->end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
    });
    EXPECT_FALSE(steers) << *line;
  }
}

TEST(LogGuardProperty, ALongLineIsCutAtACharactersEnd) {
  for (size_t before = 0; before < 4; ++before) {
    std::string text(before, 'x');
    for (int i = 0; i < 3000; ++i) text += "\xE4\xB8\xAD";
    const std::string line = EscapeLine(text);
    EXPECT_EQ(FirstNonUtf8(line), line.size());
    EXPECT_LE(line.size(), kLineBytesMax + 8);
    EXPECT_TRUE(absl::EndsWith(line, "…"));
  }
}

TEST(AuditThrottleProperty, EachRefusalHasALineOrIsCountedInTheNext) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    AuditThrottle throttle;
    MonotonicTime now = kStart;
    uint64_t lines = 0, left_out = 0;
    for (int i = 0; i < 3000; ++i) {
      now += milliseconds(random() % 3000);
      const auto before = throttle.Take(now);
      lines += before.has_value();
      left_out += before.value_or(0);
    }
    const auto last = throttle.Take(now + std::chrono::minutes(1));
    ASSERT_TRUE(last.has_value());
    EXPECT_EQ(lines + left_out + *last, 3000u) << "seed " << seed;
  }
}

// --- events --------------------------------------------------------------------------------------

struct Happened {
  uint64_t at_unix_ms;
  std::string subject;
};

// Events of few subjects, each of which happens again after longer than two agents differ by.
std::vector<Happened> SomeEvents(Random& random) {
  std::vector<Happened> events;
  std::map<std::string, uint64_t> last;
  uint64_t now = 1'790'000'000'000;
  for (int i = 0; i < 60; ++i) {
    now += random() % 9000;
    const std::string subject = absl::StrCat("model", random() % 5);
    const auto before = last.find(subject);
    if (before != last.end() && now - before->second < 30'000) continue;
    last[subject] = now;
    events.push_back({now, subject});
  }
  return events;
}

TEST(EventsProperty, WhatSeveralAgentsSawIsToldOnceInTheOrderOfTime) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::vector<Happened> events = SomeEvents(random);
    std::vector<v1::ListEventsResponse> told;
    std::vector<bool> was_seen(events.size());
    for (char who : {'a', 'b', 'c'}) {
      EventLog log(NodeId(std::string(32, who)));
      for (size_t i = 0; i < events.size(); ++i) {
        if (random() % 3 == 0) continue;
        was_seen[i] = true;
        log.Add(events[i].at_unix_ms + random() % 4000, kModelEvent, events[i].subject, "is ready");
      }
      told.push_back(log.Since(0));
    }
    std::shuffle(told.begin(), told.end(), random);
    const v1::ListEventsResponse merged = MergeEvents(told);
    std::map<std::string, int> expected, found;
    for (size_t i = 0; i < events.size(); ++i) expected[events[i].subject] += was_seen[i];
    uint64_t before = 0;
    for (const v1::Event& event : merged.events()) {
      ++found[event.subject()];
      EXPECT_GE(event.at_unix_ms(), before);
      before = event.at_unix_ms();
    }
    std::erase_if(expected, [](const auto& item) { return item.second == 0; });
    ASSERT_EQ(found, expected) << "seed " << seed;
  }
}

TEST(Events, OneAgentsOwnRepetitionsAndOthersMissingNodesAreKept) {
  EventLog log(NodeId(std::string(32, 'a')));
  log.Add(1000, kModelEvent, "m", "is ready");
  log.Add(1500, kModelEvent, "m", "is ready");
  v1::ListEventsResponse silent;
  silent.add_missing()->set_message("mini-2 did not answer");
  const v1::ListEventsResponse merged = MergeEvents({log.Since(0), silent});
  EXPECT_EQ(merged.events_size(), 2) << "it happened twice";
  ASSERT_EQ(merged.missing_size(), 1);
  EXPECT_EQ(merged.missing(0).message(), "mini-2 did not answer");
  EXPECT_EQ(MergeEvents({}).events_size(), 0);
}

// What a cluster wants, written and removed as a coordinator does.
class WantedState {
 public:
  WantedState() { table_.BeginLeading({Term(1), NodeId(std::string(32, 'a'))}); }
  template <typename Message>
  void Write(const std::string& key, const Message& message) {
    ASSERT_TRUE(table_.Propose(key, message.SerializeAsString()).ok());
  }
  void Remove(const std::string& key) { ASSERT_TRUE(table_.Remove(key).ok()); }
  const DesiredState& desired() const { return desired_; }

 private:
  StateTable table_{NodeId(std::string(32, 'a'))};
  DesiredState desired_{table_};
};

// The newest event's subject and message.
std::string Newest(const EventLog& log) {
  const v1::ListEventsResponse all = log.Since(0);
  if (all.events().empty()) return "";
  const v1::Event& last = all.events(all.events_size() - 1);
  return absl::StrCat(last.subject(), " ", last.message());
}

TEST(Events, EachChangeOfAnOrderIsToldAndARepetitionIsNot) {
  WantedState state;
  EventLog log(NodeId(std::string(32, 'a')));
  const std::map<std::string, std::string> names = {{"id1", "ada"}};
  const auto look = [&] {
    const int before = log.Since(0).events_size();
    log.Observe(state.desired(), names, 5000);
    return log.Since(0).events_size() - before;
  };
  EXPECT_EQ(look(), 0);
  v1::Cordon cordon;
  state.Write("cordon/id1", cordon);
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "ada was cordoned");
  EXPECT_EQ(look(), 0) << "it is told once";
  cordon.set_drain(true);
  state.Write("cordon/id1", cordon);
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "ada is to be drained");
  state.Remove("cordon/id1");
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "ada was uncordoned");
  cordon.set_drain(false);
  state.Write("cordon/0123456789abcdef", cordon);
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "01234567 was cordoned") << "whose name nobody knows";
  v1::ClusterPause pause;
  state.Write("pause", pause);
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "the cluster was drained");
  pause.set_stopped(true);
  state.Write("pause", pause);
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "the cluster was stopped");
  state.Remove("pause");
  EXPECT_EQ(look(), 1);
  EXPECT_EQ(Newest(log), "the cluster was started");
}

// --- beginnings of prompts -----------------------------------------------------------------------

v1::GenerateRequest Conversation(const std::string& tenant, const std::vector<std::string>& said) {
  v1::GenerateRequest request;
  request.set_cache_salt(tenant);
  for (const std::string& text : said) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role("user");
    message.set_content(text);
  }
  return request;
}

TEST(PrefixMemoryProperty, MatchesTheLongestBeginningThatWasSent) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    PrefixMemory memory;
    std::vector<std::pair<std::string, std::vector<std::string>>> sent;
    for (int i = 0; i < 120; ++i) {
      const std::string tenant = random() % 3 == 0 ? "acme" : "";
      std::vector<std::string> said;
      const size_t turns = 1 + random() % 6;
      for (size_t n = 0; n < turns; ++n) said.push_back(absl::StrCat("text ", random() % 3));
      size_t alike = 0;
      for (const auto& [other, words] : sent) {
        if (other != tenant) continue;
        const auto [end, unused] =
            std::mismatch(words.begin(), words.end(), said.begin(), said.end());
        alike = std::max(alike, static_cast<size_t>(end - words.begin()));
      }
      const std::vector<PromptStep> steps = PromptSteps(Conversation(tenant, said));
      ASSERT_EQ(steps.size(), said.size());
      ASSERT_EQ(memory.Matched(steps), alike == 0 ? 0 : steps[alike - 1].bytes)
          << "seed " << seed << ", prompt " << i;
      memory.Note(steps);
      sent.emplace_back(tenant, said);
    }
  }
}

TEST(PrefixMemory, WhatIsAskedAgainAndAgainIsNotForgottenForWhatIsAskedOnce) {
  PrefixMemory memory;
  const auto kept = PromptSteps(Conversation("", {"the long instructions", "hello"}));
  for (int i = 0; i < 40'000; ++i) {
    memory.Note(PromptSteps(Conversation("", {absl::StrCat("once ", i)})));
    if (i % 1000 == 0) {
      if (i > 0) {
        ASSERT_EQ(memory.Matched(kept), kept.back().bytes) << i;
      }
      memory.Note(kept);
    }
  }
}

TEST(PromptSteps, TokensAndTextsAndToolsAreTakenApartInTheOrderOfTemplates) {
  v1::GenerateRequest request = Conversation("", {"hello"});
  request.mutable_tools()->set_tools_json("[{}]");
  const auto with_tools = PromptSteps(request);
  request.clear_tools();
  const auto without = PromptSteps(request);
  ASSERT_EQ(with_tools.size(), 2u);
  ASSERT_EQ(without.size(), 1u);
  EXPECT_NE(with_tools[1].hash, without[0].hash) << "other tools, other prompt";
  v1::GenerateRequest ids;
  for (int i = 0; i < 3000; ++i) ids.add_prompt_token_ids(i);
  const auto pieces = PromptSteps(ids);
  ASSERT_EQ(pieces.size(), 3u) << "12,000 bytes";
  EXPECT_EQ(pieces.back().bytes, 12'000u);
  ids.set_prompt_token_ids(2999, 7);
  const auto other_end = PromptSteps(ids);
  EXPECT_EQ(other_end[1].hash, pieces[1].hash);
  EXPECT_NE(other_end[2].hash, pieces[2].hash);
}

}  // namespace
}  // namespace macrame::agentd
