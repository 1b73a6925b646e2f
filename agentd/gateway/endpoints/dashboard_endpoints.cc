#include "agentd/gateway/endpoints/dashboard_endpoints.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/dashboard/assets.h"
#include "agentd/dashboard/request_checks.h"
#include "agentd/gateway/dialects/answer_format.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/client_watch.h"

namespace macrame::agentd {
namespace {

using SnapshotPtr = std::shared_ptr<const dashboard::Snapshot>;

// How often a request that waits for the agent's answer looks for it.
constexpr std::chrono::milliseconds kLookMs{20};
constexpr std::chrono::milliseconds kStepMs{100};
// Beyond it, what was made for those who have stopped looking is made again.
constexpr size_t kAudiencesMax = 64;

// Asks the agent when it is time to. What it tells is taken on the io thread.
void AskWhenOld(const std::shared_ptr<GatewayState>& state) {
  if (!state->snapshots.ShouldAsk(Clock::now())) return;
  state->options.ask_status(
      [io = state->io, weak = std::weak_ptr<GatewayState>(state)](v1::ClusterStatus status) {
        net::post(*io, [weak, status = std::move(status)]() mutable {
          const auto alive = weak.lock();
          if (alive == nullptr) return;
          alive->snapshots.Take(status, Clock::now());
          alive->status = std::make_shared<const v1::ClusterStatus>(std::move(status));
        });
      });
}

constexpr int kNotModified = 304;

// Without a body, which it gets unless its status is kNotModified: the client has this one.
HttpReply ReplyWithEtag(const Exchange& exchange, absl::string_view etag) {
  HttpReply reply;
  reply.headers = dashboard::SecurityHeaders();
  reply.headers.emplace_back("etag", std::string(etag));
  reply.headers.emplace_back("cache-control", "no-cache");
  const absl::string_view known = Plain(exchange.request()[http::field::if_none_match]);
  if (dashboard::EtagMatches(known, etag)) reply.status = kNotModified;
  return reply;
}

// What of the newest whoever asks may know.
SnapshotPtr KnownSnapshot(Exchange& exchange) {
  const KnownModels known = exchange.Backend().Known();
  if (known.knows_all()) return exchange.state()->snapshots.latest();
  const Clock::time_point now = Clock::now();
  auto& partial = exchange.state()->partial_snapshots;
  if (partial.size() >= kAudiencesMax) {
    std::erase_if(partial, [&](const auto& one) { return !one.second.IsFresh(now); });
  }
  dashboard::SnapshotCache& own = partial[known.audience()];
  if (!own.IsFresh(now)) {
    v1::ClusterStatus told = *exchange.state()->status;
    known.Filter(&told);
    own.Take(told, now);
  }
  return own.latest();
}

// The status as JSON, not older than about a second; null when the agent does not tell it.
net::awaitable<SnapshotPtr> FreshSnapshot(Exchange& exchange) {
  net::steady_timer pause(*exchange.state()->io);
  const Clock::time_point until = Clock::now() + exchange.options().status_ms;
  for (;;) {
    AskWhenOld(exchange.state());
    const Clock::time_point now = Clock::now();
    if (exchange.state()->snapshots.IsFresh(now)) co_return KnownSnapshot(exchange);
    if (now >= until || exchange.state()->stopping || exchange.state()->draining) co_return nullptr;
    pause.expires_after(kLookMs);
    co_await pause.async_wait(kAwait);
  }
}

net::awaitable<bool> SendNoStatus(Exchange& exchange) {
  co_return co_await exchange.SendError(
      HttpError(503, "This gateway has no agent to ask for the status.", "no_status"));
}

// Until the client goes or the gateway is about to stop; false when the client is gone.
net::awaitable<bool> PumpSnapshots(Exchange& exchange, std::shared_ptr<ClientWatch> watch) {
  net::steady_timer pause(*exchange.state()->io);
  uint64_t sent = 0;
  Clock::time_point last_written = Clock::now();
  while (!exchange.state()->stopping && !exchange.state()->draining && !watch->ended) {
    const SnapshotPtr snapshot = co_await FreshSnapshot(exchange);
    std::string piece;
    // Its key may have been revoked, or a first one made, since the page asked.
    if (exchange.CheckAccess().has_value()) co_return true;
    if (snapshot != nullptr && snapshot->revision != sent) {
      piece = absl::StrCat("data: ", snapshot->json, "\n\n");
      sent = snapshot->revision;
    } else if (Clock::now() - last_written >= exchange.options().keep_alive_ms) {
      piece = std::string(kKeepAliveComment);
    }
    if (!piece.empty()) {
      const bool written = co_await exchange.WritePiece(std::move(piece));
      if (!written) co_return false;
      last_written = Clock::now();
    }
    // In short steps: a client that goes and a gateway that stops are not kept waiting.
    const Clock::time_point next = Clock::now() + exchange.options().dashboard_pause_ms;
    while (Clock::now() < next && !exchange.state()->stopping && !exchange.state()->draining &&
           !watch->ended) {
      pause.expires_after(std::min<Clock::duration>(kStepMs, next - Clock::now()));
      co_await pause.async_wait(kAwait);
    }
  }
  co_return !watch->ended;
}

}  // namespace

bool IsPage(absl::string_view path) { return dashboard::FindAsset(path) != nullptr; }

bool IsFromForeignSite(const Exchange& exchange) {
  const HttpRequest& request = exchange.request();
  return dashboard::IsFromAnotherSite(Plain(request["sec-fetch-site"]), OriginOf(request),
                                      AuthorityOf(request));
}

net::awaitable<bool> RefuseForeignSite(Exchange& exchange) {
  co_return co_await exchange.SendError(HttpError(
      403, "The dashboard's data is for the page that this agent serves, and for programs.",
      "foreign_site"));
}

net::awaitable<bool> AnswerPage(Exchange& exchange) {
  const dashboard::Asset* asset = dashboard::FindAsset(exchange.path());
  HttpReply reply = ReplyWithEtag(exchange, asset->etag);
  reply.content_type = std::string(dashboard::ContentTypeOf(*asset));
  if (reply.status != kNotModified) reply.fixed_body = asset->bytes;
  co_return co_await exchange.SendReply(std::move(reply));
}

net::awaitable<bool> SendSnapshot(Exchange& exchange) {
  if (!exchange.options().ask_status) co_return co_await SendNoStatus(exchange);
  const SnapshotPtr snapshot = co_await FreshSnapshot(exchange);
  if (snapshot == nullptr) {
    ApiError error =
        HttpError(503, "The agent did not tell its status in time; try again.", "no_status");
    error.retry_after_seconds = 1;
    co_return co_await exchange.SendError(std::move(error));
  }
  HttpReply reply = ReplyWithEtag(exchange, snapshot->etag);
  if (reply.status != kNotModified) reply.body = snapshot->json;
  co_return co_await exchange.SendReply(std::move(reply));
}

net::awaitable<bool> SendLatencies(Exchange& exchange) {
  if (!exchange.options().latencies) {
    co_return co_await exchange.SendError(
        HttpError(503, "This gateway has no agent that counts how long tokens take.", "no_status"));
  }
  HttpReply reply;
  reply.headers = dashboard::SecurityHeaders();
  reply.headers.emplace_back("cache-control", "no-cache");
  reply.body = exchange.Backend().Known().FilterJson(*exchange.options().latencies());
  co_return co_await exchange.SendReply(std::move(reply));
}

net::awaitable<bool> StreamSnapshots(Exchange& exchange) {
  if (!exchange.options().ask_status) co_return co_await SendNoStatus(exchange);
  if (exchange.state()->dashboards >= exchange.options().dashboards_max ||
      exchange.state()->draining) {
    ApiError error =
        HttpError(503,
                  exchange.state()->draining
                      ? "This node is about to stop; open the dashboard of another one."
                      : "Too many dashboards are open; ask for /dashboard/api/snapshot instead.",
                  "too_many_dashboards");
    error.retry_after_seconds = 2;
    co_return co_await exchange.SendError(std::move(error));
  }
  const CountedDashboard counted(exchange.state());
  const bool begun = co_await exchange.WriteStreamHead("text/event-stream; charset=utf-8",
                                                       dashboard::SecurityHeaders());
  if (!begun) co_return false;
  auto watch = exchange.connection().StartWatch(nullptr);
  bool alive = co_await PumpSnapshots(exchange, watch);
  co_await exchange.connection().EndWatch(watch);
  if (alive) alive = co_await exchange.EndStream();
  co_return alive&& exchange.keep_alive() && !exchange.state()->draining;
}

}  // namespace macrame::agentd
