// links, doctor, export, net: what they ask, print and end with.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/exit_codes.h"
#include "proto/reasons.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"
#include "tests/unit/cli/sample_links.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class LinksCommandsTest : public ::testing::Test {
 protected:
  LinksCommandsTest() : folder_(FreshFolder()) {}

  CliRun Run(std::vector<std::string> arguments, CliWorld world = {}) {
    world.variables["MACRAME_SOCKET"] = agent_.socket_path();
    world.variables["MACRAME_COMMANDS_FOLDER"] = folder_;
    return Clusterctl(arguments, world);
  }

  // A networksetup that writes down what it was asked, and fails where its words hold `failing`.
  void FakeNetworksetup(const std::string& failing = "") {
    const std::string path = folder_ + "/networksetup";
    std::ofstream(path) << "#!/bin/sh\nfor word; do printf '[%s]' \"$word\"; done >> " << asked()
                        << "\necho >> " << asked() << "\n"
                        << (failing.empty()
                                ? std::string()
                                : "case \"$*\" in *\"" + failing + "\"*) exit 9;; esac\n");
    chmod(path.c_str(), 0755);
  }
  std::string asked() const { return folder_ + "/asked"; }
  std::string journal() const { return folder_ + "/journal"; }

  FakeAgent agent_;
  const std::string folder_;
};

