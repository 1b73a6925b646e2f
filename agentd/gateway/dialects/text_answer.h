#pragma once

// Answers to text prompts in the format of OpenAI's older completions: one body, or the events of a
// stream. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// Code points of UTF-8, which `text_offset` counts in.
uint64_t CharactersOf(absl::string_view text);

// The lists of `logprobs`: tokens, their logprobs, alternatives, and where they begin in the text.
struct TextLogprobs {
  uint64_t characters = 0;                    // of the text before the next token
  std::string tokens, values, tops, offsets;  // JSON elements with commas between

  void Add(const v1::GenerateChunk& chunk);
  std::string Text() const;
  size_t bytes() const { return tokens.size() + values.size() + tops.size() + offsets.size(); }
};

// One answer, put together from its chunks.
struct CollectedText {
  std::string text;  // behind the echo
  TextLogprobs logprobs;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  TokenCounts counts;

  void Add(const v1::GenerateChunk& chunk);
  size_t bytes() const { return text.size() + logprobs.bytes(); }
};

std::string TextCompletionBody(const AnswerHead& head, const std::vector<CollectedText>& answers);

// Events of a stream. `characters`: of the text before this chunk's; counted on.
std::string EchoEvent(const AnswerHead& head, uint32_t choice);
std::string TextCompletionEvent(const AnswerHead& head, const v1::GenerateChunk& chunk,
                                uint32_t choice, uint64_t* characters);
std::string TextCompletionFinishEvent(const AnswerHead& head, absl::string_view finish_reason,
                                      uint32_t choice);

}  // namespace macrame::agentd
