#include "agentd/links/transport_choice.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/backends.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

bool IsRequested(const v1::BackendChoice& choice, const std::string& requested) {
  if (IsAnyTransport(requested)) return true;
  if (requested == kRdmaTransport) return IsRdma(BackendNamed(choice.backend()));
  return choice.backend() == requested;
}

using Order = std::vector<std::string>;  // node ids by rank

// Which orders of ranks a choice takes, the plan's own first. A ring of devices needs neighbours
// next to each other; jaccl meets at rank 0, which must be the node whose address all reach.
std::vector<Order> OrdersFor(const v1::GroupVerdict& group, const v1::BackendChoice& choice,
                             const Order& own) {
  const Backend backend = BackendNamed(choice.backend());
  const bool is_mesh = TopologyNamed(choice.topology()) == Topology::kMesh;
  if (!IsRdma(backend) || (backend == Backend::kVerbs && is_mesh)) return {own};
  const Order cables(group.node_ids().begin(), group.node_ids().end());
  if (cables.size() != own.size()) return {};
  std::vector<Order> orders;
  if (is_mesh) {
    orders.push_back(own);
    const auto meeting = std::find(orders[0].begin(), orders[0].end(), cables[0]);
    if (meeting == orders[0].end()) return {};
    std::iter_swap(orders[0].begin(), meeting);
    return orders;
  }
  for (size_t turn = 0; turn < cables.size(); ++turn) {
    if (turn > 0 && backend == Backend::kJaccl) break;
    Order forward = cables;
    std::rotate(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(turn),
                forward.end());
    Order backward = forward;
    std::reverse(backward.begin() + 1, backward.end());
    orders.push_back(std::move(forward));
    orders.push_back(std::move(backward));
  }
  const auto same = std::find(orders.begin(), orders.end(), own);
  if (same != orders.end()) std::iter_swap(orders.begin(), same);
  return orders;
}

// Gives each rank the node that `order` says. False, and nothing changed, when a node could not
// hold what its rank needs.
bool Reorder(const Order& order, v1::Plan& plan) {
  std::map<std::string, const v1::Assignment*> by_node;
  const v1::Plan before = plan;
  for (const v1::Assignment& one : before.assignments()) by_node[one.node_id()] = &one;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const auto node = by_node.find(order[rank]);
    const v1::Assignment& part = before.assignments(static_cast<int>(rank));
    if (node == by_node.end()) return false;
    const bool stays = node->second->node_id() == part.node_id();
    if (!stays && part.need().total_bytes() > node->second->budget_bytes()) return false;
  }
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const v1::Assignment& node = *by_node[order[rank]];
    v1::Assignment& part = *plan.mutable_assignments(static_cast<int>(rank));
    part.set_node_id(node.node_id());
    part.set_hostname(node.hostname());
    part.set_budget_bytes(node.budget_bytes());
  }
  return true;
}

bool TakeOrder(const v1::GroupVerdict& group, const v1::BackendChoice& choice, v1::Plan& plan) {
  Order own;
  for (const v1::Assignment& one : plan.assignments()) own.push_back(one.node_id());
  for (const Order& order : OrdersFor(group, choice, own)) {
    if (Reorder(order, plan)) return true;
  }
  return false;
}

// Why a choice is not for this plan; empty code: it is, and its ranks are in the order that it
// needs.
v1::Reason WhyNot(const v1::GroupVerdict& group, const v1::BackendChoice& choice, bool is_requested,
                  v1::Plan& plan) {
  if (!choice.usable()) {
    return choice.reasons().empty() ? MakeReason(reasons::kNotChosen, "it does not work here")
                                    : choice.reasons(0);
  }
  // Those groups are rankd's own.
  const Backend backend = BackendNamed(choice.backend());
  if (backend == Backend::kVerbs && !plan.engine().empty()) {
    return MakeReason(reasons::kEngineLimit,
                      absl::StrCat("groups of ", plan.engine(), " are MLX's: jaccl or the ring"));
  }
  // Stages of tensor groups need a group that can be divided (planner/link_costs.h).
  const bool is_mixed = plan.tp() > 1 && plan.pp() > 1;
  const bool is_ring = TopologyNamed(choice.topology()) == Topology::kRing;
  if (is_mixed && (backend == Backend::kJaccl || (backend == Backend::kVerbs && is_ring))) {
    return MakeReason(reasons::kNotChosen,
                      "its group can't be divided into stages of tensor groups");
  }
  if (is_mixed) return {};
  if (is_requested && !TakeOrder(group, choice, plan)) {
    return MakeReason(reasons::kNotChosen,
                      "in the order that the cables ask for, a node could not hold its part");
  }
  return {};
}

}  // namespace

void ChooseTransport(const v1::GroupVerdict& group, const std::string& requested,
                     v1::PlanResult* result) {
  if (!result->has_plan()) return;
  v1::Plan& plan = *result->mutable_plan();
  if (plan.world_size() <= 1) {
    plan.set_backend(NameOf(Backend::kSingle));
    return;
  }
  std::vector<std::string> refused;
  for (const v1::BackendChoice& choice : group.choices()) {
    const bool is_requested = IsRequested(choice, requested);
    const v1::Reason why_not = WhyNot(group, choice, is_requested, plan);
    if (why_not.code().empty() && is_requested) {
      plan.set_backend(choice.backend());
      plan.set_backend_topology(choice.topology());
      return;
    }
    if (why_not.code().empty() || why_not.message() == "two nodes need no ring") continue;
    v1::Rejection& rejection = *plan.add_rejections();
    rejection.set_subject(absl::StrCat(choice.backend(), " ", choice.topology()));
    *rejection.mutable_reason() = why_not;
    refused.push_back(absl::StrCat(choice.backend(), " ", choice.topology(), ": ", why_not.code(),
                                   " (", why_not.message(), ")"));
  }
  // Nothing is known of links yet: the ring is what always is there.
  const bool takes_ring = IsAnyTransport(requested) || BackendNamed(requested) == Backend::kRing;
  if (group.choices().empty() && takes_ring) {
    plan.set_backend(NameOf(Backend::kRing));
    plan.set_backend_topology(NameOf(Topology::kMesh));
    return;
  }
  const v1::Reason failure = MakeReason(
      reasons::kTransportUnavailable,
      absl::StrCat(IsAnyTransport(requested) ? "no transport" : requested,
                   " can't be used between the planned nodes",
                   refused.empty() ? "" : absl::StrCat("; ", absl::StrJoin(refused, "; "))));
  for (const v1::Rejection& rejection : plan.rejections()) {
    *result->add_rejections() = rejection;
  }
  result->clear_plan();
  *result->mutable_failure() = failure;
}

}  // namespace macrame::agentd
