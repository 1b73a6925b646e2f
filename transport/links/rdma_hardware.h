#pragma once

// Whether a machine has what RDMA needs, cables and settings aside. Pure. Internal to judging.

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// A Mac: a Thunderbolt 5 controller. Other machines: an RDMA device that libibverbs lists. UNKNOWN
// while that could not be found out.
v1::Fact HasRdmaHardware(const v1::LinkFacts& facts);

}  // namespace macrame::transport
