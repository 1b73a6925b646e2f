#pragma once

// This agent's own unix socket, as clusterctl uses it: what the agent orders by itself, or for a
// page, takes the way of everybody's orders, and meets the same checks and the same coordinator.
// Owner thread.

#include <functional>
#include <memory>
#include <utility>

#include "transport/peer_channel.h"

namespace macrame::agentd {

class OwnSocket {
 public:
  using MakeChannel = std::function<std::unique_ptr<transport::PeerChannel>()>;
  explicit OwnSocket(MakeChannel make) : make_(std::move(make)) {}

  // Made when first asked for; goes with this.
  transport::PeerChannel& channel() {
    if (channel_ == nullptr) channel_ = make_();
    return *channel_;
  }

 private:
  const MakeChannel make_;
  std::unique_ptr<transport::PeerChannel> channel_;
};

}  // namespace macrame::agentd
