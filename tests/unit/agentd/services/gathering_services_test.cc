// Services that ask several agents at once and tell who did not answer: events, traces and model
// files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/cores/event_log.h"
#include "agentd/services/trace_service.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GatheringServicesTest : public sim::AskedAgents {
 protected:
  absl::StatusOr<v1::ListEventsResponse> Events(int at, uint64_t since_unix_ms = 0) {
    v1::ListEventsRequest request;
    request.set_since_unix_ms(since_unix_ms);
    return Ask(at, kListEvents, request);
  }
  // How many events of a kind say these words.
  static int CountOf(const v1::ListEventsResponse& told, std::string_view kind,
                     const std::string& words) {
    int found = 0;
    for (const v1::Event& event : told.events()) {
      found += event.kind() == kind &&
               absl::StrContains(absl::StrCat(event.subject(), " ", event.message()), words);
    }
    return found;
  }
  absl::StatusOr<v1::TraceModelResponse> Trace(int at, const std::string& model, uint32_t ms) {
    v1::TraceRankRequest request;
    request.set_deployment(model);
    request.set_duration_ms(ms);
    return Ask(at, kTraceModel, request);
  }
};

// --- events --------------------------------------------------------------------------------------

TEST_F(GatheringServicesTest, WhatHappenedIsToldOnceAndInOrderByAnyNode) {
  Begin(3);
  LoadAndWait("m1");
  v1::SetCordonRequest cordon;
  cordon.set_node_id(id(Follower()).value());
  cordon.set_order(v1::CORDON_ORDER_CORDON);
  ASSERT_TRUE(Ask(Leader(), kSetCordon, cordon).ok());
  sim().RunFor(2000);
  for (int at = 0; at < 3; ++at) {
    const auto told = Events(at);
    ASSERT_TRUE(told.ok());
    EXPECT_THAT(told->missing(), IsEmpty());
    EXPECT_EQ(CountOf(*told, kModelEvent, "m1 ready"), 1) << told->DebugString();
    EXPECT_EQ(CountOf(*told, kCoordinatorEvent, "was elected coordinator"), 1);
    uint64_t before = 0;
    for (const v1::Event& event : told->events()) {
      EXPECT_GE(event.at_unix_ms(), before);
      before = event.at_unix_ms();
    }
  }
}

TEST_F(GatheringServicesTest, ADeadNodeIsAnEventAndItsReturnIsOne) {
  Begin(3);
  const int dead = Follower();
  const std::string name = absl::StrCat("node-", sim::Letter(id(dead)));
  const uint64_t before = parts(Leader()).dispatcher.UnixMs() + 500;
  sim().Crash(dead);
  sim().RunFor(6000);
  EXPECT_GE(CountOf(*Events(Leader(), before), kNodeEvent, absl::StrCat(name, " is dead")), 1);
  sim().Start(dead);
  sim().RunFor(6000);
  const auto told = Events(Leader(), before);
  EXPECT_GE(CountOf(*told, kNodeEvent, absl::StrCat(name, " restarted")), 1) << told->DebugString();
}

// It does not answer for the moment: whoever asks is told what the others saw, and who is missing.
TEST_F(GatheringServicesTest, AnAgentThatHangsIsNamedAndTheOthersAnswer) {
  Begin(3);
  const int hangs = Follower();
  sim().Pause(hangs);
  const auto told = Events(Leader());
  ASSERT_TRUE(told.ok()) << told.status();
  ASSERT_THAT(told->missing(), SizeIs(1));
  EXPECT_EQ(told->missing(0).node_id(), id(hangs).value());
  EXPECT_GT(told->events_size(), 0);
  sim().Resume(hangs);
  sim().RunFor(3000);
}

TEST_F(GatheringServicesTest, OnlyLaterEventsAreToldWhenATimeIsGiven) {
  Begin(2);
  sim().RunFor(2000);
  const uint64_t now = parts(0).dispatcher.UnixMs() + 1000;  // clocks differ
  sim().RunFor(2000);
  EXPECT_THAT(Events(0, now)->events(), IsEmpty());
  LoadAndWait("m1");
  EXPECT_GE(CountOf(*Events(0, now), kModelEvent, "m1"), 1);
}

// --- traces --------------------------------------------------------------------------------------

TEST_F(GatheringServicesTest, ATraceHasEveryRankInOrderOfAnyNode) {
  Begin(3);
  LoadAndWait("m0");
  for (int at = 0; at < 3; ++at) {
    const auto trace = Trace(at, "m0", 200);
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->epoch(), sim().EpochOf("m0"));
    EXPECT_THAT(trace->missing(), IsEmpty());
    ASSERT_THAT(trace->ranks(), SizeIs(3));
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(trace->ranks(rank).rank(), static_cast<uint32_t>(rank));
    }
  }
}

TEST_F(GatheringServicesTest, ATraceOfNothingOrForTooLongIsRefused) {
  Begin(2);
  EXPECT_EQ(CodeOf(Trace(0, "m0", 100)), reasons::kModelNotLoaded);
  LoadAndWait("m1");
  for (const uint32_t ms : {0u, kTraceMsMax + 1, ~0u}) {
    const auto refused = Trace(Follower(), "m1", ms);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument) << ms;
    EXPECT_EQ(CodeOf(refused), reasons::kBadRequest);
  }
}

TEST_F(GatheringServicesTest, ATraceNamesTheNodeWhoseRanksAreMissing) {
  Begin(3);
  LoadAndWait("m0");
  const int dead = Follower();
  sim().Crash(dead);
  const auto trace = Trace(Leader(), "m0", 100);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_THAT(trace->ranks(), SizeIs(2));
  ASSERT_THAT(trace->missing(), SizeIs(1));
  EXPECT_EQ(trace->missing(0).node_id(), id(dead).value());
}

// --- model files ---------------------------------------------------------------------------------

// Simulated models have no files: each node says so for itself, and the answer ends.
TEST_F(GatheringServicesTest, EachNodeSaysWhyItReadNothing) {
  Begin(3);
  v1::VerifyModelRequest request;
  request.set_name_or_path("m0");
  const auto told = Ask(Follower(), kVerifyModel, request);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_TRUE(told->finished());
  EXPECT_FALSE(told->passed());
  ASSERT_THAT(told->nodes(), SizeIs(3));
  std::set<std::string> nodes;
  for (const v1::NodeModelFiles& files : told->nodes()) {
    EXPECT_FALSE(files.failure().message().empty());
    nodes.insert(files.node_id());
  }
  EXPECT_THAT(nodes, SizeIs(3));
  request.add_node_ids(id(Leader()).value());
  request.add_node_ids(id(Leader()).value());
  EXPECT_THAT(Ask(Follower(), kVerifyModel, request)->nodes(), SizeIs(1));
}

TEST_F(GatheringServicesTest, AVerificationOfADeadNodesFilesEndsAndNamesIt) {
  Begin(3);
  const int dead = Follower();
  sim().Crash(dead);
  v1::VerifyModelRequest request;
  request.set_name_or_path("m0");
  const auto told = Ask(Leader(), kVerifyModel, request);
  ASSERT_TRUE(told.ok()) << told.status();
  ASSERT_THAT(told->nodes(), SizeIs(3));
  for (const v1::NodeModelFiles& files : told->nodes()) {
    EXPECT_FALSE(files.failure().message().empty()) << files.node_id();
  }
}

}  // namespace
}  // namespace macrame::agentd
