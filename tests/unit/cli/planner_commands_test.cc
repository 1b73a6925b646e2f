// plan --cluster, capacity, topology: the real planner program behind the real command line,
// without any agent.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "tests/unit/cli/cli_run.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

class PlannerCommandsTest : public ::testing::Test {
 protected:
  PlannerCommandsTest() : folder_(::testing::TempDir() + "plan-" + std::to_string(getpid())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~PlannerCommandsTest() override { std::filesystem::remove_all(folder_); }

  CliRun Run(std::vector<std::string> arguments, const std::string& planner = MACRAME_PLANNER) {
    CliWorld world;
    world.variables["MACRAME_SOCKET"] = folder_ + "/nobody";
    world.variables["MACRAME_PLANNER"] = planner;
    return Clusterctl(arguments, world);
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }
  std::string Studios() {
    return Write("studios.yaml",
                 "nodes:\n- {name: one, machine: mac-studio-m3-ultra-256gb}\n"
                 "- {name: two, machine: mac-studio-m3-ultra-256gb}\nlinks: mesh\n");
  }

  const std::string folder_;
};

TEST_F(PlannerCommandsTest, PlansOnADescribedClusterWithoutAnAgent) {
  const CliRun run = Run({"plan", "Qwen3-235B-A22B-8bit", "--cluster", Studios(), "-o", "json"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  const json plan = json::parse(run.out)["plan"];
  EXPECT_EQ(plan["tp"], 2);
  EXPECT_EQ(plan["backend"], "jaccl");
  EXPECT_GT(plan["prediction"]["tokens_per_second"].get<double>(), 20);
  const CliRun none = Run({"plan", "Kimi-K2-Thinking-4bit", "--cluster", Studios()});
  EXPECT_EQ(none.exit_code, kExitFailure);
  EXPECT_NE(none.out.find("Does not fit"), std::string::npos) << none.out;
}

TEST_F(PlannerCommandsTest, ACardOfOnesOwnWinsOverTheCatalogue) {
  const std::string card =
      Write("card.yaml",
            "models:\n- {name: Ours, layers: 40, hidden: 4096, heads: 32, kv_heads: 8, "
            "head_dim: 128, intermediate: 14336, vocab: 32000, context: 8192}\n");
  const CliRun run = Run(
      {"plan", "ours", "--bits", "4", "--cluster", Studios(), "--card", card, "--nodes", "two"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("Ours: one node"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("two"), std::string::npos);
}

TEST_F(PlannerCommandsTest, BadInputIsUsageWithTheReason) {
  const std::map<std::vector<std::string>, std::string> cases = {
      {{"plan", "x", "--cluster", folder_ + "/none.yaml"}, "can't be read"},
      {{"plan", "x", "--cluster", Write("bad.yaml", "nodes: [{name: a}]")}, "node 1"},
      {{"plan", "no-such-model", "--cluster", Studios()}, "no-such-model"},
      {{"capacity"}, "name machines to buy"},
      {{"capacity", "--buy", "4x mac-studio-m3-ultra-192gb"}, "not sold"},
      {{"topology", "advise", "--buy", "abacus"}, "abacus"},
  };
  for (const auto& [arguments, expected] : cases) {
    const CliRun run = Run(arguments);
    EXPECT_NE(run.exit_code, kExitOk) << expected;
    EXPECT_NE(run.err.find(expected), std::string::npos) << run.err;
  }
}

TEST_F(PlannerCommandsTest, CapacityAndTopologyInEachFormat) {
  const CliRun table = Run({"capacity", "--tier", "enterprise"});
  EXPECT_EQ(table.exit_code, kExitOk) << table.err;
  EXPECT_NE(table.out.find("£28.40"), std::string::npos);
  const CliRun document = Run({"capacity", "--tier", "enterprise", "-o", "json"});
  EXPECT_EQ(json::parse(document.out)["currency"], "£");
  const CliRun cables = Run({"topology", "advise", "--buy", "4x mac-studio-m3-ultra-512gb"});
  EXPECT_EQ(cables.exit_code, kExitOk) << cables.err;
  EXPECT_NE(cables.out.find("6 cables"), std::string::npos);
}

TEST_F(PlannerCommandsTest, AMissingOrBrokenPlannerProgramIsSaid) {
  const CliRun missing = Run({"capacity", "--tier", "starter"}, folder_ + "/no-planner");
  EXPECT_EQ(missing.exit_code, kExitFailure);
  EXPECT_NE(missing.err.find("no-planner"), std::string::npos) << missing.err;
  const std::string broken = Write("broken", "#!/bin/sh\nexit 3\n");
  chmod(broken.c_str(), 0755);
  const CliRun failed = Run({"capacity", "--tier", "starter"}, broken);
  EXPECT_EQ(failed.exit_code, kExitFailure);
  EXPECT_NE(failed.err.find("ended with a failure"), std::string::npos) << failed.err;
  const std::string liar = Write("liar", "#!/bin/sh\necho garbage\n");
  chmod(liar.c_str(), 0755);
  const CliRun garbage = Run({"capacity", "--tier", "starter"}, liar);
  EXPECT_NE(garbage.err.find("can't be read"), std::string::npos) << garbage.err;
}

}  // namespace
}  // namespace macrame::cli
