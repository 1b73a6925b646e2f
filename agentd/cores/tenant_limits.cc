#include "agentd/cores/tenant_limits.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "agentd/cores/node_marks.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

absl::Status Bad(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest, std::move(message));
}

// As of a key's tenant (agentd/gateway/access/api_key.cc), but that there is one.
bool IsName(const std::string& text) {
  return !text.empty() && text.size() <= kTenantBytesMax && FirstNonUtf8(text) == text.size() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 32 && c != 127; });
}

absl::Status Check(const v1::TenantLimits& tenant) {
  if (absl::Status named = CheckTenantName(tenant.name()); !named.ok()) return named;
  for (const uint32_t limit :
       {tenant.requests_per_minute(), tenant.tokens_per_minute(), tenant.concurrent_requests()}) {
    if (limit > kTenantLimitMax) {
      return Bad(absl::StrCat("a limit is at most ", kTenantLimitMax));
    }
  }
  if (tenant.retention_s() > kRetentionSecondsMax) {
    return Bad(absl::StrCat("answers are kept for at most ", kRetentionSecondsMax / 86'400,
                            " days; 0 stores none"));
  }
  return absl::OkStatus();
}

void TakeRetention(const v1::SetTenantRequest& request, const v1::TenantLimits& before,
                   v1::TenantLimits* now) {
  now->clear_retention_s();
  if (request.has_retention_s()) {
    now->set_retention_s(request.retention_s());
  } else if (before.has_retention_s() && !request.clear_retention()) {
    now->set_retention_s(before.retention_s());
  }
  now->set_memory_only(request.has_memory_only() ? request.memory_only() : before.memory_only());
}

bool HasSome(const v1::TenantLimits& tenant) {
  return tenant.requests_per_minute() > 0 || tenant.tokens_per_minute() > 0 ||
         tenant.concurrent_requests() > 0 || tenant.has_retention_s() || tenant.memory_only();
}

}  // namespace

absl::Status CheckTenantName(const std::string& name) {
  if (IsName(name)) return absl::OkStatus();
  return Bad(absl::StrCat("a tenant's name is 1 to ", kTenantBytesMax, " bytes of text"));
}

absl::StatusOr<TenantChange> DecideTenant(const v1::SetTenantRequest& request,
                                          const std::map<std::string, v1::TenantLimits>& tenants) {
  const auto present = tenants.find(request.name());
  const bool is_known = present != tenants.end();
  v1::TenantLimits limits = is_known && !request.clear() ? present->second : v1::TenantLimits();
  limits.set_name(request.name());
  if (request.has_requests_per_minute()) {
    limits.set_requests_per_minute(request.requests_per_minute());
  }
  if (request.has_tokens_per_minute()) limits.set_tokens_per_minute(request.tokens_per_minute());
  if (request.has_concurrent_requests()) {
    limits.set_concurrent_requests(request.concurrent_requests());
  }
  TakeRetention(request, is_known ? present->second : v1::TenantLimits(), &limits);
  if (absl::Status fits = Check(limits); !fits.ok()) return fits;
  TenantChange change;
  if (HasSome(limits)) change.value = limits.SerializeAsString();
  if (!change.value.empty() && !is_known && tenants.size() >= kLimitedTenantsMax) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kBadRequest,
                        absl::StrCat(kLimitedTenantsMax, " tenants have limits; clear some first"));
  }
  change.response.set_changed(change.value !=
                              (is_known ? present->second.SerializeAsString() : ""));
  *change.response.mutable_tenant() = std::move(limits);
  return change;
}

}  // namespace macrame::agentd
