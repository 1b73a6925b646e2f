#include "agentd/gateway/access/api_key.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "proto/utf8.h"

namespace macrame::agentd {
namespace {

constexpr absl::string_view kPrefix = "mk-";
constexpr size_t kIdDigits = 2 * kKeyIdBytes;
constexpr size_t kSecretDigits = 2 * kKeySecretBytes;

struct ScopeName {
  absl::string_view name;
  uint32_t bit;
  uint32_t includes;
};

constexpr std::array kScopes = {
    ScopeName{"infer", kScopeInfer, kScopeInfer},
    ScopeName{"read", kScopeRead, kScopeRead},
    ScopeName{"operate", kScopeOperate, kScopeOperate | kScopeRead},
    ScopeName{"admin", kScopeAdmin, kScopeAdmin | kScopeOperate | kScopeRead | kScopeInfer},
};

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

absl::Status Wrong(const std::string& what) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest, what);
}

// For people and headers: no control characters, valid UTF-8.
bool IsPlain(const std::string& text) {
  return FirstNonUtf8(text) == text.size() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= 32 && c != 127; });
}

absl::Status CheckLimits(const v1::ApiKey& key) {
  for (const uint32_t limit :
       {key.requests_per_minute(), key.tokens_per_minute(), key.concurrent_requests()}) {
    if (limit > kKeyLimitMax) return Wrong(absl::StrCat("a limit is at most ", kKeyLimitMax));
  }
  return absl::OkStatus();
}

// What clusterctl asks is not counted, and no model of one tenant's is told from another's there.
absl::Status CheckAccessFileKey(const v1::ApiKey& key, uint64_t now_unix_ms) {
  if (!key.tenant().empty() || key.models_size() > 0 || key.requests_per_minute() > 0 ||
      key.tokens_per_minute() > 0 || key.concurrent_requests() > 0) {
    return Wrong("the key of an access file has no tenant, models or limits");
  }
  if (key.expires_unix_ms() == 0 || key.expires_unix_ms() - now_unix_ms > kAccessFileMsMax) {
    return Wrong("an access file ends after 400 days at the most");
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t ScopeBit(absl::string_view name) {
  for (const ScopeName& scope : kScopes) {
    if (scope.name == name) return scope.bit;
  }
  return 0;
}

uint32_t ScopesOf(const v1::ApiKey& key) {
  uint32_t scopes = 0;
  for (const std::string& name : key.scopes()) {
    for (const ScopeName& scope : kScopes) {
      if (scope.name == name) scopes |= scope.includes;
    }
  }
  return scopes;
}

std::string ScopeNames(uint32_t scopes) {
  std::string names;
  for (const ScopeName& scope : kScopes) {
    if ((scopes & scope.bit) == 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : " or ", scope.name);
  }
  return names;
}

std::string FormatApiKey(absl::string_view id, absl::string_view secret) {
  return absl::StrCat(kPrefix, id, "-", secret);
}

std::optional<ApiKeyText> ParseApiKey(absl::string_view text) {
  if (text.size() != kPrefix.size() + kIdDigits + 1 + kSecretDigits) return std::nullopt;
  const absl::string_view id = text.substr(kPrefix.size(), kIdDigits);
  const absl::string_view secret = text.substr(kPrefix.size() + kIdDigits + 1);
  if (!absl::StartsWith(text, kPrefix) || text[kPrefix.size() + kIdDigits] != '-' || !IsHex(id) ||
      !IsHex(secret)) {
    return std::nullopt;
  }
  return ApiKeyText{std::string(id), std::string(secret)};
}

std::string KeyDigest(absl::string_view secret) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), digest);
  return std::string(reinterpret_cast<const char*>(digest), sizeof(digest));
}

absl::Status CheckNewKey(const v1::ApiKey& key, uint64_t now_unix_ms) {
  if (key.name().size() > kKeyNameBytesMax || !IsPlain(key.name())) {
    return Wrong(absl::StrCat("a key's name is at most ", kKeyNameBytesMax, " bytes of text"));
  }
  if (key.tenant().size() > kKeyNameBytesMax || !IsPlain(key.tenant())) {
    return Wrong(absl::StrCat("a tenant's name is at most ", kKeyNameBytesMax, " bytes of text"));
  }
  if (key.scopes().empty()) return Wrong("a key needs a scope: infer, read, operate or admin");
  for (const std::string& scope : key.scopes()) {
    if (ScopeBit(scope) != 0) continue;
    return Wrong(absl::StrCat("there is no scope '", scope.substr(0, 40),
                              "': there are infer, read, operate and admin"));
  }
  if (key.expires_unix_ms() != 0 && key.expires_unix_ms() <= now_unix_ms) {
    return Wrong("the key would have expired already");
  }
  const bool models_fit =
      static_cast<size_t>(key.models_size()) <= kKeyModelsMax &&
      std::all_of(key.models().begin(), key.models().end(), [](const std::string& model) {
        return !model.empty() && model.size() <= kKeyModelBytesMax && IsPlain(model);
      });
  if (!models_fit) {
    return Wrong(absl::StrCat("a key names at most ", kKeyModelsMax, " models, each by a name of ",
                              kKeyModelBytesMax, " bytes at the most"));
  }
  if (key.has_access_file()) {
    if (absl::Status fits = CheckAccessFileKey(key, now_unix_ms); !fits.ok()) return fits;
  }
  return CheckLimits(key);
}

const v1::ApiKey* KeyTable::Find(absl::string_view text) const {
  const std::optional<ApiKeyText> parsed = ParseApiKey(text);
  if (!parsed.has_value()) return nullptr;
  static const std::string kNoDigest(SHA256_DIGEST_LENGTH, '\0');
  const auto found = keys_.find(parsed->id);
  const bool is_there =
      found != keys_.end() && found->second.secret_digest().size() == SHA256_DIGEST_LENGTH;
  const std::string digest = KeyDigest(parsed->secret);
  const std::string& kept = is_there ? found->second.secret_digest() : kNoDigest;
  const bool same = CRYPTO_memcmp(digest.data(), kept.data(), digest.size()) == 0;
  return is_there && same ? &found->second : nullptr;
}

bool KeyTable::IsInForce(const std::string& id, uint64_t now_unix_ms) const {
  const auto found = keys_.find(id);
  if (found == keys_.end() || found->second.revoked_unix_ms() != 0) return false;
  return found->second.expires_unix_ms() == 0 || found->second.expires_unix_ms() > now_unix_ms;
}

}  // namespace macrame::agentd
