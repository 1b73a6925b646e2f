#pragma once

// The endpoint that tells what requests of one model may ask for. On the io thread.

#include <boost/asio/awaitable.hpp>

#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

// POST /api/show. The model's entry rank is asked for the tokens of short chats.
boost::asio::awaitable<bool> AnswerOllamaModel(Exchange& exchange);

}  // namespace macrame::agentd
