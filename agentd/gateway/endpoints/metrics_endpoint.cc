#include "agentd/gateway/endpoints/metrics_endpoint.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

#include "agentd/gateway/http/asio_names.h"

namespace macrame::agentd {

// Coroutines that have one in their frame can be seen from outside, so its type has a name there.
struct PendingPage {
  explicit PendingPage(net::io_context& io) : come(io) {}
  net::steady_timer come;  // cancelled when the page is there
  std::optional<MetricsPage> page;
};

namespace {

// Longer than the agent waits for its coordinator's word.
constexpr std::chrono::milliseconds kMetricsLimit{3000};

}  // namespace

net::awaitable<bool> AnswerMetrics(Exchange& exchange) {
  if (!exchange.options().metrics) {
    co_return co_await exchange.SendError(
        HttpError(404, "This gateway counts nothing.", "no_metrics"));
  }
  auto pending = std::make_shared<PendingPage>(*exchange.state()->io);
  exchange.options().metrics(std::string(Plain(exchange.request()[http::field::accept])),
                             [io = exchange.state()->io, pending](MetricsPage page) {
                               net::post(*io, [pending, page = std::move(page)]() mutable {
                                 pending->page = std::move(page);
                                 pending->come.cancel();
                               });
                             });
  pending->come.expires_after(kMetricsLimit);
  co_await pending->come.async_wait(kAwait);
  if (!pending->page.has_value()) {
    ApiError error =
        HttpError(503, "The agent is too busy to count; try again in a moment.", "metrics_late");
    error.retry_after_seconds = 5;
    co_return co_await exchange.SendError(std::move(error));
  }
  HttpReply reply;
  reply.content_type = std::move(pending->page->content_type);
  const KnownModels known = exchange.Backend().Known();
  if (known.knows_all()) {
    reply.shared_body = std::move(pending->page->body);
  } else {
    reply.body = known.FilterMetrics(*pending->page->body);
    pending->page.reset();
  }
  co_return co_await exchange.SendReply(std::move(reply));
}

}  // namespace macrame::agentd
