#pragma once

// Endpoints of the orders that the dashboard's page gives: who may, and how long the cluster's
// answer is waited for. On the io thread.

#include <boost/asio/awaitable.hpp>

#include "agentd/gateway/endpoints/order_request.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

// What whoever asks may do.
boost::asio::awaitable<bool> SendAccess(Exchange& exchange);
boost::asio::awaitable<bool> AnswerOrder(Exchange& exchange, OrderKind kind);

template <OrderKind kKind>
boost::asio::awaitable<bool> AnswerOrderOf(Exchange& exchange) {
  return AnswerOrder(exchange, kKind);
}

}  // namespace macrame::agentd
