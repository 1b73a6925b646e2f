#pragma once

// The reading side of a connection while an answer is written to it. Of the io thread.

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <utility>

namespace macrame::agentd {

struct ClientWatch {
  ClientWatch(boost::asio::io_context& io, std::function<void()> on_gone_in)
      : ended_timer(io), on_gone(std::move(on_gone_in)) {}

  // The client left, or the connection is to end.
  void TellGone() const {
    if (!stopping && on_gone) on_gone();
  }

  boost::asio::cancellation_signal stop;
  boost::asio::steady_timer ended_timer;  // cancelled at the end
  const std::function<void()> on_gone;    // never called once `stopping` is set
  bool stopping = false;
  bool ended = false;
};

}  // namespace macrame::agentd
