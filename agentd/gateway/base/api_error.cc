#include "agentd/gateway/base/api_error.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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
    // What asking again alone does not change: clients try a 429, a 503 and a 500 again, some for
    // ever.
    ReasonMapping{reasons::kModelFileMissing, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kModelFileBroken, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kModelConfigInvalid, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kModelArchitectureUnknown, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kModelFormatUnsupported, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kTokenizerInvalid, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kEngineMissing, 400, "model_unusable", "model", 0},
    ReasonMapping{reasons::kMemoryShort, 400, "memory_short", "model", 0},
    ReasonMapping{reasons::kDiskShort, 400, "disk_short", "model", 0},
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
    CodeMapping{absl::StatusCode::kResourceExhausted, 503, "unavailable", 2},
    CodeMapping{absl::StatusCode::kUnavailable, 503, "unavailable", 2},
    CodeMapping{absl::StatusCode::kFailedPrecondition, 400, "failed_precondition", 0},
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

bool IsPathByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '_' ||
         c == '-' || c == '+' || c == '@' || c == '%' || static_cast<unsigned char>(c) >= 0x80;
}

// Paths of the gateway's own, which clients ask.
bool IsServedPath(absl::string_view path) {
  for (const absl::string_view own : {"/v1/", "/api/", "/tokenize", "/detokenize"}) {
    if (absl::StartsWith(path, own)) return true;
  }
  return false;
}

// How many bytes the path of a file or folder has that `text` begins with; 0: it begins with none.
size_t PathBytes(absl::string_view text) {
  const size_t slash = absl::StartsWith(text, "~/") ? 1 : 0;
  if (slash >= text.size() || text[slash] != '/') return 0;
  size_t end = slash;
  while (end < text.size() && IsPathByte(text[end])) ++end;
  while (end > slash && text[end - 1] == '.') --end;  // a sentence's
  const absl::string_view path = text.substr(0, end);
  const bool has_name = path.find_first_not_of("/~") != absl::string_view::npos;
  return has_name && !IsServedPath(path) ? end : 0;
}

// Of each path the last name alone: where models lie is nobody's business who asks one.
std::string WithoutFolders(absl::string_view text) {
  std::string told;
  bool is_within_word = false;  // "either/or", "https://…", "acme/model"
  while (!text.empty()) {
    const size_t bytes = is_within_word ? 0 : PathBytes(text);
    if (bytes == 0) {
      is_within_word = IsPathByte(text[0]) || text[0] == ':';
      // "broken:/a/b" is a path, "https://a" none.
      if (text[0] == ':') is_within_word = absl::StartsWith(text, "://");
      told += text[0];
      text.remove_prefix(1);
      continue;
    }
    absl::string_view path = text.substr(0, bytes);
    while (absl::EndsWith(path, "/")) path.remove_suffix(1);
    absl::StrAppend(&told, path.substr(path.rfind('/') + 1));
    text.remove_prefix(bytes);
    is_within_word = true;
  }
  return told;
}

std::string WithRemedy(const v1::Reason& reason) {
  if (reason.remedy().empty()) return WithoutFolders(reason.message());
  return WithoutFolders(absl::StrCat(reason.message(), ". ", reason.remedy()));
}

// The number that ends before `end`.
uint64_t NumberBefore(absl::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && absl::ascii_isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  uint64_t number = 0;
  return absl::SimpleAtoi(text.substr(begin, end - begin), &number) ? number : 0;
}

// Ranks of any version say "the prompt has N tokens, …context of M". Clients look for OpenAI's
// words, and shorten the conversation.
void TellContext(ApiError* error) {
  const absl::string_view text = error->message;
  const size_t tokens = text.find(" tokens");
  size_t end = text.find(". ");
  if (end == absl::string_view::npos) end = text.size();
  if (tokens == absl::string_view::npos) return;
  error->prompt_tokens = NumberBefore(text, tokens);
  error->context_tokens = NumberBefore(text, end);
  if (error->prompt_tokens == 0 || error->context_tokens == 0) return;
  const bool is_least = absl::StrContains(text, "at least") || absl::StrContains(text, "more than");
  error->message = absl::StrCat(
      "This model's maximum context length is ", error->context_tokens,
      " tokens. However, your prompt has ", is_least ? "at least " : "", error->prompt_tokens,
      " tokens. Shorten the prompt, or load the model with a longer context.");
}

// The way to the rank carries messages up to a size; gRPC gives the same code as for a full queue.
bool IsTooLarge(const absl::Status& status, const v1::Reason& reason) {
  return absl::IsResourceExhausted(status) && reason.code() == reasons::kInternal &&
         absl::StrContains(status.message(), "larger than max");
}

}  // namespace

ApiError BadRequest(std::string message, std::string param, std::string code) {
  return ApiError{400, std::move(message), "invalid_request_error", std::move(param),
                  std::move(code)};
}

ApiError HttpError(int http_status, std::string message, std::string code) {
  return ApiError{http_status, std::move(message), std::string(TypeOf(http_status)), "",
                  std::move(code)};
}

ApiError ApiErrorFromStatus(const absl::Status& status) {
  const v1::Reason reason = ReasonOf(status);
  if (IsTooLarge(status, reason)) {
    return HttpError(413,
                     "The request or its answer is larger than a message within the cluster may "
                     "be. Send less at once.",
                     "message_too_large");
  }
  for (const ReasonMapping& known : kReasonMappings) {
    if (known.reason != reason.code()) continue;
    ApiError error = HttpError(known.http_status, WithRemedy(reason), std::string(known.code));
    error.param = std::string(known.param);
    error.retry_after_seconds = known.retry_after_seconds;
    if (known.reason == reasons::kPromptTooLong) TellContext(&error);
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
