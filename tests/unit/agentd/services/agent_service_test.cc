// What agents ask each other, when who asks is mistaken or means harm.

#include "agentd/services/agent_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "agentd/cores/state_table.h"
#include "tests/sim/asked_agents.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const NodeId kUnknownNode(std::string(32, '9'));

class AgentServiceTest : public sim::AskedAgents {
 protected:
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  absl::StatusOr<Message> AskAsUnknown(int at, const Rpc<Request, Message>& rpc,
                                       const std::type_identity_t<Request>& request) {
    return Wait(StartAs({kUnknownNode, /*local=*/false, "10.9.9.9"}, at, rpc, request));
  }
  v1::NodeIdentity IdentityOf(int machine) { return parts(machine).own.identity(); }
  v1::Fence FenceOf(int machine) {
    const auto leading = sim().machine(machine).Leading();
    return ToProto(leading.value_or(FencePair{Term(1), id(machine)}));
  }
  // The cluster is as it was: it has its coordinator, its state and its ranks.
  void ExpectUndisturbed(int leader, const std::string& model) {
    sim().RunFor(5000);
    EXPECT_EQ(Leader(), leader);
    EXPECT_TRUE(sim().IsReady(model));
    EXPECT_EQ(sim().EpochOf(model), epoch_);
  }
  void BeginServing(int nodes) {
    Begin(nodes);
    LoadAndWait("m1");
    epoch_ = sim().EpochOf("m1");
  }

  uint64_t epoch_ = 0;
};

TEST_F(AgentServiceTest, WhoClaimsToBeAnotherIsRefusedAndNobodyIsTakenForIt) {
  Begin(3);
  v1::HeartbeatRequest request;
  *request.mutable_identity() = IdentityOf(1);
  request.mutable_identity()->set_hostname("stolen");
  request.mutable_identity()->set_incarnation(1'000'000);
  const auto refused = AskAs(2, 0, kHeartbeat, request);
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status())) << refused.status();
  v1::HeartbeatRequest nameless;
  EXPECT_FALSE(AskAs(2, 0, kHeartbeat, nameless).ok());
  sim().RunFor(2000);
  const auto status = Ask(0, kGetStatus, v1::GetStatusRequest());
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(status->nodes(), SizeIs(3));
  for (const v1::NodeStatus& node : status->nodes()) {
    EXPECT_NE(node.identity().hostname(), "stolen");
    EXPECT_EQ(node.state(), v1::NODE_STATE_ALIVE);
  }
}

TEST_F(AgentServiceTest, ANodeSaysGoodbyeForItselfAlone) {
  BeginServing(3);
  const int leader = Leader();
  for (const std::string& other :
       {id(leader).value(), id(Follower()).value(), std::string(), std::string("x")}) {
    v1::LeaveRequest request;
    request.set_node_id(other);
    for (int at = 0; at < 3; ++at) {
      EXPECT_TRUE(absl::IsPermissionDenied(AskAsUnknown(at, kLeave, request).status()));
    }
  }
  ExpectUndisturbed(leader, "m1");
}

TEST_F(AgentServiceTest, WhoSentNoHeartbeatAsksForNothing) {
  Begin(2);
  for (const int at : LeaderAndFollower()) {
    v1::DescribeModelRequest describe;
    describe.set_name_or_path("m0");
    EXPECT_TRUE(absl::IsFailedPrecondition(AskAsUnknown(at, kDescribeModel, describe).status()));
    v1::LeaseRequest lease;
    *lease.mutable_fence() = ToProto({Term(99), kUnknownNode});
    lease.set_lease_ms(2000);
    EXPECT_TRUE(absl::IsFailedPrecondition(AskAsUnknown(at, kRequestLease, lease).status()));
    v1::TraceRankRequest trace;
    trace.set_duration_ms(10);
    EXPECT_FALSE(AskAsUnknown(at, kTraceRanks, trace).ok());
    EXPECT_FALSE(AskAsUnknown(at, kGenerate, v1::GenerateRequest()).ok());
  }
  // A member's word about a model is an answer.
  v1::DescribeModelRequest describe;
  describe.set_name_or_path("m0");
  const auto told = AskAs(Leader(), Follower(), kDescribeModel, describe);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->model().name(), "m0");
  describe.set_name_or_path("nothing");
  EXPECT_EQ(CodeOf(AskAs(Leader(), Follower(), kDescribeModel, describe)), reasons::kModelNotFound);
}

