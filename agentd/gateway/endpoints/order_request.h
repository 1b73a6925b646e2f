#pragma once

// What the dashboard's page posts, as orders to the cluster; and what it is told of them. Pure.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "agentd/gateway/access/admission.h"
#include "agentd/gateway/base/api_error.h"
#include "agentd/gateway/base/http_reply.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/http/cluster_orders.h"

namespace macrame::agentd {

inline constexpr size_t kOrderBytesMax = 16 * 1024;
inline constexpr int64_t kOrderedRanksMax = 1024;
inline constexpr uint32_t kAuditLinesShown = 50;  // the newest of the audit log

enum class OrderKind {
  kPlan,
  kLoad,
  kUnload,
  kCordon,
  kListKeys,
  kCreateKey,
  kRevokeKey,
  kReadAudit,
};
// Whether requests that give it have a body.
bool HasBody(OrderKind kind);

// `body` is read whole, where the order has one; fields that are not known are refused. A key that
// is for some models or for a tenant gives orders about those alone (`served`: all deployments):
// 403 for others, but what other tenants have is asked for as what nobody has (keeps_others), and
// whoever answers that has the same words for both.
std::variant<ClusterOrder, ApiError> ParseOrder(OrderKind kind, absl::string_view body,
                                                size_t json_depth_max, const Principal& principal,
                                                const std::vector<ServedModel>& served,
                                                uint64_t now_unix_ms);

// What an order to unload ends as whose key may not know of such a deployment, or where there is
// none: key and name alone say so. Nullopt: the cluster says what becomes of it.
std::optional<ApiError> CheckUnload(const Principal& principal, const ClusterOrder& order,
                                    const std::vector<ServedModel>& served);

// An order that was not carried out: the Reason's code, its message and, apart, its remedy.
// {"error": {"message", "type", "param", "code", "remedy"}}
HttpReply RefusedOrder(const absl::Status& status);

// GET /dashboard/api/access: {"scopes": ["infer", …], "key_id": "…" or null}.
std::string AccessBody(const Principal& principal);

}  // namespace macrame::agentd
