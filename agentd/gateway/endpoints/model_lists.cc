#include "agentd/gateway/endpoints/model_lists.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "agentd/gateway/base/model_failure.h"
#include "agentd/gateway/dialects/chat_answer.h"
#include "agentd/gateway/dialects/messages_answer.h"
#include "agentd/gateway/dialects/ollama_answer.h"
#include "agentd/gateway/dialects/ollama_request.h"
#include "agentd/gateway/http/asio_names.h"

namespace macrame::agentd {
namespace {

net::awaitable<bool> SendJson(Exchange& exchange, std::string body) {
  HttpReply reply;
  reply.body = std::move(body);
  return exchange.SendReply(std::move(reply));
}

std::string Pair(const char* name, const std::string& value) {
  return nlohmann::ordered_json{{name, value}}.dump();
}

}  // namespace

std::string ModelsText(const ModelAliases& aliases, InferenceBackend& backend, Dialect dialect) {
  const std::vector<ServedModel> models = aliases.WithAliases(backend);
  return dialect == Dialect::kAnthropic ? AnthropicModelListBody(models) : ModelListBody(models);
}

std::variant<std::string, ApiError> ModelText(const std::string& id, const ModelAliases& aliases,
                                              InferenceBackend& backend, Dialect dialect) {
  const std::vector<ServedModel> models = aliases.WithAliases(backend);
  const ServedModel* model = FindModel(models, id);
  if (model == nullptr) model = FindModel(models, WithoutLatest(id));
  if (model == nullptr) return UnknownModel(id, backend);
  return dialect == Dialect::kAnthropic ? AnthropicModelBody(*model) : ModelBody(*model);
}

net::awaitable<bool> AnswerModels(Exchange& exchange) {
  return SendJson(exchange,
                  ModelsText(exchange.options().aliases, exchange.Backend(), exchange.dialect()));
}

net::awaitable<bool> AnswerModel(Exchange& exchange) {
  auto told = ModelText(exchange.Name(), exchange.options().aliases, exchange.Backend(),
                        exchange.dialect());
  if (auto* error = std::get_if<ApiError>(&told)) return exchange.SendError(std::move(*error));
  return SendJson(exchange, std::move(std::get<std::string>(told)));
}

net::awaitable<bool> AnswerOllamaTags(Exchange& exchange) {
  return SendJson(exchange,
                  OllamaTagsBody(exchange.options().aliases.WithAliases(exchange.Backend())));
}

net::awaitable<bool> AnswerOllamaProcesses(Exchange& exchange) {
  return SendJson(exchange, OllamaProcessesBody(exchange.Backend().ListModels()));
}

net::awaitable<bool> AnswerOllamaVersion(Exchange& exchange) {
  return SendJson(exchange, Pair("version", kOllamaApiVersion));
}

net::awaitable<bool> RefuseOllama(Exchange& exchange) {
  return exchange.SendError(HttpError(
      501,
      "Which models there are is not changed through this API. Whoever runs the cluster uses "
      "'clusterctl model load NAME', 'clusterctl model unload NAME' and 'clusterctl model list'.",
      "not_served"));
}

// Who asks after the node's health is to send others elsewhere while requests are still taken.
net::awaitable<bool> AnswerHealth(Exchange& exchange) {
  if (exchange.state()->draining) return exchange.SendError(NodeIsStopping());
  return SendJson(exchange, Pair("status", "ok"));
}

net::awaitable<bool> AnswerVersion(Exchange& exchange) {
  return SendJson(exchange, Pair("version", exchange.options().version));
}

}  // namespace macrame::agentd
