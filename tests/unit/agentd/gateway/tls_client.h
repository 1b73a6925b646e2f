#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>

namespace macrame::agentd {

// One connection that checks the server's certificate.
class TlsClient {
 public:
  // `host`: the name that the certificate must have; empty: any.
  TlsClient(uint16_t port, const std::string& authority_pem, int version_max = 0,
            const std::string& host = "") {
    context_.set_verify_mode(boost::asio::ssl::verify_peer);
    context_.add_certificate_authority(boost::asio::buffer(authority_pem));
    if (version_max != 0) SSL_CTX_set_max_proto_version(context_.native_handle(), version_max);
    stream_.emplace(io_, context_);
    if (!host.empty()) stream_->set_verify_callback(boost::asio::ssl::host_name_verification(host));
    stream_->next_layer().connect({boost::asio::ip::address_v4::loopback(), port}, error_);
    if (!error_) stream_->handshake(boost::asio::ssl::stream_base::client, error_);
  }
  const boost::system::error_code& error() const { return error_; }
  void Send(const std::string& bytes) {
    boost::asio::write(*stream_, boost::asio::buffer(bytes), error_);
  }
  boost::beast::http::response<boost::beast::http::string_body> Ask(const std::string& bytes) {
    boost::beast::http::response<boost::beast::http::string_body> response;
    Send(bytes);
    if (!error_) boost::beast::http::read(*stream_, buffer_, response, error_);
    return response;
  }
  // Whether the server says that nothing more comes, as TLS wants it.
  bool EndsInOrder() {
    char byte;
    stream_->read_some(boost::asio::buffer(&byte, 1), error_);
    return error_ == boost::asio::error::eof;
  }
  void Leave() { stream_->next_layer().close(); }

 private:
  boost::asio::io_context io_;
  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_client};
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket>> stream_;
  boost::beast::flat_buffer buffer_;
  boost::system::error_code error_;
};

}  // namespace macrame::agentd
