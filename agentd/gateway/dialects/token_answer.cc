#include "agentd/gateway/dialects/token_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace macrame::agentd {

void CollectedTokens::Add(const v1::GenerateChunk& chunk) {
  count = std::max(count, chunk.prompt_tokens());
  ids.insert(ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
  text += chunk.text();
  is_answer = is_answer || chunk.completion_tokens() > 0;
  if (chunk.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) finish = chunk.finish_reason();
}

std::string TokensBody(const AnswerHead& head, const std::vector<CollectedTokens>& told) {
  const CollectedTokens& tokens = told.at(0);
  nlohmann::ordered_json body;
  if (head.form == AnswerForm::kTokenCount) {
    body["input_tokens"] = tokens.count;
  } else if (head.form == AnswerForm::kTokenText) {
    body["prompt"] = tokens.text;
  } else {
    body["count"] = tokens.count;
    body["max_model_len"] = head.context_length;
    body["tokens"] = tokens.ids;
    body["token_strs"] = nullptr;
  }
  return Dump(body);
}

}  // namespace macrame::agentd
