// How a request's body comes: when there is room for it, and no slower than may be.

#include <boost/asio/steady_timer.hpp>
#include <boost/beast/http/read.hpp>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {
namespace {

// How often a body is looked at, and a gateway that stops is noticed.
constexpr std::chrono::milliseconds kBodyStepMs{250};
constexpr int kBodiesRetrySeconds = 2;

ApiError NoRoom(size_t bytes_max) {
  ApiError error =
      HttpError(503,
                absl::StrCat("This gateway receives and answers requests of ", bytes_max >> 20,
                             " MiB already, or of half of it from this client. Try again in ",
                             kBodiesRetrySeconds, " s, with fewer large requests at once."),
                "bodies_busy");
  error.retry_after_seconds = kBodiesRetrySeconds;
  return error;
}

ApiError TooSlow() {
  return HttpError(408,
                   absl::StrCat("The request's body came too slowly: less than ", kBodyFloor,
                                " bytes a second, or ", kBodyFloorWhileOthersWait >> 10,
                                " KiB a second while others wait to send theirs, or not whole in "
                                "time. Send it anew."),
                   "body_too_slow");
}

}  // namespace

// Looks at a body while it is read.
struct Exchange::BodyWatch : std::enable_shared_from_this<BodyWatch> {
  BodyWatch(net::io_context& io, Exchange* reading, Clock::time_point end)
      : timer(io), exchange(reading), until(end) {}

  void Look() {
    timer.expires_after(std::min<Clock::duration>(kBodyStepMs, until - Clock::now()));
    timer.async_wait([self = shared_from_this()](beast::error_code) {
      if (self->exchange == nullptr) return;
      self->is_too_slow = Clock::now() >= self->until || self->exchange->body_place_->IsTooSlow();
      if (!self->is_too_slow) return self->Look();
      beast::error_code ignored;
      self->exchange->connection_.stream().socket().cancel(ignored);
    });
  }
  void End() {
    exchange = nullptr;
    timer.cancel();
  }

  net::steady_timer timer;
  Exchange* exchange;  // null: it is read no more
  const Clock::time_point until;
  bool is_too_slow = false;
};

std::optional<uint64_t> Exchange::AnnouncedBytes() const {
  const auto announced = parser_.content_length();
  if (!announced.has_value()) return std::nullopt;
  return *announced;
}

net::awaitable<bool> Exchange::AwaitRoom(std::optional<BodyPlace>* place, size_t bytes) {
  const std::string& key_id = principal().key_id;
  BodyBudget::Sender sender;
  sender.client = key_id.empty() ? connection_.counted_as() : absl::StrCat("key ", key_id);
  sender.is_keyless = key_id.empty() && !connection_.IsFromLoopback();
  place->emplace(state(), sender, bytes);
  net::steady_timer pause(*state()->io);
  const Clock::time_point until = Clock::now() + options().body_wait_ms;
  state()->bodies.Await((*place)->id(), &pause);
  while (!(*place)->HasRoom() && Clock::now() < until && !state()->stopping &&
         !connection_.has_left()) {
    pause.expires_after(std::min<Clock::duration>(kBodyStepMs, until - Clock::now()));
    co_await pause.async_wait(kAwait);
  }
  state()->bodies.StopWaiting((*place)->id());
  if ((*place)->HasRoom()) co_return true;
  place->reset();
  co_return false;
}

net::awaitable<bool> Exchange::AwaitBodyRoom() {
  const auto announced = AnnouncedBytes();
  const size_t bytes_max = options().body_bytes_max;
  const size_t bytes = announced.has_value() ? std::min<size_t>(*announced, bytes_max) : bytes_max;
  const bool has_room = co_await AwaitRoom(&body_place_, bytes);
  if (connection_.has_left() || state()->stopping) co_return false;
  if (has_room) co_return true;
  keep_alive_ = false;
  co_await SendError(NoRoom(options().bodies_bytes_max));
  co_return false;
}

net::awaitable<std::optional<ApiError>> Exchange::RoomForCopies(size_t bytes) {
  if (bytes <= kSmallBodyBytes) co_return std::nullopt;
  const size_t most = state()->bodies.budget().large_body_max();
  if (bytes + record_.bytes_received > most) {
    co_return HttpError(413,
                        absl::StrCat("The answers that are asked for need ", bytes >> 20,
                                     " MiB of copies of the request; with it they may take ",
                                     most >> 20, " MiB. Ask for fewer at once ('n', 'prompt')."),
                        "body_too_large");
  }
  const bool has_room = co_await AwaitRoom(&copies_place_, bytes);
  if (has_room) co_return std::nullopt;
  co_return NoRoom(options().bodies_bytes_max);
}

net::awaitable<std::optional<ApiError>> Exchange::RoomForStored(size_t bytes) {
  // One that is larger than what a client may hold takes all of that.
  const size_t most = state()->bodies.budget().large_body_max();
  const size_t left = most - std::min<size_t>(most, record_.bytes_received);
  const bool has_room = co_await AwaitRoom(&copies_place_, std::min(bytes, left));
  if (has_room) co_return std::nullopt;
  co_return NoRoom(options().bodies_bytes_max);
}

net::awaitable<bool> Exchange::ReadBody() {
  if (BodyIsUnread()) {
    const bool has_room = co_await AwaitBodyRoom();
    if (!has_room) co_return false;
  }
  if (beast::iequals(request()[http::field::expect], "100-continue") && BodyIsUnread()) {
    const bool written = co_await Write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return false;
  }
  beast::error_code error;
  bool is_too_slow = false;
  if (BodyIsUnread()) {
    auto watch = std::make_shared<BodyWatch>(*state()->io, this, Clock::now() + options().body_ms);
    watch->Look();
    connection_.stream().expires_never();
    while (!error && !parser_.is_done()) {
      auto [failure, size] = co_await http::async_read_some(connection_.stream(),
                                                            connection_.buffer(), parser_, kAwait);
      error = failure;
      body_place_->NoteReceived(request().body().size());
    }
    watch->End();
    is_too_slow = watch->is_too_slow;
  }
  record_.bytes_received = request().body().size();
  record_.read = Clock::now();
  if (!error) {
    if (body_place_.has_value()) body_place_->NoteWhole(record_.bytes_received);
    connection_.set_is_waiting(false);
    co_return true;
  }
  if (is_too_slow) {
    keep_alive_ = false;
    co_await SendError(TooSlow());
  } else {
    co_await RefuseUnreadable(error);
  }
  co_return false;
}

}  // namespace macrame::agentd