TEST_F(LinksCommandsTest, LinksShowsPathsVerdictsAndWhy) {
  const CliRun run = Run({"links"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("260 us"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("TB4_CONTROLLER"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("All live nodes together: ring-only"), std::string::npos) << run.out;
  const json document = json::parse(Run({"links", "-o", "json"}).out);
  EXPECT_EQ(document["kind"], "Links");
  EXPECT_EQ(document["links"]["group"]["verdict"], "ring-only");
}

TEST_F(LinksCommandsTest, TheDoctorsExitCodeIsTheWorstFinding) {
  EXPECT_EQ(Run({"doctor"}).exit_code, kExitOk);
  agent_.service.troubled = true;
  const CliRun run = Run({"doctor"});
  EXPECT_EQ(run.exit_code, kExitFindingDegraded) << run.out;
  EXPECT_NE(run.out.find("does not support Thunderbolt 5"), std::string::npos) << "the evidence";
  EXPECT_EQ(Run({"doctor", "--explain", "TB4_CONTROLLER"}).exit_code, kExitOk);
  EXPECT_EQ(Run({"doctor", "--explain", "NO_SUCH_CODE"}).exit_code, kExitNotFound);
}

TEST_F(LinksCommandsTest, AReportIsMarkdownAndJsonWithoutSecrets) {
  agent_.service.troubled = true;
  const std::string path = folder_ + "/report.md";
  EXPECT_EQ(Run({"doctor", "--report", path}).exit_code, kExitFindingDegraded);
  EXPECT_NE(ReadFile(path).find("# "), std::string::npos);
  EXPECT_EQ(json::parse(ReadFile(path + ".json"))["kind"], "Diagnosis");
  const CliRun refused = Run({"doctor", "--report", folder_ + "/no/such/folder.md"});
  EXPECT_EQ(refused.exit_code, kExitFailure);
  EXPECT_NE(refused.err.find("can't write"), std::string::npos);
}

TEST_F(LinksCommandsTest, RecheckSaysWhatMayBeTriedAgain) {
  const CliRun run = Run({"links", "recheck"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("jaccl may be tried again (was refused: TB4_CONTROLLER)"),
            std::string::npos)
      << run.out;
  EXPECT_EQ(Run({"links", "recheck", "nobody"}).exit_code, kExitNotFound);
}

TEST_F(LinksCommandsTest, ExportPrintsTheFileAlone) {
  const CliRun run = Run({"export", "hostfile", "--backend", "ring"});
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_EQ(json::parse(run.out)[0]["ssh"], "mini-a");
  EXPECT_EQ(agent_.service.last_export.backend(), "ring");
  EXPECT_EQ(Run({"export", "hostfile", "--backend", "mpi"}).exit_code, kExitUsage);
}

TEST_F(LinksCommandsTest, ValidateNamesTheLine) {
  const std::string path = folder_ + "/hosts.json";
  std::ofstream(path) << "[\n  {\"ssh\": \"a\", \"ips\": [\"0.0.0.0\"]}\n]\n";
  const CliRun run = Run({"validate", "hostfile", path});
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_NE(run.out.find(path + ":2:"), std::string::npos) << run.out;
  EXPECT_EQ(Run({"validate", "hostfile", folder_ + "/none"}).exit_code, kExitNotFound);
}

TEST_F(LinksCommandsTest, ValidateAsksTheAgentWhichMacOsTheHostsRun) {
  const std::string path = folder_ + "/hosts.json";
  const auto write = [&](const char* second) {
    std::ofstream(path)
        << "{\"backend\": \"jaccl\", \"hosts\": [\n"
        << "{\"ssh\": \"mini-a\", \"ips\": [\"192.0.2.1\"], \"rdma\": [null, \"x\"]},\n"
        << "{\"ssh\": \"" << second << "\", \"ips\": [], \"rdma\": [\"y\", null]}]}\n";
  };
  write("me@mini-b.local");
  const CliRun same = Run({"validate", "hostfile", path});
  EXPECT_EQ(same.exit_code, kExitOk) << same.out;
  EXPECT_EQ(same.err, "");
  agent_.service.links = SamplePair();
  agent_.service.links->mutable_nodes(1)->mutable_facts()->set_os_version("26.2");
  const CliRun mixed = Run({"validate", "hostfile", path});
  EXPECT_EQ(mixed.exit_code, kExitFailure);
  EXPECT_NE(mixed.out.find(path + ":3: host 1 runs macOS 26.2 and host 0 26.4"), std::string::npos)
      << mixed.out;
  write("studio");
  const CliRun other = Run({"validate", "hostfile", path});
  EXPECT_EQ(other.exit_code, kExitOk) << "what is not known is no fault";
  EXPECT_NE(other.err.find("the macOS of studio is not known"), std::string::npos) << other.err;
  CliWorld nobody;
  nobody.variables["MACRAME_SOCKET"] = folder_ + "/no-socket";
  const CliRun alone = Clusterctl({"validate", "hostfile", path}, nobody);
  EXPECT_EQ(alone.exit_code, kExitOk);
  EXPECT_NE(alone.err.find("no agent told it (AGENT_UNREACHABLE)"), std::string::npos) << alone.err;
  const json document =
      json::parse(Clusterctl({"validate", "hostfile", path, "-o", "json"}, nobody).out);
  EXPECT_EQ(document["macos_not_checked"], json({"mini-a", "studio"}));
}

TEST_F(LinksCommandsTest, PlanPrintsCommandsAndRunsNone) {
  FakeNetworksetup();
  const CliRun run = Run({"net", "plan", "--block", "10.77.0.0/20"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("networksetup -setmanual \"Thunderbolt 2\" 10.77.0.1"), std::string::npos);
  EXPECT_EQ(agent_.service.last_plan_net.block(), "10.77.0.0/20");
  EXPECT_FALSE(std::filesystem::exists(asked()));
}

TEST_F(LinksCommandsTest, ApplyDoesTheOwnPartAndUndoTakesExactlyThatBack) {
  if (geteuid() != 0) GTEST_SKIP() << "network settings are changed as root only";
  FakeNetworksetup();
  CliWorld no;
  no.stdin_text = "no\n";
  EXPECT_EQ(Run({"net", "apply", "--journal", journal()}, no).exit_code, kExitFailure);
  EXPECT_FALSE(std::filesystem::exists(asked())) << "nothing without a yes";
  const CliRun applied = Run({"net", "apply", "--yes", "--journal", journal()});
  EXPECT_EQ(applied.exit_code, kExitOk) << applied.err;
  EXPECT_EQ(ReadFile(asked()),
            "[-setnetworkserviceenabled][Thunderbolt Bridge][off]\n"
            "[-setmanual][Thunderbolt 2][10.77.0.1][255.255.255.252]\n")
      << "its own commands, one word each, and none of the other node's";
  std::filesystem::remove(asked());
  const CliRun undone = Run({"net", "undo", "--yes", "--journal", journal()});
  EXPECT_EQ(undone.exit_code, kExitOk) << undone.err;
  EXPECT_EQ(ReadFile(asked()),
            "[-setdhcp][Thunderbolt 2]\n"
            "[-setnetworkserviceenabled][Thunderbolt Bridge][on]\n")
      << "backwards";
  EXPECT_FALSE(std::filesystem::exists(journal()));
  EXPECT_NE(Run({"net", "undo", "--yes", "--journal", journal()}).out.find("Nothing was applied"),
            std::string::npos);
}

TEST_F(LinksCommandsTest, ANameInAPlanIsOneWordWhateverItHolds) {
  if (geteuid() != 0) GTEST_SKIP() << "network settings are changed as root only";
  FakeNetworksetup();
  v1::NetPlan plan;
  v1::NetCommand& command = *plan.add_commands();
  command.set_node_id(HealthyCluster().answered_by());
  command.set_command("networksetup -setdhcp \"a \\\"fast\\\" one \\$(id) \\`id\\` \\\\\" on");
  agent_.service.net_plan = plan;
  const CliRun applied = Run({"net", "apply", "--yes", "--journal", journal()});
  EXPECT_EQ(applied.exit_code, kExitOk) << applied.err;
  EXPECT_EQ(ReadFile(asked()), "[-setdhcp][a \"fast\" one $(id) `id` \\][on]\n");
}

TEST_F(LinksCommandsTest, ACommandThatFailsStopsApplyAndWhatWasDoneCanBeUndone) {
  if (geteuid() != 0) GTEST_SKIP() << "network settings are changed as root only";
  FakeNetworksetup("-setmanual");
  const CliRun applied = Run({"net", "apply", "--yes", "--journal", journal()});
  EXPECT_EQ(applied.exit_code, kExitFailure);
  EXPECT_NE(applied.err.find("exit code 9"), std::string::npos) << applied.err;
  EXPECT_NE(applied.err.find("1 of 2 commands were done"), std::string::npos) << applied.err;
  FakeNetworksetup();
  std::filesystem::remove(asked());
  EXPECT_EQ(Run({"net", "undo", "--yes", "--journal", journal()}).exit_code, kExitOk);
  EXPECT_EQ(ReadFile(asked()), "[-setnetworkserviceenabled][Thunderbolt Bridge][on]\n");
}

}  // namespace
}  // namespace macrame::cli
