#pragma once

// The table of paths: what is served where and by which methods. What is not in it is not served.

#include <span>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "agentd/gateway/api_error.h"
#include "agentd/gateway/dialect.h"
#include "agentd/gateway/gateway_options.h"
#include "agentd/gateway/http_reply.h"
#include "agentd/gateway/inference_backend.h"

namespace macrame::agentd {

enum class RouteKind {
  kChat,
  kText,
  kEmbeddings,
  kModelList,
  kModel,
  kHealth,
  kVersion,
  kMessages,
  kCountTokens,
  kResponses,
  kStoredResponse,
  kOllamaChat,
  kOllamaGenerate,
  kOllamaEmbed,
  kOllamaEmbeddings,
  kOllamaShow,
  kOllamaTags,
  kOllamaProcesses,
  kOllamaVersion,
  kOllamaRefused,  // that would change which models there are
  kTokenize,
  kDetokenize,
  kOpenApi,
  kMetrics,
  kPage,       // a file of the dashboard
  kSnapshot,   // what it shows
  kEvents,     // and each change of it
  kLatencies,  // how long tokens took
  kAccess,     // what whoever asks may do with it
  kPlanOrder,
  kLoadOrder,
  kUnloadOrder,
  kCordonOrder,
  kListKeys,
  kCreateKey,
  kRevokeKey,
  kReadAudit,
};

struct Route {
  RouteKind kind;
  absl::string_view path;     // one that ends in a slash: what stands before a name
  absl::string_view methods;  // as the Allow header lists them
  bool has_body = false;      // its requests have one
};

// The whole table.
std::span<const Route> Routes();
// Null when nothing is served at `path` (without its query).
const Route* FindRoute(absl::string_view path);
bool MethodFits(const Route& route, absl::string_view method);
// 405 with the Allow header.
HttpReply MethodNotAllowed(const Route& route, Dialect dialect, const std::string& request_id);

// What an unknown path is answered: all paths that there are, with their methods.
std::string UnknownPathText();

// The dashboard's: HttpSession::ServeDashboard answers.
bool IsDashboard(const Route& route);
// Of these what its page asks the cluster to do.
bool IsOrder(RouteKind kind);

// The answer of a route without one. `dialect`: whose form models are listed in.
std::variant<HttpReply, ApiError> AnswerSimpleRoute(const Route& route, absl::string_view path,
                                                    const GatewayOptions& options,
                                                    InferenceBackend& backend,
                                                    Dialect dialect = Dialect::kOpenAi);

// A failed generation as the client is told of it; an unknown model is told with those there are.
ApiError DescribeFailure(const absl::Status& status, const std::string& model,
                         InferenceBackend& backend);

// 404, with the names of those that are loaded.
ApiError UnknownModel(const std::string& model, InferenceBackend& backend);

}  // namespace macrame::agentd
