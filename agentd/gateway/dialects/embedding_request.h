#pragma once

// The body of POST /v1/embeddings, checked field by field and turned into GenerateRequests that ask
// for the embedding of each input. Pure.

#include <chrono>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/fields/answer_fields.h"
#include "agentd/gateway/fields/bounded_json.h"
#include "agentd/gateway/fields/prompt_fields.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr size_t kInputsMax = 2048;
// Of one body's inputs, those that are under way at once: few enough that others get their turn.
inline constexpr size_t kInputsAtOnceMax = 8;
// How long an input waits for a place in the queue once others of its body have had theirs.
inline constexpr std::chrono::milliseconds kInputQueuePatience{20'000};

struct EmbeddingRequest : AnswerRequest {
  std::vector<Prompt> inputs{};
  bool as_base64 = false;  // numbers as little-endian float32 in base64
};

std::variant<EmbeddingRequest, ApiError> ParseEmbeddingRequest(absl::string_view body,
                                                               size_t json_depth_max);
// Of a body that was parsed already: an object.
std::variant<EmbeddingRequest, ApiError> ReadEmbeddingRequest(const Json& body);

// One for each input.
std::vector<v1::GenerateRequest> RequestsOfInputs(const EmbeddingRequest& request);

}  // namespace macrame::agentd
