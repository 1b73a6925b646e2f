// The dashboard's half of HttpSession: the page's files, and the status that it shows.

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/dashboard/assets.h"
#include "agentd/dashboard/request_checks.h"
#include "agentd/gateway/answer_format.h"
#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/client_watch.h"
#include "agentd/gateway/http_session.h"

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

}  // namespace

bool HttpSession::HasEtag(absl::string_view etag) const {
  return dashboard::EtagMatches(Plain(parser_->get()[http::field::if_none_match]), etag);
}

net::awaitable<bool> HttpSession::ServeDashboard(const Route& route, std::string path) {
  if (route.kind == RouteKind::kPage) co_return co_await SendPage(std::move(path));
  const auto& request = parser_->get();
  if (dashboard::IsFromAnotherSite(Plain(request["sec-fetch-site"]),
                                   Plain(request[http::field::origin]), Authority())) {
    co_return co_await SendError(HttpError(
        403, "The dashboard's data is for the page that this agent serves, and for programs.",
        "foreign_site"));
  }
  if (route.kind == RouteKind::kAccess) co_return co_await SendAccess();
  if (IsOrder(route.kind)) co_return co_await ServeOrder(route);
  if (route.kind == RouteKind::kLatencies) co_return co_await SendLatencies();
  if (!state_->options.ask_status) {
    co_return co_await SendError(
        HttpError(503, "This gateway has no agent to ask for the status.", "no_status"));
  }
  if (route.kind == RouteKind::kSnapshot) co_return co_await SendSnapshot();
  co_return co_await StreamSnapshots();
}

net::awaitable<bool> HttpSession::SendPage(std::string path) {
  const dashboard::Asset* asset = dashboard::FindAsset(path);
  HttpReply reply;
  reply.content_type = std::string(dashboard::ContentTypeOf(*asset));
  reply.headers = dashboard::SecurityHeaders();
  reply.headers.emplace_back("etag", std::string(asset->etag));
  reply.headers.emplace_back("cache-control", "no-cache");
  if (HasEtag(asset->etag)) {
    reply.status = 304;
  } else {
    reply.fixed_body = asset->bytes;
  }
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<SnapshotPtr> HttpSession::FreshSnapshot() {
  net::steady_timer pause(*state_->io);
  const Clock::time_point until = Clock::now() + state_->options.status_ms;
  for (;;) {
    AskWhenOld(state_);
    const Clock::time_point now = Clock::now();
    if (state_->snapshots.IsFresh(now)) co_return KnownSnapshot();
    if (now >= until || state_->stopping || state_->draining) co_return nullptr;
    pause.expires_after(kLookMs);
    co_await pause.async_wait(kAwait);
  }
}

SnapshotPtr HttpSession::KnownSnapshot() {
  const KnownModels known = own_backend_->Known();
  if (known.knows_all()) return state_->snapshots.latest();
  const Clock::time_point now = Clock::now();
  auto& partial = state_->partial_snapshots;
  if (partial.size() >= kAudiencesMax) {
    std::erase_if(partial, [&](const auto& one) { return !one.second.IsFresh(now); });
  }
  dashboard::SnapshotCache& own = partial[known.audience()];
  if (!own.IsFresh(now)) {
    v1::ClusterStatus told = *state_->status;
    known.Filter(&told);
    own.Take(told, now);
  }
  return own.latest();
}

net::awaitable<bool> HttpSession::SendSnapshot() {
  const SnapshotPtr snapshot = co_await FreshSnapshot();
  if (snapshot == nullptr) {
    ApiError error =
        HttpError(503, "The agent did not tell its status in time; try again.", "no_status");
    error.retry_after_seconds = 1;
    co_return co_await SendError(std::move(error));
  }
  HttpReply reply;
  reply.headers = dashboard::SecurityHeaders();
  reply.headers.emplace_back("etag", snapshot->etag);
  reply.headers.emplace_back("cache-control", "no-cache");
  if (HasEtag(snapshot->etag)) {
    reply.status = 304;
  } else {
    reply.body = snapshot->json;
  }
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<bool> HttpSession::SendLatencies() {
  if (!state_->options.latencies) {
    co_return co_await SendError(
        HttpError(503, "This gateway has no agent that counts how long tokens take.", "no_status"));
  }
  HttpReply reply;
  reply.headers = dashboard::SecurityHeaders();
  reply.headers.emplace_back("cache-control", "no-cache");
  reply.body = own_backend_->Known().FilterJson(*state_->options.latencies());
  co_return co_await SendReply(std::move(reply));
}

net::awaitable<bool> HttpSession::StreamSnapshots() {
  if (state_->dashboards >= state_->options.dashboards_max || state_->draining) {
    ApiError error = HttpError(
        503,
        state_->draining ? "This node is about to stop; open the dashboard of another one."
                         : "Too many dashboards are open; ask for /dashboard/api/snapshot instead.",
        "too_many_dashboards");
    error.retry_after_seconds = 2;
    co_return co_await SendError(std::move(error));
  }
  const CountedDashboard counted(state_);
  const bool begun =
      co_await WriteStreamHead("text/event-stream; charset=utf-8", dashboard::SecurityHeaders());
  if (!begun) co_return false;
  auto watch = StartWatch();
  bool alive = co_await PumpSnapshots(watch);
  co_await EndWatch(watch);
  if (alive) alive = co_await EndStream();
  co_return alive&& keep_alive_ && !state_->draining;
}

// Until the client goes or the gateway is about to stop; false when the client is gone.
net::awaitable<bool> HttpSession::PumpSnapshots(std::shared_ptr<ClientWatch> watch) {
  net::steady_timer pause(*state_->io);
  uint64_t sent = 0;
  Clock::time_point last_written = Clock::now();
  while (!state_->stopping && !state_->draining && !watch->ended) {
    const SnapshotPtr snapshot = co_await FreshSnapshot();
    std::string piece;
    // Its key may have been revoked, or a first one made, since the page asked.
    if (CheckAccess(Path()).has_value()) co_return true;
    if (snapshot != nullptr && snapshot->revision != sent) {
      piece = absl::StrCat("data: ", snapshot->json, "\n\n");
      sent = snapshot->revision;
    } else if (Clock::now() - last_written >= state_->options.keep_alive_ms) {
      piece = std::string(kKeepAliveComment);
    }
    if (!piece.empty()) {
      const bool written = co_await WritePiece(std::move(piece));
      if (!written) co_return false;
      last_written = Clock::now();
    }
    // In short steps: a client that goes and a gateway that stops are not kept waiting.
    const Clock::time_point next = Clock::now() + state_->options.dashboard_pause_ms;
    while (Clock::now() < next && !state_->stopping && !state_->draining && !watch->ended) {
      pause.expires_after(std::min<Clock::duration>(kStepMs, next - Clock::now()));
      co_await pause.async_wait(kAwait);
    }
  }
  co_return !watch->ended;
}

}  // namespace macrame::agentd
