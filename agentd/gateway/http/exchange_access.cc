// The part of Exchange that lets requests in: keys, limits, models.

#include <spdlog/spdlog.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/exchange.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kPathNotedBytesMax = 200;

// Orders, and what the page is told: it shows whoever may order what there is to order.
bool IsForOwnPage(const RouteAccess& needed, const std::string& path) {
  if (absl::StartsWith(path, "/dashboard/api/")) return true;
  return !needed.is_open && needed.scopes != 0 && (needed.scopes & (kScopeInfer | kScopeRead)) == 0;
}

AccessRules RulesOf(const GatewayOptions& options) { return {options.keys_required, options.open}; }

}  // namespace

Asker Exchange::WhoAsks() const {
  if (!principal().key_id.empty()) return AskerOfKey(principal().tenant, principal().key_id);
  return AskerOfText(
      ApiKeyOf(Plain(request()[http::field::authorization]), Plain(request()["x-api-key"])),
      connection_.IsFromLoopback() ? "" : absl::string_view(connection_.counted_as()));
}

void Exchange::NoteRefused(const ApiError& error, const std::string& key_id) const {
  RefusedRequest refused;
  refused.method = std::string(Plain(request().method_string()));
  refused.path = path_.substr(0, kPathNotedBytesMax);
  refused.key_id = key_id;
  refused.address = connection_.address();
  refused.status = error.http_status;
  refused.code = error.code;
  state()->access->NoteRefused(refused);
}

// Its texts are the parser's.
AccessQuestion Exchange::Question() const {
  AccessQuestion question;
  question.needed = state()->endpoints->AccessOf(Plain(request().method_string()), path_);
  question.authorization = Plain(request()[http::field::authorization]);
  question.x_api_key = Plain(request()["x-api-key"]);
  question.from_loopback = connection_.IsFromLoopback();
  return question;
}

std::optional<ApiError> Exchange::CheckAccess() {
  if (request().count(http::field::authorization) > 1 || request().count("x-api-key") > 1) {
    return HttpError(400, "The request carries more than one API key.", "malformed_http");
  }
  AccessQuestion question = Question();
  const std::shared_ptr<const KeyTable> keys = state()->access->keys();
  // It matters to whoever needs no key alone.
  by_own_page_ = keys->empty() && question.from_loopback && IsForOwnPage(question.needed, path_) &&
                 IsOwnPage(request(), connection_.stream().is_secure()) &&
                 connection_.IsOfObeyedUser();
  question.by_own_page = by_own_page_;
  auto answer = DecideAccess(question, *keys, RulesOf(options()), GatewayUnixMs());
  if (auto* refusal = std::get_if<AccessRefusal>(&answer)) {
    access_headers_ = std::move(refusal->headers);
    NoteRefused(refusal->error, refusal->key_id);
    return std::move(refusal->error);
  }
  own_backend_.emplace(*state()->backend, state()->access, std::get<Principal>(std::move(answer)));
  return std::nullopt;
}

bool Exchange::MayGoOn(const KeyTable& keys, uint64_t now_unix_ms) {
  if (!own_backend_.has_value()) return true;
  AccessQuestion question = Question();
  question.by_own_page = by_own_page_ && keys.empty();
  auto answer = DecideAccess(question, keys, RulesOf(options()), now_unix_ms);
  auto* now = std::get_if<Principal>(&answer);
  if (now == nullptr || !agentd::MayGoOn(principal(), *now, DeploymentOfReplica(record_.model))) {
    spdlog::info("gateway: request '{}' ends: it would not be let in any more (key '{}')",
                 request_id_, principal().key_id);
    return false;
  }
  if (*now != principal())
    own_backend_.emplace(*state()->backend, state()->access, std::move(*now));
  return true;
}

std::optional<ApiError> Exchange::CheckLimits() {
  if (principal().key_id.empty()) return std::nullopt;
  LimitVerdict verdict = state()->access->Begin(principal());
  access_headers_ = std::move(verdict.headers);
  if (verdict.refused.has_value()) {
    NoteRefused(*verdict.refused, principal().key_id);
    return std::move(verdict.refused);
  }
  limited_.emplace(state()->access, principal());
  return std::nullopt;
}

// Others' models are asked for as those that nobody has, which the backend sees to.
std::optional<ApiError> Exchange::CheckModelAccess(const std::string& model) {
  const std::string asked = asked_model_ == model ? "" : asked_model_;
  std::optional<ApiError> error = CheckModel(principal(), DeploymentOfReplica(model), asked);
  if (error.has_value()) NoteRefused(*error, principal().key_id);
  return error;
}

}  // namespace macrame::agentd
