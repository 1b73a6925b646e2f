#include "agentd/gateway/routes.h"

#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "agentd/base/web_url.h"
#include "agentd/dashboard/assets.h"
#include "agentd/gateway/chat_answer.h"
#include "agentd/gateway/messages_answer.h"
#include "agentd/gateway/ollama_answer.h"
#include "agentd/gateway/ollama_request.h"
#include "agentd/gateway/openapi.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr size_t kModelsNamedMax = 8;
constexpr size_t kNameToldBytesMax = 256;
constexpr int kLookingRetrySeconds = 2;

constexpr bool kHasBody = true;

constexpr std::array kRoutes = {
    Route{RouteKind::kChat, "/v1/chat/completions", "POST", kHasBody},
    Route{RouteKind::kText, "/v1/completions", "POST", kHasBody},
    Route{RouteKind::kEmbeddings, "/v1/embeddings", "POST", kHasBody},
    Route{RouteKind::kModelList, "/v1/models", "GET, HEAD"},
    Route{RouteKind::kModel, "/v1/models/", "GET, HEAD"},
    Route{RouteKind::kHealth, "/health", "GET, HEAD"},
    Route{RouteKind::kVersion, "/version", "GET, HEAD"},
    Route{RouteKind::kMessages, "/v1/messages", "POST", kHasBody},
    Route{RouteKind::kCountTokens, "/v1/messages/count_tokens", "POST", kHasBody},
    Route{RouteKind::kResponses, "/v1/responses", "POST", kHasBody},
    Route{RouteKind::kStoredResponse, "/v1/responses/", "GET, HEAD, DELETE"},
    Route{RouteKind::kOllamaChat, "/api/chat", "POST", kHasBody},
    Route{RouteKind::kOllamaGenerate, "/api/generate", "POST", kHasBody},
    Route{RouteKind::kOllamaEmbed, "/api/embed", "POST", kHasBody},
    Route{RouteKind::kOllamaEmbeddings, "/api/embeddings", "POST", kHasBody},
    Route{RouteKind::kOllamaShow, "/api/show", "POST", kHasBody},
    Route{RouteKind::kOllamaTags, "/api/tags", "GET, HEAD"},
    Route{RouteKind::kOllamaProcesses, "/api/ps", "GET, HEAD"},
    Route{RouteKind::kOllamaVersion, "/api/version", "GET, HEAD"},
    Route{RouteKind::kOllamaRefused, "/api/pull", "POST"},
    Route{RouteKind::kOllamaRefused, "/api/push", "POST"},
    Route{RouteKind::kOllamaRefused, "/api/create", "POST"},
    Route{RouteKind::kOllamaRefused, "/api/copy", "POST"},
    Route{RouteKind::kOllamaRefused, "/api/delete", "DELETE"},
    Route{RouteKind::kOllamaRefused, "/api/blobs/", "POST, HEAD"},
    Route{RouteKind::kTokenize, "/tokenize", "POST", kHasBody},
    Route{RouteKind::kDetokenize, "/detokenize", "POST", kHasBody},
    Route{RouteKind::kOpenApi, "/openapi.json", "GET, HEAD"},
    Route{RouteKind::kMetrics, "/metrics", "GET, HEAD"},
    Route{RouteKind::kSnapshot, "/dashboard/api/snapshot", "GET, HEAD"},
    Route{RouteKind::kEvents, "/dashboard/api/events", "GET"},
    Route{RouteKind::kLatencies, "/dashboard/api/latency", "GET, HEAD"},
    Route{RouteKind::kAccess, "/dashboard/api/access", "GET, HEAD"},
    Route{RouteKind::kPlanOrder, "/dashboard/api/plan", "POST", kHasBody},
    Route{RouteKind::kLoadOrder, "/dashboard/api/load", "POST", kHasBody},
    Route{RouteKind::kUnloadOrder, "/dashboard/api/unload", "POST", kHasBody},
    Route{RouteKind::kCordonOrder, "/dashboard/api/cordon", "POST", kHasBody},
    Route{RouteKind::kListKeys, "/dashboard/api/keys", "GET, HEAD"},
    Route{RouteKind::kCreateKey, "/dashboard/api/keys/create", "POST", kHasBody},
    Route{RouteKind::kRevokeKey, "/dashboard/api/keys/revoke", "POST", kHasBody},
    Route{RouteKind::kReadAudit, "/dashboard/api/audit", "GET, HEAD"},
    Route{RouteKind::kPage, "/", "GET, HEAD"},
};

bool IsPrefix(const Route& route) { return route.path.size() > 1 && route.path.back() == '/'; }

}  // namespace

ApiError UnknownModel(const std::string& model, InferenceBackend& backend) {
  // Clients try a 503 again, and a 404 never.
  if (backend.IsLooking()) {
    ApiError error =
        HttpError(503,
                  absl::StrCat("This node is still looking through its model folders, so it does "
                               "not know yet whether there is a model '",
                               model.substr(0, kNameToldBytesMax), "'. Try again in a moment."),
                  "model_not_ready");
    error.param = "model";
    error.retry_after_seconds = kLookingRetrySeconds;
    return error;
  }
  std::string loaded;
  size_t named = 0;
  for (const ServedModel& served : backend.ListModels()) {
    if (named++ == kModelsNamedMax) {
      absl::StrAppend(&loaded, ", …");
      break;
    }
    absl::StrAppend(&loaded, loaded.empty() ? "" : ", ", served.id);
  }
  ApiError error = HttpError(
      404,
      absl::StrCat("The model '", model.substr(0, kNameToldBytesMax),
                   "' does not exist or is not loaded. ",
                   loaded.empty() ? "Nothing is loaded" : absl::StrCat("Loaded: ", loaded),
                   ". Load one with 'clusterctl model load NAME'."),
      "model_not_found");
  error.param = "model";
  return error;
}

