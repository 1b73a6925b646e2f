#pragma once

// A deployment with several replicas has a gang for each: the first is called like the deployment,
// the second "NAME#2". A deployment's own name has no '#'. Any thread.

#include <cstdint>
#include <string>

namespace macrame {

inline constexpr uint32_t kReplicasMax = 16;

std::string ReplicaName(const std::string& deployment, uint32_t index);  // index from 0
std::string DeploymentOfReplica(const std::string& name);

}  // namespace macrame
