#include "agentd/cores/held_domains.h"

#include <algorithm>

#include "proto/backends.h"
#include "transport/links/link_ends.h"

namespace macrame::agentd {

uint32_t DomainHolders(const std::vector<v1::RankStatus>& ranks) {
  return static_cast<uint32_t>(
      std::count_if(ranks.begin(), ranks.end(), [](const v1::RankStatus& rank) {
        switch (rank.phase()) {
          case v1::RANK_PHASE_CONNECTING:
          case v1::RANK_PHASE_LOADING:
          case v1::RANK_PHASE_WARMING_UP:
          case v1::RANK_PHASE_READY:
          case v1::RANK_PHASE_STOPPING:
            // The group is named once it is formed; its devices are opened before.
            return rank.backend().empty() ? rank.phase() == v1::RANK_PHASE_CONNECTING
                                          : IsRdma(BackendNamed(rank.backend()));
          default:
            return false;
        }
      }));
}

int32_t DomainsUnaccounted(const v1::LinkFacts& facts, uint32_t holders) {
  if (facts.protection_domains() < 0) return facts.protection_domains();
  const int64_t held = int64_t{holders} * transport::DomainsOfOneGroup(facts);
  return static_cast<int32_t>(std::max<int64_t>(0, facts.protection_domains() - held));
}

}  // namespace macrame::agentd
