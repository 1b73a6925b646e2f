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

// The options of a load of what is served already: those that it names, and of the rest those that
// the deployment has. An order without options asks for nothing else. `present` null: what is
// named.
v1::PlacementOptions WithKeptOptions(const v1::PlacementOptions& named,
                                     const v1::Deployment* present);

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

// A plan of an order to load for which models that nobody uses may be unloaded.
struct UnusedQuestion {
  bool may_unload = false;      // the order says so
  bool is_wanted = false;       // it is served or being brought up: it needs nobody's memory
  bool is_short = false;        // there is no plan, for want of memory
  bool frees_some = false;      // the plan takes the memory of models that would go for it
  bool asked_if_ever = false;   // it was planned as if models in use could go as well
  bool is_being_freed = false;  // models are going whose memory is not free yet
  bool may_wait = false;        // time is left to wait for models to be unused
};

enum class UnusedStep {
  kLoad,        // what the plan says, be it a refusal
  kPlanAgain,   // when what is going has gone
  kPlanIfEver,  // as if models in use could go: whether waiting for them is of use
  kAwait,       // until models are not used any more
  kUnload,      // those that the plan takes the memory of; then it is planned again
};

UnusedStep NextStep(const UnusedQuestion& question);

}  // namespace macrame::agentd
