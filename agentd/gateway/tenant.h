#pragma once

// Whose a request is, as far as a gateway without accounts can tell. Pure.
//
// Prefixes in the KV cache are shared within a tenant only: an API key that a client sends is one
// (whatever it is; nobody checks it yet), all clients without a key are together one. `cache_salt`
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

// Puts the tenant before what the body has set.
void SetTenant(absl::string_view api_key, v1::GenerateRequest* request);

}  // namespace macrame::agentd
