#pragma once

// The reading side of a connection while an answer is written to it. Of http_session_*.cc alone.

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agentd/gateway/http_session.h"

namespace macrame::agentd {

struct HttpSession::ClientWatch {
  explicit ClientWatch(boost::asio::io_context& io) : ended_timer(io) {}
  boost::asio::cancellation_signal stop;
  boost::asio::steady_timer ended_timer;  // cancelled at the end
  bool stopping = false;
  bool ended = false;
};

}  // namespace macrame::agentd
