#pragma once

// The table of answers' forms: what ids they have, and what writes them. Pure.

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "agentd/gateway/answer_stream.h"
#include "agentd/gateway/chat_answer.h"
#include "agentd/gateway/embedding_answer.h"
#include "agentd/gateway/text_answer.h"
#include "agentd/gateway/token_answer.h"

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
