// A machine joins with a token, serves, and is taken out again: real agents and clusterctl.

#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "macrame/v1/enrolment.pb.h"
#include "proto/reasons.h"
#include "tests/integration/cluster_test_base.h"
#include "tests/integration/tool_run.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::tests {
namespace {

constexpr char kModel[] = "knot-5m-4bit";

ToolRun RunTool(const AgentProcess& agent, const std::string& arguments) {
  return tests::RunTool("--socket " + agent.socket_path() + " " + arguments);
}

bool HasProblem(const v1::ClusterStatus& status, const std::string& code) {
  for (const v1::Reason& reason : status.problems()) {
    if (reason.code() == code) return true;
  }
  return false;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class JoinTest : public ClusterTest {
 protected:
  // The first has the secret file; the others have a folder of their own and nothing in it.
  AgentProcess& StartKeeper() {
    AgentProcess& keeper = AddAgent("ada");
    keeper.Start();
    WaitFor("the keeper leads", {&keeper}, 20, HasCoordinator);
    return keeper;
  }
  AgentProcess& StartAlone(const std::string& name) {
    std::filesystem::create_directories(folder_ + "/" + name + "-trust");
    AgentProcess& agent = AddAgent(name, folder_ + "/" + name + "-trust/cluster.secret");
    agent.Start();
    WaitFor("it stands alone", {&agent}, 20,
            [](const auto& status) { return HasProblem(status, "NO_SECRET"); });
    return agent;
  }
  std::string MembershipOf(const std::string& name) const {
    return folder_ + "/" + name + "-trust/node.membership";
  }
  std::string Token(const AgentProcess& keeper, const std::string& flags = "") {
    const ToolRun made = RunTool(keeper, "--quiet cluster token " + flags);
    EXPECT_EQ(made.code, 0) << made.out;
    EXPECT_EQ(std::count(made.out.begin(), made.out.end(), '\n'), 1) << made.out;
    return made.out.substr(0, made.out.find('\n'));
  }
  void WaitForTwo(AgentProcess& one, AgentProcess& two) {
    WaitFor("two members", {&one, &two}, 20,
            [](const auto& status) { return AliveCount(status) == 2 && HasCoordinator(status); });
  }
};

TEST_F(JoinTest, ATokenLetsOneMachineInWithoutTheAuthoritysKey) {
  AgentProcess& ada = StartKeeper();
  AgentProcess& bess = StartAlone("bess");
  AgentProcess& cleo = StartAlone("cleo");
  const std::string token = Token(ada);
  const ToolRun joined = RunTool(bess, "cluster join " + token);
  EXPECT_EQ(joined.code, 0) << joined.out;
  WaitForTwo(ada, bess);

  struct stat info {};
  ASSERT_EQ(::stat(MembershipOf("bess").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Nowhere on its disk is the authority's key.
  const auto secret = transport::ReadClusterSecret(secret_path_);
  const std::string key = secret->authority_key_pem.substr(30, 60);
  const std::string escaped = key.substr(0, key.find('\n'));
  ASSERT_GT(escaped.size(), 20u);
  EXPECT_TRUE(Has(ReadWholeFile(secret_path_), escaped));
  int files = 0;
  for (const std::string& place : {folder_ + "/bess-trust", bess.folder()}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(place)) {
      if (!entry.is_regular_file()) continue;
      ++files;
      EXPECT_FALSE(Has(ReadWholeFile(entry.path()), escaped)) << entry.path();
    }
  }
  EXPECT_GT(files, 2);

  // The token is used up: another machine does not get in, whoever asks.
  const ToolRun again = RunTool(cleo, "cluster join " + token);
  EXPECT_NE(again.code, 0);
  EXPECT_TRUE(Has(again.out, "TOKEN_USED")) << again.out;
  EXPECT_FALSE(std::filesystem::exists(MembershipOf("cleo")));
  const ToolRun twice = RunTool(ada, "cluster join " + token);
  EXPECT_EQ(twice.code, 0) << twice.out;
  EXPECT_TRUE(Has(twice.out, "is a member of cluster")) << twice.out;
  // Who joined makes no tokens.
  EXPECT_TRUE(Has(RunTool(bess, "cluster token").out, "NOT_KEEPER"));

  // It is a member after a restart too.
  bess.Kill(SIGTERM);
  bess.Start();
  WaitForTwo(ada, bess);
}

TEST_F(JoinTest, AnExpiredOrForgedTokenIsRefused) {
  AgentProcess& ada = StartKeeper();
  AgentProcess& bess = StartAlone("bess");
  const std::string live = Token(ada);
  const std::string brief = Token(ada, "--valid-for 1s");
  // One digit of the secret.
  std::string forged = live;
  const size_t at = forged.find('.', forged.find('.') + 1) + 1;
  forged[at] = forged[at] == '0' ? '1' : '0';
  EXPECT_TRUE(Has(RunTool(bess, "cluster join " + forged).out, "TOKEN_REFUSED"));
  // Another authority's fingerprint: this node says nothing to who answers.
  std::string elsewhere = live;
  const size_t print = elsewhere.find('@') - 1;
  elsewhere[print] = elsewhere[print] == '0' ? '1' : '0';
  EXPECT_TRUE(Has(RunTool(bess, "cluster join " + elsewhere).out, "WRONG_CLUSTER"));
  EXPECT_TRUE(Has(RunTool(bess, "cluster join " + live.substr(0, 90)).out, "TOKEN_MALFORMED"));
  std::string said;
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(1100)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(Has(RunTool(bess, "cluster join " + brief).out, "TOKEN_REFUSED"));
  EXPECT_FALSE(std::filesystem::exists(MembershipOf("bess")));
  // None of it used up the one that is good.
  EXPECT_EQ(RunTool(bess, "cluster join " + live).code, 0);
  WaitForTwo(ada, bess);
}

TEST_F(JoinTest, AMachineWaitsUntilAPersonApproves) {
  AgentProcess& ada = StartKeeper();
  AgentProcess& bess = StartAlone("bess");
  const std::string token = Token(ada, "--approve");
  const ToolRun given_up = RunTool(bess, "cluster join --wait 1s " + token);
  EXPECT_TRUE(Has(given_up.out, "JOIN_PENDING")) << given_up.out;
  EXPECT_FALSE(std::filesystem::exists(MembershipOf("bess")));
  ToolRun joined;
  std::thread joining([&] { joined = RunTool(bess, "cluster join --wait 30s " + token); });
  WaitFor("the keeper shows who waits", {&ada}, 15,
          [](const auto& status) { return HasProblem(status, "JOIN_PENDING"); });
  EXPECT_EQ(RunTool(ada, "nodes approve nobody").code != 0, true);
  const ToolRun approved = RunTool(ada, "nodes approve bess");
  EXPECT_EQ(approved.code, 0) << approved.out;
  joining.join();
  EXPECT_EQ(joined.code, 0) << joined.out;
  WaitForTwo(ada, bess);
}

TEST_F(JoinTest, AJoinedMachineServesAndARevokedOneIsOutAtOnce) {
  if (!std::filesystem::exists(MACRAME_BIN "/rankd") ||
      !std::filesystem::exists(std::string(MACRAME_SOURCE "/deploy/models/") + kModel)) {
    GTEST_SKIP() << "rankd or the bundled model is not there";
  }
  AgentProcess& ada = StartKeeper();
  AgentProcess& bess = StartAlone("bess");
  AgentProcess& cleo = StartAlone("cleo");
  const std::string token = Token(ada, "--uses 2");
  EXPECT_EQ(RunTool(bess, "cluster join " + token).code, 0);
  // A token in a file is seen by no other user of the machine.
  const std::string kept = FreshFolder() + "/token";
  std::ofstream(kept) << token << "\n";
  EXPECT_EQ(RunTool(cleo, "cluster join - < " + kept).code, 0);
  WaitFor("three members", {&ada, &bess, &cleo}, 20,
          [](const auto& status) { return AliveCount(status) == 3 && HasCoordinator(status); });
  const std::string bess_id = NodeIdOf(bess);
  const ToolRun loaded = RunTool(bess, std::string("model load ") + kModel + " --ranks 3");
  EXPECT_EQ(loaded.code, 0) << loaded.out;
  const ToolRun answer =
      RunTool(cleo, std::string("model infer ") + kModel + " --prompt Hello --max-tokens 8");
  EXPECT_EQ(answer.code, 0) << answer.out;

  // Only where the authority's key is.
  EXPECT_TRUE(Has(RunTool(cleo, "nodes revoke bess").out, "NOT_KEEPER"));
  const ToolRun revoked = RunTool(ada, "nodes revoke bess");
  ASSERT_EQ(revoked.code, 0) << revoked.out;
  WaitFor("the others have it no more", {&ada, &cleo}, 20, [&](const auto& status) {
    bool is_listed = false;
    for (const std::string& id : status.member_ids()) is_listed |= id == bess_id;
    return StateOf(status, bess_id) == v1::NODE_STATE_UNSPECIFIED && AliveCount(status) == 2 &&
           HasCoordinator(status) && !is_listed;
  });
  WaitFor("it knows", {&bess}, 20,
          [](const auto& status) { return HasProblem(status, "NODE_REVOKED"); });
  WaitFor("it is heard and shown as what it is", {&ada}, 20, [&](const auto& status) {
    for (const v1::UnknownNode& unknown_node : status.unknown_nodes()) {
      if (unknown_node.node_id() == bess_id) return unknown_node.reason().code() == "NODE_REVOKED";
    }
    return false;
  });
  // Neither a restart of the others nor of itself brings it back, nor a new token.
  cleo.Kill(SIGKILL);
  cleo.Start();
  bess.Kill(SIGTERM);
  bess.Start();
  WaitFor("two members, one of them anew", {&ada, &cleo}, 20, [&](const auto& status) {
    return AliveCount(status) == 2 && HasCoordinator(status) &&
           StateOf(status, bess_id) == v1::NODE_STATE_UNSPECIFIED;
  });
  WaitFor("it is still refused", {&bess}, 20,
          [](const auto& status) { return HasProblem(status, "NODE_REVOKED"); });
  const ToolRun anew = RunTool(bess, "cluster join " + Token(ada));
  EXPECT_TRUE(Has(anew.out, "NODE_REVOKED")) << anew.out;
}

// The coordinator itself may be the one that was stolen: nothing of this asks it for anything.
TEST_F(JoinTest, TheCoordinatorIsRevokedLikeAnyOther) {
  AgentProcess& bess = StartAlone("bess");
  AgentProcess& ada = StartKeeper();
  EXPECT_EQ(RunTool(bess, "cluster join " + Token(ada)).code, 0);
  WaitForTwo(ada, bess);
  const std::string bess_id = NodeIdOf(bess);
  // Make it lead: the other starts again.
  ada.Kill(SIGKILL);
  WaitFor("the joined machine leads", {&bess}, 60,
          [&](const auto& status) { return status.coordinator().coordinator_id() == bess_id; });
  ada.Start();
  WaitFor("it leads both", {&ada, &bess}, 30, [&](const auto& status) {
    return AliveCount(status) == 2 && status.coordinator().coordinator_id() == bess_id;
  });
  EXPECT_EQ(RunTool(ada, "nodes revoke " + bess_id).code, 0);
  const std::string ada_id = NodeIdOf(ada);
  WaitFor("the keeper leads alone", {&ada}, 60, [&](const auto& status) {
    return status.coordinator().coordinator_id() == ada_id && AliveCount(status) == 1 &&
           StateOf(status, bess_id) == v1::NODE_STATE_UNSPECIFIED;
  });
}

}  // namespace
}  // namespace macrame::tests
