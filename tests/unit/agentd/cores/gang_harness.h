#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "agentd/cores/gang_reconciler.h"
#include "proto/reasons.h"

namespace macrame::agentd {

inline NodeId Id(char letter) { return NodeId(std::string(32, letter)); }

// A coordinator's shell in which every order succeeds unless told otherwise, and ranks come up at
// once.
class Harness {
 public:
  explicit Harness(const std::string& nodes, GangReconcilerOptions options = {})
      : reconciler(options) {
    for (char letter : nodes) {
      view.nodes.push_back(
          {Id(letter), std::string("mini-") + letter, v1::NODE_STATE_ALIVE, 1, true, true});
    }
    reconciler.BeginLeading({Term(1), Id('a')}, now);
  }

  void Deploy(const std::string& name) {
    v1::Deployment deployment;
    deployment.set_name(name);
    view.deployments.push_back(deployment);
  }

  void DeployEvicting(const std::string& name, int32_t priority) {
    Deploy(name);
    view.deployments.back().set_priority(priority);
    view.deployments.back().set_may_evict(true);
  }

  NodeView& Node(char letter) {
    for (NodeView& node : view.nodes) {
      if (node.id == Id(letter)) return node;
    }
    ADD_FAILURE() << "no node " << letter;
    return view.nodes.front();
  }

  v1::RankStatus* FindRank(const std::string& name, uint32_t rank) {
    for (v1::RankStatus& status : view.ranks) {
      if (status.deployment() == name && status.rank() == rank) return &status;
    }
    return nullptr;
  }

  void SetAll(v1::RankPhase phase) {
    for (v1::RankStatus& status : view.ranks) status.set_phase(phase);
  }

  void Run(Duration span) {
    const MonotonicTime end = now + span;
    while (true) {
      for (GangEffect& effect : reconciler.Reconcile(view, now)) {
        effects.push_back(effect);
        std::visit([this](auto& one) { Do(one); }, effect);
      }
      if (now >= end) return;
      now += std::chrono::milliseconds(50);
    }
  }

  template <typename Effect>
  std::vector<Effect> Take() {
    std::vector<Effect> taken;
    for (const GangEffect& effect : effects) {
      if (const auto* one = std::get_if<Effect>(&effect)) taken.push_back(*one);
    }
    effects.clear();
    return taken;
  }

  v1::DeploymentStatus Status(const std::string& name) {
    return *reconciler.Status(name, view, now);
  }

