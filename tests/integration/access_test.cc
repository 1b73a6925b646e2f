// clusterctl from a machine without an agent, and HTTPS by the cluster's authority: real agents.

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "tests/integration/cluster_test_base.h"
#include "tests/integration/tool_run.h"
#include "tests/unit/agentd/gateway/tls_client.h"

namespace macrame::tests {
namespace {

constexpr char kModel[] = "knot-5m-4bit";

bool Has(const std::string& text, const std::string& part) { return absl::StrContains(text, part); }

class AccessTest : public ClusterTest {
 protected:
  ToolRun Here(AgentProcess& agent, const std::string& words) {
    return RunTool(absl::StrCat("--socket ", agent.socket_path(), " ", words));
  }
  // As on a laptop: no agent, no socket, nothing but the file.
  ToolRun There(const std::string& file, const std::string& words) {
    return RunTool(words, absl::StrCat("env -i HOME=", folder_, "/laptop MACRAME_ACCESS=", folder_,
                                       "/", file, " timeout 60"));
  }
  std::string MakeFile(AgentProcess& keeper, const std::string& name, const std::string& scopes) {
    const ToolRun made = Here(keeper, absl::StrCat("key create --name ", name, " --scope ", scopes,
                                                   " --access-file ", folder_, "/", name));
    EXPECT_EQ(made.code, 0) << made.out;
    return name;
  }
  // Each agent has heard of the key.
  void AwaitAnswers(const std::string& file, const std::vector<std::string>& hosts) {
    for (const std::string& host : hosts) {
      ToolRun run;
      for (int i = 0; i < 100; ++i) {
        run = There(file, "version --host " + host);
        if (run.code == 0 && Has(run.out, host)) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      EXPECT_EQ(run.code, 0) << host << ": " << run.out;
    }
  }
};

TEST_F(AccessTest, ALaptopOperatesTheClusterUntilItsKeyEnds) {
  StartThree();
  MakeFile(*agents_[0], "laptop", "operate,infer");
  MakeFile(*agents_[0], "looker", "read");
  AwaitAnswers("laptop", {"ada", "bess", "cleo"});
  AwaitAnswers("looker", {"bess"});
  const ToolRun status = There("laptop", "status");
  EXPECT_EQ(status.code, 0) << status.out;
  EXPECT_TRUE(Has(status.out, "cleo")) << status.out;
  // Whoever is asked passes it on to the coordinator; one of the three is.
  for (const char* host : {"ada", "bess", "cleo"}) {
    const ToolRun load = There("laptop", absl::StrCat("model load ", kModel, " --host ", host));
    EXPECT_EQ(load.code, 0) << host << ": " << load.out;
    const ToolRun answer =
        There("laptop",
              absl::StrCat("-q model infer ", kModel, " --prompt hi --max-tokens 3 --host ", host));
    EXPECT_EQ(answer.code, 0) << host << ": " << answer.out;
    EXPECT_EQ(There("laptop", absl::StrCat("model unload ", kModel, " --host ", host)).code, 0);
  }
  // Another tenant's model is not there for it.
  ASSERT_EQ(Here(*agents_[1], absl::StrCat("model load ", kModel, " --tenant law")).code, 0);
  const ToolRun of_law = There("laptop", absl::StrCat("-q model infer ", kModel, " --prompt hi"));
  EXPECT_NE(of_law.code, 0);
  EXPECT_TRUE(Has(of_law.out, "MODEL_NOT_LOADED")) << of_law.out;
  ASSERT_EQ(Here(*agents_[1], absl::StrCat("model unload ", kModel)).code, 0);
  const ToolRun logs = There("laptop", "logs bess -n 5 --host ada");
  EXPECT_EQ(logs.code, 0) << logs.out;
  // Beyond its scope, and what is no laptop's business.
  const ToolRun beyond = There("looker", absl::StrCat("model load --host bess ", kModel));
  EXPECT_NE(beyond.code, 0);
  EXPECT_TRUE(Has(beyond.out, "BEYOND_SCOPE")) << beyond.out;
  EXPECT_TRUE(Has(There("laptop", "key list").out, "lacks the scope admin"));
  EXPECT_TRUE(Has(There("laptop", "cluster join macrame1.x").out, "LOCAL_ONLY"));
  // Who did what, and from where, at the node that was asked.
  const ToolRun audit = Here(*agents_[1], "audit export");
  EXPECT_TRUE(Has(audit.out, "\"who\":\"key ")) << audit.out;
  EXPECT_TRUE(Has(audit.out, "\"from\":\"127.0.0.1\"")) << audit.out;
  EXPECT_TRUE(Has(audit.out, "BEYOND_SCOPE")) << audit.out;
  // What is watched when the key is revoked ends, and says why.
  ToolRun watched;
  std::thread watching([&] { watched = There("laptop", "status --watch --json --host bess"); });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  ASSERT_EQ(Here(*agents_[2], "key revoke laptop").code, 0);
  watching.join();
  EXPECT_NE(watched.code, 0);
  EXPECT_TRUE(Has(watched.out, "was revoked")) << watched.out.substr(watched.out.size() / 2);
  const ToolRun after = There("laptop", "status");
  EXPECT_TRUE(Has(after.out, "was revoked")) << after.out;
  EXPECT_EQ(There("looker", "status").code, 0) << "the other file's key goes on";
}

TEST_F(AccessTest, AnyNodeThatIsLeftAnswers) {
  StartThree();
  MakeFile(*agents_[0], "laptop", "admin");
  AwaitAnswers("laptop", {"ada", "bess", "cleo"});
  const std::string killed = NodeIdOf(*agents_[0]);
  agents_[0]->Kill(SIGKILL);
  const ToolRun gone = There("laptop", "status --host ada");
  EXPECT_NE(gone.code, 0);
  EXPECT_TRUE(Has(gone.out, "AGENT_UNREACHABLE")) << gone.out;
  const ToolRun status = There("laptop", "version");
  EXPECT_EQ(status.code, 0) << status.out;
  EXPECT_TRUE(Has(status.out, "bess") || Has(status.out, "cleo")) << status.out;
  WaitFor("a coordinator of the two", Running(), 20, [&](const auto& status) {
    return HasCoordinator(status) && status.coordinator().coordinator_id() != killed;
  });
  const ToolRun made = There("laptop", "-q key create --name app");
  EXPECT_EQ(made.code, 0) << made.out;
  EXPECT_TRUE(Has(There("laptop", "key list --json").out, "\"has_access_file\": true"));
  const ToolRun file = There("laptop", absl::StrCat("key create --access-file ", folder_, "/more"));
  EXPECT_TRUE(Has(file.out, "LOCAL_ONLY")) << "one file makes no other: " << file.out;
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/more"));
}

// No key is asked of programs since a laptop has an access file.
TEST_F(AccessTest, TheHttpApiIsAsBefore) {
  AgentProcess& agent = AddAgent("ada", "", {"gateway_tls_authority: true"});
  agent.Start();
  WaitFor("a coordinator", {&agent}, 20, HasCoordinator);
  MakeFile(agent, "laptop", "read");
  AwaitAnswers("laptop", {"ada"});
  const uint16_t port = GatewayPort(agent);
  const std::string authority =
      RunTool("-q --socket " + agent.socket_path() + " cluster authority").out;
  const std::string over_file = There("laptop", "-q cluster authority").out;
  EXPECT_EQ(over_file, authority);
  agentd::TlsClient client(port, authority, 0, "localhost");
  ASSERT_FALSE(client.error()) << client.error().message();
  EXPECT_EQ(client.Ask("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").result_int(), 200u);
}

// A node without the secret file has its certificate signed by one that has it; after a restart
// it has the same.
TEST_F(AccessTest, AJoinedNodesGatewaySpeaksHttps) {
  AgentProcess& keeper = AddAgent("ada");
  keeper.Start();
  WaitFor("the keeper leads", {&keeper}, 20, HasCoordinator);
  std::filesystem::create_directories(folder_ + "/bess-trust");
  AgentProcess& bess =
      AddAgent("bess", folder_ + "/bess-trust/cluster.secret", {"gateway_tls_authority: true"});
  bess.Start();
  std::string token = Here(keeper, "-q cluster token").out;
  token = token.substr(0, token.find('\n'));
  ToolRun joined;
  for (int i = 0; i < 100 && joined.code != 0; ++i) {
    joined = Here(bess, "cluster join " + token);
    if (joined.code != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ASSERT_EQ(joined.code, 0) << joined.out;
  WaitFor("two members, and a certificate", {&keeper, &bess}, 40, [](const auto& status) {
    if (AliveCount(status) != 2 || !HasCoordinator(status)) return false;
    for (const v1::Reason& reason : status.problems()) {
      if (reason.code() == reasons::kHttpsNotReady) return false;
    }
    return true;
  });
  const std::string authority = Here(keeper, "-q cluster authority").out;
  EXPECT_EQ(Here(bess, "-q cluster authority").out, authority);
  const auto is_trusted = [&](const std::string& host) {
    for (int i = 0; i < 60; ++i) {  // the gateway looks at its files once a second
      agentd::TlsClient client(GatewayPort(bess), authority, 0, host);
      if (!client.error()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  EXPECT_TRUE(is_trusted("bess.local"));
  EXPECT_TRUE(is_trusted("127.0.0.1"));
  EXPECT_TRUE(agentd::TlsClient(GatewayPort(bess), authority, 0, "ada").error());
  const std::string before = ReadWholeFile(bess.folder() + "/s/https.crt");
  bess.Kill(SIGTERM);
  bess.Start();
  WaitFor("it is back", {&bess}, 20, HasCoordinator);
  EXPECT_TRUE(is_trusted("localhost"));
  EXPECT_EQ(ReadWholeFile(bess.folder() + "/s/https.crt"), before);
}

}  // namespace
}  // namespace macrame::tests
