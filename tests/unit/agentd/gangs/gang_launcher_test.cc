#include "agentd/gangs/gang_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using ::testing::HasSubstr;

class GangLauncherTest : public sim::AskedAgents {
 protected:
  // As the coordinator orders it: a rank on each of these machines.
  GangOrder OrderOn(const std::vector<int>& machines, uint64_t epoch = 1001,
                    const std::string& model = "m0") {
    AgentParts& leader = parts(Leader());
    GangOrder order;
    order.fence = leader.election.FenceOf(*leader.election.Leading(leader.dispatcher.Now()));
    order.deployment = model;
    order.epoch = epoch;
    order.model.set_name(model);
    order.model.set_fingerprint(absl::StrCat("fingerprint of ", model));
    order.plan.set_world_size(static_cast<uint32_t>(machines.size()));
    order.plan.set_tp(static_cast<uint32_t>(machines.size()));
    order.plan.set_pp(1);
    order.plan.set_backend(NameOf(Backend::kRing));
    for (size_t rank = 0; rank < machines.size(); ++rank) {
      v1::Assignment& assignment = *order.plan.add_assignments();
      assignment.set_rank(static_cast<uint32_t>(rank));
      assignment.set_node_id(id(machines[rank]).value());
      assignment.set_hostname(absl::StrCat("node-", sim::Letter(id(machines[rank]))));
    }
    return order;
  }
  // How the launch ended.
  absl::Status Launch(const GangOrder& order) {
    std::optional<absl::Status> end;
    parts(Leader()).launcher.Launch(order, [&](const absl::Status& status) {
      EXPECT_FALSE(end.has_value()) << "told twice";
      end = status;
    });
    if (!RunUntil([&] { return end.has_value(); }, 40'000)) ADD_FAILURE() << "it never ends";
    return end.value_or(absl::UnknownError("no end"));
  }
  std::optional<v1::LaunchSpec> SpecOn(int machine) {
    for (const sim::SimRank& rank : sim().machine(machine).ranks.ranks) return rank.spec;
    return std::nullopt;
  }
  int RanksStarted(int nodes) {
    int started = 0;
    for (int at = 0; at < nodes; ++at) started += SpecOn(at).has_value();
    return started;
  }
  std::vector<int> All(int nodes) {
    std::vector<int> all = {Leader()};
    for (int at = 0; at < nodes; ++at) {
      if (at != Leader()) all.push_back(at);
    }
    return all;
  }
};

TEST_F(GangLauncherTest, EachRankIsToldWhereTheOthersAreAndNobodyButItselfAWildcard) {
  Begin(3);
  sim().RunFor(5000);
  const std::vector<int> machines = All(3);
  ASSERT_TRUE(Launch(OrderOn(machines)).ok());
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto spec = SpecOn(machines[rank]);
    ASSERT_TRUE(spec.has_value()) << rank;
    EXPECT_EQ(spec->rank(), rank);
    EXPECT_EQ(spec->world_size(), 3u);
    ASSERT_EQ(spec->ring_addresses_size(), 3);
    ASSERT_EQ(spec->private_links_size(), 3);
    for (size_t other = 0; other < 3; ++other) {
      const std::string ip = other == rank ? "0.0.0.0" : sim::IpOf(machines[other]);
      EXPECT_TRUE(absl::StartsWith(spec->ring_addresses(other), absl::StrCat(ip, ":")))
          << "rank " << rank << " is told " << spec->ring_addresses(other) << " of " << other;
      EXPECT_FALSE(spec->private_links(other)) << "an ethernet is no private cable";
    }
    EXPECT_TRUE(absl::StartsWith(spec->step_address(),
                                 rank == 0 ? "0.0.0.0:" : sim::IpOf(machines[0]) + ":"));
    EXPECT_EQ(spec->entry_node_id(), id(machines[0]).value());
    EXPECT_EQ(spec->model().path(), "/models/m0") << "as that node has it";
    EXPECT_EQ(spec->connect_timeout_ms(), 3000u) << "as configured";
    EXPECT_FALSE(spec->has_draft_model());
  }
}

TEST_F(GangLauncherTest, RanksOverRdmaAreToldWhereTheyMeetRankZero) {
  Begin(3);
  sim().RunFor(5000);
  const std::vector<int> machines = All(3);
  GangOrder order = OrderOn(machines);
  order.plan.set_backend(NameOf(Backend::kJaccl));
  order.plan.set_backend_topology(NameOf(Topology::kMesh));
  ASSERT_TRUE(Launch(order).ok());
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto spec = SpecOn(machines[rank]);
    ASSERT_TRUE(spec.has_value()) << rank;
    const std::string& ring = spec->ring_addresses(0);
    EXPECT_EQ(spec->rendezvous_address(),
              absl::StrCat(sim::IpOf(machines[0]), ring.substr(ring.rfind(':'))))
        << "rank 0's address on the LAN that all share";
    EXPECT_EQ(spec->device_matrix_size(), 3);
  }
}

