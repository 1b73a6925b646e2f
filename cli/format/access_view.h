#pragma once

// Keys of the HTTP API and lines of the audit log, for people. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "cli/format/message_json.h"
#include "cli/format/text.h"
#include "macrame/v1/access.pb.h"

namespace macrame::cli {

// "2026-11-25 14:05 UTC"; "never" for 0, and for what comes after the year 9999.
std::string TimeText(uint64_t unix_ms);
// "60 requests/min, 2 at once"; "none". Of a tenant with what is kept: "answers kept 24h, memory
// only".
std::string LimitsText(const v1::ApiKey& key);
std::string LimitsText(const v1::TenantLimits& tenant);
// Which nodes dropped what, and which could not be asked.
std::string ErasureView(const v1::EraseTenantResponse& erased, int width, const Style& style);
std::string TenantsView(const v1::ListTenantsResponse& tenants, int width, const Style& style);

// With what each took of energy, where gateways know it.
std::string KeysView(const v1::ListKeysResponse& keys, const v1::GetKeyEnergyResponse& energy,
                     uint64_t now_unix_ms, int width, const Style& style);
// `entries`: lines of the log, parsed; one that is none is shown as what it is.
std::string AuditView(const std::vector<Json>& entries, int width, const Style& style);

}  // namespace macrame::cli
