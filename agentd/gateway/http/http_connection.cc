#include "agentd/gateway/http/http_connection.h"

#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/write.hpp>

#include "agentd/gateway/access/peer_user.h"
#include "agentd/gateway/base/plain_address.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/exchange.h"
#include "transport/socket_address.h"

namespace macrame::agentd {
namespace {

// Requests that a client may send ahead while an answer is on its way.
constexpr size_t kSentAheadBytesMax = 64 * 1024;
constexpr size_t kReadBytes = 4096;
// The first byte of a TLS connection; no method begins with it (RFC 8446, 5.1).
constexpr unsigned char kTlsHandshake = 0x16;
// What is still read from a client that was refused, so that it gets to see the answer.
constexpr size_t kLingerBytesMax = 16 * 1024 * 1024;
constexpr std::chrono::milliseconds kLingerMs{1000};

std::string AddressOf(const net::ip::tcp::socket& socket) {
  beast::error_code gone;
  const auto remote = socket.remote_endpoint(gone);
  return gone ? "" : PlainAddress(remote.address()).to_string();
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<GatewayState> state, net::ip::tcp::socket socket)
    : state_(std::move(state)),
      address_(AddressOf(socket)),
      counted_as_(transport::CountedAddress(address_)),
      stream_(std::move(socket)),
      buffer_(state_->options.header_bytes_max + kSentAheadBytesMax) {
  state_->open.insert(this);
  ++state_->connections;
}

HttpConnection::~HttpConnection() {
  state_->open.erase(this);
  --state_->connections;
}

void HttpConnection::Leave() {
  has_left_ = true;
  Abort();
}

void HttpConnection::Abort() {
  if (const auto watch = watch_.lock()) watch->TellGone();
  Close();
}

void HttpConnection::Close() {
  beast::error_code ignored;
  stream_.socket().close(ignored);
}

void HttpConnection::RecheckAccess(const KeyTable& keys, uint64_t now_unix_ms) {
  if (exchange_ != nullptr && !exchange_->MayGoOn(keys, now_unix_ms)) Abort();
}

net::awaitable<void> HttpConnection::Run() {
  beast::error_code ignored;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored);
  bool more = true;
  if (state_->tls != nullptr) more = co_await SecureIfAsked();
  while (more && !state_->stopping) {
    more = co_await AwaitFirstByte();
    if (!more) break;
    exchange_ = std::make_unique<Exchange>(*this);
    more = co_await exchange_->Run();
    exchange_.reset();
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
  }
  if (stream_.socket().is_open()) co_await LingerAndClose();
}

net::awaitable<bool> HttpConnection::SecureIfAsked() {
  const bool has_begun = co_await AwaitFirstByte();
  if (!has_begun) co_return false;
  if (*static_cast<const unsigned char*>(buffer_.data().data()) != kTlsHandshake) co_return true;
  std::shared_ptr<net::ssl::context> context = state_->tls->Current();
  if (context == nullptr) co_return false;  // the agent says why (HTTPS_NOT_READY)
  stream_.expires_after(state_->options.header_ms);
  const beast::error_code error = co_await stream_.Secure(std::move(context), buffer_);
  if (error) spdlog::debug("gateway: {}: no TLS: {}", address_, error.message());
  co_return !error;
}

net::awaitable<bool> HttpConnection::AwaitFirstByte() {
  is_waiting_ = true;
  waiting_since_ = Clock::now();
  if (buffer_.size() > 0) co_return true;
  stream_.expires_after(state_->options.idle_ms);
  auto [error, size] = co_await stream_.async_read_some(buffer_.prepare(kReadBytes), kAwait);
  if (error) co_return false;
  buffer_.commit(size);
  waiting_since_ = Clock::now();  // a request is on its way: idle ones leave before it
  co_return true;
}

bool HttpConnection::IsFromLoopback() const {
  beast::error_code gone;
  const auto remote = stream_.socket().remote_endpoint(gone);
  return !gone && PlainAddress(remote.address()).is_loopback();
}

Arrival HttpConnection::arrival() const {
  beast::error_code error;
  const auto local = stream_.socket().local_endpoint(error);
  Arrival arrival;
  arrival.is_loopback = IsFromLoopback();
  arrival.over_loopback = error || PlainAddress(local.address()).is_loopback();
  arrival.is_secure = stream_.is_secure();
  arrival.has_tls = state_->tls != nullptr;
  return arrival;
}

bool HttpConnection::IsOfObeyedUser() {
  if (!is_of_obeyed_user_.has_value()) is_of_obeyed_user_ = FindObeyedUser();
  return *is_of_obeyed_user_;
}

bool HttpConnection::FindObeyedUser() const {
  const GatewayOptions& options = state_->options;
  if (!options.peer_user && !TellsPeerUsers()) return true;
  beast::error_code error, own_error;
  const auto peer = stream_.socket().remote_endpoint(error);
  const auto own = stream_.socket().local_endpoint(own_error);
  if (error || own_error) return false;
  const std::optional<uint32_t> user =
      options.peer_user ? options.peer_user() : UserOfPeer(peer, own);
  return user.has_value() && IsObeyedUser(*user, options.orders_group);
}

net::awaitable<HttpConnection::Written> HttpConnection::Write(std::string bytes,
                                                              absl::string_view more) {
  if (!stream_.socket().is_open()) co_return Written();
  stream_.expires_after(state_->options.write_ms);
  const std::array<net::const_buffer, 2> parts = {net::buffer(bytes),
                                                  net::const_buffer(more.data(), more.size())};
  auto [error, size] = co_await net::async_write(stream_, parts, kAwait);
  co_return Written{!error, size};
}

net::awaitable<void> HttpConnection::WatchClient(std::shared_ptr<ClientWatch> watch) {
  // With a full buffer the client's end is noticed by the next write that fails.
  while (!watch->stopping && buffer_.size() + kReadBytes <= buffer_.max_size()) {
    auto [error, size] = co_await stream_.async_watch_some(buffer_.prepare(kReadBytes), kAwait);
    if (error) {
      watch->TellGone();
      co_return;
    }
    buffer_.commit(size);
  }
}

std::shared_ptr<ClientWatch> HttpConnection::StartWatch(std::function<void()> on_gone) {
  stream_.expires_never();
  auto watch = std::make_shared<ClientWatch>(*state_->io, std::move(on_gone));
  watch_ = watch;
  net::co_spawn(*state_->io, WatchClient(watch),
                net::bind_cancellation_slot(watch->stop.slot(), [watch](std::exception_ptr) {
                  watch->ended = true;
                  watch->ended_timer.cancel();
                }));
  return watch;
}

net::awaitable<void> HttpConnection::EndWatch(std::shared_ptr<ClientWatch> watch) {
  watch->stopping = true;
  watch->stop.emit(net::cancellation_type::terminal);
  while (!watch->ended) {
    watch->ended_timer.expires_after(std::chrono::seconds(1));
    co_await watch->ended_timer.async_wait(kAwait);
  }
}

net::awaitable<void> HttpConnection::LingerAndClose() {
  beast::error_code error;
  stream_.expires_after(kLingerMs);
  co_await stream_.EndSecurely();
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, error);
  size_t read = 0;
  while (!error && read < kLingerBytesMax) {
    buffer_.clear();
    auto [failure, size] = co_await stream_.async_read_some(buffer_.prepare(16 * 1024), kAwait);
    error = failure;
    read += size;
  }
  stream_.socket().close(error);
}

}  // namespace macrame::agentd
