// Orders on the wire: who gave them and whom they are obeyed for; and what planted mistakes make of
// them.

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {
namespace {

// The fence of an order, as bytes hold it; null for what is no order. All have it as field 1.
std::optional<FencePair> FenceOf(std::string_view path, const std::string& request) {
  v1::LaunchRequest launch;
  v1::ReserveRequest reserve;
  v1::StopRanksRequest stop;
  v1::ReplicateRequest replicate;
  if (path == kLaunch.path && launch.ParseFromString(request)) return FromProto(launch.fence());
  if (path == kReserve.path && reserve.ParseFromString(request)) return FromProto(reserve.fence());
  if (path == kStopRanks.path && stop.ParseFromString(request)) return FromProto(stop.fence());
  if (path == kReplicate.path && replicate.ParseFromString(request)) {
    return FromProto(replicate.fence());
  }
  return std::nullopt;
}

template <typename Order>
void Refence(const v1::Fence& fence, std::string* request) {
  Order order;
  order.ParseFromString(*request);
  *order.mutable_fence() = fence;
  *request = order.SerializeAsString();
}

}  // namespace

void ClusterSim::OnArrival(const Rpc& rpc, std::string* request, NodeId* caller) {
  const std::optional<FencePair> fence = FenceOf(rpc.path, *request);
  if (!fence.has_value()) return;
  fence_at_hand_ = *fence;
  if (options_.plant != Plant::kIgnoreFence) return;
  const SimMachine& machine = *machines_[rpc.to];
  if (!machine.up()) return;
  const FencePair& granted = machine.parts().election.granted();
  v1::Fence obeyed = ToProto(granted);
  if (const auto* member = machine.parts().members.table().Find(granted.coordinator)) {
    obeyed.set_machine(member->identity.machine());
  }
  *caller = granted.coordinator;
  if (rpc.path == kLaunch.path) Refence<v1::LaunchRequest>(obeyed, request);
  if (rpc.path == kReserve.path) Refence<v1::ReserveRequest>(obeyed, request);
  if (rpc.path == kStopRanks.path) Refence<v1::StopRanksRequest>(obeyed, request);
  if (rpc.path == kReplicate.path) Refence<v1::ReplicateRequest>(obeyed, request);
}

void ClusterSim::OnAnswer(const Rpc& rpc, const std::string& request, std::string* answer) {
  if (const auto fence = FenceOf(rpc.path, request)) CheckObeyed(*machines_[rpc.to], *fence);
  if (options_.plant != Plant::kLeadWithoutMerging) return;
  if (rpc.path == kHeartbeat.path) {
    v1::HeartbeatResponse response;
    response.ParseFromString(*answer);
    if (!response.has_lease()) return;
    response.mutable_lease()->clear_entries();
    *answer = response.SerializeAsString();
  } else if (rpc.path == kRequestLease.path) {
    v1::LeaseResponse response;
    response.ParseFromString(*answer);
    response.clear_entries();
    *answer = response.SerializeAsString();
  }
}

LaunchFacts ClusterSim::OnLaunch(int index, const v1::LaunchSpec& spec) {
  const bool is_own = !network_.at_hand().has_value();
  const SimMachine& leader = *machines_[is_own ? index : network_.at_hand()->from];
  const std::optional<FencePair> own = is_own ? leader.Leading() : std::nullopt;
  LaunchFacts facts;
  facts.fence = is_own ? own.value_or(FencePair{}) : fence_at_hand_;
  if (own.has_value()) CheckObeyed(*machines_[index], *own);
  if (leader.up()) {
    const v1::Deployment* wanted =
        leader.parts().replicator.desired().FindDeployment(spec.deployment());
    if (wanted != nullptr) facts.wanted_at = wanted->created_unix_ms();
  }
  const std::string gang =
      absl::StrCat(spec.deployment(), "/", spec.epoch(), "/", facts.fence.coordinator.value());
  const auto [seen, is_new] = launched_by_.try_emplace(gang, facts.fence.term.value());
  if (!is_new && seen->second != facts.fence.term.value()) {
    Violate(absl::StrCat("epoch ", spec.epoch(), " of ", spec.deployment(), " was used twice by ",
                         Letter(facts.fence.coordinator)));
  }
  return facts;
}

}  // namespace macrame::agentd::sim
