#include "agentd/gateway/dialects/dialect.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/gateway/dialects/answer_format.h"

namespace macrame::agentd {
namespace {

using nlohmann::ordered_json;

absl::string_view AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

Dialect DialectOfPath(absl::string_view path) {
  if (path == "/v1/messages" || absl::StartsWith(path, "/v1/messages/")) return Dialect::kAnthropic;
  if (absl::StartsWith(path, "/api/")) return Dialect::kOllama;
  return Dialect::kOpenAi;
}

std::string DialectErrorBody(Dialect dialect, const ApiError& error,
                             const std::string& request_id) {
  if (dialect == Dialect::kOpenAi) return ErrorBody(error);
  ordered_json body;
  if (dialect == Dialect::kOllama) {
    body["error"] = error.message;
    return Dump(body);
  }
  body["type"] = "error";
  body["error"]["type"] = std::string(AnthropicType(error.http_status));
  body["error"]["message"] = error.message;
  if (error.context_tokens > 0) {
    // Claude Code and LangChain look for these words, and shorten the conversation.
    body["error"]["message"] = absl::StrCat("prompt is too long: ", error.prompt_tokens,
                                            " tokens > ", error.context_tokens, " maximum");
  }
  if (error.code == kThreadUnsupported) {
    body["error"]["details"] = {{"error_code", error.code}, {"unsupported", {error.param}}};
  }
  body["request_id"] = request_id;
  return Dump(body);
}

}  // namespace macrame::agentd
