#pragma once

// The body of POST /v1/chat/completions, checked field by field and turned into a GenerateRequest.
// Pure.
//
// Each field that OpenAI's clients know is in one of three groups: honoured; taken and without
// effect here (`user`, `metadata`, …); or refused with 400 and `param`, because leaving it out
// would change what the caller asked for (a JSON schema, …). Fields that nobody knows are
// taken and named in `ignored`, so that newer clients work and typing errors are seen.

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/fields/answer_fields.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kMessagesMax = 4096;
inline constexpr size_t kContentPartsMax = 1024;
inline constexpr size_t kToolCallsMax = 512;  // of one message
// Proxies of Gemini put a signature of the model's reasoning into the id, thousands of bytes long.
inline constexpr size_t kCallIdBytesMax = 16 << 10;
inline constexpr size_t kMessageNameBytesMax = 256;  // of who speaks, or of the tool

struct ChatRequest : AnswerRequest {
  bool excludes_reasoning = false;  // the answer's reasoning is not sent
};

std::variant<ChatRequest, ApiError> ParseChatRequest(absl::string_view body, size_t json_depth_max);
// Of a body that was parsed already: an object.
std::variant<ChatRequest, ApiError> ReadChatRequest(const Json& body);

}  // namespace macrame::agentd
