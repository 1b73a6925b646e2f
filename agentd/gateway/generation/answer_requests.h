#pragma once

// Endpoints that ask a model: a body is read by its dialect's parser and answered in one form. On
// the io thread.

#include <boost/asio/awaitable.hpp>
#include <variant>

#include "agentd/gateway/dialects/chat_request.h"
#include "agentd/gateway/dialects/embedding_request.h"
#include "agentd/gateway/dialects/ollama_request.h"
#include "agentd/gateway/dialects/text_request.h"
#include "agentd/gateway/generation/model_answer.h"
#include "agentd/gateway/http/exchange.h"
#include "agentd/gateway/http/read_aside.h"

namespace macrame::agentd {

// The head of an answer of this form; what of the request the exchange knows, too, is set.
AnswerHead HeadOf(Exchange& exchange, AnswerRequest& request, AnswerForm form);

template <typename Request>
using Parsed = std::variant<Request, ApiError>;
boost::asio::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<ChatRequest> parsed,
                                        AnswerForm form);
boost::asio::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<TextRequest> parsed,
                                        AnswerForm form);
boost::asio::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<EmbeddingRequest> parsed,
                                        AnswerForm form);
boost::asio::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<OllamaRequest> parsed,
                                        AnswerForm form);

// An endpoint whose body `kParse` reads, and whose answer has this form.
template <auto kParse, AnswerForm kForm>
boost::asio::awaitable<bool> AnswerAs(Exchange& exchange) {
  auto parsed = co_await ReadAside(exchange, kParse);
  co_return co_await SendAnswer(exchange, std::move(parsed), kForm);
}

}  // namespace macrame::agentd
