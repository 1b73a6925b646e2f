#pragma once

// How long gateways keep the answers of each tenant, and whose prompts stay out of the prefix cache
// on disk. Pure.
//
// A tenant's own order (`clusterctl tenant set NAME --retention`) comes before what the node says
// of everybody (`response_retention_h`).

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "macrame/v1/access.pb.h"

namespace macrame::agentd {

class RetentionRules {
 public:
  RetentionRules() = default;
  // `otherwise`: of everybody without an order; 0: as long as there is room.
  RetentionRules(std::chrono::seconds otherwise,
                 const std::map<std::string, v1::TenantLimits>& tenants);

  // `owner`: Asker.tenant. Unset: as long as there is room; 0: nothing is stored.
  std::optional<std::chrono::seconds> KeptFor(const std::string& owner) const;
  bool MayStore(const std::string& owner) const { return KeptFor(owner) != kNothing; }
  // `tenant`: its name.
  bool IsMemoryOnly(const std::string& tenant) const { return memory_only_.contains(tenant); }

 private:
  static constexpr std::chrono::seconds kNothing{0};
  std::chrono::seconds otherwise_{0};
  std::map<std::string, std::chrono::seconds> ordered_;  // by owner
  std::set<std::string> memory_only_;                    // by name
};

}  // namespace macrame::agentd