TEST_F(GangLauncherTest, AGangHasOneSecretAndTheNextAnother) {
  Begin(2);
  sim().RunFor(5000);
  sim().SetRoom(2);
  ASSERT_TRUE(Launch(OrderOn({0, 1}, 1001)).ok());
  ASSERT_TRUE(Launch(OrderOn({0, 1}, 1002)).ok());
  std::set<std::string> secrets;
  for (int at = 0; at < 2; ++at) {
    for (const sim::SimRank& rank : sim().machine(at).ranks.ranks) {
      EXPECT_EQ(rank.spec.gang_secret().size(), 32u);
      secrets.insert(absl::StrCat(rank.spec.epoch(), rank.spec.gang_secret()));
    }
  }
  EXPECT_EQ(secrets.size(), 2u);
  EXPECT_NE(secrets.begin()->substr(4), secrets.rbegin()->substr(4));
}

TEST_F(GangLauncherTest, OneRankNeedsNoGroup) {
  Begin(2);
  ASSERT_TRUE(Launch(OrderOn({Follower()})).ok());
  EXPECT_EQ(SpecOn(Follower())->backend(), NameOf(Backend::kSingle));
  EXPECT_EQ(RanksStarted(2), 1);
}

TEST_F(GangLauncherTest, RankZeroAloneHasTheDraftModel) {
  Begin(2);
  sim().RunFor(5000);
  GangOrder order = OrderOn({0, 1});
  order.plan.mutable_draft_model()->set_name("m1");
  order.plan.mutable_draft_model()->set_fingerprint("fingerprint of m1");
  ASSERT_TRUE(Launch(order).ok());
  EXPECT_TRUE(SpecOn(0)->has_draft_model());
  EXPECT_FALSE(SpecOn(1)->has_draft_model());
  order.epoch = 1002;
  order.plan.mutable_draft_model()->set_name("m9");
  sim().SetRoom(2);
  const absl::Status refused = Launch(order);
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kModelNotFound);
  EXPECT_THAT(ReasonOf(refused).message(), HasSubstr("the draft model m9"));
}

// --- all or none ---------------------------------------------------------------------------------

TEST_F(GangLauncherTest, NothingIsStartedWhereANodeIsDeadAndItIsNamed) {
  Begin(3);
  sim().RunFor(5000);
  const int dead = Follower();
  std::vector<int> machines = All(3);
  const GangOrder order = OrderOn(machines);
  sim().Crash(dead);
  const absl::Status refused = Launch(order);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(ReasonOf(refused).node_id(), id(dead).value());
  EXPECT_THAT(ReasonOf(refused).message(),
              HasSubstr(absl::StrCat(" on node-", sim::Letter(id(dead)))));
  EXPECT_THAT(ReasonOf(refused).message(), HasSubstr("reserving for rank"));
  EXPECT_EQ(RanksStarted(3), 0);
}

TEST_F(GangLauncherTest, NothingIsStartedWhereANodeHasNoMemory) {
  Begin(3);
  sim().RunFor(5000);
  ASSERT_TRUE(Launch(OrderOn({Follower()}, 1001)).ok());
  const int started = RanksStarted(3);
  const absl::Status refused = Launch(OrderOn(All(3), 1002));
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kMemoryShort);
  EXPECT_EQ(ReasonOf(refused).node_id(), id(Follower()).value());
  EXPECT_EQ(RanksStarted(3), started);
}

TEST_F(GangLauncherTest, AModelThatANodeLacksIsNamedWithTheRank) {
  Begin(2);
  const absl::Status refused = Launch(OrderOn({0, 1}, 1001, "m9"));
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kModelNotFound);
  EXPECT_THAT(ReasonOf(refused).message(), ::testing::ContainsRegex("rank [01] on node-[ab]: "));
  EXPECT_EQ(RanksStarted(2), 0);
}

TEST_F(GangLauncherTest, AnOrderOfAnOlderTermIsObeyedByNobody) {
  Begin(2);
  GangOrder order = OrderOn({0, 1});
  order.fence.set_term(0);
  EXPECT_EQ(ReasonOf(Launch(order)).code(), reasons::kStaleTerm);
  EXPECT_EQ(RanksStarted(2), 0);
}

// Ranks could never meet: it is said before any of them loads.
TEST_F(GangLauncherTest, NothingIsStartedWhereNoWayIsKnown) {
  Begin(2);
  sim().RunFor(5000);
  parts(Leader()).links.Forget(id(Follower()));
  const absl::Status refused = Launch(OrderOn(All(2)));
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kNoRing);
  for (int at = 0; at < 2; ++at) {
    EXPECT_THAT(ReasonOf(refused).message(), HasSubstr(absl::StrCat("node-", sim::Letter(id(at)))));
  }
  EXPECT_EQ(RanksStarted(2), 0);
}

TEST_F(GangLauncherTest, APlanWithoutRanksEndsAtOnce) {
  Begin(1);
  EXPECT_EQ(Launch(OrderOn({})).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GangLauncherTest, ANodeThatIsAboutToStopTakesNoRank) {
  Begin(2);
  sim().RunFor(5000);
  const GangOrder order = OrderOn({Leader()});
  parts(Leader()).own.SetDraining();
  const absl::Status refused = Launch(order);
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kNodeLeft);
  EXPECT_EQ(RanksStarted(2), 0);
}

}  // namespace
}  // namespace macrame::agentd
