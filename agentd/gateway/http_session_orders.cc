// The orders that the dashboard's page gives: who may, and how long they are waited for.

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/base/web_url.h"
#include "agentd/dashboard/assets.h"
#include "agentd/dashboard/request_checks.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/host_policy.h"
#include "agentd/gateway/http_session.h"
#include "agentd/gateway/order_request.h"
#include "proto/message_json.h"

namespace macrame::agentd {
namespace {

// How often whoever waits looks whether the gateway is about to stop.
constexpr std::chrono::milliseconds kOrderStepMs{100};
constexpr int kOrdersBusyRetrySeconds = 2;
constexpr int kOrdersStoppedRetrySeconds = 5;

// What proxies put in: the client is then not on this machine, wherever the connection comes from.
constexpr const char* kProxyFields[] = {"forwarded", "via", "x-forwarded-for", "x-forwarded-host",
                                        "x-real-ip"};

// The model that the order is about; empty: none.
std::string ModelOf(const ClusterOrder& order) {
  if (const auto* plan = std::get_if<v1::PlanModelRequest>(&order)) return plan->name_or_path();
  if (const auto* load = std::get_if<v1::LoadModelRequest>(&order)) return load->name_or_path();
  if (const auto* unload = std::get_if<v1::UnloadModelRequest>(&order)) return unload->name();
  return "";
}

// `asked`: a refusal may say this name again.
HttpReply ReplyOf(const OrderAnswer& answer, const KnownModels& known, const std::string& asked) {
  HttpReply reply;
  if (answer.ok()) {
    const std::unique_ptr<google::protobuf::Message> told((*answer)->New());
    told->CopyFrom(**answer);
    known.Filter(told.get());
    reply.body =
        MessageToJson(*told).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else {
    reply = RefusedOrder(known.Filter(answer.status(), asked));
  }
  reply.headers = dashboard::SecurityHeaders();
  return reply;
}

}  // namespace

struct HttpSession::PendingOrder {
  explicit PendingOrder(net::io_context& io) : come(io) {}
  net::steady_timer come;  // cancelled when the answer is there
  std::optional<OrderAnswer> answer;
};

// By a loopback name and through no proxy. A browser says with each order which page gives it, and
// no page can say that it were another: pages at another port of this machine are other pages.
bool HttpSession::IsOwnPage() const {
  const auto& request = parser_->get();
  if (!IsHostAllowed(HostOf(Authority()), /*over_loopback=*/true, {})) return false;
  for (const char* field : kProxyFields) {
    if (request.count(field) > 0) return false;
  }
  if (request.count(http::field::origin) > 1 ||
      dashboard::IsFromAnotherSite(Plain(request["sec-fetch-site"]), Origin(), Authority())) {
    return false;
  }
  const bool reads = request.method() == http::verb::get || request.method() == http::verb::head;
  const char* scheme = stream_.is_secure() ? "https://" : "http://";
  return reads || absl::EqualsIgnoreCase(Origin(), absl::StrCat(scheme, Authority()));
}

net::awaitable<bool> HttpSession::SendAccess() {
  HttpReply reply;
  reply.headers = dashboard::SecurityHeaders();
  reply.body = AccessBody(own_backend_->principal());
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<bool> HttpSession::ServeOrder(const Route& route) {
  if (!state_->options.give_order) {
    co_return co_await SendError(
        HttpError(503, "This gateway has no agent to give orders to.", "no_agent"));
  }
  if (state_->draining) {
    ApiError error =
        HttpError(503, "This node is about to stop; ask another one.", "node_stopping");
    error.retry_after_seconds = kOrdersStoppedRetrySeconds;
    co_return co_await SendError(std::move(error));
  }
  if (auto fault = CheckLimits()) co_return co_await SendError(*std::move(fault));
  if (route.has_body) {
    if (auto fault = CheckContentType(/*may_be_untold=*/false))
      co_return co_await SendError(*std::move(fault));
    const auto announced = parser_->content_length();
    if (announced.has_value() && *announced > kOrderBytesMax) {
      co_return co_await SendError(HttpError(
          413, absl::StrCat("An order has at most ", kOrderBytesMax, " bytes."), "body_too_large"));
    }
    const bool complete = co_await ReadBody();
    if (!complete) co_return false;
    // Its key may have been revoked, or a first one made, while its body came.
    if (auto refusal = CheckAccess(Path())) co_return co_await SendError(*std::move(refusal));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  auto order = ParseOrder(route.kind, parser_->get().body(), state_->options.json_depth_max,
                          own_backend_->principal(), state_->backend->ListModels(),
                          static_cast<uint64_t>(now_unix_ms));
  if (auto* error = std::get_if<ApiError>(&order)) {
    if (error->http_status == 403) NoteRefused(*error, own_backend_->principal().key_id);
    co_return co_await SendError(std::move(*error));
  }
  if (auto missing = CheckUnload(own_backend_->principal(), std::get<ClusterOrder>(order),
                                 state_->backend->ListModels())) {
    co_return co_await SendError(*std::move(missing));
  }
  co_return co_await GiveOrderAndAnswer(std::get<ClusterOrder>(std::move(order)));
}

net::awaitable<bool> HttpSession::GiveOrderAndAnswer(ClusterOrder order) {
  if (state_->orders >= state_->options.orders_max) {
    ApiError error = HttpError(503, "Other orders are being carried out; try again in a moment.",
                               "too_many_orders");
    error.retry_after_seconds = kOrdersBusyRetrySeconds;
    co_return co_await SendError(std::move(error));
  }
  const CountedOrder counted(state_);
  const std::string asked = ModelOf(order);
  auto pending = std::make_shared<PendingOrder>(*state_->io);
  state_->options.give_order({own_backend_->principal().key_id, address_}, std::move(order),
                             [io = state_->io, pending](OrderAnswer answer) {
                               net::post(*io, [pending, answer = std::move(answer)]() mutable {
                                 pending->answer = std::move(answer);
                                 pending->come.cancel();
                               });
                             });
  const Clock::time_point until = Clock::now() + state_->options.order_ms;
  while (!pending->answer.has_value() && Clock::now() < until && !state_->stopping) {
    pending->come.expires_after(std::min<Clock::duration>(kOrderStepMs, until - Clock::now()));
    co_await pending->come.async_wait(kAwait);
  }
  if (!pending->answer.has_value()) {
    co_return co_await SendError(HttpError(
        504, "The cluster did not answer in time. It may carry the order out all the same.",
        "order_late"));
  }
  co_return co_await SendReply(ReplyOf(*pending->answer, own_backend_->Known(), asked));
}

}  // namespace macrame::agentd
