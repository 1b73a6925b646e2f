#pragma once

// Errors as OpenAI's clients read them: {"error":{"message","type","param","code"}} and a status
// that tells them whether to try again (429 and 503 come with retry-after). Pure.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace macrame::agentd {

struct ApiError {
  int http_status = 500;
  std::string message;          // for people; no paths, no addresses of other nodes
  std::string type;             // "invalid_request_error", "rate_limit_error", …
  std::string param;            // the field at fault, "messages[2].content"; empty: null
  std::string code;             // stable, for programs; empty: null
  int retry_after_seconds = 0;  // 0: no such header
  // Of a prompt that is too long, in tokens; 0: not known.
  uint64_t prompt_tokens = 0;
  uint64_t context_tokens = 0;
};

// 400 with type invalid_request_error.
ApiError BadRequest(std::string message, std::string param, std::string code);
// Any status with the type that belongs to it.
ApiError HttpError(int http_status, std::string message, std::string code);

// What the backend answered, as HTTP. The Reason's code decides, then the status's; what is
// internal is not told to the client (the caller logs it).
ApiError ApiErrorFromStatus(const absl::Status& status);

// The body. Text that is not UTF-8 is replaced, never thrown at.
std::string ErrorBody(const ApiError& error);

}  // namespace macrame::agentd
