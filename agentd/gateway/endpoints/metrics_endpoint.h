#pragma once

// GET /metrics, whose page the agent's own thread puts together. On the io thread.

#include <boost/asio/awaitable.hpp>

#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

boost::asio::awaitable<bool> AnswerMetrics(Exchange& exchange);

}  // namespace macrame::agentd
