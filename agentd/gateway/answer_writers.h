#pragma once

// Which writer makes an answer of the form that its head says. Pure.

#include <memory>
#include <string>
#include <vector>

#include "agentd/gateway/answer_stream.h"
#include "agentd/gateway/chat_answer.h"

namespace macrame::agentd {

std::unique_ptr<AnswerStream> StreamOf(AnswerHead head);
// Of the forms that are put together from chunks of text, reasoning and calls.
std::string AnswerBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers);

}  // namespace macrame::agentd
