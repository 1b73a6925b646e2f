#pragma once

// Prompts as OpenAI's clients send them: text, a list of token ids, or a list of either. Pure.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/fields/request_fields.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// Whether this JSON value is one: a whole number from 0 on that fits 31 bits.
inline bool IsTokenId(const Json& value) {
  const Json whole = WholeNumber(value);
  // Negative numbers become large ones.
  return whole.is_number_integer() &&
         whole.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
}

struct Prompt {
  std::string text;                // or
  std::vector<int32_t> token_ids;  // as they are
};

// The prompts of field `name`, none of them empty: `count_max` and one more at most, so that too
// many are seen.
std::vector<Prompt> ReadPrompts(RequestFields& fields, absl::string_view name, size_t count_max);

// `generate` with the prompt; `index`: which of the body's, for the request's id.
v1::GenerateRequest RequestOfPrompt(const v1::GenerateRequest& generate, const Prompt& prompt,
                                    size_t index);

}  // namespace macrame::agentd
