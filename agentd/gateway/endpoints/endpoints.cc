#include "agentd/gateway/endpoints/endpoints.h"

#include "agentd/gateway/access/api_key.h"
#include "agentd/gateway/dialects/messages_request.h"
#include "agentd/gateway/dialects/token_request.h"
#include "agentd/gateway/endpoints/dashboard_endpoints.h"
#include "agentd/gateway/endpoints/metrics_endpoint.h"
#include "agentd/gateway/endpoints/model_lists.h"
#include "agentd/gateway/endpoints/openapi.h"
#include "agentd/gateway/endpoints/order_endpoints.h"
#include "agentd/gateway/generation/answer_requests.h"
#include "agentd/gateway/generation/model_abilities.h"
#include "agentd/gateway/generation/stored_responses.h"
#include "agentd/gateway/http/asio_names.h"

namespace macrame::agentd {
namespace {

constexpr uint32_t kModelScopes = kScopeInfer | kScopeRead;

constexpr AccessRow kOpen = {true, 0, 0};
constexpr AccessRow kInfer = {false, kScopeInfer, kScopeInfer};
constexpr AccessRow kModels = {false, kModelScopes, kModelScopes};
constexpr AccessRow kModelsOfOpenAi = {false, kModelScopes, kScopeInfer};
constexpr AccessRow kReads = {false, kScopeRead, kScopeRead};
constexpr AccessRow kDashboard = {false, kScopeRead, kScopeOperate};
constexpr AccessRow kAdmin = {false, kScopeAdmin, kScopeAdmin};

net::awaitable<bool> AnswerOpenApi(Exchange& exchange) {
  HttpReply reply;
  reply.body = OpenApiText(Endpoints(), exchange.options().version);
  return exchange.SendReply(std::move(reply));
}

using Form = AnswerForm;
using Kind = OrderKind;

constexpr Endpoint kEndpoints[] = {
    {"/v1/chat/completions", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseChatRequest, Form::kChat>},
    {"/v1/completions", "POST", kInfer, BodyUse::kRead, AnswerAs<ParseTextRequest, Form::kText>},
    {"/v1/embeddings", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseEmbeddingRequest, Form::kEmbedding>},
    {"/v1/models", "GET, HEAD", kModelsOfOpenAi, BodyUse::kNone, AnswerModels},
    {"/v1/models/", "GET, HEAD", kModelsOfOpenAi, BodyUse::kNone, AnswerModel},
    {"/health", "GET, HEAD", kOpen, BodyUse::kNone, AnswerHealth},
    {"/version", "GET, HEAD", kOpen, BodyUse::kNone, AnswerVersion},
    {"/v1/messages", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseMessagesRequest, Form::kMessage>},
    {"/v1/messages/count_tokens", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseCountTokensRequest, Form::kTokenCount>},
    {"/v1/responses", "POST", kInfer, BodyUse::kRead, AnswerResponse},
    {"/v1/responses/", "GET, HEAD, DELETE", kInfer, BodyUse::kNone, AnswerStoredResponse},
    {"/api/chat", "POST", kInfer, BodyUse::kRead, AnswerAs<ParseOllamaChat, Form::kOllamaChat>},
    {"/api/generate", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseOllamaGenerate, Form::kOllamaText>},
    {"/api/embed", "POST", kInfer, BodyUse::kRead, AnswerAs<ParseOllamaEmbed, Form::kOllamaEmbed>},
    {"/api/embeddings", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseOllamaEmbeddings, Form::kOllamaEmbedding>},
    {"/api/show", "POST", kModels, BodyUse::kRead, AnswerOllamaModel},
    {"/api/tags", "GET, HEAD", kModels, BodyUse::kNone, AnswerOllamaTags},
    {"/api/ps", "GET, HEAD", kModels, BodyUse::kNone, AnswerOllamaProcesses},
    {"/api/version", "GET, HEAD", kModels, BodyUse::kNone, AnswerOllamaVersion},
    {"/api/pull", "POST", kInfer, BodyUse::kNone, RefuseOllama},
    {"/api/push", "POST", kInfer, BodyUse::kNone, RefuseOllama},
    {"/api/create", "POST", kInfer, BodyUse::kNone, RefuseOllama},
    {"/api/copy", "POST", kInfer, BodyUse::kNone, RefuseOllama},
    {"/api/delete", "DELETE", kInfer, BodyUse::kNone, RefuseOllama},
    {"/api/blobs/", "POST, HEAD", kInfer, BodyUse::kNone, RefuseOllama},
    {"/tokenize", "POST", kInfer, BodyUse::kRead, AnswerAs<ParseTokenizeRequest, Form::kTokens>},
    {"/detokenize", "POST", kInfer, BodyUse::kRead,
     AnswerAs<ParseDetokenizeRequest, Form::kTokenText>},
    {"/openapi.json", "GET, HEAD", kModels, BodyUse::kNone, AnswerOpenApi},
    {"/metrics", "GET, HEAD", kReads, BodyUse::kNone, AnswerMetrics},
    {"/dashboard/api/snapshot", "GET, HEAD", kDashboard, BodyUse::kNone, AsData<SendSnapshot>},
    {"/dashboard/api/events", "GET", kDashboard, BodyUse::kNone, AsData<StreamSnapshots>},
    {"/dashboard/api/latency", "GET, HEAD", kDashboard, BodyUse::kNone, AsData<SendLatencies>},
    {"/dashboard/api/access", "GET, HEAD", kDashboard, BodyUse::kNone, AsData<SendAccess>},
    {"/dashboard/api/plan", "POST", kDashboard, BodyUse::kByItsOwn,
     AsData<AnswerOrderOf<Kind::kPlan>>},
    {"/dashboard/api/load", "POST", kDashboard, BodyUse::kByItsOwn,
     AsData<AnswerOrderOf<Kind::kLoad>>},
    {"/dashboard/api/unload", "POST", kDashboard, BodyUse::kByItsOwn,
     AsData<AnswerOrderOf<Kind::kUnload>>},
    {"/dashboard/api/cordon", "POST", kDashboard, BodyUse::kByItsOwn,
     AsData<AnswerOrderOf<Kind::kCordon>>},
    {"/dashboard/api/keys", "GET, HEAD", kAdmin, BodyUse::kNone,
     AsData<AnswerOrderOf<Kind::kListKeys>>},
    {"/dashboard/api/keys/create", "POST", kAdmin, BodyUse::kByItsOwn,
     AsData<AnswerOrderOf<Kind::kCreateKey>>},
    {"/dashboard/api/keys/revoke", "POST", kAdmin, BodyUse::kByItsOwn,
     AsData<AnswerOrderOf<Kind::kRevokeKey>>},
    {"/dashboard/api/audit", "GET, HEAD", kAdmin, BodyUse::kNone,
     AsData<AnswerOrderOf<Kind::kReadAudit>>},
    // The page and its files are the same for everybody; what it shows is not.
    {"/", "GET, HEAD", kOpen, BodyUse::kNone, AnswerPage, IsPage},
};

constexpr UnknownAccess kUnknown[] = {
    {"/dashboard/api/keys/", kAdmin},
    {"/dashboard/api/", kDashboard},
    {"/dashboard/", kOpen},
    {"/v1/models/", kModelsOfOpenAi},
    {"/v1/", kInfer},
    {"/api/", kInfer},
};

}  // namespace

const EndpointTable& Endpoints() {
  static constexpr EndpointTable table(kEndpoints, kUnknown);
  return table;
}

}  // namespace macrame::agentd
