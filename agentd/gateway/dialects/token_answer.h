#pragma once

// What is told of a prompt's tokens, in Anthropic's and vLLM's formats. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "agentd/gateway/dialects/answer_format.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

struct CollectedTokens {
  uint32_t count = 0;
  std::vector<int32_t> ids;
  std::string text;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  bool is_answer = false;  // the rank is of a version that answers instead

  void Add(const v1::GenerateChunk& chunk);
  size_t bytes() const { return ids.size() * sizeof(int32_t) + text.size(); }
};

// By the head's form: {"input_tokens"}, {"count","max_model_len","tokens","token_strs"} or
// {"prompt"}.
std::string TokensBody(const AnswerHead& head, const std::vector<CollectedTokens>& told);

}  // namespace macrame::agentd
