#pragma once

// Beacon.news: a digest of what a node's heartbeat says, so that a beacon tells whether there is
// anything to say. Pure.
//
// Both sides make it of a HeartbeatRequest: the sender of the one that it would send, the receiver
// of the last one that it had. What changes all the time (load, counters of ranks, times) is left
// out, and so is the digest of the desired state, which only the coordinator acts on: it exchanges
// heartbeats with everybody each second, with its leases.

#include <cstdint>

#include "macrame/v1/agent.pb.h"

namespace macrame::agentd {

// With the revisions of inventory and links filled in. Never 0.
uint64_t NewsOf(const v1::HeartbeatRequest& heartbeat);

}  // namespace macrame::agentd
