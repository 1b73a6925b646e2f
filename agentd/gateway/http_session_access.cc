// The part of HttpSession that lets requests in: keys, limits, models.

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/admission.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/http_session.h"
#include "agentd/gateway/peer_user.h"
#include "agentd/gateway/routes.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kPathNotedBytesMax = 200;

// Orders, and what the page is told: it shows whoever may order what there is to order.
bool IsForOwnPage(absl::string_view method, const std::string& path) {
  if (absl::StartsWith(path, "/dashboard/api/")) return true;
  const RouteAccess route = AccessOf(method, path);
  return !route.is_open && route.scopes != 0 && (route.scopes & (kScopeInfer | kScopeRead)) == 0;
}

}  // namespace

// Nothing is there for who was not let in.
InferenceBackend& HttpSession::Backend() { return own_backend_.value(); }

Asker HttpSession::WhoAsks() const {
  const Principal& principal = own_backend_->principal();
  if (!principal.key_id.empty()) return AskerOfKey(principal.tenant, principal.key_id);
  const auto& request = parser_->get();
  return AskerOfText(
      ApiKeyOf(Plain(request[http::field::authorization]), Plain(request["x-api-key"])),
      IsFromLoopback() ? "" : absl::string_view(counted_as_));
}

void HttpSession::NoteRefused(const ApiError& error, const std::string& key_id) const {
  RefusedRequest refused;
  refused.method = std::string(Plain(parser_->get().method_string()));
  refused.path = Path().substr(0, kPathNotedBytesMax);
  refused.key_id = key_id;
  refused.address = address_;
  refused.status = error.http_status;
  refused.code = error.code;
  state_->access->NoteRefused(refused);
}

bool HttpSession::IsFromLoopback() const {
  beast::error_code gone;
  const auto remote = stream_.socket().remote_endpoint(gone);
  return !gone && PlainAddress(remote.address()).is_loopback();
}

bool HttpSession::IsOfObeyedUser() {
  if (!is_of_obeyed_user_.has_value()) is_of_obeyed_user_ = FindObeyedUser();
  return *is_of_obeyed_user_;
}

bool HttpSession::FindObeyedUser() const {
  const GatewayOptions& options = state_->options;
  if (!options.peer_user && !TellsPeerUsers()) return true;
  beast::error_code error, own_error;
  const auto peer = stream_.socket().remote_endpoint(error);
  const auto own = stream_.socket().local_endpoint(own_error);
  if (error || own_error) return false;
  const std::optional<uint32_t> user =
      options.peer_user ? options.peer_user() : UserOfPeer(peer, own);
  return user.has_value() && IsObeyedUser(*user, options.orders_group);
}

AccessQuestion HttpSession::QuestionOf(const std::string& path) const {
  const auto& request = parser_->get();
  AccessQuestion question;
  question.method = Plain(request.method_string());
  question.path = path;
  question.authorization = Plain(request[http::field::authorization]);
  question.x_api_key = Plain(request["x-api-key"]);
  question.from_loopback = IsFromLoopback();
  return question;
}

bool HttpSession::GivesWay(const std::string& path) const {
  if (AccessOf(Plain(parser_->get().method_string()), path).is_open) return true;
  return own_backend_->principal().key_id.empty() && !IsFromLoopback();
}

std::optional<ApiError> HttpSession::CheckAccess(const std::string& path) {
  const auto& request = parser_->get();
  if (request.count(http::field::authorization) > 1 || request.count("x-api-key") > 1) {
    return HttpError(400, "The request carries more than one API key.", "malformed_http");
  }
  AccessQuestion question = QuestionOf(path);
  const AccessRules rules{state_->options.keys_required, state_->options.open};
  const std::shared_ptr<const KeyTable> keys = state_->access->keys();
  // It matters to whoever needs no key alone.
  by_own_page_ = keys->empty() && question.from_loopback && IsForOwnPage(question.method, path) &&
                 IsOwnPage() && IsOfObeyedUser();
  question.by_own_page = by_own_page_;
  auto answer = DecideAccess(question, *keys, rules, GatewayUnixMs());
  if (auto* refusal = std::get_if<AccessRefusal>(&answer)) {
    access_headers_ = std::move(refusal->headers);
    NoteRefused(refusal->error, refusal->key_id);
    return std::move(refusal->error);
  }
  own_backend_.emplace(*state_->backend, state_->access, std::get<Principal>(std::move(answer)));
  return std::nullopt;
}

void HttpSession::RecheckAccess(const KeyTable& keys, uint64_t now_unix_ms) {
  if (!own_backend_.has_value()) return;
  const Principal& then = own_backend_->principal();
  const std::string path = Path();
  AccessQuestion question = QuestionOf(path);
  question.by_own_page = by_own_page_ && keys.empty();
  const AccessRules rules{state_->options.keys_required, state_->options.open};
  auto answer = DecideAccess(question, keys, rules, now_unix_ms);
  auto* now = std::get_if<Principal>(&answer);
  if (now == nullptr || !MayGoOn(then, *now, DeploymentOfReplica(record_.model))) {
    spdlog::info("gateway: request '{}' ends: it would not be let in any more (key '{}')",
                 request_id_, then.key_id);
    return Abort();
  }
  if (*now != then) own_backend_.emplace(*state_->backend, state_->access, std::move(*now));
}

std::optional<ApiError> HttpSession::CheckLimits() {
  const Principal& principal = own_backend_->principal();
  if (principal.key_id.empty()) return std::nullopt;
  LimitVerdict verdict = state_->access->Begin(principal);
  access_headers_ = std::move(verdict.headers);
  if (verdict.refused.has_value()) {
    NoteRefused(*verdict.refused, principal.key_id);
    return std::move(verdict.refused);
  }
  limited_.emplace(state_->access, principal);
  return std::nullopt;
}

// Others' models are asked for as those that nobody has, which the backend sees to.
std::optional<ApiError> HttpSession::CheckModelAccess(const std::string& model) {
  const Principal& principal = own_backend_->principal();
  const std::string asked = asked_model_ == model ? "" : asked_model_;
  std::optional<ApiError> error = CheckModel(principal, DeploymentOfReplica(model), asked);
  if (error.has_value()) NoteRefused(*error, principal.key_id);
  return error;
}

ApiError HttpSession::FailureOf(const absl::Status& status, const std::string& model) {
  // What an alias leads to is told to those alone who may know of it.
  const std::string deployment = DeploymentOfReplica(model);
  const bool is_seen = FindModel(Backend().ListModels(), deployment) != nullptr;
  return DescribeFailure(status, is_seen || asked_model_.empty() ? model : asked_model_, Backend());
}

}  // namespace macrame::agentd
