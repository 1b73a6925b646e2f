#pragma once

// The channels of a real agent: gRPC's.

#include "agentd/node/peer_channels.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// Calls in the name of `self`; `dispatcher` outlives the channels.
PeerChannels::MakeChannel GrpcChannels(transport::Dispatcher& dispatcher, NodeId self);

}  // namespace macrame::agentd
