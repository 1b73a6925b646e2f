// Copied and moved disks among real agents: a copy of a running node's state folder disturbs
// nobody, and one whose node is gone goes on in its place.

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/integration/cluster_test_base.h"

namespace macrame::tests {
namespace {

constexpr char kModel[] = "knot-5m-4bit";

class CopiesTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (!std::filesystem::exists(MACRAME_BIN "/rankd") ||
        !std::filesystem::exists(std::string(MACRAME_SOURCE "/deploy/models/") + kModel)) {
      GTEST_SKIP() << "rankd or the bundled model is not there";
    }
    for (const char* name : {"ada", "bess", "cleo"}) AddOnMachine(name).Start();
    WaitFor("three agents", Running(), 30, [](const v1::ClusterStatus& status) {
      return AliveCount(status) == 3 && HasCoordinator(status);
    });
  }

  // On a machine of its own, as far as it can tell, or with the machine-id of another one.
  AgentProcess& AddOnMachine(const std::string& name, const std::string& machine = "") {
    const std::string file = folder_ + "/machine-" + name;
    std::ofstream(file) << "machine of " << (machine.empty() ? name : machine) << "\n";
    return AddAgent(name, "", {"machine_id_file: " + file});
  }

  // Not started.
  AgentProcess& AddCopyOf(const AgentProcess& of, const std::string& name,
                          const std::string& machine = "") {
    AgentProcess& copy = AddOnMachine(name, machine);
    const std::string from = of.folder() + "/s/", to = copy.folder() + "/s/";
    std::filesystem::create_directories(to);
    for (const char* file : {"state.db", "state.db-wal", "state.made"}) {
      if (std::filesystem::exists(from + file)) std::filesystem::copy_file(from + file, to + file);
    }
    return copy;
  }

