#include "agentd/services/link_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "proto/backends.h"
#include "tests/sim/asked_agents.h"
#include "transport/links/refusals.h"

namespace macrame::agentd {
namespace {

using sim::CodeOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LinkServiceTest : public sim::AskedAgents {
 protected:
  // As of a gang that could not be formed over RDMA between all nodes.
  void RememberRefusal(const std::set<int>& nodes) {
    std::vector<std::string> ids;
    for (const int node : nodes) ids.push_back(id(node).value());
    const v1::Reason why = MakeReason(reasons::kInitStalled, "it stalled");
    LinkTable& links = parts(Leader()).links;
    links.Remember(
        transport::MakeRefusal(links.Snapshot(), ids, NameOf(Backend::kVerbs), why, why));
    sim().RunFor(1500);
  }
  absl::StatusOr<v1::RecheckLinksResponse> Recheck(int at, const std::string& node = "") {
    v1::RecheckLinksRequest request;
    if (!node.empty()) request.add_node_ids(node);
    return Ask(at, kRecheckLinks, request);
  }
};

TEST_F(LinkServiceTest, EveryNodeShowsFactsOfAllAndEachPairMeasured) {
  Begin(3);
  sim().RunFor(20'000);
  for (int at = 0; at < 3; ++at) {
    const auto view = Ask(at, kGetLinks, v1::GetLinksRequest());
    ASSERT_TRUE(view.ok());
    EXPECT_THAT(view->nodes(), SizeIs(3));
    EXPECT_THAT(view->identities(), SizeIs(3));
    std::set<std::set<std::string>> pairs;
    for (const v1::NodeLinks& node : view->nodes()) {
      for (const v1::LinkMeasurement& measured : node.measurements()) {
        EXPECT_FALSE(measured.has_failure());
        pairs.insert({node.node_id(), measured.to_node_id()});
      }
    }
    EXPECT_THAT(pairs, SizeIs(3)) << "as node " << at << " sees it";
  }
}

TEST_F(LinkServiceTest, ANodeThatNobodyKnowsIsNamed) {
  Begin(2);
  const std::string nobody(32, 'f');
  v1::DiagnoseRequest diagnose;
  diagnose.add_node_ids(nobody);
  v1::BenchLinksRequest bench;
  bench.add_node_ids(nobody);
  v1::ExportHostfileRequest hosts;
  hosts.add_node_ids(nobody);
  for (const absl::Status& refused :
       {Ask(0, kDiagnose, diagnose).status(), Wait(Start(0, kBenchLinks, bench)).status(),
        Ask(0, kExportHostfile, hosts).status(), Recheck(Follower(), nobody).status()}) {
    EXPECT_EQ(ReasonOf(refused).code(), reasons::kNodeNotFound) << refused;
    EXPECT_THAT(ReasonOf(refused).message(), HasSubstr(nobody));
  }
}

TEST_F(LinkServiceTest, ARecheckForgetsRefusalsAndMeasuresAnew) {
  Begin(3);
  sim().RunFor(10'000);
  RememberRefusal({0, 1});
  for (int at = 0; at < 3; ++at) EXPECT_THAT(desired(at).refusals(), SizeIs(1)) << at;
  const auto rechecked = Recheck(Follower());
  ASSERT_TRUE(rechecked.ok()) << rechecked.status();
  EXPECT_THAT(rechecked->forgotten(), SizeIs(1));
  sim().RunFor(1500);
  for (int at = 0; at < 3; ++at) EXPECT_THAT(desired(at).refusals(), IsEmpty()) << at;
  EXPECT_THAT(Recheck(Leader())->forgotten(), IsEmpty());
}

TEST_F(LinkServiceTest, ARecheckOfOneNodeForgetsWhatConcernsItAlone) {
  Begin(3);
  sim().RunFor(10'000);
  RememberRefusal({0, 1});
  RememberRefusal({1, 2});
  const auto rechecked = Recheck(Leader(), id(2).value());
  ASSERT_TRUE(rechecked.ok()) << rechecked.status();
  ASSERT_THAT(rechecked->forgotten(), SizeIs(1));
  EXPECT_EQ(rechecked->forgotten(0).node_ids_size(), 2);
  EXPECT_THAT(desired(Leader()).refusals(), SizeIs(1));
}

// One node hangs while links are looked at: the others' answer comes all the same, within its
// limit.
TEST_F(LinkServiceTest, ARecheckEndsWhenANodeHangs) {
  Begin(3);
  sim().RunFor(10'000);
  const int at = Leader(), hangs = Follower();
  const auto asked = Start(at, kRecheckLinks, v1::RecheckLinksRequest());
  sim().Pause(hangs);
  EXPECT_TRUE(RunUntil([&] { return asked->end.has_value(); }, 60'000));
  EXPECT_TRUE(asked->Answer().ok()) << asked->Answer().status();
  sim().Resume(hangs);
  sim().RunFor(5000);
}

TEST_F(LinkServiceTest, ARecheckWithoutACoordinatorSaysSo) {
  Begin(3, [](auto& options) { options.consistency = Consistency::kQuorum; });
  const int left = Follower();
  for (int other = 0; other < 3; ++other) {
    if (other != left) sim().Crash(other);
  }
  sim().RunFor(4000);
  EXPECT_EQ(CodeOf(Recheck(left)), reasons::kNoCoordinator);
}

TEST_F(LinkServiceTest, ARecheckByACoordinatorThatDiesNamesIt) {
  Begin(3);
  const int dead = Leader(), at = Follower();
  sim().Crash(dead);
  const auto told = Recheck(at);
  ASSERT_FALSE(told.ok());
  EXPECT_EQ(CodeOf(told), reasons::kNoCoordinator) << told.status();
  EXPECT_EQ(ReasonOf(told.status()).node_id(), id(dead).value());
}

TEST_F(LinkServiceTest, ABenchTellsOfThePairsAmongThoseThatWereAskedFor) {
  Begin(3);
  sim().RunFor(10'000);
  const auto all = Start(Follower(), kBenchLinks, v1::BenchLinksRequest());
  ASSERT_TRUE(RunUntil([&] { return all->end.has_value(); }, 60'000));
  EXPECT_TRUE(all->end->ok()) << *all->end;
  EXPECT_THAT(all->messages, SizeIs(3));
  v1::BenchLinksRequest two;
  two.add_node_ids(id(0).value());
  two.add_node_ids(id(2).value());
  const auto pair = Start(1, kBenchLinks, two);
  ASSERT_TRUE(RunUntil([&] { return pair->end.has_value(); }, 60'000));
  ASSERT_THAT(pair->messages, SizeIs(1));
  const v1::LinkMeasurement& measured = pair->messages.front();
  EXPECT_EQ((std::set<std::string>{measured.from_node_id(), measured.to_node_id()}),
            (std::set<std::string>{id(0).value(), id(2).value()}));
}

TEST_F(LinkServiceTest, AHostFileNamesTheNodesByRank) {
  Begin(3);
  sim().RunFor(10'000);
  v1::ExportHostfileRequest request;
  request.set_environment(true);
  const auto hosts = Ask(Follower(), kExportHostfile, request);
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->backend(), NameOf(MlxBackend::kRing));
  for (int at = 0; at < 3; ++at) {
    EXPECT_THAT(hosts->hostfile(), HasSubstr(absl::StrCat("node-", sim::Letter(id(at)))));
    EXPECT_THAT(hosts->hostfile(), HasSubstr(sim::IpOf(at)));
  }
  EXPECT_THAT(hosts->environments(), SizeIs(3));
  request.set_backend("carrier pigeons");
  const auto refused = Ask(Follower(), kExportHostfile, request);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(CodeOf(refused), reasons::kInternal) << refused.status();
}

TEST_F(LinkServiceTest, ADiagnosisNamesTheNodeThatIsGone) {
  Begin(3);
  sim().RunFor(5000);
  const int dead = Follower();
  sim().Crash(dead);
  sim().RunFor(6000);
  const auto diagnosis = Ask(Leader(), kDiagnose, v1::DiagnoseRequest());
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  int named = 0;
  for (const v1::Finding& finding : diagnosis->findings()) {
    named += finding.reason().node_id() == id(dead).value();
  }
  EXPECT_EQ(named, 1) << diagnosis->DebugString();
}

// --- the group that serves -----------------------------------------------------------------------

TEST_F(LinkServiceTest, TheGroupThatServesIsVerifiedAtItsEntryNodeFromAnyNode) {
  Begin(3);
  const auto nothing = Ask(Follower(), kVerifyTransport, v1::VerifyTransportRequest());
  EXPECT_EQ(CodeOf(nothing), reasons::kModelNotLoaded);
  LoadAndWait("m0");
  for (int at = 0; at < 3; ++at) {
    const auto verified = Ask(at, kVerifyTransport, v1::VerifyTransportRequest());
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_EQ(verified->deployment(), "m0");
    EXPECT_EQ(verified->expected_size(), 3u);
    EXPECT_EQ(verified->group().group_size(), 3u);
    EXPECT_TRUE(verified->group().sum_correct());
    EXPECT_FALSE(verified->expected_backend().empty());
  }
  v1::VerifyTransportRequest other;
  other.set_deployment("m1");
  const auto unknown = Ask(Follower(), kVerifyTransport, other);
  EXPECT_EQ(CodeOf(unknown), reasons::kModelNotLoaded);
  EXPECT_THAT(ReasonOf(unknown.status()).message(), HasSubstr("'m1'"));
}

}  // namespace
}  // namespace macrame::agentd
