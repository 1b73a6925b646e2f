// What every diagnosis keeps, on clusters of Macs that are broken in many ways at once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/reasons.h"
#include "tests/unit/transport/links/link_snapshots_for_tests.h"
#include "transport/links/diagnosis.h"
#include "transport/links/judge.h"

namespace macrame::transport {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kSeeds = 300;

void Break(v1::LinkFacts& facts, std::mt19937& random) {
  const auto chance = [&](uint32_t one_in) { return random() % one_in == 0; };
  if (chance(5)) facts.set_os_version("26.1");
  if (chance(5)) facts.set_rdma_enabled(v1::FACT_NO);
  if (chance(6)) facts.set_rdma_enabled(v1::FACT_UNKNOWN);
  if (chance(6)) facts.set_internet_sharing(v1::FACT_YES);
  if (chance(6)) facts.set_low_power_mode(v1::FACT_YES);
  if (chance(6)) facts.set_mlx_version("0.29.0");
  if (chance(8)) facts.clear_routes();
  for (v1::ThunderboltPort& port : *facts.mutable_ports()) {
    if (chance(5)) port.set_is_thunderbolt5(v1::FACT_NO);
    if (chance(6)) port.set_speed_gbps(40);
    if (chance(8)) port.clear_peers();
  }
  for (v1::RdmaDevice& device : *facts.mutable_rdma_devices()) {
    if (chance(6)) device.set_port_state(v1::RDMA_PORT_STATE_DOWN);
    if (chance(6)) device.clear_gids();
  }
  if (chance(4)) *facts.add_unknown() = MakeReason("COMMAND_TIMED_OUT", "sysctl: no answer");
}

v1::LinkSnapshot RandomCluster(uint32_t seed) {
  std::mt19937 random(seed);
  const int count = 1 + static_cast<int>(random() % 5);
  std::vector<std::pair<int, int>> cables;
  for (int a = 0; a < count; ++a) {
    for (int b = a + 1; b < count; ++b) {
      if (random() % 3 != 0) cables.emplace_back(a, b);
    }
  }
  v1::LinkSnapshot snapshot = Macs(count, cables, random() % 4 != 0);
  for (int i = 0; i < count; ++i) Break(FactsOf(snapshot, i), random);
  snapshot.set_now_unix_ms(1'800'000'000'000);
  return snapshot;
}

std::vector<std::string> IdsOf(const v1::LinkSnapshot& snapshot) {
  std::vector<std::string> ids;
  for (const v1::NodeLinks& node : snapshot.nodes()) ids.push_back(node.node_id());
  return ids;
}

// The place of a layer in the order that links are judged in, and after all for none.
int PlaceOf(const std::string& layer) {
  static const std::vector<std::string> kOrder = {
      "os",   "controller", "enablement", "device",     "peer",      "speed",
      "port", "address",    "rendezvous", "queue_pair", "collective"};
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), layer) - kOrder.begin());
}

TEST(DiagnosisProperty, TheWorstComesFirstAndEachIsSaidOnceWithWhatToDo) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const v1::LinkSnapshot snapshot = RandomCluster(seed);
    const v1::Diagnosis diagnosis = Diagnose(snapshot, JudgeLinks(snapshot), {}, {});
    std::set<std::string> said;
    const v1::Finding* before = nullptr;
    for (const v1::Finding& finding : diagnosis.findings()) {
      const v1::Reason& reason = finding.reason();
      EXPECT_TRUE(
          said.insert(absl::StrCat(reason.code(), reason.node_id(), reason.message())).second)
          << reason.message();
      EXPECT_FALSE(finding.symptom().empty()) << reason.code();
      EXPECT_FALSE(finding.cause().empty()) << reason.code();
      if (finding.severity() > v1::SEVERITY_INFO) {
        EXPECT_FALSE(finding.steps().empty()) << reason.code() << ": " << reason.message();
      }
      if (before != nullptr) {
        EXPECT_GE(before->severity(), finding.severity());
        if (before->severity() == finding.severity()) {
          EXPECT_LE(PlaceOf(before->layer()), PlaceOf(finding.layer()));
        }
      }
      before = &finding;
    }
    EXPECT_FALSE(diagnosis.conclusion().empty());
    EXPECT_EQ(diagnosis.facts_size(), snapshot.nodes_size());
  }
}

TEST(DiagnosisProperty, TheLowestLayerIsTheLowestOfAllLinksThatFail) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const v1::LinkSnapshot snapshot = RandomCluster(seed);
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const v1::Diagnosis diagnosis = Diagnose(snapshot, links, {}, {});
    int lowest = PlaceOf("");
    for (const v1::LinkVerdict& link : links.links()) {
      if (link.rdma_usable() == v1::FACT_NO) {
        lowest = std::min(lowest, PlaceOf(link.lowest_failing_layer()));
      }
    }
    // What keeps all of them off RDMA together may lie lower still.
    EXPECT_LE(PlaceOf(diagnosis.lowest_failing_layer()), lowest);
    if (diagnosis.group().verdict() == "jaccl-mesh") {
      EXPECT_EQ(diagnosis.lowest_failing_layer(), "");
    }
  }
}

TEST(DiagnosisProperty, OfSomeNodesOnlyTheirOwnLinksAreTold) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const v1::LinkSnapshot snapshot = RandomCluster(seed);
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    std::vector<std::string> some = IdsOf(snapshot);
    some.resize((some.size() + 1) / 2);
    const std::set<std::string> asked(some.begin(), some.end());
    const v1::Diagnosis diagnosis = Diagnose(snapshot, links, some, {});
    for (const v1::LinkVerdict& link : diagnosis.links()) {
      EXPECT_TRUE(asked.contains(link.a().node_id()));
      EXPECT_TRUE(link.b().node_id().empty() || asked.contains(link.b().node_id()));
    }
    for (const v1::Finding& finding : diagnosis.findings()) {
      const std::string& id = finding.reason().node_id();
      EXPECT_TRUE(id.empty() || asked.contains(id)) << finding.reason().message();
    }
    EXPECT_EQ(diagnosis.facts_size(), static_cast<int>(some.size()));
  }
}