namespace {

HttpReply JsonReply(std::string body) {
  HttpReply reply;
  reply.body = std::move(body);
  return reply;
}

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

const Route* FindRoute(absl::string_view path) {
  for (const Route& route : kRoutes) {
    if (IsPrefix(route)) {
      if (path.size() > route.path.size() && path.substr(0, route.path.size()) == route.path) {
        return &route;
      }
    } else if (route.kind == RouteKind::kPage) {
      if (dashboard::FindAsset(path) != nullptr) return &route;
    } else if (path == route.path) {
      return &route;
    }
  }
  return nullptr;
}

std::string UnknownPathText() {
  std::string paths;
  for (const Route& route : kRoutes) {
    absl::StrAppend(&paths, paths.empty() ? "" : ", ", route.methods, " ", route.path,
                    IsPrefix(route) ? "NAME" : "");
  }
  return absl::StrCat("There is nothing at this path. There are: ", paths, ".");
}

bool IsDashboard(const Route& route) {
  return route.kind == RouteKind::kPage || route.kind == RouteKind::kSnapshot ||
         route.kind == RouteKind::kEvents || route.kind == RouteKind::kLatencies ||
         route.kind == RouteKind::kAccess || IsOrder(route.kind);
}

bool IsOrder(RouteKind kind) {
  switch (kind) {
    case RouteKind::kPlanOrder:
    case RouteKind::kLoadOrder:
    case RouteKind::kUnloadOrder:
    case RouteKind::kCordonOrder:
    case RouteKind::kListKeys:
    case RouteKind::kCreateKey:
    case RouteKind::kRevokeKey:
    case RouteKind::kReadAudit:
      return true;
    default:
      return false;
  }
}

bool MethodFits(const Route& route, absl::string_view method) {
  for (const absl::string_view allowed : absl::StrSplit(route.methods, ", ")) {
    if (method == allowed) return true;
  }
  return false;
}

HttpReply MethodNotAllowed(const Route& route, Dialect dialect, const std::string& request_id) {
  HttpReply reply;
  reply.status = 405;
  reply.body = DialectErrorBody(
      dialect,
      HttpError(405, absl::StrCat("This path takes ", route.methods, "."), "method_not_allowed"),
      request_id);
  reply.headers.emplace_back("allow", std::string(route.methods));
  return reply;
}

std::variant<HttpReply, ApiError> AnswerSimpleRoute(const Route& route, absl::string_view path,
                                                    const GatewayOptions& options,
                                                    InferenceBackend& backend, Dialect dialect) {
  const bool is_anthropic = dialect == Dialect::kAnthropic;
  switch (route.kind) {
    case RouteKind::kHealth:
      return JsonReply(nlohmann::ordered_json{{"status", "ok"}}.dump());
    case RouteKind::kVersion:
      return JsonReply(nlohmann::ordered_json{{"version", options.version}}.dump());
    case RouteKind::kModelList:
      return JsonReply(is_anthropic ? AnthropicModelListBody(options.aliases.WithAliases(backend))
                                    : ModelListBody(options.aliases.WithAliases(backend)));
    case RouteKind::kOllamaTags:
      return JsonReply(OllamaTagsBody(options.aliases.WithAliases(backend)));
    case RouteKind::kOllamaProcesses:
      return JsonReply(OllamaProcessesBody(backend.ListModels()));
    case RouteKind::kOllamaVersion:
      return JsonReply(nlohmann::ordered_json{{"version", kOllamaApiVersion}}.dump());
    case RouteKind::kOllamaRefused:
      return HttpError(501,
                       "Which models there are is not changed through this API. Whoever runs the "
                       "cluster uses 'clusterctl model load NAME', 'clusterctl model unload NAME' "
                       "and 'clusterctl model list'.",
                       "not_served");
    case RouteKind::kOpenApi:
      return JsonReply(OpenApiText(options.version));
    case RouteKind::kMetrics:
      return HttpError(404, "This gateway counts nothing.", "no_metrics");
    case RouteKind::kModel:
      break;
    default:
      return HttpError(500, "This path is served elsewhere.", "internal");
  }
  const std::string id = PercentDecode(path.substr(route.path.size()));
  const std::vector<ServedModel> models = options.aliases.WithAliases(backend);
  const ServedModel* model = FindModel(models, id);
  if (model == nullptr) model = FindModel(models, WithoutLatest(id));
  if (model == nullptr) return UnknownModel(id, backend);
  return JsonReply(is_anthropic ? AnthropicModelBody(*model) : ModelBody(*model));
}

ApiError DescribeFailure(const absl::Status& status, const std::string& model,
                         InferenceBackend& backend) {
  ApiError error = ApiErrorFromStatus(status);
  if (error.http_status != 404) return error;
  // Clients try a 503 again, and a 404 never.
  if (FindModel(backend.ListModels(), DeploymentOfReplica(model)) == nullptr) {
    return UnknownModel(model, backend);
  }
  return ApiErrorFromStatus(ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kNotReady,
      absl::StrCat("The model '", model, "' is being brought up; try again in a moment")));
}

}  // namespace macrame::agentd
