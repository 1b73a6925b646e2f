#include "agentd/gateway/gateway.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <future>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/gateway/base/http_reply.h"
#include "agentd/gateway/base/plain_address.h"
#include "agentd/gateway/endpoints/endpoints.h"
#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/connection_room.h"
#include "agentd/gateway/http/gateway_state.h"
#include "agentd/gateway/http/http_connection.h"
#include "agentd/gateway/http/tls_files.h"
#include "proto/reasons.h"
#include "transport/socket_address.h"

namespace macrame::agentd {
namespace {

using tcp = net::ip::tcp;
using boost::system::error_code;

// The pause after a failed accept (too many open files, say).
constexpr std::chrono::milliseconds kAcceptPauseMs{100};
constexpr std::chrono::milliseconds kStopMs{1000};

net::awaitable<void> RunConnection(std::shared_ptr<GatewayState> state, tcp::socket socket) {
  HttpConnection connection(std::move(state), std::move(socket));
  co_await connection.Run();
}

// Best effort, without waiting: the socket's buffer is empty, so a few hundred bytes fit.
void RefuseConnection(tcp::socket socket, bool address_is_full) {
  ApiError error =
      HttpError(503,
                address_is_full ? "Too many connections from this address; try again in a moment."
                                : "Too many connections; try again in a moment.",
                "too_many_connections");
  ReplyHead head;
  head.status = 503;
  head.content_type = "application/json";
  const std::string body = ErrorBody(error);
  head.content_length = body.size();
  head.headers.emplace_back("retry-after", "1");
  const std::string bytes = ComposeHead(head) + body;
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(net::buffer(bytes), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

// Of all connections: what one address may have, and what is kept for those that have none.
constexpr size_t kAddressPart = 2;
constexpr size_t kReservedPart = 8;

// Whether the connection may come; the one that leaves for it is closed.
RoomDecision AdmitSocket(GatewayState& state, const tcp::socket& socket) {
  std::vector<HttpConnection*> connections;
  std::vector<ConnectionView> views;
  for (HttpConnection* connection : state.open) {
    if (connection->has_left()) continue;
    connections.push_back(connection);
    views.push_back(connection->View());
  }
  ConnectionLimits limits;
  limits.all_max = state.options.connections_max;
  limits.per_address_max = std::max<size_t>(1, limits.all_max / kAddressPart);
  limits.reserved = limits.all_max / kReservedPart;
  error_code gone;
  const auto remote = socket.remote_endpoint(gone);
  const net::ip::address from = PlainAddress(remote.address());
  const RoomDecision decision =
      Admit(views, limits, gone ? "" : transport::CountedAddress(from.to_string()),
            !gone && from.is_loopback());
  if (decision.leaves.has_value()) connections[*decision.leaves]->Leave();
  return decision;
}

net::awaitable<void> AcceptConnections(std::shared_ptr<GatewayState> state,
                                       std::shared_ptr<tcp::acceptor> acceptor) {
  net::steady_timer pause(*state->io);
  while (!state->stopping) {
    auto [error, socket] = co_await acceptor->async_accept(kAwait);
    if (state->stopping) co_return;
    if (error) {
      spdlog::warn("gateway: no connection could be taken: {}", error.message());
      pause.expires_after(kAcceptPauseMs);
      co_await pause.async_wait(kAwait);
      continue;
    }
    const RoomDecision room = AdmitSocket(*state, socket);
    if (!room.taken) {
      RefuseConnection(std::move(socket), room.address_is_full);
    } else {
      net::co_spawn(*state->io, RunConnection(state, std::move(socket)),
                    [](std::exception_ptr failed) {
                      // Only allocation fails here; one connection is lost, the others go on.
                      if (failed) spdlog::warn("gateway: a connection was given up");
                    });
    }
  }
}

// What goes on although it would not be let in any more.
void RecheckConnections(GatewayState& state) {
  const std::shared_ptr<const KeyTable> keys = state.access->keys();
  const uint64_t now_unix_ms = GatewayUnixMs();
  for (HttpConnection* connection : state.open) connection->RecheckAccess(*keys, now_unix_ms);
}

absl::Status DescribeBindFailure(const GatewayOptions& options, const error_code& error) {
  const std::string place = absl::StrCat(options.bind_address, ":", options.port);
  if (error == net::error::address_in_use) {
    v1::Reason reason = MakeReason(
        reasons::kPortTaken,
        absl::StrCat("the gateway can't listen on ", place, ": another program uses that port"));
    reason.set_remedy("set gateway_port to a free port, or stop the other program");
    return ReasonStatus(absl::StatusCode::kAlreadyExists, reason);
  }
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kConfigInvalid,
                      absl::StrCat("the gateway can't listen on ", place, ": ", error.message()));
}

absl::StatusOr<std::shared_ptr<tcp::acceptor>> Listen(net::io_context& io,
                                                      const GatewayOptions& options) {
  error_code error;
  const auto address = net::ip::make_address(options.bind_address, error);
  if (error) return DescribeBindFailure(options, error);
  const tcp::endpoint endpoint(address, options.port);
  auto acceptor = std::make_shared<tcp::acceptor>(io);
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(net::socket_base::max_listen_connections, error);
  if (error) return DescribeBindFailure(options, error);
  return acceptor;
}

// "localhost" means ::1 to many clients, first or alone. Null: this machine has no such address, or
// another program the port.
std::shared_ptr<tcp::acceptor> ListenBeside(net::io_context& io, const tcp::acceptor& first) {
  error_code error;
  const tcp::endpoint local = first.local_endpoint(error);
  if (error || local.address() != net::ip::address_v4::loopback()) return nullptr;
  GatewayOptions beside;
  beside.bind_address = "::1";
  beside.port = local.port();
  auto acceptor = Listen(io, beside);
  if (acceptor.ok()) return *std::move(acceptor);
  spdlog::debug("gateway: not on ::1: {}", std::string(acceptor.status().message()));
  return nullptr;
}

}  // namespace

class Gateway::Impl {
 public:
  Impl(std::shared_ptr<GatewayState> state, std::vector<std::shared_ptr<tcp::acceptor>> acceptors)
      : state_(std::move(state)),
        acceptors_(std::move(acceptors)),
        port_(acceptors_.front()->local_endpoint().port()) {
    for (const auto& acceptor : acceptors_) {
      net::co_spawn(*state_->io, AcceptConnections(state_, acceptor), net::detached);
    }
    state_->access->SetOnCheck([weak = std::weak_ptr<GatewayState>(state_)] {
      const std::shared_ptr<GatewayState> state = weak.lock();
      if (state == nullptr) return;
      net::post(*state->io, [state] { RecheckConnections(*state); });
    });
    std::promise<void> ended;
    ended_ = ended.get_future();
    thread_ = std::thread([io = state_->io, ended = std::move(ended)]() mutable {
      io->run();
      ended.set_value();
    });
  }

