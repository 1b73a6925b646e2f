#include "agentd/gateway/base/tenant.h"

#include <openssl/sha.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

constexpr size_t kDigestBytes = 16;

}  // namespace

std::string DigestOf(absl::string_view kind, absl::string_view text) {
  if (text.empty()) return "";
  const std::string bytes = absl::StrCat("macrame ", kind, ":", text);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), kDigestBytes));
}

absl::string_view ApiKeyOf(absl::string_view authorization, absl::string_view x_api_key) {
  constexpr absl::string_view kBearer = "bearer ";
  if (absl::StartsWithIgnoreCase(authorization, kBearer)) {
    return absl::StripAsciiWhitespace(authorization.substr(kBearer.size()));
  }
  if (!authorization.empty()) return absl::StripAsciiWhitespace(authorization);
  return absl::StripAsciiWhitespace(x_api_key);
}

Asker AskerOfText(absl::string_view api_key, absl::string_view address) {
  const std::string place = DigestOf("address", address);
  return {DigestOf("key", api_key), place, place};
}

Asker AskerOfKey(absl::string_view tenant, absl::string_view key_id) {
  const std::string key = DigestOf("key id", key_id);
  const std::string owner = tenant.empty() ? key : OwnerOfTenant(tenant);
  return {owner, owner, key};
}

std::string OwnerOfTenant(absl::string_view tenant) { return DigestOf("tenant", tenant); }

void SetTenant(const Asker& asker, v1::GenerateRequest* request) {
  // Also where both are empty: what stands before the slash is never the client's own word.
  request->set_fairness_key(absl::StrCat(asker.queue, "/", request->fairness_key()));
  if (asker.tenant.empty()) return;
  request->set_cache_salt(absl::StrCat(asker.tenant, "/", request->cache_salt()));
}

}  // namespace macrame::agentd
