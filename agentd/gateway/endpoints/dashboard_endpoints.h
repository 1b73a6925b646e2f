#pragma once

// Endpoints of the dashboard: the page's files, and what it shows. On the io thread.

#include <boost/asio/awaitable.hpp>

#include "absl/strings/string_view.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

bool IsPage(absl::string_view path);
boost::asio::awaitable<bool> AnswerPage(Exchange& exchange);

// The dashboard's data is for the page that this agent serves, and for programs.
boost::asio::awaitable<bool> RefuseForeignSite(Exchange& exchange);
bool IsFromForeignSite(const Exchange& exchange);
// An endpoint of such data.
template <auto kAnswer>
boost::asio::awaitable<bool> AsData(Exchange& exchange) {
  if (IsFromForeignSite(exchange)) return RefuseForeignSite(exchange);
  return kAnswer(exchange);
}

boost::asio::awaitable<bool> SendSnapshot(Exchange& exchange);
// The snapshot, and each that differs from it.
boost::asio::awaitable<bool> StreamSnapshots(Exchange& exchange);
boost::asio::awaitable<bool> SendLatencies(Exchange& exchange);

}  // namespace macrame::agentd
