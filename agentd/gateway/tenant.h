#pragma once

// Whose a request is, for the KV cache and the queue. Pure.
//
// Prefixes in the KV cache are shared within a tenant only: the tenant of the request's key, or the
// key where it has none. Where no keys are asked for, whatever key a client sends is a tenant, and
// all clients without one are together one. `cache_salt`
// in the body divides a tenant further. Turns in the queue are taken by tenant and `user`. What
// goes on from here are digests: no key leaves the gateway.

#include <string>

#include "absl/strings/string_view.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// 32 hex digits; empty for the empty text.
std::string DigestOf(absl::string_view kind, absl::string_view text);

// From the headers Authorization ("Bearer KEY") and X-Api-Key; empty: none.
absl::string_view ApiKeyOf(absl::string_view authorization, absl::string_view x_api_key);

// Puts the tenant before what the body has set. `api_key`: what the client sent.
void SetTenant(absl::string_view api_key, v1::GenerateRequest* request);
// Likewise of a key that was checked: its tenant, or, where it has none, the key itself. Turns in
// the queue are taken by key within a tenant.
void SetTenantOfKey(absl::string_view tenant, absl::string_view key_id,
                    v1::GenerateRequest* request);

}  // namespace macrame::agentd
