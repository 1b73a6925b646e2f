// Orders on the wire: who gave them and whom they are obeyed for; and what planted mistakes make of
// them.

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {
namespace {

// Calls `look` with the order that a request is; false: it is none.
template <typename Order, typename Response, typename Look>
bool LookAt(const Method<Order, Response>& method, std::string_view path,
            const std::string& request, const Look& look) {
  Order order;
  if (path != method.path || !order.ParseFromString(request)) return false;
  look(order);
  return true;
}

template <typename Look>
bool LookAtOrder(std::string_view path, const std::string& request, const Look& look) {
  return LookAt(kLaunch, path, request, look) || LookAt(kReserve, path, request, look) ||
         LookAt(kStopRanks, path, request, look) || LookAt(kReplicate, path, request, look);
}

}  // namespace

void ClusterSim::OnArrival(const Rpc& rpc, std::string* request, NodeId* caller) {
  const bool is_order = LookAtOrder(
      rpc.path, *request, [this](const auto& order) { fence_at_hand_ = FromProto(order.fence()); });
  if (!is_order || options_.plant != Plant::kIgnoreFence) return;
  const SimMachine& machine = *machines_[rpc.to];
  if (!machine.up()) return;
  const FencePair& granted = machine.parts().election.granted();
  v1::Fence obeyed = ToProto(granted);
  if (const auto* member = machine.parts().members.table().Find(granted.coordinator)) {
    obeyed.set_machine(member->identity.machine());
  }
  *caller = granted.coordinator;
  LookAtOrder(rpc.path, *request, [&](auto& order) {
    *order.mutable_fence() = obeyed;
    *request = order.SerializeAsString();
  });
}

void ClusterSim::OnAnswer(const Rpc& rpc, const std::string& request, std::string* answer) {
  LookAtOrder(rpc.path, request, [&](const auto& order) {
    CheckObeyed(*machines_[rpc.to], FromProto(order.fence()));
  });
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
