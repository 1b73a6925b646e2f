#include "cli/format/new_events.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "proto/same_event.h"

namespace macrame::cli {
namespace {

using Told = std::vector<std::pair<uint64_t, std::string>>;  // when, by whom

v1::ListEventsResponse Answer(const Told& told, const std::string& message = "is dead") {
  v1::ListEventsResponse response;
  for (const auto& [at, by] : told) {
    v1::Event& event = *response.add_events();
    event.set_at_unix_ms(at);
    event.set_seen_by(by);
    event.set_kind("node");
    event.set_subject("carl");
    event.set_message(message);
  }
  return response;
}

Told Take(NewEvents& events, const Told& told) {
  Told fresh;
  for (const v1::Event& event : events.Take(Answer(told))) {
    fresh.emplace_back(event.at_unix_ms(), event.seen_by());
  }
  return fresh;
}

TEST(NewEvents, WhatWasToldIsNotNew) {
  NewEvents events;
  EXPECT_EQ(events.newest_unix_ms(9000), 0u);
  EXPECT_EQ(Take(events, {{1000, "ada"}}), (Told{{1000, "ada"}}));
  EXPECT_EQ(Take(events, {{1000, "ada"}}), Told{});
  EXPECT_EQ(Take(events, {{1000, "ada"}, {2000, "ada"}}), (Told{{2000, "ada"}}));
  EXPECT_EQ(events.newest_unix_ms(9000), 2000u);
  EXPECT_EQ(events.Take(Answer({{1000, "ada"}}, "is alive")).size(), 1u) << "something else";
}

TEST(NewEvents, AnotherAgentsViewOfItIsNotNew) {
  NewEvents events;
  EXPECT_EQ(Take(events, {{5000, "ada"}}).size(), 1u);
  EXPECT_EQ(Take(events, {{4000, "bess"}}), Told{}) << "bess answered late, and saw it first";
  EXPECT_EQ(Take(events, {{5000, "ada"}}), Told{});
  EXPECT_EQ(Take(events, {{5000 + kSameEventMs, "bess"}}), Told{});
  EXPECT_EQ(Take(events, {{5001 + kSameEventMs, "bess"}}).size(), 1u) << "too late to be the same";
}

// What was noted while a clock was ahead stays in its agent's log, and comes with every answer.
TEST(NewEvents, AnEventAheadOfTheFollowersClockIsToldOnceAndIsNotTheNewest) {
  constexpr uint64_t kAhead = 400ull * 24 * 3600 * 1000;
  NewEvents events;
  EXPECT_EQ(Take(events, {{1000, "ada"}, {kAhead, "bess"}}).size(), 2u);
  EXPECT_EQ(events.newest_unix_ms(2000), 1000u);
  EXPECT_EQ(Take(events, {{1000, "ada"}, {30'000, "carl"}, {kAhead, "bess"}}),
            (Told{{30'000, "carl"}}));
  EXPECT_EQ(events.newest_unix_ms(31'000), 30'000u);
  EXPECT_EQ(events.newest_unix_ms(kAhead), kAhead) << "as long as the follower's clock agrees";
  EXPECT_EQ(events.newest_unix_ms(32'000), 30'000u) << "it was set";
  EXPECT_EQ(Take(events, {{30'000, "carl"}, {60'000, "ada"}, {kAhead, "bess"}}),
            (Told{{60'000, "ada"}}));
}

// A node that dies, comes back and dies again within seconds.
TEST(NewEvents, ASecondOneInTheSameAnswerIsNew) {
  NewEvents events;
  EXPECT_EQ(Take(events, {{1000, "ada"}}).size(), 1u);
  EXPECT_EQ(Take(events, {{1000, "ada"}, {4000, "bess"}}), (Told{{4000, "bess"}}));
  EXPECT_EQ(Take(events, {{1000, "ada"}, {4000, "bess"}, {7000, "bess"}}), (Told{{7000, "bess"}}));
  EXPECT_EQ(Take(events, {{900, "bess"}, {4000, "bess"}, {7000, "ada"}}), Told{});
}

}  // namespace
}  // namespace macrame::cli
