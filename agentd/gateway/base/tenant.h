#pragma once

// Whose a request is, for the KV cache and the queue. Pure.
//
// Prefixes in the KV cache are shared within a tenant only: the tenant of the request's key, or the
// key where it has none. Where no keys are asked for, whatever key a client sends is a tenant, and
// all clients without one are together one. `cache_salt`
// in the body divides a tenant further. Turns in the queue are taken by key and `user`; where no
// keys are asked for by address and `user`, since a client may send any number of keys that nobody
// made. What goes on from here are digests: no key leaves the gateway.

#include <string>

#include "absl/strings/string_view.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// 32 hex digits; empty for the empty text.
std::string DigestOf(absl::string_view kind, absl::string_view text);

// From the headers Authorization ("Bearer KEY") and X-Api-Key; empty: none.
absl::string_view ApiKeyOf(absl::string_view authorization, absl::string_view x_api_key);

// Whose a request is, in digests.
struct Asker {
  // Whose prefixes it shares, and whose stored answers it may read; empty: it carries no key.
  std::string tenant;
  // Whose share of what the gateway keeps it takes: the tenant, or, where no keys are asked for,
  // the address; empty: it comes from this machine.
  std::string holder;
  // With whom it takes turns; empty: it carries no known key, and comes from this machine.
  std::string queue;
};
// `api_key`: what a client sends where no keys are asked for; `address`: where it is, as it is
// counted; empty on this machine.
Asker AskerOfText(absl::string_view api_key, absl::string_view address);
// Of a key that was checked: its tenant, or, where it has none, the key itself. Turns in the queue
// are taken by key within a tenant.
Asker AskerOfKey(absl::string_view tenant, absl::string_view key_id);
// Asker.tenant of all keys of this tenant.
std::string OwnerOfTenant(absl::string_view tenant);

// Puts whose it is before what the body has set.
void SetTenant(const Asker& asker, v1::GenerateRequest* request);

}  // namespace macrame::agentd
