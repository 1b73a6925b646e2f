#include "agentd/services/webhook.h"

#include <openssl/ssl.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using net::use_awaitable;
using tcp = net::ip::tcp;

constexpr int kOkFirst = 200, kOkLast = 299;
// Of an answer, which nobody reads.
constexpr size_t kAnswerBytesMax = 64 * 1024;

http::request<http::string_body> RequestTo(const WebUrl& url, const std::string& authorization,
                                           const std::string& json) {
  http::request<http::string_body> request(http::verb::post, url.target, 11);
  const bool is_six = url.host.find(':') != std::string::npos;
  request.set(http::field::host, is_six ? absl::StrCat("[", url.host, "]:", url.port)
                                        : absl::StrCat(url.host, ":", url.port));
  request.set(http::field::user_agent, "macrame");
  request.set(http::field::content_type, "application/json");
  if (!authorization.empty()) request.set(http::field::authorization, authorization);
  request.keep_alive(false);
  request.body() = json;
  request.prepare_payload();
  return request;
}

template <typename Stream>
net::awaitable<absl::Status> Exchange(Stream& stream, http::request<http::string_body> request) {
  co_await http::async_write(stream, request, use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> answer;
  answer.body_limit(kAnswerBytesMax);
  co_await http::async_read_header(stream, buffer, answer, use_awaitable);
  const int status = answer.get().result_int();
  if (status >= kOkFirst && status <= kOkLast) co_return absl::OkStatus();
  co_return absl::UnavailableError(absl::StrCat("it answers with HTTP ", status));
}

net::awaitable<absl::Status> Send(const WebUrl& url, http::request<http::string_body> request,
                                  Duration timeout) {
  auto executor = co_await net::this_coro::executor;
  tcp::resolver resolver(executor);
  beast::tcp_stream connection(executor);
  connection.expires_after(timeout);
  const auto found = co_await resolver.async_resolve(url.host, url.port, use_awaitable);
  if (!url.is_secure) {
    co_await connection.async_connect(found, use_awaitable);
    co_return co_await Exchange(connection, std::move(request));
  }
  net::ssl::context context(net::ssl::context::tls_client);
  context.set_default_verify_paths();
  context.set_verify_mode(net::ssl::verify_peer);
  beast::ssl_stream<beast::tcp_stream> stream(std::move(connection), context);
  stream.set_verify_callback(net::ssl::host_name_verification(url.host));
  boost::system::error_code is_name;  // an address is told to no server by name (RFC 6066, 3)
  net::ip::make_address(url.host, is_name);
  if (is_name && SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str()) != 1) {
    co_return absl::InternalError("its name can't be told to it");
  }
  co_await beast::get_lowest_layer(stream).async_connect(found, use_awaitable);
  co_await stream.async_handshake(net::ssl::stream_base::client, use_awaitable);
  co_return co_await Exchange(stream, std::move(request));
}

// One try, on the calling thread.
absl::Status TryOnce(net::io_context& io, const WebUrl& url,
                     const http::request<http::string_body>& request, Duration timeout) {
  absl::Status result = absl::DeadlineExceededError("it does not answer in time");
  net::co_spawn(io, Send(url, request, timeout),
                [&](const std::exception_ptr& failure, const absl::Status& status) {
                  result = status;
                  if (failure == nullptr) return;
                  try {
                    std::rethrow_exception(failure);
                  } catch (const std::exception& error) {
                    result = absl::UnavailableError(error.what());
                  }
                });
  // Names are looked up by a thread that no timer ends.
  io.run_for(std::chrono::duration_cast<std::chrono::milliseconds>(timeout) * 2);
  return result;
}

}  // namespace

struct Webhook::Parts {
  const WebUrl url;
  const std::string authorization;
  const WebhookOptions options;
  std::mutex mutex = {};
  std::condition_variable wake = {};
  bool stopping = false;
  net::io_context* running = nullptr;  // the try under way

  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping = true;
      if (running != nullptr) running->stop();
    }
    wake.notify_all();
  }

  absl::Status Try(const http::request<http::string_body>& request) {
    net::io_context io{1};
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (stopping) return absl::CancelledError("this is stopping");
      running = &io;
    }
    absl::Status status = TryOnce(io, url, request, options.timeout);
    std::lock_guard<std::mutex> lock(mutex);
    running = nullptr;
    return status;
  }

  // False: this is stopping.
  bool Pause(Duration pause) {
    std::unique_lock<std::mutex> lock(mutex);
    return !wake.wait_for(lock, pause, [this] { return stopping; });
  }

  absl::Status Deliver(const std::string& json) {
    const http::request<http::string_body> request = RequestTo(url, authorization, json);
    absl::Status status = Try(request);
    for (const Duration pause : options.pauses) {
      if (status.ok() || !Pause(pause)) return status;
      status = Try(request);
    }
    return status;
  }
};

Webhook::Webhook(transport::Dispatcher& dispatcher, WebUrl url, std::string authorization,
                 WebhookOptions options)
    : dispatcher_(dispatcher),
      parts_(new Parts{std::move(url), std::move(authorization), std::move(options)}),
      worker_(std::make_unique<transport::WorkerThread>()) {}

Webhook::~Webhook() {
  parts_->Stop();
  worker_.reset();
}

void Webhook::Post(std::string json, Done on_done) {
  // Kept on this side: what it holds belongs to the owner thread.
  auto kept = std::make_shared<Done>(std::move(on_done));
  const bool added = worker_->Add([&dispatcher = dispatcher_, parts = parts_, kept,
                                   weak = std::weak_ptr<Parts>(parts_), json = std::move(json)] {
    const absl::Status status = parts->Deliver(json);
    dispatcher.Post([kept, weak, status] {
      if (!weak.expired()) (*kept)(status);
    });
  });
  if (!added) (*kept)(absl::ResourceExhaustedError("too many messages wait"));
}

}  // namespace macrame::agentd
