#pragma once

// One connection: socket, TLS, what was read ahead, and whether it keeps its place. It takes
// requests one after the other and makes an Exchange for each. On the io thread only.
//
// Nothing of a request is kept here: it is the exchange's, and is gone with it before the next
// request is waited for. So no request can see what an earlier one left behind. What is known of
// the client itself stays: its address, and the user that it runs as.
//
// While an answer is on its way the connection is read from as well (StartWatch): its end is told
// to the answer, and what a client has sent ahead waits for its turn.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "agentd/gateway/http/client_watch.h"
#include "agentd/gateway/http/connection_room.h"
#include "agentd/gateway/http/gateway_state.h"
#include "agentd/gateway/http/http_stream.h"
#include "agentd/gateway/http/request_head.h"

namespace macrame::agentd {

class Exchange;

class HttpConnection {
 public:
  HttpConnection(std::shared_ptr<GatewayState> state, boost::asio::ip::tcp::socket socket);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // Until the connection is closed.
  boost::asio::awaitable<void> Run();
  // Closes the connection; Run ends soon after.
  void Abort();
  // Ends the request under way, and so the connection, when it would not be let in any more.
  void RecheckAccess(const KeyTable& keys, uint64_t now_unix_ms);
  // Whose it is, and whether anything is done for it.
  ConnectionView View() const { return {counted_as_, is_waiting_, waiting_since_}; }
  // It was closed for another: it has no place any more.
  bool has_left() const { return has_left_; }
  void Leave();

  // What follows is for its exchange, which it outlives.
  const std::shared_ptr<GatewayState>& state() const { return state_; }
  HttpStream& stream() { return stream_; }
  boost::beast::flat_buffer& buffer() { return buffer_; }
  const std::string& address() const { return address_; }
  // As addresses that have shares are counted (transport::CountedAddress).
  const std::string& counted_as() const { return counted_as_; }
  Arrival arrival() const;
  bool IsFromLoopback() const;
  // The other end is a program of somebody whom this agent obeys on its socket.
  bool IsOfObeyedUser();
  // Whether it gives its place to others, as one that gets what anybody may ask for does.
  void set_is_waiting(bool is_waiting) { is_waiting_ = is_waiting; }
  struct Written {
    bool is_whole = false;
    size_t bytes = 0;
  };
  // `more` is sent behind `bytes`, and is not copied: it lives until then.
  boost::asio::awaitable<Written> Write(std::string bytes, absl::string_view more);
  void Close();
  // From now on, until EndWatch, `on_gone` is called when the client leaves or the connection is to
  // end. EndWatch comes before the exchange ends, and `on_gone` is never called after it.
  std::shared_ptr<ClientWatch> StartWatch(std::function<void()> on_gone);
  boost::asio::awaitable<void> EndWatch(std::shared_ptr<ClientWatch> watch);

 private:
  boost::asio::awaitable<bool> AwaitFirstByte();
  // Where the gateway has a certificate and the client begins a TLS handshake, to its end. False:
  // the connection is of no use.
  boost::asio::awaitable<bool> SecureIfAsked();
  boost::asio::awaitable<void> WatchClient(std::shared_ptr<ClientWatch> watch);
  boost::asio::awaitable<void> LingerAndClose();
  bool FindObeyedUser() const;

  std::shared_ptr<GatewayState> state_;
  const std::string address_;
  const std::string counted_as_;
  bool is_waiting_ = true;
  bool has_left_ = false;
  std::chrono::steady_clock::time_point waiting_since_ = std::chrono::steady_clock::now();
  HttpStream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<bool> is_of_obeyed_user_;  // once it was looked at
  std::weak_ptr<ClientWatch> watch_;       // of the answer under way
  std::unique_ptr<Exchange> exchange_;     // the request under way; null between two
};

}  // namespace macrame::agentd
