#pragma once

// Endpoints that tell what is served without asking a model: lists of models, the version, health.
// On the io thread; what they say is pure.

#include <boost/asio/awaitable.hpp>
#include <string>
#include <variant>

#include "agentd/gateway/access/model_aliases.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/http_reply.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

// `dialect`: whose form models are listed in.
std::string ModelsText(const ModelAliases& aliases, InferenceBackend& backend, Dialect dialect);
std::variant<std::string, ApiError> ModelText(const std::string& id, const ModelAliases& aliases,
                                              InferenceBackend& backend, Dialect dialect);

// /v1/models, and one of them.
boost::asio::awaitable<bool> AnswerModels(Exchange& exchange);
boost::asio::awaitable<bool> AnswerModel(Exchange& exchange);
// /api/tags, ps and version, and what would change which models there are.
boost::asio::awaitable<bool> AnswerOllamaTags(Exchange& exchange);
boost::asio::awaitable<bool> AnswerOllamaProcesses(Exchange& exchange);
boost::asio::awaitable<bool> AnswerOllamaVersion(Exchange& exchange);
boost::asio::awaitable<bool> RefuseOllama(Exchange& exchange);
boost::asio::awaitable<bool> AnswerHealth(Exchange& exchange);
boost::asio::awaitable<bool> AnswerVersion(Exchange& exchange);

}  // namespace macrame::agentd
