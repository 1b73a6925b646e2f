#include "agentd/gateway/generation/answer_requests.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/gateway/base/model_failure.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/gateway/dialects/ollama_answer.h"
#include "agentd/gateway/fields/sampling_fields.h"
#include "agentd/gateway/http/asio_names.h"
#include "proto/replicas.h"

namespace macrame::agentd {

AnswerHead HeadOf(Exchange& exchange, AnswerRequest& request, AnswerForm form) {
  const GatewayOptions& options = exchange.options();
  v1::GenerateRequest& generate = request.generate;
  exchange.NoteFields(absl::StrJoin(request.ignored, ","), absl::StrJoin(request.by_model, ","));
  generate.set_request_id(exchange.IdForRank());
  std::string asked = generate.deployment();
  generate.set_deployment(options.aliases.Resolve(asked, exchange.Backend()));
  exchange.NoteModel(std::move(asked), generate.deployment());
  SetTenant(exchange.WhoAsks(), &generate);
  AnswerHead head;
  head.form = form;
  head.id = RandomId(WriterOf(form).id_prefix);
  head.request_id = exchange.request_id();
  head.created_unix_seconds = static_cast<int64_t>(GatewayUnixMs() / 1000);
  head.model = generate.deployment();
  head.system_fingerprint = absl::StrCat("macrame-", options.version);
  head.include_usage = request.include_usage;
  head.tells_progress = request.return_progress;
  head.choices_per_prompt = request.choices;
  head.has_logprobs = generate.has_top_logprobs();
  return head;
}

net::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<ChatRequest> parsed, AnswerForm form) {
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    co_return co_await exchange.SendError(std::move(*error));
  }
  ChatRequest& chat = std::get<ChatRequest>(parsed);
  AnswerHead head = HeadOf(exchange, chat, form);
  head.choices = head.choices_per_prompt;
  head.excludes_reasoning = chat.excludes_reasoning;
  if (form == AnswerForm::kTokens) {
    const std::vector<ServedModel> models = exchange.Backend().ListModels();
    const ServedModel* model = FindModel(models, DeploymentOfReplica(head.model));
    if (model != nullptr) head.context_length = model->context_length;
  }
  if (auto fault = exchange.CheckModelAccess(head.model)) {
    co_return co_await exchange.SendError(*std::move(fault));
  }
  std::optional<ApiError> no_room =
      co_await exchange.RoomForCopies((chat.choices - 1) * exchange.record().bytes_received);
  if (no_room.has_value()) co_return co_await exchange.SendError(*std::move(no_room));
  ModelAnswer answer(exchange, std::move(head));
  co_return co_await answer.Send(RequestsOfChoices(chat.generate, chat.choices), chat.stream);
}

net::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<TextRequest> parsed, AnswerForm form) {
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    co_return co_await exchange.SendError(std::move(*error));
  }
  TextRequest& text = std::get<TextRequest>(parsed);
  AnswerHead head = HeadOf(exchange, text, form);
  if (auto fault = exchange.CheckModelAccess(head.model)) {
    co_return co_await exchange.SendError(*std::move(fault));
  }
  const size_t answers = text.prompts.size() * text.choices;
  std::optional<ApiError> no_room =
      co_await exchange.RoomForCopies((text.choices - 1) * exchange.record().bytes_received +
                                      (answers - 1) * text.generate.ByteSizeLong());
  if (no_room.has_value()) co_return co_await exchange.SendError(*std::move(no_room));
  std::vector<v1::GenerateRequest> requests = RequestsOfPrompts(text);
  head.choices = static_cast<uint32_t>(requests.size());
  if (text.echo) {
    for (const v1::GenerateRequest& one : requests) head.echoes.push_back(one.prompt());
  }
  ModelAnswer answer(exchange, std::move(head));
  co_return co_await answer.Send(std::move(requests), text.stream);
}

net::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<EmbeddingRequest> parsed,
                                AnswerForm form) {
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    co_return co_await exchange.SendError(std::move(*error));
  }
  EmbeddingRequest& request = std::get<EmbeddingRequest>(parsed);
  AnswerHead head = HeadOf(exchange, request, form);
  head.as_base64 = request.as_base64;
  head.choices = static_cast<uint32_t>(request.inputs.size());
  ModelAnswer answer(exchange, std::move(head));
  co_return co_await answer.Send(RequestsOfInputs(request), /*is_stream=*/false);
}

net::awaitable<bool> SendAnswer(Exchange& exchange, Parsed<OllamaRequest> parsed, AnswerForm form) {
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    co_return co_await exchange.SendError(std::move(*error));
  }
  OllamaRequest& request = std::get<OllamaRequest>(parsed);
  if (!request.is_load) {
    Parsed<ChatRequest> chat = std::move(request.chat);
    co_return co_await SendAnswer(exchange, std::move(chat), form);
  }
  const AnswerHead head = HeadOf(exchange, request.chat, form);
  if (FindModel(exchange.Backend().ListModels(), head.model) == nullptr) {
    co_return co_await exchange.SendError(UnknownModel(exchange.asked_model(), exchange.Backend()));
  }
  HttpReply reply;
  reply.body = OllamaLoadBody(head);
  co_return co_await exchange.SendReply(std::move(reply));
}

}  // namespace macrame::agentd
