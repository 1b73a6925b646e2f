#include "proto/replicas.h"

#include "absl/strings/str_cat.h"

namespace macrame {

std::string ReplicaName(const std::string& deployment, uint32_t index) {
  return index == 0 ? deployment : absl::StrCat(deployment, "#", index + 1);
}

std::string DeploymentOfReplica(const std::string& name) { return name.substr(0, name.find('#')); }

}  // namespace macrame
