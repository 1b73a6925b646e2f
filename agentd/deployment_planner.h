#pragma once

// From a name and wishes to a plan: asks every live node for the model, then the planner. Owner thread.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/node_calls.h"
#include "agentd/node_views.h"
#include "macrame/v1/model.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

struct PlanOrder {
  std::string name_or_path;
  std::string fingerprint;  // only this very model; empty: whichever the name means
  v1::Wishes wishes;
  bool recovering = false;
};

struct PlanOutcome {
  v1::ModelDescription model;
  v1::PlanResult result;
};

class DeploymentPlanner {
 public:
  using Done = std::function<void(absl::StatusOr<PlanOutcome>)>;

  DeploymentPlanner(NodeCalls& calls, const NodeViews& views) : calls_(calls), views_(views) {}

  // An error when no node has the model (the reason says why not); a refusal of the planner is in
  // result.failure.
  void Plan(PlanOrder order, Done done);

 private:
  struct Asking;
  void Decide(const std::shared_ptr<Asking>& asking);

  NodeCalls& calls_;
  const NodeViews& views_;
  uint64_t revision_ = 0;
};

}  // namespace macrame::agentd