  ~Impl() { Stop(); }

  uint16_t port() const { return port_; }

  void Drain(bool refuse) {
    net::post(*state_->io, [state = state_, refuse] {
      state->draining = true;
      state->refusing = state->refusing || refuse;
    });
  }

  size_t requests() const { return state_->requests; }
  size_t connections() const { return state_->connections; }

  void Stop() {
    if (!thread_.joinable()) return;
    state_->access->SetOnCheck(nullptr);
    net::post(*state_->io, [state = state_, acceptors = acceptors_] {
      state->stopping = true;
      error_code ignored;
      for (const auto& acceptor : acceptors) acceptor->close(ignored);
      for (HttpConnection* connection : state->open) connection->Abort();
      if (state->release_pause.has_value()) state->release_pause->cancel();
    });
    if (ended_.wait_for(kStopMs) != std::future_status::ready) state_->io->stop();
    thread_.join();
    // What it reads belongs to connections.
    state_->reader.join();
    // Callbacks that were posted too late let go of what they hold.
    state_->io->restart();
    state_->io->poll();
  }

 private:
  std::shared_ptr<GatewayState> state_;
  std::vector<std::shared_ptr<tcp::acceptor>> acceptors_;
  const uint16_t port_;
  std::future<void> ended_;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options,
                                                        InferenceBackend* backend,
                                                        std::shared_ptr<GatewayAccess> access) {
  auto state = std::make_shared<GatewayState>(options);
  state->endpoints = &Endpoints();
  state->backend = backend;
  state->cors = CorsPolicy(options.cors_origins);
  state->access = access != nullptr ? std::move(access) : std::make_shared<GatewayAccess>();
  state->io = std::make_shared<net::io_context>(1);
  if (options.tls_awaited) {
    state->tls = TlsFiles::Await(options.tls_certificate, options.tls_key);
  } else if (!options.tls_certificate.empty()) {
    auto tls = TlsFiles::Load(options.tls_certificate, options.tls_key);
    if (!tls.ok()) return tls.status();
    state->tls = *std::move(tls);
  }
  auto acceptor = Listen(*state->io, options);
  if (!acceptor.ok()) return acceptor.status();
  std::vector<std::shared_ptr<tcp::acceptor>> acceptors = {*std::move(acceptor)};
  if (auto other = ListenBeside(*state->io, *acceptors.front())) {
    acceptors.push_back(std::move(other));
  }
  const char* secured = state->tls != nullptr ? ", with TLS" : "";
  auto impl = std::make_unique<Impl>(std::move(state), std::move(acceptors));
  spdlog::info("gateway: listening on {}:{}{}", options.bind_address, impl->port(), secured);
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;
uint16_t Gateway::port() const { return impl_->port(); }
void Gateway::Drain(bool refuse) { impl_->Drain(refuse); }
size_t Gateway::requests() const { return impl_->requests(); }
size_t Gateway::connections() const { return impl_->connections(); }
void Gateway::Stop() { impl_->Stop(); }

}  // namespace macrame::agentd
