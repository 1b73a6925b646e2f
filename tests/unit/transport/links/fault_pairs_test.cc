// Two faults at once, each beside each: the lower one is the reason, and everything that is said
// has a machine, a text and what to do.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "proto/reasons.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Fault {
  std::string_view code;
  std::function<void(v1::LinkFacts&)> make;
};

std::vector<Fault> Faults() {
  return {
      {reasons::kOsTooOld, [](v1::LinkFacts& facts) { facts.set_os_version("15.5"); }},
      {reasons::kVirtual, [](v1::LinkFacts& facts) { facts.set_is_virtual_machine(v1::FACT_YES); }},
      {reasons::kTb4Controller,
       [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_is_thunderbolt5(v1::FACT_NO); }},
      {reasons::kRdmaDisabledLocal,
       [](v1::LinkFacts& facts) { facts.set_rdma_enabled(v1::FACT_NO); }},
      {reasons::kPeerBehindDock,
       [](v1::LinkFacts& facts) {
         facts.mutable_ports(0)->mutable_peers(0)->set_devices_between(2);
       }},
      {reasons::kLink40g, [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_speed_gbps(40); }},
      {reasons::kAsymmetricLink,
       [](v1::LinkFacts& facts) { facts.mutable_ports(0)->set_is_asymmetric(true); }},
      {reasons::kPortDown,
       [](v1::LinkFacts& facts) {
         for (auto& one : *facts.mutable_rdma_devices()) {
           one.set_port_state(v1::RDMA_PORT_STATE_DOWN);
         }
       }},
      {reasons::kNoIpv4,
       [](v1::LinkFacts& facts) {
         for (auto& one : *facts.mutable_interfaces()) {
           if (one.name() == facts.ports(0).interface_name()) one.clear_addresses();
         }
       }},
      {reasons::kNoIpv4Gid,
       [](v1::LinkFacts& facts) {
         for (auto& one : *facts.mutable_rdma_devices()) one.clear_gids();
       }},
      {reasons::kRouteWrongIf,
       [](v1::LinkFacts& facts) { facts.mutable_routes(0)->set_interface_name("en0"); }},
  };
}

void ExpectWellSaid(const v1::Reason& reason) {
  EXPECT_FALSE(reason.message().empty()) << reason.code();
  // About an older controller nothing can be done, which the doctor says.
  EXPECT_EQ(reason.remedy().empty(), reason.code() == reasons::kTb4Controller)
      << reason.code() << ": what to do";
  EXPECT_THAT((std::set<std::string>{"mini-a", "mini-b"}), Contains(reason.node_id()))
      << reason.code();
}

TEST(FaultPairs, TheLowerOfTwoIsTheReasonWhicheverEndTheyAreAt) {
  const std::vector<Fault> faults = Faults();
  for (const Fault& first : faults) {
    for (const Fault& second : faults) {
      for (const int end : {0, 1}) {
        SCOPED_TRACE(absl::StrCat(std::string(first.code), " and ", std::string(second.code),
                                  end == 0 ? " at one end" : " at two ends"));
        v1::LinkSnapshot snapshot = GoodPair();
        first.make(FactsOf(snapshot, 0));
        second.make(FactsOf(snapshot, end));
        const v1::ClusterLinks links = JudgeLinks(snapshot);
        ASSERT_EQ(links.links_size(), 1);
        const v1::LinkVerdict& link = links.links(0);
        EXPECT_EQ(link.rdma_usable(), v1::FACT_NO);
        const Layer lowest = std::min(LayerOf(first.code), LayerOf(second.code));
        EXPECT_EQ(link.lowest_failing_layer(), LayerName(lowest));
        const Fault& lower = LayerOf(first.code) <= LayerOf(second.code) ? first : second;
        const Fault& higher = &lower == &first ? second : first;
        // Of one layer, one may follow from the other: without an address there is no GID for it.
        const bool is_higher = LayerOf(higher.code) > LayerOf(lower.code);
        const std::set<std::string> codes = CodesIn(link.reasons());
        EXPECT_TRUE(codes.contains(std::string(lower.code)) ||
                    (!is_higher && codes.contains(std::string(higher.code))))
            << link.DebugString();
        for (int i = 0; i < link.reasons_size(); ++i) {
          ExpectWellSaid(link.reasons(i));
          if (i > 0) {
            EXPECT_LE(LayerOf(link.reasons(i - 1).code()), LayerOf(link.reasons(i).code()));
          }
        }
        EXPECT_EQ(links.group().verdict(), "ring-only") << "they serve all the same";
        for (const v1::Reason& reason : links.group().reasons()) {
          EXPECT_FALSE(reason.message().empty());
        }
      }
    }
  }
}

