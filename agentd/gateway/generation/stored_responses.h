#pragma once

// Endpoints of OpenAI's responses: an answer that may go on from a stored one and be stored itself,
// and what is stored. On the io thread.

#include <boost/asio/awaitable.hpp>

#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

// POST /v1/responses.
boost::asio::awaitable<bool> AnswerResponse(Exchange& exchange);
// GET and DELETE of one that was kept, and GET of its input items.
boost::asio::awaitable<bool> AnswerStoredResponse(Exchange& exchange);

}  // namespace macrame::agentd
