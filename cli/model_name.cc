#include "cli/model_name.h"

#include <algorithm>

#include "proto/replicas.h"

namespace macrame::cli {
namespace {

// An agent that does not answer is waited for by the command's own call.
bool IsServed(AgentClient& client, const std::string& name) {
  const v1::ClusterStatus status = client.GetStatus().value_or(v1::ClusterStatus());
  return std::any_of(status.deployments().begin(), status.deployments().end(),
                     [&](const v1::DeploymentStatus& one) {
                       const std::string& own = one.deployment().name();
                       return own == name || DeploymentOfReplica(own) == name;
                     });
}

}  // namespace

std::string ModelMeantBy(AgentClient& client, const std::string& name) {
  if (name.empty()) return name;
  const auto response = client.ListProfiles();
  if (!response.ok()) return name;
  for (const v1::ModelProfile& profile : response->profiles()) {
    const auto& aliases = profile.aliases();
    if (std::find(aliases.begin(), aliases.end(), name) == aliases.end()) continue;
    return IsServed(client, name) ? name : profile.model();
  }
  return name;
}

}  // namespace macrame::cli
