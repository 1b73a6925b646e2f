#pragma once

// RDMA protection domains of this machine that none of its own ranks holds: another program's, or
// leaked by one that was killed. A device has few (11 on a Mac), and a healthy group holds some.
// Pure. Owner thread.

#include <cstdint>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

// Ranks that may hold domains: those over RDMA, and those of which it is not said yet.
uint32_t DomainHolders(const std::vector<v1::RankStatus>& ranks);

// What is left of `facts.protection_domains()` when `holders` ranks hold as many as they may;
// negative: not known.
int32_t DomainsUnaccounted(const v1::LinkFacts& facts, uint32_t holders);

}  // namespace macrame::agentd
