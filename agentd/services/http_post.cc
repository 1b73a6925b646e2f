#include "agentd/services/http_post.h"

#include <openssl/ssl.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <boost/none.hpp>
#include <boost/system/system_error.hpp>
#include <condition_variable>
#include <exception>
#include <mutex>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using net::use_awaitable;
using tcp = net::ip::tcp;
using Answer = absl::StatusOr<HttpPostAnswer>;

absl::Status Late() { return absl::DeadlineExceededError("it does not answer in time"); }
absl::Status Stopping() { return absl::CancelledError("this is stopping"); }

http::request<http::string_body> RequestTo(const WebUrl& url, const HttpFields& fields,
                                           const std::string& json) {
  http::request<http::string_body> request(http::verb::post, url.target, 11);
  const bool is_six = url.host.find(':') != std::string::npos;
  request.set(http::field::host, is_six ? absl::StrCat("[", url.host, "]:", url.port)
                                        : absl::StrCat(url.host, ":", url.port));
  request.set(http::field::user_agent, "macrame");
  request.set(http::field::content_type, "application/json");
  for (const auto& [name, value] : fields) request.set(name, value);
  request.keep_alive(false);
  request.body() = json;
  request.prepare_payload();
  return request;
}

// Dates, which Retry-After may have too, are not read.
std::optional<Duration> RetryAfterOf(const http::response<http::string_body>& answer) {
  const auto field = answer[http::field::retry_after];
  uint32_t seconds = 0;
  if (!absl::SimpleAtoi(absl::string_view(field.data(), field.size()), &seconds)) {
    return std::nullopt;
  }
  return std::chrono::seconds(seconds);
}

template <typename Stream>
net::awaitable<Answer> Exchange(Stream& stream, http::request<http::string_body> request) {
  co_await http::async_write(stream, request, use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);  // it would refuse the head of a long one
  co_await http::async_read_header(stream, buffer, parser, use_awaitable);
  HttpPostAnswer answer;
  answer.status = parser.get().result_int();
  answer.retry_after = RetryAfterOf(parser.get());
  if (parser.content_length().value_or(0) > kHttpAnswerBytesMax) co_return answer;
  parser.body_limit(kHttpAnswerBytesMax);
  boost::system::error_code failed;  // what the head says counts
  co_await http::async_read(stream, buffer, parser, net::redirect_error(use_awaitable, failed));
  if (!failed) answer.body = parser.get().body();
  co_return answer;
}

net::awaitable<Answer> Send(const WebUrl& url, http::request<http::string_body> request,
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

absl::Status WhyNot(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& error) {
    if (error.code() == beast::error::timeout) return Late();
    return absl::UnavailableError(error.code().message());
  } catch (const std::exception& error) {
    return absl::UnavailableError(error.what());
  }
}

// One try, on the calling thread.
Answer TryOnce(net::io_context& io, const WebUrl& url,
               const http::request<http::string_body>& request, Duration timeout) {
  Answer result = Late();
  net::co_spawn(io, Send(url, request, timeout),
                [&](const std::exception_ptr& failure, const Answer& answer) {
                  result = failure == nullptr ? answer : WhyNot(failure);
                });
  // Names are looked up by a thread that no timer ends.
  io.run_for(std::chrono::duration_cast<std::chrono::milliseconds>(timeout) * 2);
  return result;
}

}  // namespace

struct HttpPost::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool stopping = false;
  net::io_context* running = nullptr;  // the try under way
};

HttpPost::HttpPost(WebUrl url, HttpFields fields)
    : url_(std::move(url)), fields_(std::move(fields)), state_(std::make_unique<State>()) {}

HttpPost::~HttpPost() = default;

Answer HttpPost::Try(const std::string& json, Duration timeout) {
  net::io_context io{1};
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (state_->stopping) return Stopping();
    state_->running = &io;
  }
  Answer answer = TryOnce(io, url_, RequestTo(url_, fields_, json), timeout);
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->running = nullptr;
  if (state_->stopping && !answer.ok()) return Stopping();
  return answer;
}

bool HttpPost::Pause(Duration pause) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return !state_->wake.wait_for(lock, pause, [this] { return state_->stopping; });
}

void HttpPost::Stop() {
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->stopping = true;
    if (state_->running != nullptr) state_->running->stop();
  }
  state_->wake.notify_all();
}

}  // namespace macrame::agentd
