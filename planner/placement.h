#pragma once

// Many models at once: which deployment goes where, what has to go for it, and what is refused.
// Pure.
//
// Deployments are placed in the order of their priority, then size, largest first; each sees what
// is promised to those before it. What runs stays where it is unless it is evicted. With
// `may_evict`, a deployment that fits nowhere takes the place of ones with a lower priority: of the
// lowest priorities the smallest one that is enough alone; else several, of which none could stay.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"

namespace macrame::planner {

struct WantedDeployment {
  std::string name;
  v1::ModelDescription model;
  v1::PlacementOptions placement;
  uint32_t replicas = 1;  // gangs of it, each on nodes of its own (anti-affinity)
  int priority = 0;       // higher first
  // Of one that runs. The nodes' memory_reserved_bytes and memory_available_bytes are given as if
  // it did not.
  v1::Plan in_force;
};

struct PlacementRequest {
  v1::PlanRequest cluster;  // nodes and links; its model and options are not looked at
  std::vector<WantedDeployment> deployments;
  bool may_evict = false;
};

struct PlacedDeployment {
  std::string name;
  uint32_t replica = 0;
  v1::PlanResult plan;               // or why not
  std::vector<std::string> evicted;  // names of deployments that go for it
  bool moved = false;                // it ran elsewhere before
};

struct PlacementResult {
  std::vector<PlacedDeployment> deployments;  // in the order of the request, replica by replica
};

PlacementResult PlaceAll(const PlacementRequest& request);

// The plan of `option` once deployments of `running` with a lower priority have gone, and which;
// `evicted` empty: nothing that may go helps. The nodes of `cluster` are as they are, with what
// runs
// (`in_force`) in their reserved and available memory.
PlacedDeployment PlaceByEvicting(v1::PlanRequest cluster, std::vector<WantedDeployment> running,
                                 WantedDeployment wanted);
// "or unload chat, coder: then it fits", after a remedy.
void AddUnloadRemedy(const std::vector<std::string>& names, v1::Reason* refusal);

// What a plan's ranks hold of each node, by node id.
std::map<std::string, uint64_t> BytesByNode(const v1::Plan& plan);

}  // namespace macrame::planner
