#pragma once

// What an order to set or clear a tenant's limits, or what is kept of it, changes. Pure.

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/access.pb.h"

namespace macrame::agentd {

inline constexpr size_t kLimitedTenantsMax = 512;
// Of each limit; as of a key's (agentd/gateway/access/api_key.h).
inline constexpr uint32_t kTenantLimitMax = 1'000'000'000;

// Of how long answers are kept: ten years.
inline constexpr uint32_t kRetentionSecondsMax = 3660u * 24 * 3600;

// BAD_REQUEST (INVALID_ARGUMENT): the name is empty, too long or no line of text.
absl::Status CheckTenantName(const std::string& name);

struct TenantChange {
  std::string value;  // a v1::TenantLimits, to be written; empty: the key is removed
  v1::SetTenantResponse response;
};

// `tenants`: all that have limits, by name. A tenant whose limits are all zero, and of which
// nothing is said to be kept or not, takes no room among them. Clearing limits leaves how long
// answers are kept as it was. INVALID_ARGUMENT with BAD_REQUEST: the name is empty, too long or no
// line of text, or a limit or time is too high. RESOURCE_EXHAUSTED: kLimitedTenantsMax others have
// limits.
absl::StatusOr<TenantChange> DecideTenant(const v1::SetTenantRequest& request,
                                          const std::map<std::string, v1::TenantLimits>& tenants);

}  // namespace macrame::agentd
