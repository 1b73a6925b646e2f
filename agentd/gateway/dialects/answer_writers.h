#pragma once

// The table of answers' forms: what ids they have, and what writes them. Pure.

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "agentd/gateway/dialects/answer_stream.h"
#include "agentd/gateway/dialects/chat_answer.h"
#include "agentd/gateway/dialects/embedding_answer.h"
#include "agentd/gateway/dialects/text_answer.h"
#include "agentd/gateway/dialects/token_answer.h"

namespace macrame::agentd {

// One body of all answers, each put together as a `Collected`.
template <typename Collected>
using BodyOf = std::string (*)(const AnswerHead& head, const std::vector<Collected>& answers);

struct AnswerWriter {
  AnswerForm form;
  const char* id_prefix;
  std::variant<BodyOf<CollectedAnswer>, BodyOf<CollectedText>, BodyOf<CollectedEmbedding>,
               BodyOf<CollectedTokens>>
      body;
  // Null: there is no stream of the form.
  std::unique_ptr<AnswerStream> (*stream)(AnswerHead head) = nullptr;
};

const AnswerWriter& WriterOf(AnswerForm form);

}  // namespace macrame::agentd
