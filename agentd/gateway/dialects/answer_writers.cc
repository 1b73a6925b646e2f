#include "agentd/gateway/dialects/answer_writers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "agentd/gateway/dialects/messages_answer.h"
#include "agentd/gateway/dialects/ollama_answer.h"
#include "agentd/gateway/dialects/response_answer.h"
#include "proto/check.h"

namespace macrame::agentd {
namespace {

template <typename Stream>
std::unique_ptr<AnswerStream> StreamAs(AnswerHead head) {
  return std::make_unique<Stream>(std::move(head));
}

const std::array kWriters = {
    AnswerWriter{AnswerForm::kChat, "chatcmpl-", ChatCompletionBody, StreamAs<StreamComposer>},
    AnswerWriter{AnswerForm::kText, "cmpl-", TextCompletionBody, StreamAs<StreamComposer>},
    AnswerWriter{AnswerForm::kMessage, "msg_", MessagesBody, StreamAs<MessagesStream>},
    AnswerWriter{AnswerForm::kResponse, "resp_", ResponseBody, StreamAs<ResponseStream>},
    AnswerWriter{AnswerForm::kOllamaChat, "ollama-", OllamaBody, StreamAs<OllamaStream>},
    AnswerWriter{AnswerForm::kOllamaText, "ollama-", OllamaBody, StreamAs<OllamaStream>},
    AnswerWriter{AnswerForm::kEmbedding, "embd-", EmbeddingListBody},
    AnswerWriter{AnswerForm::kOllamaEmbed, "embd-", EmbeddingListBody},
    AnswerWriter{AnswerForm::kOllamaEmbedding, "embd-", EmbeddingListBody},
    AnswerWriter{AnswerForm::kTokenCount, "tok_", TokensBody},
    AnswerWriter{AnswerForm::kTokens, "tok_", TokensBody},
    AnswerWriter{AnswerForm::kTokenText, "tok_", TokensBody},
};

}  // namespace

const AnswerWriter& WriterOf(AnswerForm form) {
  const auto found = std::find_if(kWriters.begin(), kWriters.end(),
                                  [form](const auto& writer) { return writer.form == form; });
  MACRAME_CHECK(found != kWriters.end()) << "a form without a writer";
  return *found;
}

}  // namespace macrame::agentd