// Whoever it is and whatever it claims: only the coordinator in its own name is obeyed.
TEST_F(AgentServiceTest, OrdersOfWhoDoesNotLeadEndNothingAndStartNothing) {
  BeginServing(3);
  const int leader = Leader(), follower = Follower();
  v1::Fence future = ToProto({Term(1'000'000), id(follower)});
  v1::Fence beyond = ToProto({Term(~uint64_t{0}), id(follower)});
  const std::vector<v1::Fence> fences = {FenceOf(leader), FenceOf(follower), future, beyond,
                                         v1::Fence()};
  for (int at = 0; at < 3; ++at) {
    for (const v1::Fence& fence : fences) {
      v1::StopRanksRequest stop;
      *stop.mutable_fence() = fence;
      stop.set_up_to_epoch(~uint64_t{0});
      v1::LaunchRequest launch;
      *launch.mutable_fence() = fence;
      v1::ReserveRequest reserve;
      *reserve.mutable_fence() = fence;
      v1::ReplicateRequest replicate;
      *replicate.mutable_fence() = fence;
      replicate.set_complete(true);
      const bool is_own = at == follower;  // its own orders to itself take no wire
      if (is_own) continue;
      EXPECT_FALSE(AskAs(follower, at, kStopRanks, stop).ok());
      EXPECT_FALSE(AskAs(follower, at, kLaunch, launch).ok());
      EXPECT_FALSE(AskAs(follower, at, kReserve, reserve).ok());
      const auto replicated = AskAs(follower, at, kReplicate, replicate);
      EXPECT_FALSE(replicated.ok() && replicated->accepted());
      EXPECT_FALSE(AskAsUnknown(at, kStopRanks, stop).ok());
    }
  }
  ExpectUndisturbed(leader, "m1");
}

TEST_F(AgentServiceTest, ALeaseOfAnotherAgeIsNotGrantedAndUnseatsNobody) {
  BeginServing(3);
  const int leader = Leader(), follower = Follower();
  for (const uint64_t term : {kTermMax + 1, ~uint64_t{0}, uint64_t{0}}) {
    for (const uint32_t lease_ms : {0u, 2000u, kLeaseMsMax + 1, ~0u}) {
      v1::LeaseRequest request;
      *request.mutable_fence() = ToProto({Term(term), id(follower)});
      request.set_lease_ms(lease_ms);
      request.set_electors(~0u);
      const auto answer = AskAs(follower, leader, kRequestLease, request);
      EXPECT_FALSE(answer.ok() && answer->granted()) << term << " for " << lease_ms << " ms";
      // In another's name.
      *request.mutable_fence() = ToProto({Term(50), kUnknownNode});
      const auto other = AskAs(follower, leader, kRequestLease, request);
      EXPECT_FALSE(other.ok() && other->granted());
    }
  }
  ExpectUndisturbed(leader, "m1");
}

TEST_F(AgentServiceTest, AFloodOfNamesMakesNoMembersAndIsAnswered) {
  Begin(2);
  v1::HeartbeatRequest request;
  *request.mutable_identity() = IdentityOf(Follower());
  request.set_sequence(1);
  for (int number = 0; number < 1000; ++number) {
    v1::NodeIdentity& known = *request.add_known();
    known.set_node_id(number % 3 == 0   ? absl::StrFormat("%032x", number + 1)
                      : number % 3 == 1 ? std::string(1000, 'x')
                                        : id(Leader()).value());
    known.set_hostname(std::string(10'000, 'h'));
    known.set_control_port(~0u);
    known.add_addresses()->set_ip("999.1.1.1; rm -rf /");
  }
  const auto answer = AskAs(Follower(), Leader(), kHeartbeat, request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->identity().node_id(), id(Leader()).value());
  sim().RunFor(10'000);
  for (int at = 0; at < 2; ++at) {
    EXPECT_THAT(Ask(at, kGetStatus, v1::GetStatusRequest())->nodes(), SizeIs(2));
  }
  EXPECT_NE(Leader(), -1);
}

// What the coordinator itself sends is bounded too: what can be no entry is left out.
TEST_F(AgentServiceTest, EntriesThatCanBeNoneAreLeftOutOfTheState) {
  BeginServing(2);
  const int leader = Leader(), follower = Follower();
  const size_t before = parts(follower).replicator.table().entries().size();
  v1::ReplicateRequest request;
  *request.mutable_fence() = FenceOf(leader);
  const auto add = [&](const std::string& key, const std::string& value, uint64_t sequence) {
    v1::StateEntry& entry = *request.add_entries();
    entry.set_key(key);
    entry.set_value(value);
    entry.set_term(request.fence().term());
    entry.set_coordinator_id(request.fence().coordinator_id());
    entry.set_sequence(sequence);
  };
  add("", "no key", 1000);
  add("big", std::string(StateTableOptions().value_bytes_max + 1, 'v'), 1001);
  add("far", "future", kSequenceMax + 1);
  add(std::string(1 << 16, 'k'), "long key", 1002);
  const auto answer = AskAs(leader, follower, kReplicate, request);
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(parts(follower).replicator.table().entries(), SizeIs(before));
  ExpectUndisturbed(leader, "m1");
}

TEST_F(AgentServiceTest, AHeartbeatOfItsOwnIdIsNoMember) {
  Begin(2);
  v1::HeartbeatRequest request;
  *request.mutable_identity() = IdentityOf(0);
  request.mutable_identity()->set_hostname("copy");
  request.mutable_identity()->set_machine("another");
  const auto answer = AskAs(0, 0, kHeartbeat, request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->refused().code(), reasons::kNodeIdClash);
  request.mutable_identity()->clear_machine();
  EXPECT_EQ(CodeOf(AskAs(0, 0, kHeartbeat, request)), reasons::kNodeIdClash);
  sim().RunFor(1000);
  EXPECT_THAT(Ask(0, kGetStatus, v1::GetStatusRequest())->nodes(), SizeIs(2));
}

}  // namespace
}  // namespace macrame::agentd
