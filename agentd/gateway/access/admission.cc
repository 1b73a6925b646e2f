#include "agentd/gateway/access/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/base/tenant.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

AccessRefusal Unauthorized(const std::string& message, bool was_shown, std::string key_id = "") {
  AccessRefusal refusal;
  refusal.error = HttpError(401, message, "invalid_api_key");
  refusal.error.type = "invalid_request_error";
  refusal.headers.emplace_back(
      "www-authenticate",
      was_shown ? R"(Bearer realm="macrame", error="invalid_token")" : R"(Bearer realm="macrame")");
  refusal.key_id = std::move(key_id);
  return refusal;
}

AccessRefusal BeyondScope(uint32_t needed, std::string key_id) {
  AccessRefusal refusal;
  refusal.error = HttpError(
      403,
      absl::StrCat("This API key lacks the scope for that: it needs ", ScopeNames(needed), "."),
      "insufficient_permissions");
  refusal.headers.emplace_back("www-authenticate",
                               R"(Bearer realm="macrame", error="insufficient_scope")");
  refusal.key_id = std::move(key_id);
  return refusal;
}

// Who needs no key may ask models and look; and, at this machine's own page, load and unload.
Principal Anybody(bool may_operate = false) {
  Principal principal;
  principal.scopes = kScopeInfer | kScopeRead;
  if (may_operate) principal.scopes |= kScopeOperate;
  return principal;
}

uint32_t ScopeOf(Remote needed) {
  switch (needed) {
    case Remote::kNobody:
      return 0;
    case Remote::kInfer:
      return kScopeInfer;
    case Remote::kRead:
      return kScopeRead;
    case Remote::kOperate:
      return kScopeOperate;
    case Remote::kAdmin:
      return kScopeAdmin;
  }
  return 0;
}

}  // namespace

Principal PrincipalOf(const v1::ApiKey& key) {
  Principal principal;
  principal.key_id = key.id();
  principal.tenant = key.tenant();
  principal.scopes = ScopesOf(key);
  principal.models.assign(key.models().begin(), key.models().end());
  principal.requests_per_minute = key.requests_per_minute();
  principal.tokens_per_minute = key.tokens_per_minute();
  principal.concurrent_requests = key.concurrent_requests();
  return principal;
}

std::variant<Principal, AccessRefusal> DecideAccess(const AccessQuestion& question,
                                                    const KeyTable& keys, const AccessRules& rules,
                                                    uint64_t now_unix_ms) {
  const RouteAccess& needed = question.needed;
  if (needed.is_open) return Anybody();
  const bool without =
      keys.empty() && !rules.keys_required && (question.from_loopback || rules.is_open);
  if (without) {
    Principal anybody = Anybody(question.from_loopback && question.by_own_page && !rules.is_open);
    if (needed.scopes == 0 || (needed.scopes & anybody.scopes) != 0) return anybody;
    return Unauthorized(
        absl::StrCat("This needs an API key with the scope ", ScopeNames(needed.scopes),
                     ". Make one with 'clusterctl key create --scope ", ScopeNames(needed.scopes),
                     "'."),
        false);
  }
  const absl::string_view shown = ApiKeyOf(question.authorization, question.x_api_key);
  if (keys.empty()) {
    return Unauthorized(
        "API keys are asked for here, and there are none yet. Make one with 'clusterctl key "
        "create' on a machine of the cluster.",
        !shown.empty());
  }
  if (shown.empty()) {
    return Unauthorized("No API key was sent. Send one as 'Authorization: Bearer KEY'.", false);
  }
  const v1::ApiKey* key = keys.Find(shown);
  if (key == nullptr) return Unauthorized("This API key is not known here.", true);
  if (key->revoked_unix_ms() != 0) {
    return Unauthorized("This API key was revoked.", true, key->id());
  }
  if (key->expires_unix_ms() != 0 && key->expires_unix_ms() <= now_unix_ms) {
    return Unauthorized("This API key has expired.", true, key->id());
  }
  Principal principal = PrincipalOf(*key);
  if (needed.scopes != 0 && (needed.scopes & principal.scopes) == 0) {
    return BeyondScope(needed.scopes, key->id());
  }
  return principal;
}

bool MayGoOn(const Principal& then, const Principal& now, absl::string_view deployment) {
  return then.key_id == now.key_id && then.tenant == now.tenant &&
         (deployment.empty() || MaySee(now, deployment, ""));
}

absl::Status CheckRemoteCall(const std::map<std::string, v1::ApiKey>& keys,
                             const std::string& key_id, Remote needed, uint64_t now_unix_ms) {
  const auto found = keys.find(key_id);
  const auto ended = [&](absl::string_view why) {
    return ReasonStatus(absl::StatusCode::kUnauthenticated, reasons::kKeyNotFound,
                        absl::StrCat("the access file's key ", key_id, " ", why));
  };
  if (found == keys.end() || !found->second.has_access_file()) return ended("is not known here");
  const v1::ApiKey& key = found->second;
  if (key.revoked_unix_ms() != 0) return ended("was revoked");
  if (key.expires_unix_ms() <= now_unix_ms) return ended("has expired");
  const uint32_t bit = ScopeOf(needed);
  if ((bit & ScopesOf(key)) != 0) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kBeyondScope,
                      bit == 0 ? "that is not answered to an access file"
                               : absl::StrCat("the access file's key ", key_id, " lacks the scope ",
                                              ScopeNames(bit)));
}

bool MaySee(const Principal& principal, absl::string_view deployment, absl::string_view tenant) {
  if (!tenant.empty() && tenant != principal.tenant) return false;
  return principal.models.empty() || std::find(principal.models.begin(), principal.models.end(),
                                               deployment) != principal.models.end();
}

std::optional<ApiError> CheckModel(const Principal& principal, absl::string_view deployment,
                                   absl::string_view asked) {
  if (MaySee(principal, deployment, "")) return std::nullopt;
  if (asked.empty()) asked = deployment;
  ApiError error = HttpError(
      403, absl::StrCat("This API key may not use the model '", asked.substr(0, 200), "'."),
      "model_not_allowed");
  error.param = "model";
  return error;
}

}  // namespace macrame::agentd
