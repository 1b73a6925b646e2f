#include "agentd/gateway/access/retention.h"

#include "agentd/gateway/base/tenant.h"

namespace macrame::agentd {

RetentionRules::RetentionRules(std::chrono::seconds otherwise,
                               const std::map<std::string, v1::TenantLimits>& tenants)
    : otherwise_(otherwise) {
  for (const auto& [name, tenant] : tenants) {
    if (tenant.memory_only()) memory_only_.insert(name);
    if (tenant.has_retention_s()) {
      ordered_[OwnerOfTenant(name)] = std::chrono::seconds(tenant.retention_s());
    }
  }
}

std::optional<std::chrono::seconds> RetentionRules::KeptFor(const std::string& owner) const {
  const auto found = ordered_.find(owner);
  if (found != ordered_.end()) return found->second;
  if (otherwise_ == kNothing) return std::nullopt;
  return otherwise_;
}

}  // namespace macrame::agentd