TEST(FaultPairs, TheDoctorGivesEachAStepAndConcludesWithTheLowest) {
  for (const Fault& fault : Faults()) {
    v1::LinkSnapshot snapshot = GoodPair();
    fault.make(FactsOf(snapshot, 1));
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const v1::Diagnosis diagnosis = Diagnose(snapshot, links, {}, {});
    SCOPED_TRACE(std::string(fault.code));
    ASSERT_GE(diagnosis.findings_size(), 1);
    const v1::Finding& first = diagnosis.findings(0);
    EXPECT_EQ(first.reason().code(), fault.code);
    EXPECT_EQ(first.severity(), v1::SEVERITY_DEGRADED) << "TCP passes";
    EXPECT_GE(first.steps_size(), 1);
    EXPECT_FALSE(first.symptom().empty());
    EXPECT_FALSE(first.cause().empty());
    ASSERT_GE(first.subjects_size(), 1);
    EXPECT_THAT(first.subjects(0), HasSubstr("mini-a socket 1 (en2) - mini-b socket 2 (en3)"));
    EXPECT_EQ(diagnosis.lowest_failing_layer(), LayerName(LayerOf(fault.code)));
    EXPECT_THAT(diagnosis.conclusion(), HasSubstr(std::string(fault.code)));
    EXPECT_FALSE(diagnosis.retry_triggers().empty());
  }
}

// What a gang says it failed of, on links that are known to be at fault.
TEST(FaultPairs, AGangsSymptomIsReportedUnderTheCauseAndOtherFailuresAreNot) {
  v1::LinkSnapshot snapshot = GoodPair();
  FactsOf(snapshot, 0).set_rdma_enabled(v1::FACT_NO);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const std::vector<std::string> both = {"mini-a", "mini-b"};
  for (const char* symptom :
       {reasons::kPortDown, reasons::kCoordinator, reasons::kConnectFailed, reasons::kPeerLost,
        reasons::kRankStalled, reasons::kNoRdmaDevice, reasons::kCollectiveFailed}) {
    const v1::Reason failure = MakeReason(symptom, "rank 1 said so", "mini-b");
    EXPECT_EQ(RootCause(snapshot, links, both, failure).code(), reasons::kRdmaDisabledLocal);
    const v1::Diagnosis told = Diagnose(snapshot, links, both, {&failure, 1});
    EXPECT_EQ(told.findings(0).reason().code(), reasons::kRdmaDisabledLocal);
    EXPECT_THAT(told.findings(0).DebugString(), HasSubstr("rank 1 said so"));
    EXPECT_EQ(RootCause(GoodPair(), JudgeLinks(GoodPair()), both, failure).code(), symptom)
        << "the links are good: nothing is known to be below it";
  }
  const v1::Reason own = MakeReason(reasons::kMemoryShort, "no memory", "mini-a");
  EXPECT_EQ(RootCause(snapshot, links, both, own).code(), reasons::kMemoryShort);
}

TEST(FaultPairs, ANodeThatIsNotAskedAboutIsNotTheCause) {
  v1::LinkSnapshot snapshot = Macs(3, {{0, 1}, {1, 2}, {0, 2}});
  FactsOf(snapshot, 2).set_rdma_enabled(v1::FACT_NO);
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const std::vector<std::string> two = {"mac-0", "mac-1"};
  const v1::Diagnosis told = Diagnose(snapshot, links, two, {});
  EXPECT_EQ(told.conclusion(), "Every pair of nodes has a link that RDMA works on.");
  EXPECT_EQ(told.lowest_failing_layer(), "");
  EXPECT_EQ(JudgeGroup(snapshot, links, two).verdict(), "jaccl-mesh");
  EXPECT_EQ(links.group().verdict(), "ring-only");
}

}  // namespace
}  // namespace macrame::transport
