#pragma once

// A cluster that grows, fails and fills up, with the reconciler and the planner in a loop, in
// virtual time: nodes with drawn memory, cables and other programs die and come back, ranks crash,
// deployments come and go. The shell around the reconciler is made here: plans take the planner's
// own answers, records are written, ranks are admitted by each node's memory, load and end.

#include <cstdint>
#include <string>

namespace macrame::tests {

struct ReconcilerGrowthOptions {
  uint64_t seed = 0;
  uint32_t nodes = 100;
  uint32_t deployments = 20;
  uint32_t disturbances = 6;  // each is followed by quiet_seconds
  uint32_t quiet_seconds = 180;
};

struct ReconcilerGrowthReport {
  std::string fault;      // the first rule that was broken; empty: none
  uint32_t launches = 0;  // gangs
  // Of a deployment whose gang had lost no node and no rank, was not changed and made room for
  // nobody.
  uint32_t launches_without_need = 0;
  uint32_t admissions_refused = 0;  // a node had not the memory that a plan gave to a rank
  uint32_t evictions = 0;
  uint32_t served = 0;   // deployments ready at the end
  uint32_t refused = 0;  // pending at the end, with a reason
  uint32_t plans = 0;    // asked of the planner
  double median_plan_ms = 0;
  double slowest_plan_ms = 0;
  double median_pass_ms = 0;         // one Reconcile
  double slowest_convergence_s = 0;  // virtual: from a disturbance to the last launch's READY
};

ReconcilerGrowthReport GrowReconciled(const ReconcilerGrowthOptions& options);

}  // namespace macrame::tests
