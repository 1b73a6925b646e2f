#include "agentd/gateway/http/http_stream.h"

#include "agentd/gateway/http/asio_names.h"

namespace macrame::agentd {

net::awaitable<beast::error_code> HttpStream::Secure(std::shared_ptr<net::ssl::context> context,
                                                     beast::flat_buffer& begun) {
  context_ = std::move(context);
  tls_.emplace(tcp_, *context_);
  auto [error, used] =
      co_await tls_->async_handshake(net::ssl::stream_base::server, begun.data(), kAwait);
  begun.clear();
  co_return error;
}

net::awaitable<void> HttpStream::EndSecurely() {
  if (!tls_.has_value()) co_return;
  co_await tls_->async_shutdown(kAwait);  // the connection ends either way
}

}  // namespace macrame::agentd
