#pragma once

// Short names of Asio and Beast for this folder's sources.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/string_type.hpp>
#include <boost/beast/http/error.hpp>
#include <chrono>

#include "absl/strings/string_view.h"

namespace macrame::agentd {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Clock = std::chrono::steady_clock;

// A coroutine goes on with the error as a value.
inline constexpr auto kAwait = net::as_tuple(net::use_awaitable);

inline absl::string_view Plain(beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace macrame::agentd
