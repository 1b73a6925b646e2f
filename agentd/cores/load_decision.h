#pragma once

// What follows from an order to load a model that was planned: it is served as asked for already,
// the desired state changes, or it is refused. Pure.

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "agentd/cores/gang_reconciler.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// What the deployment is called: as asked for, else like its model. '#' is for replicas.
std::string DeploymentNameOf(const v1::LoadModelRequest& request,
                             const v1::ModelDescription& model);

struct PlannedLoad {
  const v1::LoadModelRequest& request;
  std::string name;        // DeploymentNameOf
  std::string model_path;  // what the nodes find its files by, besides its name
  const v1::ModelDescription& model;
  const v1::PlanResult& result;
  const std::set<std::string>& usable;  // nodes that could take a rank of it
  const v1::Deployment* present;        // wanted under this name so far; null: nothing
  const v1::GangRecord* gang;           // what serves it; null: nothing
  bool given_up = false;                // its model's own fault ended its launches for good
  std::set<std::string> in_force;       // gangs that go on, of all deployments
  uint64_t now_unix_ms = 0;
};

struct LoadDecision {
  absl::Status refused;                  // FAILED_PRECONDITION with the reason, when it is
  std::optional<v1::Deployment> wanted;  // to be written; unset: it is served as asked for already
  uint64_t after_epoch = 0;              // the gang that is waited for has a higher one; 0: any
};

LoadDecision DecideLoad(const PlannedLoad& load, const ClusterView& state);

}  // namespace macrame::agentd
