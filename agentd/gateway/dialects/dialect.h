#pragma once

// The APIs that are spoken here beside OpenAI's, and what their errors look like. Pure.
//
// A dialect is a reader that turns its requests into those of a chat (messages_request.h,
// response_request.h, ollama_request.h), a writer of answers (answer_writers.h) and this.

#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"

namespace macrame::agentd {

enum class Dialect { kOpenAi, kAnthropic, kOllama };

// The code of an error that makes Anthropic's clients send a conversation whole, without a thread.
inline constexpr absl::string_view kThreadUnsupported = "thread_unsupported_request";

// Of a request's path, whether something is served there or not.
Dialect DialectOfPath(absl::string_view path);

// {"type":"error","error":{"type","message"},"request_id"} for Anthropic's clients, with details
// for kThreadUnsupported,
// {"error":"…"} for Ollama's, ErrorBody for others.
std::string DialectErrorBody(Dialect dialect, const ApiError& error, const std::string& request_id);

}  // namespace macrame::agentd
