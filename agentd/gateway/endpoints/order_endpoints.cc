#include "agentd/gateway/endpoints/order_endpoints.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/dashboard/assets.h"
#include "agentd/gateway/http/asio_names.h"
#include "proto/message_json.h"

namespace macrame::agentd {

// Coroutines that have one in their frame can be seen from outside, so its type has a name there.
struct PendingOrder {
  explicit PendingOrder(net::io_context& io) : come(io) {}
  net::steady_timer come;  // cancelled when the answer is there
  std::optional<OrderAnswer> answer;
};

namespace {

// How often whoever waits looks whether the gateway is about to stop.
constexpr std::chrono::milliseconds kOrderStepMs{100};
constexpr int kOrdersBusyRetrySeconds = 2;

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

net::awaitable<bool> GiveOrderAndAnswer(Exchange& exchange, ClusterOrder order) {
  if (exchange.state()->orders >= exchange.options().orders_max) {
    ApiError error = HttpError(503, "Other orders are being carried out; try again in a moment.",
                               "too_many_orders");
    error.retry_after_seconds = kOrdersBusyRetrySeconds;
    co_return co_await exchange.SendError(std::move(error));
  }
  const CountedOrder counted(exchange.state());
  const std::string asked = ModelOf(order);
  auto pending = std::make_shared<PendingOrder>(*exchange.state()->io);
  exchange.options().give_order({exchange.principal().key_id, exchange.connection().address()},
                                std::move(order),
                                [io = exchange.state()->io, pending](OrderAnswer answer) {
                                  net::post(*io, [pending, answer = std::move(answer)]() mutable {
                                    pending->answer = std::move(answer);
                                    pending->come.cancel();
                                  });
                                });
  const Clock::time_point until = Clock::now() + exchange.options().order_ms;
  while (!pending->answer.has_value() && Clock::now() < until && !exchange.state()->stopping) {
    pending->come.expires_after(std::min<Clock::duration>(kOrderStepMs, until - Clock::now()));
    co_await pending->come.async_wait(kAwait);
  }
  if (!pending->answer.has_value()) {
    co_return co_await exchange.SendError(HttpError(
        504, "The cluster did not answer in time. It may carry the order out all the same.",
        "order_late"));
  }
  co_return co_await exchange.SendReply(
      ReplyOf(*pending->answer, exchange.Backend().Known(), asked));
}

}  // namespace

net::awaitable<bool> SendAccess(Exchange& exchange) {
  HttpReply reply;
  reply.headers = dashboard::SecurityHeaders();
  reply.body = AccessBody(exchange.principal());
  co_return co_await exchange.SendReply(std::move(reply));
}

net::awaitable<bool> AnswerOrder(Exchange& exchange, OrderKind kind) {
  if (!exchange.options().give_order) {
    co_return co_await exchange.SendError(
        HttpError(503, "This gateway has no agent to give orders to.", "no_agent"));
  }
  if (exchange.state()->draining) co_return co_await exchange.SendError(NodeIsStopping());
  if (auto fault = exchange.CheckLimits()) co_return co_await exchange.SendError(*std::move(fault));
  if (HasBody(kind)) {
    if (auto fault = CheckContentType(exchange.request(), /*may_be_untold=*/false))
      co_return co_await exchange.SendError(*std::move(fault));
    const auto announced = exchange.AnnouncedBytes();
    if (announced.has_value() && *announced > kOrderBytesMax) {
      co_return co_await exchange.SendError(HttpError(
          413, absl::StrCat("An order has at most ", kOrderBytesMax, " bytes."), "body_too_large"));
    }
    const bool complete = co_await exchange.ReadBody();
    if (!complete) co_return false;
    // Its key may have been revoked, or a first one made, while its body came.
    if (auto refusal = exchange.CheckAccess())
      co_return co_await exchange.SendError(*std::move(refusal));
  }
  auto order =
      ParseOrder(kind, exchange.request().body(), exchange.options().json_depth_max,
                 exchange.principal(), exchange.state()->backend->ListModels(), GatewayUnixMs());
  if (auto* error = std::get_if<ApiError>(&order)) {
    if (error->http_status == 403) exchange.NoteRefused(*error, exchange.principal().key_id);
    co_return co_await exchange.SendError(std::move(*error));
  }
  if (auto missing = CheckUnload(exchange.principal(), std::get<ClusterOrder>(order),
                                 exchange.state()->backend->ListModels())) {
    co_return co_await exchange.SendError(*std::move(missing));
  }
  co_return co_await GiveOrderAndAnswer(exchange, std::get<ClusterOrder>(std::move(order)));
}

}  // namespace macrame::agentd
