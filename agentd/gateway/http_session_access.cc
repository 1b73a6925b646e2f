// The part of HttpSession that lets requests in: keys, limits, models.

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/admission.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/http_session.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kPathNotedBytesMax = 200;

absl::string_view TextOf(beast::string_view text) { return {text.data(), text.size()}; }

uint64_t UnixMs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

InferenceBackend& HttpSession::Backend() {
  if (own_backend_.has_value()) return *own_backend_;
  return *state_->backend;
}

void HttpSession::NoteRefused(const ApiError& error, const std::string& key_id) const {
  RefusedRequest refused;
  refused.method = std::string(TextOf(parser_->get().method_string()));
  refused.path = Path().substr(0, kPathNotedBytesMax);
  refused.key_id = key_id;
  refused.address = address_;
  refused.status = error.http_status;
  refused.code = error.code;
  state_->access->NoteRefused(refused);
}

std::optional<ApiError> HttpSession::CheckAccess(const std::string& path) {
  const auto& request = parser_->get();
  if (request.count(http::field::authorization) > 1 || request.count("x-api-key") > 1) {
    return HttpError(400, "The request carries more than one API key.", "malformed_http");
  }
  beast::error_code gone;
  const auto remote = stream_.socket().remote_endpoint(gone);
  AccessQuestion question;
  question.method = TextOf(request.method_string());
  question.path = path;
  question.authorization = TextOf(request[http::field::authorization]);
  question.x_api_key = TextOf(request["x-api-key"]);
  question.from_loopback = !gone && PlainAddress(remote.address()).is_loopback();
  question.by_own_page = IsOwnPage();
  const AccessRules rules{state_->options.keys_required, state_->options.open};
  const std::shared_ptr<const KeyTable> keys = state_->access->keys();
  auto answer = DecideAccess(question, *keys, rules, UnixMs());
  if (auto* refusal = std::get_if<AccessRefusal>(&answer)) {
    access_headers_ = std::move(refusal->headers);
    NoteRefused(refusal->error, refusal->key_id);
    return std::move(refusal->error);
  }
  own_backend_.emplace(*state_->backend, state_->access, std::get<Principal>(std::move(answer)));
  return std::nullopt;
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
  limited_.emplace(state_->access, principal.key_id);
  return std::nullopt;
}

std::optional<ApiError> HttpSession::CheckModelAccess(const std::string& model) {
  const Principal& principal = own_backend_->principal();
  std::optional<ApiError> error = CheckModel(principal, DeploymentOfReplica(model));
  if (error.has_value()) NoteRefused(*error, principal.key_id);
  return error;
}

}  // namespace macrame::agentd