  void Load() {
    v1::LoadModelRequest request;
    request.set_name_or_path(kModel);
    request.mutable_placement()->set_world_size(3);
    request.set_timeout_ms(90'000);
    std::vector<v1::LoadModelProgress> progress;
    const absl::Status loaded =
        Stream(*agents_[0], agentd::kLoadModel, request, std::chrono::seconds(100), &progress);
    ASSERT_TRUE(loaded.ok()) << loaded;
  }

  v1::DeploymentStatus Deployment(AgentProcess& agent) {
    const auto status = Status(agent);
    return status.ok() && status->deployments_size() == 1 ? status->deployments(0)
                                                          : v1::DeploymentStatus();
  }

  // One answer after the other; each has to come to its end.
  void StreamFor(double seconds, AgentProcess& through) {
    const auto begun = std::chrono::steady_clock::now();
    int answers = 0;
    while (std::chrono::steady_clock::now() - begun < std::chrono::duration<double>(seconds)) {
      v1::GenerateRequest request;
      request.set_deployment(kModel);
      request.set_prompt("Explain RDMA in simple terms");
      request.set_max_tokens(200);
      std::vector<v1::GenerateChunk> chunks;
      const absl::Status ended =
          Stream(through, agentd::kInfer, request, std::chrono::seconds(60), &chunks);
      ASSERT_TRUE(ended.ok()) << ended << " after " << answers << " answers";
      ++answers;
    }
    EXPECT_GT(answers, 0);
    std::cout << answers << " answers without a break\n";
  }

  static const v1::Reason* Clash(const v1::ClusterStatus& status) {
    for (const v1::Reason& problem : status.problems()) {
      if (problem.code() == "NODE_ID_CLASH") return &problem;
    }
    return nullptr;
  }
};

TEST_F(CopiesTest, ACopyBesideAGangThatStreamsDisturbsNobody) {
  Load();
  AgentProcess& coordinator = Coordinator();
  AgentProcess& follower = &coordinator == agents_[0].get() ? *agents_[1] : *agents_[0];
  const uint64_t epoch = Deployment(follower).epoch();
  const uint64_t term = Status(follower)->coordinator().term();
  ASSERT_NE(epoch, 0u);
  for (AgentProcess* of : {&coordinator, &follower}) {
    AgentProcess& copy = AddCopyOf(*of, of == &coordinator ? "copy1" : "copy2");
    copy.Start();
    StreamFor(6, follower);
    // By the node itself, or by a member: whoever it meets first.
    WaitFor("the copy is refused", {&copy, of}, 10,
            [](const v1::ClusterStatus& status) { return Clash(status) != nullptr; });
    const v1::Reason clash = *Clash(*Status(copy));
    EXPECT_NE(clash.message().find("which answers"), std::string::npos) << clash.message();
    EXPECT_NE(clash.message().find("127.0.0.1"), std::string::npos) << clash.message();
    EXPECT_NE(clash.remedy().find("--new-identity"), std::string::npos) << clash.remedy();
    EXPECT_NE(copy.Log().find(clash.message()), std::string::npos);
    copy.Kill(SIGTERM);
    StreamFor(6, follower);
    const auto after = Status(follower);
    ASSERT_TRUE(after.ok());
    EXPECT_EQ(AliveCount(*after), 3);
    EXPECT_EQ(after->coordinator().term(), term) << "no election";
    EXPECT_EQ(Deployment(follower).epoch(), epoch) << "nothing was launched anew";
  }
  // Made a node of its own, it joins.
  AgentProcess& copy = *agents_.back();
  const std::string command =
      MACRAME_BIN "/agentd --config " + copy.folder() + "/agentd.yaml --new-identity";
  ASSERT_EQ(std::system(command.c_str()), 0);
  copy.Start();
  WaitFor("a fourth node", Running(), 20,
          [](const v1::ClusterStatus& status) { return AliveCount(status) == 4; });
  EXPECT_EQ(Clash(*Status(copy)), nullptr);
  EXPECT_EQ(Deployment(follower).epoch(), epoch);
}

// As containers of one image are, or virtual machines of one template: with the node's state and
// machine-id, and a name of its own. Each start looks like the node's restart.
TEST_F(CopiesTest, ACloneWithTheSameMachineIdIsRefusedWhileTheNodeAnswers) {
  Load();
  AgentProcess& of = *agents_[1];
  const uint64_t epoch = Deployment(of).epoch();
  ASSERT_NE(epoch, 0u);
  AgentProcess& clone = AddCopyOf(of, "clone", "bess");
  ASSERT_EQ(ReadWholeFile(folder_ + "/machine-bess"), ReadWholeFile(folder_ + "/machine-clone"));
  for (const int ends_by : {SIGTERM, SIGKILL}) {
    clone.Start();
    WaitFor("the clone is refused", {&clone}, 30,
            [](const v1::ClusterStatus& status) { return Clash(status) != nullptr; });
    StreamFor(1, of);
    const auto refused = Status(clone);
    ASSERT_TRUE(refused.ok()) << refused.status();
    ASSERT_NE(Clash(*refused), nullptr);
    EXPECT_NE(Clash(*refused)->remedy().find("--new-identity"), std::string::npos);
    clone.Kill(ends_by);
    StreamFor(1, of);
  }
  const auto after = Status(of);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(AliveCount(*after), 3);
  EXPECT_EQ(Deployment(of).epoch(), epoch) << "nothing was launched anew";
}

TEST_F(CopiesTest, AMovedDiskGoesOnAndTheOldMachineIsRefused) {
  AgentProcess& coordinator = Coordinator();
  AgentProcess& old = &coordinator == agents_[0].get() ? *agents_[1] : *agents_[0];
  const std::string id = NodeIdOf(old);
  old.Kill(SIGKILL);
  AgentProcess& moved = AddCopyOf(old, "moved");
  moved.Start();
  const double seconds =
      WaitFor("the node is there again", Running(), 20, [&](const v1::ClusterStatus& status) {
        return AliveCount(status) == 3 && StateOf(status, id) == v1::NODE_STATE_ALIVE &&
               Clash(status) == nullptr && HasCoordinator(status);
      });
  std::cout << "a moved disk took its place after " << seconds << " s\n";
  EXPECT_NE(moved.Log().find("its disk was moved to moved"), std::string::npos);
  // Started again on the machine where it now is, it need not look.
  moved.Kill(SIGTERM);
  moved.Start();
  WaitFor("there again", Running(), 20, [&](const v1::ClusterStatus& status) {
    return AliveCount(status) == 3 && HasCoordinator(status);
  });
  const uint64_t term = Status(coordinator)->coordinator().term();
  old.Start();
  WaitFor("the old machine is refused", {&old}, 10, [](const v1::ClusterStatus& status) {
    // Beside what it heard of the other before it was refused.
    for (const v1::Reason& problem : status.problems()) {
      if (problem.message().find("stands for nothing") != std::string::npos) return true;
    }
    return false;
  });
  EXPECT_EQ(AliveCount(*Status(coordinator)), 3);
  EXPECT_EQ(Status(coordinator)->coordinator().term(), term);
}

}  // namespace
}  // namespace macrame::tests
