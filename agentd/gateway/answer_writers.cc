#include "agentd/gateway/answer_writers.h"

#include <utility>

#include "agentd/gateway/messages_answer.h"
#include "agentd/gateway/ollama_answer.h"
#include "agentd/gateway/response_answer.h"

namespace macrame::agentd {

std::unique_ptr<AnswerStream> StreamOf(AnswerHead head) {
  switch (head.form) {
    case AnswerForm::kMessage:
      return std::make_unique<MessagesStream>(std::move(head));
    case AnswerForm::kResponse:
      return std::make_unique<ResponseStream>(std::move(head));
    case AnswerForm::kOllamaChat:
    case AnswerForm::kOllamaText:
      return std::make_unique<OllamaStream>(std::move(head));
    default:
      return std::make_unique<StreamComposer>(std::move(head));
  }
}

std::string AnswerBody(const AnswerHead& head, const std::vector<CollectedAnswer>& answers) {
  switch (head.form) {
    case AnswerForm::kMessage:
      return MessagesBody(head, answers);
    case AnswerForm::kResponse:
      return ResponseBody(head, answers);
    case AnswerForm::kOllamaChat:
    case AnswerForm::kOllamaText:
      return OllamaBody(head, answers);
    default:
      return ChatCompletionBody(head, answers);
  }
}

}  // namespace macrame::agentd
