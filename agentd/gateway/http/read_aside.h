#pragma once

// What `read` makes of a request's body and of how deep it may be: here when the body is small,
// else on the thread for large ones, so that nobody else waits for it. It touches nothing else of
// the exchange.

#include <boost/asio/co_spawn.hpp>
#include <functional>
#include <string>
#include <utility>

#include "agentd/gateway/http/asio_names.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

template <typename Result>
net::awaitable<Result> ReadAside(Exchange& exchange,
                                 std::function<Result(absl::string_view body, size_t depth)> read) {
  const std::string& body = exchange.request().body();
  const size_t depth = exchange.options().json_depth_max;
  if (body.size() <= kLargeBodyBytes) co_return read(body, depth);
  auto work = [&read, &body, depth]() -> net::awaitable<Result> { co_return read(body, depth); };
  co_return co_await net::co_spawn(exchange.state()->reader, std::move(work), net::use_awaitable);
}

template <typename Result>
net::awaitable<Result> ReadAside(Exchange& exchange, Result (*read)(absl::string_view, size_t)) {
  return ReadAside(exchange, std::function<Result(absl::string_view, size_t)>(read));
}

}  // namespace macrame::agentd
