#include "agentd/links/link_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "tests/sim/asked_agents.h"
#include "transport/links/refusals.h"

namespace macrame::agentd {
namespace {

using std::chrono::seconds;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LinkTableTest : public sim::AskedAgents {
 protected:
  LinkTable& links(int at) { return parts(at).links; }
  // Whom a node has measured, and when.
  std::map<std::string, uint64_t> Measured(int at) {
    std::map<std::string, uint64_t> measured;
    for (const v1::LinkMeasurement& one : links(at).own().measurements()) {
      measured[one.to_node_id()] = one.measured_unix_ms();
    }
    return measured;
  }
  std::set<std::string> InSnapshot(int at) {
    std::set<std::string> nodes;
    const v1::LinkSnapshot snapshot = links(at).Snapshot();
    for (const v1::NodeLinks& node : snapshot.nodes()) nodes.insert(node.node_id());
    return nodes;
  }
  v1::TransportRefusal Refusal(const std::vector<int>& nodes) {
    std::vector<std::string> ids;
    for (const int node : nodes) ids.push_back(id(node).value());
    const v1::Reason why = MakeReason(reasons::kInitStalled, "it stalled");
    return transport::MakeRefusal(links(Leader()).Snapshot(), ids, NameOf(Backend::kVerbs), why,
                                  why);
  }
};

TEST_F(LinkTableTest, OneOfEachTwoMeasuresTheirLink) {
  Begin(4);
  sim().RunFor(20'000);
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      EXPECT_EQ(Measured(a).contains(id(b).value()) + Measured(b).contains(id(a).value()), 1)
          << a << " and " << b;
    }
  }
}

TEST_F(LinkTableTest, VerdictsAreWrittenByTheCoordinatorWhenTheyChangeAndNotElse) {
  Begin(3);
  sim().RunFor(20'000);
  const uint64_t revision = desired(Leader()).links().revision();
  EXPECT_GT(revision, 0u);
  sim().RunFor(60'000);
  for (int at = 0; at < 3; ++at) {
    EXPECT_EQ(desired(at).links().revision(), revision) << "nothing changed at " << at;
  }
  sim().Crash(Follower());
  sim().RunFor(10'000);
  EXPECT_GT(desired(Leader()).links().revision(), revision);
}

TEST_F(LinkTableTest, WhoIsDeadIsNotJudgedAndWhoIsBackIs) {
  Begin(3);
  sim().RunFor(10'000);
  const int gone = Follower(), at = Leader();
  EXPECT_THAT(InSnapshot(at), SizeIs(3));
  sim().Crash(gone);
  sim().RunFor(6000);
  EXPECT_THAT(InSnapshot(at), SizeIs(2));
  EXPECT_FALSE(InSnapshot(at).contains(id(gone).value()));
  sim().Start(gone);
  sim().RunFor(10'000);
  EXPECT_THAT(InSnapshot(at), SizeIs(3));
}

// It could not be measured while it was cut off.
TEST_F(LinkTableTest, WhatCouldNotBeMeasuredIsMeasuredWhenItsNodeIsBack) {
  Begin(2);
  sim().RunFor(10'000);
  const int measures = Measured(0).empty() ? 1 : 0;
  const std::string other = id(1 - measures).value();
  const uint64_t before = Measured(measures).at(other);
  sim().Isolate(1 - measures, true);
  links(measures).MeasureNow("", seconds(5), [] {});
  sim().RunFor(10'000);
  sim().Isolate(1 - measures, false);
  EXPECT_TRUE(RunUntil(
      [&] {
        const auto measured = Measured(measures);
        return measured.contains(other) && measured.at(other) > before &&
               !links(measures).own().measurements(0).has_failure();
      },
      20'000));
}

TEST_F(LinkTableTest, AMeasurementThatIsAskedForEndsAtItsLimit) {
  Begin(2);
  sim().RunFor(10'000);
  const int measures = Measured(0).empty() ? 1 : 0;
  sim().Pause(1 - measures);
  const MonotonicTime begun = parts(measures).dispatcher.Now();
  std::optional<Duration> took;
  links(measures).MeasureNow(id(1 - measures).value(), seconds(4),
                             [&] { took = parts(measures).dispatcher.Now() - begun; });
  ASSERT_TRUE(RunUntil([&] { return took.has_value(); }, 10'000));
  EXPECT_LE(*took, seconds(4) + std::chrono::milliseconds(500));
  sim().Resume(1 - measures);
  sim().RunFor(3000);
}

// A rank that failed to reach another puts all measured ways in doubt, once for each launch.
TEST_F(LinkTableTest, ALaunchThatFailedToConnectHasLinksMeasuredAgainOnce) {
  Begin(2);
  sim().RunFor(10'000);
  const int measures = Measured(0).empty() ? 1 : 0;
  const std::string other = id(1 - measures).value();
  v1::RankStatus rank;
  rank.set_deployment("m0");
  rank.set_epoch(1001);
  *rank.mutable_failure() = MakeReason(reasons::kConnectFailed, "nobody answers");
  uint64_t before = Measured(measures).at(other);
  links(measures).NoteRanks({rank});
  ASSERT_TRUE(RunUntil([&] { return Measured(measures).at(other) > before; }, 10'000));
  before = Measured(measures).at(other);
  links(measures).NoteRanks({rank});
  sim().RunFor(10'000);
  EXPECT_EQ(Measured(measures).at(other), before) << "of the same launch";
  rank.set_epoch(1002);
  links(measures).NoteRanks({rank});
  EXPECT_TRUE(RunUntil([&] { return Measured(measures).at(other) > before; }, 10'000));
  // What has nothing to do with links puts none in doubt.
  before = Measured(measures).at(other);
  rank.set_epoch(1003);
  *rank.mutable_failure() = MakeReason(reasons::kMemoryShort, "no memory");
  links(measures).NoteRanks({rank});
  sim().RunFor(10'000);
  EXPECT_EQ(Measured(measures).at(other), before);
}

// --- what is not tried again ---------------------------------------------------------------------

TEST_F(LinkTableTest, ARefusalIsKnownEverywhereAndOutlivesTheCoordinator) {
  Begin(3);
  sim().RunFor(10'000);
  links(Leader()).Remember(Refusal({0, 1}));
  sim().RunFor(1500);
  for (int at = 0; at < 3; ++at) EXPECT_THAT(links(at).Refusals(), SizeIs(1)) << at;
  sim().Crash(Leader());
  ASSERT_TRUE(RunUntil([&] { return Leader() != -1; }, 8000));
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(1));
  EXPECT_THAT(links(Leader()).ForgetRefusals({}), SizeIs(1));
  sim().RunFor(1500);
  EXPECT_THAT(links(Leader()).Refusals(), IsEmpty());
  EXPECT_THAT(links(Leader()).ForgetRefusals({}), IsEmpty());
}

TEST_F(LinkTableTest, RefusalsOfOneNodeAreForgottenAlone) {
  Begin(3);
  sim().RunFor(10'000);
  links(Leader()).Remember(Refusal({0, 1}));
  links(Leader()).Remember(Refusal({0, 2}));
  sim().RunFor(1500);
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(2));
  EXPECT_THAT(links(Leader()).ForgetRefusals({id(2).value()}), SizeIs(1));
  sim().RunFor(1500);
  EXPECT_THAT(links(Leader()).Refusals(), SizeIs(1));
  EXPECT_THAT(links(Leader()).ForgetRefusals({std::string(32, 'f')}), IsEmpty());
}

}  // namespace
}  // namespace macrame::agentd
