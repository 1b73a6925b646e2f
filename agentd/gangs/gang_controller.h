#pragma once

// Carries out what GangReconciler decides while this node leads: plans, records, launches, ends.
// Owner thread.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cores/changes.h"
#include "agentd/cores/election.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/cores/speed_learner.h"
#include "agentd/gangs/deployment_planner.h"
#include "agentd/gangs/gang_launcher.h"
#include "agentd/links/link_table.h"
#include "agentd/node/node_calls.h"
#include "agentd/node/node_views.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/cluster.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

class GangController {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    StateReplicator& replicator;
    NodeViews& views;
    DeploymentPlanner& planner;
    GangLauncher& launcher;
    NodeCalls& calls;
    LinkTable& links;
  };

  // Notes Change::kDeployment.
  GangController(Parts parts, GangReconcilerOptions options, Changes& changes);

  void BeginLeading(const FencePair& fence);
  void StopLeading();
  // Whether the entry with this key stays as it is when a merge brings another.
  bool Keeps(std::string_view key) const;
  // A gang's record that a merge decided against.
  void NoteApart(const v1::GangRecord& record) { reconciler_.NoteApart(record); }
  // Another coordinator is obeyed.
  void ForgetKept() { reconciler_.ForgetKept(); }
  // Something happened that the reconciler should see soon: many calls make one pass.
  void Wake();
  // Told of each deployment that changed its state, while this node leads.
  void SetOnNews(std::function<void(const Notify&)> on_news) { on_news_ = std::move(on_news); }
  // Each 100 ms or so. Costs next to nothing while nothing is deployed.
  void Tick();
  // Nothing is wanted and nothing runs: what could change that wakes it.
  bool IsIdle() const;

  // A member is dead: should it hold a rank, its machine may have crashed.
  void NoteDead(const NodeId& node);

  // By name. Of any node; the coordinator's say more.
  std::vector<v1::DeploymentStatus> Statuses();
  std::optional<v1::DeploymentStatus> Status(const std::string& deployment);

  // Gangs that hold memory; coordinator only.
  std::set<std::string> InForce() const { return reconciler_.InForce(); }
  // What answers taught of this cluster's speed; replicated, so any node knows.
  v1::SpeedCorrections Speeds() const;
  // Coordinator only: begins anew.
  void ForgetSpeeds(std::function<void(const absl::Status&)> done);

 private:
  void Pass();
  void LearnSpeeds(const ClusterView& view, MonotonicTime now);
  ClusterView MakeView();
  std::optional<v1::Reason> WhyBrokenNow(const v1::Plan& plan);
  void Carry(const PlanDeployment& effect);
  void Carry(const WriteGang& effect);
  void Carry(const ReserveAndLaunch& effect);
  void Carry(const StopRanks& effect);
  void Carry(const RemoveGang& effect);
  void Carry(const Notify& effect);
  void Carry(const RefuseTransport& effect);
  void Launch(const ReserveAndLaunch& effect, const v1::ModelDescription& model);

  Parts parts_;
  GangReconciler reconciler_;
  SpeedLearner speeds_;
  Changes& changes_;
  std::function<void(const Notify&)> on_news_;
  std::optional<MonotonicTime> leading_since_;
  uint64_t leadership_ = 0;  // answers to an earlier one's orders are dropped
  bool awake_ = false;
  std::map<std::string, v1::ModelDescription> models_;  // by fingerprint, as planned
  uint64_t judged_ = 0;  // which judgement of the links `broken_` follows from
  std::map<std::string, std::optional<v1::Reason>> broken_;  // by plan
};

}  // namespace macrame::agentd
