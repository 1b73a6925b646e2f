// The tables that people see, held against the files beside this one. After a change that is meant:
// MACRAME_REWRITE=1 build/dev/tests/golden_test, then read the difference.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/format/cluster_view.h"
#include "cli/format/load_progress.h"
#include "cli/format/message_json.h"
#include "cli/format/model_view.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

// ctest runs this at the repository's root.
constexpr char kFolder[] = "tests/golden/";

void ExpectGolden(const std::string& name, const std::string& text) {
  const std::string path = kFolder + name;
  if (getenv("MACRAME_REWRITE") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream in(path);
  ASSERT_TRUE(in.good()) << path << " is missing; MACRAME_REWRITE=1 makes it";
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

void ExpectWithin(int width, const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // Sentences wrap as the terminal does; tables do not.
    if (line.find("  ") == std::string::npos) continue;
    if (line.rfind("  ", 0) == 0) continue;
    EXPECT_LE(DisplayWidth(line), width) << line;
  }
}

TEST(Golden, Status) {
  for (const int width : {80, 120}) {
    const std::string suffix = "-" + std::to_string(width) + ".txt";
    const std::string healthy = StatusView(HealthyCluster(), width, Style());
    const std::string troubled = StatusView(TroubledCluster(), width, Style());
    ExpectGolden("status-healthy" + suffix, healthy);
    ExpectGolden("status-troubled" + suffix, troubled);
    ExpectWithin(width, healthy);
    ExpectWithin(width, troubled);
  }
  ExpectGolden("status-empty-80.txt", StatusView(v1::ClusterStatus(), 80, Style()));
}

TEST(Golden, Devices) {
  for (const int width : {80, 120}) {
    const std::string suffix = "-" + std::to_string(width) + ".txt";
    ExpectGolden("devices" + suffix, DevicesView(TroubledCluster(), width, Style()));
  }
}

TEST(Golden, ModelsAndPlans) {
  ExpectGolden("models-80.txt", ModelsView(SampleModels(), 80, Style()));
  ExpectGolden("plan-fits-100.txt", PlanView(FittingPlan(), 100, Style()));
  ExpectGolden("plan-misfit-100.txt", PlanView(MisfitPlan(), 100, Style()));
}

TEST(Golden, Loading) {
  ExpectGolden("load-bars-100.txt", ProgressBars(SampleProgress(), 100, Style()));
  ProgressLines lines;
  ExpectGolden("load-lines.txt", lines.Update(SampleProgress()));
  EXPECT_EQ(lines.Update(SampleProgress()), "");
  ExpectGolden("load-summary.txt", LoadedSummary(HealthyCluster().deployments(0), 3.25));
}

TEST(Golden, Documents) {
  ExpectGolden("status.json.txt", ToJsonText(Document("ClusterStatus", HealthyCluster())));
  ExpectGolden("plan.yaml.txt", ToYamlText(Document("PlanResult", MisfitPlan())));
}

}  // namespace
}  // namespace macrame::cli