TEST(DiagnosisProperty, TheOrderOfNodesChangesNothing) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    v1::LinkSnapshot snapshot = RandomCluster(seed);
    const std::string one = Diagnose(snapshot, JudgeLinks(snapshot), {}, {}).SerializeAsString();
    std::reverse(snapshot.mutable_nodes()->pointer_begin(),
                 snapshot.mutable_nodes()->pointer_end());
    EXPECT_TRUE(Diagnose(snapshot, JudgeLinks(snapshot), {}, {}).SerializeAsString() == one)
        << seed;
  }
}

// A gang's failure is a finding of its own exactly where nothing lower explains it.
TEST(DiagnosisProperty, AFailureOfAGangIsNeverLost) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const v1::LinkSnapshot snapshot = RandomCluster(seed);
    const v1::ClusterLinks links = JudgeLinks(snapshot);
    const std::vector<std::string> ids = IdsOf(snapshot);
    const v1::Reason failure = MakeReason("PEER_LOST", "rank 1 went silent at step 7", ids[0]);
    const v1::Reason cause = RootCause(snapshot, links, ids, failure);
    const v1::Diagnosis diagnosis = Diagnose(snapshot, links, {}, std::vector{failure});
    int as_finding = 0, as_evidence = 0;
    for (const v1::Finding& finding : diagnosis.findings()) {
      as_finding += finding.reason().code() == failure.code();
      for (const v1::Evidence& evidence : finding.evidence()) {
        if (evidence.text() != failure.message()) continue;
        ++as_evidence;
        EXPECT_EQ(finding.reason().code(), cause.code());
      }
    }
    EXPECT_EQ(as_finding, cause.code() == failure.code() ? 1 : 0);
    EXPECT_EQ(as_evidence, cause.code() == failure.code() ? 0 : 1);
  }
}

// Reports go to people outside: a table stays one, whatever machines are called.
TEST(DiagnosisReport, NamesDoNotBreakItsTable) {
  v1::LinkSnapshot snapshot = Macs(2, {{0, 1}});
  FactsOf(snapshot, 0).set_hostname("mini | left");
  FactsOf(snapshot, 0).set_machine_model("a|b");
  FactsOf(snapshot, 1).set_chip("M4 `Pro`");
  FactsOf(snapshot, 1).set_rdma_enabled(v1::FACT_NO);
  FactsOf(snapshot, 1).set_rdma_ctl_text("disabled `really`");
  const std::string report = DiagnosisMarkdown(Diagnose(snapshot, JudgeLinks(snapshot), {}, {}));
  int rows = 0;
  const std::vector<std::string> lines = absl::StrSplit(report, '\n');
  for (const std::string& line : lines) {
    if (line.starts_with("| ")) {
      int bars = 0;
      for (size_t i = 0; i < line.size(); ++i) {
        bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
      }
      EXPECT_EQ(bars, 6) << line;
      ++rows;
    }
    EXPECT_EQ(std::count(line.begin(), line.end(), '`') % 2, 0) << line;
  }
  EXPECT_EQ(rows, 4) << "a heading, a rule and two machines";
}

TEST(DiagnosisReport, WhatItTellsOfMachinesIsInIt) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const v1::LinkSnapshot snapshot = RandomCluster(seed);
    const v1::Diagnosis diagnosis = Diagnose(snapshot, JudgeLinks(snapshot), {}, {});
    const std::string report = DiagnosisMarkdown(diagnosis);
    for (const v1::NodeLinks& node : snapshot.nodes()) {
      EXPECT_THAT(report, HasSubstr(absl::StrCat("| ", node.facts().hostname(), " |")));
    }
    for (const v1::Finding& finding : diagnosis.findings()) {
      EXPECT_THAT(report, HasSubstr(absl::StrCat("### ", finding.reason().code())));
      for (const std::string& step : finding.steps()) EXPECT_THAT(report, HasSubstr(step));
    }
    EXPECT_THAT(report, HasSubstr(diagnosis.group().verdict()));
  }
}

TEST(CutSecretsTest, EachKindIsCutWhereverItStands) {
  const std::string uuid = "8F0B5C1A-0001-4D2E-9ABC-0123456789AB", mac = "a4:83:e7:0:1f:b2";
  for (const std::string around : {"(%)", "\"%\"", "x=%,", "%", "\n%\n", "a %; b"}) {
    const auto with = [&](const std::string& secret) {
      return CutSecrets(std::string(around).replace(around.find('%'), 1, secret));
    };
    EXPECT_THAT(with(uuid), Not(HasSubstr("0123456789AB"))) << around;
    EXPECT_THAT(with(mac), Not(HasSubstr("83:e7"))) << around;
    EXPECT_THAT(with("/Users/anna/models"), Not(HasSubstr("anna"))) << around;
    EXPECT_THAT(with("/home/bert"), Not(HasSubstr("bert"))) << around;
    EXPECT_THAT(with("Serial Number (system): XYZ123"), Not(HasSubstr("XYZ123"))) << around;
  }
  // Addresses and versions that people need are left.
  const std::string kept = "fd00::7 and 10.77.0.1/30, macOS 26.4 (25E100), 12:34:56, rdma_en2";
  EXPECT_EQ(CutSecrets(kept), kept);
}

}  // namespace
}  // namespace macrame::transport
