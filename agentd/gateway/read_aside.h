#pragma once

// HttpSession::ReadAside, for the sources that serve requests with a body.

#include <boost/asio/co_spawn.hpp>
#include <functional>
#include <string>
#include <utility>

#include "agentd/gateway/asio_names.h"
#include "agentd/gateway/http_session.h"

namespace macrame::agentd {

template <typename Result>
net::awaitable<Result> HttpSession::ReadAside(Result (*read)(absl::string_view, size_t)) {
  return ReadAside(std::function<Result(absl::string_view, size_t)>(read));
}

template <typename Result>
net::awaitable<Result> HttpSession::ReadAside(
    std::function<Result(absl::string_view, size_t)> read) {
  const std::string& body = parser_->get().body();
  const size_t depth = state_->options.json_depth_max;
  if (body.size() <= kLargeBodyBytes) co_return read(body, depth);
  auto work = [&read, &body, depth]() -> net::awaitable<Result> { co_return read(body, depth); };
  co_return co_await net::co_spawn(state_->reader, std::move(work), net::use_awaitable);
}

}  // namespace macrame::agentd
