#pragma once

// The bytes of one connection: plain, or in TLS once the handshake is done. An AsyncStream in
// Beast's sense, with the time limits of beast::tcp_stream below either. Of the io thread.

#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace macrame::agentd {

class HttpStream {
 public:
  using executor_type = boost::beast::tcp_stream::executor_type;
  using error_code = boost::beast::error_code;

  explicit HttpStream(boost::asio::ip::tcp::socket socket) : tcp_(std::move(socket)) {}

  executor_type get_executor() { return tcp_.get_executor(); }
  boost::asio::ip::tcp::socket& socket() { return tcp_.socket(); }
  const boost::asio::ip::tcp::socket& socket() const { return tcp_.socket(); }
  bool is_secure() const { return tls_.has_value(); }

  // Of operations that begin from now on.
  void expires_after(std::chrono::milliseconds limit) { tcp_.expires_after(limit); }
  void expires_never() { tcp_.expires_never(); }

  // The server's side of a handshake whose first bytes were read into `begun`, which is empty
  // afterwards.
  boost::asio::awaitable<error_code> Secure(std::shared_ptr<boost::asio::ssl::context> context,
                                            boost::beast::flat_buffer& begun);
  // Says that nothing more comes, and waits for the other side to say so, too. Plain: nothing.
  boost::asio::awaitable<void> EndSecurely();

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return Read(tcp_, buffers, token);
  }

  // The same without a limit, whatever limits writes get meanwhile.
  template <typename Buffers, typename Token>
  auto async_watch_some(const Buffers& buffers, Token&& token) {
    return Read(tcp_.socket(), buffers, token);
  }

  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this](auto handler, const Buffers& from) {
          if (tls_.has_value()) {
            tls_->async_write_some(from, std::move(handler));
          } else {
            tcp_.async_write_some(from, std::move(handler));
          }
        },
        token, buffers);
  }

 private:
  // From TLS, or else from `plain`.
  template <typename Plain, typename Buffers, typename Token>
  auto Read(Plain& plain, const Buffers& buffers, Token& token) {
    return boost::asio::async_initiate<Token, void(error_code, std::size_t)>(
        [this, &plain](auto handler, const Buffers& into) {
          if (tls_.has_value()) {
            tls_->async_read_some(into, std::move(handler));
          } else {
            plain.async_read_some(into, std::move(handler));
          }
        },
        token, buffers);
  }

  boost::beast::tcp_stream tcp_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  std::optional<boost::asio::ssl::stream<boost::beast::tcp_stream&>> tls_;
};

}  // namespace macrame::agentd
