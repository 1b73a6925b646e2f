#include "transport/links/firmware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "proto/reason_codes.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FirmwareTest : public ::testing::Test {
 protected:
  v1::LinkFacts& Mac(const std::string& name, const std::string& firmware) {
    v1::LinkFacts& facts = nodes_.emplace_back();
    facts.set_node_id("id-" + name);
    facts.set_hostname(name);
    facts.set_is_mac(v1::FACT_YES);
    facts.set_machine_model("Mac16,11");
    facts.set_os_build("25E253");
    facts.set_system_firmware(firmware);
    return facts;
  }

  std::vector<std::string> Old() const {
    std::vector<const v1::LinkFacts*> nodes;
    for (const v1::LinkFacts& facts : nodes_) nodes.push_back(&facts);
    std::vector<std::string> ids;
    for (const v1::Reason& reason : OldFirmware(nodes)) {
      EXPECT_EQ(reason.code(), reasons::kFirmwareOld);
      ids.push_back(reason.node_id());
    }
    return ids;
  }

  std::deque<v1::LinkFacts> nodes_;
};

TEST_F(FirmwareTest, EachMacBelowTheNewestOfItsModelAndBuildIsNamed) {
  Mac("oak", "13822.81.10");
  Mac("elm", "13822.9.10");
  Mac("fir", "13822.81.9");
  Mac("ash", "13822.81.10");
  EXPECT_THAT(Old(), ElementsAre("id-elm", "id-fir"));
}

TEST_F(FirmwareTest, NumbersAreComparedAndNotTheirText) {
  Mac("oak", "9999.81.10");
  Mac("elm", "10000.1");
  EXPECT_THAT(Old(), ElementsAre("id-oak"));
  nodes_.clear();
  Mac("oak", "2069.80.3.0.0");
  Mac("elm", "2069.80.3");
  EXPECT_THAT(Old(), IsEmpty()) << "what is left out is 0";
  nodes_.clear();
  Mac("oak", "2069.80.3.0.1");
  Mac("elm", "2069.80.3.0.2");
  EXPECT_THAT(Old(), ElementsAre("id-oak")) << "the last of five numbers counts";
}

TEST_F(FirmwareTest, OtherModelsAndOtherBuildsAreNotCompared) {
  Mac("oak", "13822.81.10");
  Mac("elm", "13822.41.1").set_machine_model("Mac15,14");
  Mac("fir", "13822.41.1").set_os_build("25E246");
  EXPECT_THAT(Old(), IsEmpty());
}

TEST_F(FirmwareTest, WhatIsNotKnownIsNotOld) {
  Mac("oak", "13822.81.10");
  Mac("elm", "");
  Mac("fir", "13822.41.1").clear_machine_model();
  Mac("ash", "13822.41.1").clear_os_build();
  Mac("yew", "13822.41.1").set_is_mac(v1::FACT_UNKNOWN);
  Mac("bay", "13822.41.1").set_is_virtual_machine(v1::FACT_YES);
  EXPECT_THAT(Old(), IsEmpty());
}

TEST_F(FirmwareTest, ATextOfAnotherFormIsNotCompared) {
  Mac("oak", "13822.81.10");
  for (const char* firmware :
       {"13822.beta", "1968.100.17.0.0 (iBridge: 21.16)", "13822..1", ".", "-1", "1 2", "0",
        "13822.99999999999999999999", "v13822", "13822.\n"}) {
    Mac("elm", firmware);
  }
  Mac("fir", std::string(100'000, '1'));
  Mac("ash", "1." + std::string(100'000, '.'));
  EXPECT_THAT(Old(), IsEmpty());
}

v1::LinkSnapshot PairWithFirmware(const std::string& a, const std::string& b) {
  v1::LinkSnapshot snapshot = GoodPair();
  for (int i = 0; i < 2; ++i) {
    v1::LinkFacts& facts = *snapshot.mutable_nodes(i)->mutable_facts();
    facts.set_machine_model("Mac16,11");
    facts.set_system_firmware(i == 0 ? a : b);
  }
  return snapshot;
}

TEST(FirmwareOfAGroup, AnOlderOneIsWarnedOfAndDeniesNothing) {
  const v1::LinkSnapshot snapshot = PairWithFirmware("13822.81.10", "13822.41.1");
  const v1::ClusterLinks links = JudgeLinks(snapshot);
  const v1::GroupVerdict& group = links.group();
  EXPECT_EQ(group.verdict(), "jaccl-mesh");
  EXPECT_THAT(group.reasons(), IsEmpty());
  ASSERT_EQ(group.warnings_size(), 1) << group.DebugString();
  const v1::Reason& warning = group.warnings(0);
  EXPECT_EQ(warning.code(), "FIRMWARE_OLD");
  EXPECT_EQ(warning.node_id(), "mini-b");
  EXPECT_EQ(warning.message(),
            "mini-b: its system firmware 13822.41.1 is older than 13822.81.10 of mini-a, which is "
            "the same model (Mac16,11) with the same build of macOS (25E100)");
  EXPECT_THAT(warning.remedy(), HasSubstr("Apple Configurator"));
  EXPECT_EQ(warning.evidence(), "boot_rom_version: 13822.41.1; mini-a: 13822.81.10");
  // Alone, neither is older than another.
  const std::vector<std::string> one = {"mini-b"};
  EXPECT_THAT(JudgeGroup(snapshot, links, one).warnings(), IsEmpty());
  const v1::Diagnosis told = Diagnose(snapshot, links, {}, {});
  ASSERT_EQ(told.findings_size(), 1);
  EXPECT_EQ(told.findings(0).severity(), v1::SEVERITY_WARNING);
  EXPECT_THAT(DiagnosisMarkdown(told), HasSubstr("(25E100), firmware 13822.41.1 |"));
}

TEST(FirmwareOfAGroup, TheSameOrAnUnknownOneIsNoWarning) {
  EXPECT_THAT(JudgeLinks(PairWithFirmware("13822.81.10", "13822.81.10")).group().warnings(),
              IsEmpty());
  const v1::LinkSnapshot unknown = PairWithFirmware("13822.81.10", "");
  EXPECT_THAT(JudgeLinks(unknown).group().warnings(), IsEmpty());
}

}  // namespace
}  // namespace macrame::transport
