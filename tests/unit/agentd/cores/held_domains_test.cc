#include "agentd/cores/held_domains.h"

#include <gtest/gtest.h>

namespace macrame::agentd {
namespace {

v1::RankStatus Rank(v1::RankPhase phase, const std::string& backend) {
  v1::RankStatus rank;
  rank.set_phase(phase);
  rank.set_backend(backend);
  return rank;
}

v1::LinkFacts Facts(int32_t domains, int active_ports) {
  v1::LinkFacts facts;
  facts.set_protection_domains(domains);
  for (int i = 0; i < 3; ++i) {
    facts.add_rdma_devices()->set_port_state(i < active_ports ? v1::RDMA_PORT_STATE_ACTIVE
                                                              : v1::RDMA_PORT_STATE_DOWN);
  }
  return facts;
}

TEST(HeldDomains, RanksOverRdmaHoldThemFromConnectingOn) {
  EXPECT_EQ(
      DomainHolders({Rank(v1::RANK_PHASE_READY, "jaccl"), Rank(v1::RANK_PHASE_READY, "ring"),
                     Rank(v1::RANK_PHASE_READY, "single"), Rank(v1::RANK_PHASE_READY, ""),
                     Rank(v1::RANK_PHASE_CONNECTING, ""), Rank(v1::RANK_PHASE_STOPPING, "verbs"),
                     Rank(v1::RANK_PHASE_FAILED, "jaccl"), Rank(v1::RANK_PHASE_STOPPED, "jaccl"),
                     Rank(v1::RANK_PHASE_STAGING, "")}),
      3u);
  EXPECT_EQ(DomainHolders({}), 0u);
}

TEST(HeldDomains, WhatOwnRanksHoldIsNoLeak) {
  EXPECT_EQ(DomainsUnaccounted(Facts(3, 3), 1), 0) << "a mesh of four";
  EXPECT_EQ(DomainsUnaccounted(Facts(2, 1), 1), 0) << "a ring of two";
  EXPECT_EQ(DomainsUnaccounted(Facts(6, 3), 2), 0) << "two models";
}

TEST(HeldDomains, WhatIsLeftIsCounted) {
  EXPECT_EQ(DomainsUnaccounted(Facts(9, 1), 1), 7);
  EXPECT_EQ(DomainsUnaccounted(Facts(4, 3), 0), 4) << "no rank runs";
  EXPECT_EQ(DomainsUnaccounted(Facts(-1, 3), 1), -1) << "not known stays so";
}

}  // namespace
}  // namespace macrame::agentd