  void Do(const PlanDeployment& plan) {
    planned.push_back(plan.deployment.name());
    if (!plans) return;
    const auto room = rooms.find(plan.deployment.name());
    if (room != rooms.end()) return PlanInARoom(plan, room->second);
    v1::PlanResult result;
    for (const NodeView& node : view.nodes) {
      if (node.state != v1::NODE_STATE_ALIVE || node.draining) continue;
      if (plan.left_out.contains(node.id) || plan.unusable.contains(node.id)) continue;
      const bool is_others = node.tenant != plan.deployment.placement().tenant();
      if (!node.tenant.empty() && is_others) continue;
      v1::Assignment* assignment = result.mutable_plan()->add_assignments();
      assignment->set_rank(result.plan().assignments_size() - 1);
      assignment->set_node_id(node.id.value());
      assignment->set_hostname(node.hostname);
    }
    if (result.plan().assignments().empty()) {
      v1::PlanResult refused;
      *refused.mutable_failure() = MakeReason("MODEL_NOT_ON_NODE", "no node has it");
      reconciler.OnPlanned(plan.deployment.name(), refused, now);
    } else if (fits) {
      result.mutable_plan()->set_backend(backend);
      for (const v1::Rejection& one : rejections) *result.mutable_plan()->add_rejections() = one;
      reconciler.OnPlanned(plan.deployment.name(), result, now);
    } else {
      v1::PlanResult refused;
      *refused.mutable_failure() = MakeReason("MEMORY_SHORT", "7 GiB short");
      reconciler.OnPlanned(plan.deployment.name(), refused, now);
    }
  }
  // One node, whose only room is held by whoever has a rank there; of several the first goes.
  void PlanInARoom(const PlanDeployment& plan, char letter) {
    v1::PlanResult result;
    bool no_room = false;
    for (const v1::RankStatus& rank : view.ranks) {
      if (rank.node_id() != Id(letter).value()) continue;
      const bool may_go = plan.may_evict && plan.in_force.contains(rank.deployment());
      if (may_go && result.evicted().empty()) result.add_evicted(rank.deployment());
      if (!may_go) no_room = true;
    }
    if (no_room && result.evicted().empty()) {
      *result.mutable_failure() = MakeReason("MEMORY_SHORT", "no room");
    }
    const bool is_first = view.deployments.front().name() == plan.deployment.name();
    if (result.evicted().empty() && !is_first && !is_memory_seen) {
      *result.mutable_failure() = MakeReason("MEMORY_SHORT", "not free yet");
    }
    if (!result.has_failure()) {
      result.mutable_plan()->add_assignments()->set_node_id(Id(letter).value());
      result.mutable_plan()->set_backend(backend);
    }
    reconciler.OnPlanned(plan.deployment.name(), result, now);
  }
  void Do(const WriteGang& write) {
    std::erase_if(view.gangs,
                  [&](const auto& gang) { return gang.deployment() == write.record.deployment(); });
    view.gangs.push_back(write.record);
    if (writes) {
      reconciler.OnGangWritten(write.record.deployment(), write.record.epoch(), absl::OkStatus(),
                               now);
    }
  }
  void Do(const ReserveAndLaunch& launch) {
    epochs.push_back(launch.epoch);
    launched_at.push_back(now);
    if (!launches.ok()) {
      return reconciler.OnLaunched(launch.deployment.name(), launch.epoch, launches, now);
    }
    for (const v1::Assignment& assignment : launch.plan.assignments()) {
      v1::RankStatus rank;
      rank.set_deployment(launch.deployment.name());
      rank.set_epoch(launch.epoch);
      rank.set_rank(assignment.rank());
      rank.set_node_id(assignment.node_id());
      rank.set_phase(first_phase);
      view.ranks.push_back(rank);
    }
    reconciler.OnLaunched(launch.deployment.name(), launch.epoch, absl::OkStatus(), now);
  }
  void Do(const StopRanks& end) {
    if (!ends) return;
    std::erase_if(view.ranks, [&](const v1::RankStatus& rank) {
      return rank.node_id() == end.node.value() && rank.deployment() == end.deployment &&
             rank.epoch() >= end.from_epoch && rank.epoch() <= end.up_to_epoch;
    });
    reconciler.OnEnded(end, absl::OkStatus());
  }
  void Do(const RemoveGang& remove) {
    std::erase_if(view.gangs,
                  [&](const auto& gang) { return gang.deployment() == remove.deployment; });
    view.removed_epochs[remove.deployment] = remove.last_epoch;
  }
  void Do(const Notify&) {}
  // The next plan takes the next backend.
  void Do(const RefuseTransport&) { backend = "ring"; }

  MonotonicTime now{std::chrono::seconds(1000)};
  ClusterView view;
  GangReconciler reconciler;
  GangEffects effects;
  std::vector<std::string> planned;
  std::map<std::string, char> rooms;  // deployments of which one fits on that node
  std::vector<uint64_t> epochs;
  std::vector<MonotonicTime> launched_at;
  std::string backend;
  std::vector<v1::Rejection> rejections;  // of plans: why better backends were not taken
  bool plans = true;
  bool fits = true;
  bool is_memory_seen = true;  // as free, after an eviction
  bool writes = true;
  bool ends = true;
  absl::Status launches;
  v1::RankPhase first_phase = v1::RANK_PHASE_READY;
};

}  // namespace macrame::agentd
