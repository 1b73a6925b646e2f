#include "agentd/cores/event_log.h"

#include <gtest/gtest.h>

#include "agentd/cores/state_keys.h"
#include "proto/same_event.h"

namespace macrame::agentd {
namespace {

const NodeId kAda("11111111111111111111111111111111");
const NodeId kBess("22222222222222222222222222222222");

TEST(EventLog, KeepsTheNewestAndTellsWhatIsLater) {
  EventLog log(kAda);
  for (uint64_t at = 1; at <= kEventsMax + 5; ++at) log.Add(at, kNodeEvent, "bess", "joined");
  EXPECT_EQ(static_cast<size_t>(log.Since(0).events_size()), kEventsMax);
  EXPECT_EQ(log.Since(0).events(0).at_unix_ms(), 6u);
  ASSERT_EQ(log.Since(kEventsMax + 4).events_size(), 1);
  EXPECT_EQ(log.Since(kEventsMax + 4).events(0).seen_by(), kAda.value());
}

TEST(EventLog, TellsOfOrdersButNotOfThoseThatWereThereBefore) {
  StateTable table{kAda};
  table.BeginLeading({Term(1), kAda});
  const DesiredState desired{table};
  const auto write = [&](absl::string_view prefix, const std::string& name, const auto& message) {
    ASSERT_TRUE(table.Propose(std::string(prefix) + name, message.SerializeAsString()).ok());
  };
  v1::Deployment old;
  old.set_name("old");
  write(kDeploymentPrefix, "old", old);
  EventLog log(kAda);
  log.Observe(desired, {}, 1);
  EXPECT_EQ(log.Since(0).events_size(), 0);
  v1::Deployment fresh;
  fresh.set_name("m");
  write(kDeploymentPrefix, "m", fresh);
  v1::Cordon cordon;
  cordon.set_node_id(kBess.value());
  write(kCordonPrefix, kBess.value(), cordon);
  log.Observe(desired, {{kBess.value(), "bess"}}, 2);
  log.Observe(desired, {{kBess.value(), "bess"}}, 3);
  const v1::ListEventsResponse told = log.Since(0);
  ASSERT_EQ(told.events_size(), 2) << "each once";
  EXPECT_EQ(told.events(0).subject(), "m");
  EXPECT_EQ(told.events(0).message(), "was asked for");
  EXPECT_EQ(told.events(1).subject(), "bess");
  EXPECT_EQ(told.events(1).message(), "was cordoned");
  ASSERT_TRUE(table.Remove(std::string(kCordonPrefix) + kBess.value()).ok());
  log.Observe(desired, {{kBess.value(), "bess"}}, 4);
  EXPECT_EQ(log.Since(3).events(0).subject(), "bess");
  EXPECT_EQ(log.Since(3).events(0).message(), "was uncordoned");
}

TEST(EventLog, WhatTwoAgentsSawIsToldOnceInTheOrderOfTime) {
  EventLog ada(kAda), bess(kBess);
  ada.Add(2000, kNodeEvent, "cleo", "is dead");
  bess.Add(1500, kNodeEvent, "cleo", "is dead");
  bess.Add(1000, kModelEvent, "m", "was asked for");
  // The same again, much later, is another event.
  ada.Add(2000 + 2 * kSameEventMs, kNodeEvent, "cleo", "is dead");
  const v1::ListEventsResponse merged = MergeEvents({ada.Since(0), bess.Since(0)});
  ASSERT_EQ(merged.events_size(), 3);
  EXPECT_EQ(merged.events(0).subject(), "m");
  EXPECT_EQ(merged.events(1).seen_by(), kBess.value()) << "who saw it first";
  EXPECT_EQ(merged.events(2).at_unix_ms(), 2000 + 2 * kSameEventMs);
}

// A node that dies, comes back and dies again within seconds died twice.
TEST(EventLog, WhatOneAgentTellsTwiceHappenedTwice) {
  EventLog ada(kAda), bess(kBess);
  for (const uint64_t at : {1000, 4000}) {
    ada.Add(at, kNodeEvent, "carl", "is dead");
    bess.Add(at + 1500, kNodeEvent, "carl", "is dead");
  }
  bess.Add(7000, kNodeEvent, "carl", "is dead");
  const v1::ListEventsResponse merged = MergeEvents({ada.Since(0), bess.Since(0)});
  std::vector<uint64_t> times;
  for (const v1::Event& event : merged.events()) times.push_back(event.at_unix_ms());
  EXPECT_EQ(times, (std::vector<uint64_t>{1000, 4000, 7000}));
}

}  // namespace
}  // namespace macrame::agentd
