#include "agentd/gateway/api_error.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

struct ReasonMapping {
  absl::string_view reason;
  int http_status;
  absl::string_view code;
  absl::string_view param;
  int retry_after_seconds;
};

// 409 is never used: OpenAI's clients try it again.
constexpr std::array kReasonMappings = {
    ReasonMapping{reasons::kModelNotLoaded, 404, "model_not_found", "model", 0},
    ReasonMapping{reasons::kClusterPaused, 503, "cluster_paused", "", 5},
    ReasonMapping{reasons::kModelNotFound, 404, "model_not_found", "model", 0},
    ReasonMapping{reasons::kModelAmbiguous, 400, "model_ambiguous", "model", 0},
    ReasonMapping{reasons::kPromptTooLong, 400, "context_length_exceeded", "messages", 0},
    ReasonMapping{reasons::kTemplateRefused, 400, "template_refused", "messages", 0},
    ReasonMapping{reasons::kStructureRefused, 400, "invalid_value", "response_format", 0},
    ReasonMapping{reasons::kModelHasNoEmbeddings, 400, "model_has_no_embeddings", "model", 0},
    ReasonMapping{reasons::kModelHasNoText, 400, "model_has_no_text", "model", 0},
    ReasonMapping{reasons::kDimensionsTooMany, 400, "invalid_value", "dimensions", 0},
    ReasonMapping{reasons::kBadRequest, 400, "invalid_value", "", 0},
    ReasonMapping{reasons::kQueueFull, 429, "queue_full", "", 1},
    ReasonMapping{reasons::kQueueTimeout, 503, "queue_timeout", "", 5},
    ReasonMapping{reasons::kNotReady, 503, "model_not_ready", "", 2},
    ReasonMapping{reasons::kEntryUnreachable, 503, "entry_unreachable", "", 2},
    ReasonMapping{reasons::kNodeLeft, 503, "node_stopping", "", 5},
    ReasonMapping{reasons::kNoCoordinator, 503, "no_coordinator", "", 2},
    ReasonMapping{reasons::kGangLostNode, 503, "model_recovering", "", 2},
    ReasonMapping{reasons::kRankExited, 503, "model_recovering", "", 2},
    ReasonMapping{reasons::kRankKilled, 503, "model_recovering", "", 2},
    ReasonMapping{reasons::kRankStalled, 503, "model_recovering", "", 2},
    ReasonMapping{reasons::kEngineFailed, 503, "model_recovering", "", 2},
};

struct CodeMapping {
  absl::StatusCode status;
  int http_status;
  absl::string_view code;
  int retry_after_seconds;
};

constexpr std::array kCodeMappings = {
    CodeMapping{absl::StatusCode::kInvalidArgument, 400, "invalid_value", 0},
    CodeMapping{absl::StatusCode::kOutOfRange, 400, "invalid_value", 0},
    CodeMapping{absl::StatusCode::kNotFound, 404, "model_not_found", 0},
    CodeMapping{absl::StatusCode::kPermissionDenied, 403, "permission_denied", 0},
    CodeMapping{absl::StatusCode::kUnauthenticated, 401, "unauthenticated", 0},
    CodeMapping{absl::StatusCode::kResourceExhausted, 429, "queue_full", 1},
    CodeMapping{absl::StatusCode::kUnavailable, 503, "unavailable", 2},
    CodeMapping{absl::StatusCode::kFailedPrecondition, 503, "unavailable", 2},
    CodeMapping{absl::StatusCode::kAborted, 503, "unavailable", 2},
    CodeMapping{absl::StatusCode::kCancelled, 503, "cancelled", 2},
    CodeMapping{absl::StatusCode::kDeadlineExceeded, 504, "timed_out", 0},
};

absl::string_view TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "unavailable_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string WithRemedy(const v1::Reason& reason) {
  if (reason.remedy().empty()) return reason.message();
  return absl::StrCat(reason.message(), ". ", reason.remedy());
}

}  // namespace

ApiError BadRequest(std::string message, std::string param, std::string code) {
  return ApiError{
      400, std::move(message), "invalid_request_error", std::move(param), std::move(code), 0};
}

ApiError HttpError(int http_status, std::string message, std::string code) {
  return ApiError{http_status, std::move(message), std::string(TypeOf(http_status)),
                  "",          std::move(code),    0};
}

ApiError ApiErrorFromStatus(const absl::Status& status) {
  const v1::Reason reason = ReasonOf(status);
  for (const ReasonMapping& known : kReasonMappings) {
    if (known.reason != reason.code()) continue;
    ApiError error = HttpError(known.http_status, WithRemedy(reason), std::string(known.code));
    error.param = std::string(known.param);
    error.retry_after_seconds = known.retry_after_seconds;
    return error;
  }
  for (const CodeMapping& known : kCodeMappings) {
    if (known.status != status.code()) continue;
    ApiError error = HttpError(known.http_status, WithRemedy(reason), std::string(known.code));
    error.retry_after_seconds = known.retry_after_seconds;
    return error;
  }
  return HttpError(500, "The request failed inside the cluster; the agent's log has the cause.",
                   "internal");
}

std::string ErrorBody(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json fields;
  fields["message"] = error.message;
  fields["type"] = error.type;
  fields["param"] = text_or_null(error.param);
  fields["code"] = text_or_null(error.code);
  nlohmann::ordered_json body;
  body["error"] = std::move(fields);
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace macrame::agentd
