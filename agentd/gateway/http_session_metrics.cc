// What is told of requests: the route /metrics, whose page the agent's own thread puts together,
// ids and the access log.

#include <spdlog/spdlog.h>

#include <boost/asio/post.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/http_session.h"
#include "agentd/gateway/request_id.h"

namespace macrame::agentd {
namespace {

// Longer than the agent waits for its coordinator's word.
constexpr std::chrono::milliseconds kMetricsLimit{3000};

}  // namespace

struct HttpSession::PendingPage {
  explicit PendingPage(net::io_context& io) : come(io) {}
  net::steady_timer come;  // cancelled when the page is there
  std::optional<MetricsPage> page;
};

net::awaitable<bool> HttpSession::ServeMetrics() {
  auto pending = std::make_shared<PendingPage>(*state_->io);
  state_->options.metrics(std::string(Plain(parser_->get()[http::field::accept])),
                          [io = state_->io, pending](MetricsPage page) {
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
    co_return co_await SendError(std::move(error));
  }
  HttpReply reply;
  reply.content_type = std::move(pending->page->content_type);
  const KnownModels known = own_backend_->Known();
  if (known.knows_all()) {
    reply.shared_body = std::move(pending->page->body);
  } else {
    reply.body = known.FilterMetrics(*pending->page->body);
    pending->page.reset();
  }
  co_return co_await SendReply(std::move(reply));
}

void HttpSession::TakeRequestId() {
  const absl::string_view id = Plain(parser_->get()["x-request-id"]);
  if (!IsRequestId(id)) return;
  request_id_ = std::string(id);
}

std::string HttpSession::IdForRank() const {
  // Ranks make ids of tool calls from it, which must differ even where a client sends one id twice.
  return request_id_ == own_id_ ? own_id_ : absl::StrCat(request_id_, "/", own_id_);
}

// Tells of the request that is over; nothing of a connection that ended without one.
void HttpSession::EndRecord() {
  if (record_.status == 0 && !parser_->is_header_done()) return;
  record_.ended = RequestRecord::Clock::now();
  record_.request_id = request_id_;
  record_.client_address = address_;
  spdlog::log(
      IsProbe(record_.route) && record_.status < 400 ? spdlog::level::debug : spdlog::level::info,
      "gateway: {}", AccessLine(record_));
  EndTrace();
  if (state_->options.on_request) state_->options.on_request(record_);
}

}  // namespace macrame::agentd
