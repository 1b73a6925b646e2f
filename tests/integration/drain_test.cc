// Three real agents, a model and clients that stream all the time, while each node is drained in
// turn with the tool that people use, and given back.

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

#include "tests/integration/cluster_test_base.h"
#include "transport/grpc_channel.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

namespace macrame::tests {
namespace {

constexpr char kModel[] = "knot-5m-4bit";

constexpr uint32_t kLongAnswer = 700;

// One answer of kLongAnswer tokens, as a client of the agent at this socket has it.
absl::Status AskForLong(const std::string& socket_path) {
  transport::AsioDispatcher dispatcher;
  transport::GrpcChannel channel(dispatcher, transport::PlainChannelCredentials(), "", NodeId());
  channel.SetAddresses({transport::SocketTarget(socket_path)});
  v1::GenerateRequest request;
  request.set_deployment(kModel);
  v1::ChatMessage& message = *request.add_messages();
  message.set_role("user");
  message.set_content("Tell a long story");
  request.set_max_tokens(kLongAnswer);
  request.set_ignore_eos(true);
  uint32_t tokens = 0;
  absl::Status result;
  channel.Stream(
      agentd::kInfer, request, std::chrono::seconds(120),
      [&](const v1::GenerateChunk& chunk) { tokens = std::max(tokens, chunk.completion_tokens()); },
      [&](const absl::Status& status) {
        result = status;
        dispatcher.Stop();
      });
  dispatcher.Run();
  if (result.ok() && tokens < kLongAnswer) {
    return absl::DataLossError("an answer ended after " + std::to_string(tokens) + " tokens");
  }
  return result;
}

struct ToolRun {
  int exit_code = -1;
  std::string out;  // and stderr
};

ToolRun Tool(const AgentProcess& agent, const std::string& words) {
  const std::string command =
      MACRAME_BIN "/clusterctl --socket " + agent.socket_path() + " " + words + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  ToolRun run;
  char block[4096];
  for (size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) run.out.append(block, got);
  const int status = pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return run;
}

// Asks through an agent again and again, each time for an answer that takes seconds, until told
// to stop.
class Streamer {
 public:
  explicit Streamer(const AgentProcess& agent)
      : thread_([this, path = agent.socket_path()] {
          while (!stop_) {
            const absl::Status ended = AskForLong(path);
            ++asked_;
            if (ended.ok()) continue;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            const std::lock_guard lock(mutex_);
            failures_ += std::string(ended.message()) + "\n";
          }
        }) {}
  ~Streamer() { Stop(); }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int asked() const { return asked_; }
  std::string failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> asked_{0};
  std::mutex mutex_;
  std::string failures_;
  std::thread thread_;
};

class DrainTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (!std::filesystem::exists(MACRAME_BIN "/rankd")) GTEST_SKIP() << "rankd is not there";
  }
};

const v1::NodeStatus* NodeOf(const v1::ClusterStatus& status, const std::string& name) {
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.identity().hostname() == name) return &node;
  }
  return nullptr;
}

TEST_F(DrainTest, EachNodeInTurnIsDrainedAndNoStreamBreaks) {
  StartThree();
  const ToolRun loaded =
      Tool(*agents_[0], std::string("-q model load ") + kModel + " --ranks 2 --timeout 90s");
  ASSERT_EQ(loaded.exit_code, 0) << loaded.out;
  Streamer first(*agents_[0]), second(*agents_[1]);
  for (const std::string name : {"ada", "bess", "cleo"}) {
    const int before = first.asked() + second.asked();
    const ToolRun drained = Tool(*agents_[2], "drain " + name + " --deadline 60s");
    EXPECT_EQ(drained.exit_code, 0) << name << ": " << drained.out;
    EXPECT_NE(drained.out.find(name + " is empty"), std::string::npos) << drained.out;
    const auto status = Status(*agents_[2]);
    ASSERT_TRUE(status.ok()) << status.status();
    const v1::NodeStatus* node = NodeOf(*status, name);
    ASSERT_NE(node, nullptr);
    EXPECT_EQ(node->ranks_running(), 0u);
    EXPECT_TRUE(node->cordon().drain());
    EXPECT_EQ(status->deployments(0).state(), v1::DEPLOYMENT_STATE_READY)
        << status->deployments(0).failure().ShortDebugString();
    const ToolRun given_back = Tool(*agents_[0], "uncordon " + name);
    EXPECT_EQ(given_back.exit_code, 0) << given_back.out;
    WaitFor(name + " takes ranks again", Running(), 10, [&](const auto& now) {
      const v1::NodeStatus* its = NodeOf(now, name);
      return its != nullptr && !its->has_cordon();
    });
    // Answers go on between two drains, too.
    for (int i = 0; i < 600 && first.asked() + second.asked() < before + 2; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  first.Stop();
  second.Stop();
  EXPECT_GE(first.asked() + second.asked(), 6);
  std::cout << first.asked() + second.asked() << " answers of " << kLongAnswer << " tokens\n";
  EXPECT_EQ(first.failures() + second.failures(), "");
  const ToolRun events = Tool(*agents_[1], "events");
  EXPECT_EQ(events.exit_code, 0);
  for (const char* told : {"ada is to be drained", "cleo was uncordoned", "was asked for"}) {
    EXPECT_NE(events.out.find(told), std::string::npos) << told << " in\n" << events.out;
  }
}

TEST_F(DrainTest, ACordonOutlivesItsNodeAndKeepsRanksAway) {
  StartThree();
  const ToolRun cordoned = Tool(*agents_[1], "cordon cleo");
  ASSERT_EQ(cordoned.exit_code, 0) << cordoned.out;
  const ToolRun again = Tool(*agents_[0], "cordon cleo");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.out.find("already cordoned"), std::string::npos) << again.out;
  const ToolRun healthy = Tool(*agents_[0], "cluster health");
  EXPECT_EQ(healthy.exit_code, 0) << healthy.out;
  EXPECT_NE(healthy.out.find("NODE_CORDONED"), std::string::npos) << healthy.out;
  const ToolRun three = Tool(*agents_[0], std::string("plan ") + kModel + " --ranks 3");
  EXPECT_EQ(three.exit_code, 1) << three.out;
  EXPECT_NE(three.out.find("cordoned"), std::string::npos) << three.out;
  agents_[2]->Kill(SIGTERM);
  agents_[2]->Start();
  WaitFor("cleo is back", Running(), 20, [](const auto& status) {
    const v1::NodeStatus* node = NodeOf(status, "cleo");
    return node != nullptr && node->state() == v1::NODE_STATE_ALIVE && HasCoordinator(status);
  });
  const ToolRun listed = Tool(*agents_[2], "nodes");
  EXPECT_NE(listed.out.find("cordoned"), std::string::npos) << listed.out;
  EXPECT_EQ(Tool(*agents_[2], "uncordon cleo").exit_code, 0);
  const ToolRun fits = Tool(*agents_[0], std::string("plan ") + kModel + " --ranks 3");
  EXPECT_EQ(fits.exit_code, 0) << fits.out;
}

TEST_F(DrainTest, ANodeThatIsDedicatedIsLeftByOthersModelsAndTakesItsTenants) {
  StartThree();
  const ToolRun loaded =
      Tool(*agents_[0], std::string("-q model load ") + kModel + " --ranks 2 --timeout 90s");
  ASSERT_EQ(loaded.exit_code, 0) << loaded.out;
  const auto on = [](const v1::ClusterStatus& status, const std::string& name) {
    for (const v1::DeploymentStatus& deployment : status.deployments()) {
      for (const v1::Assignment& part : deployment.plan().assignments()) {
        if (part.hostname() == name) return true;
      }
    }
    return false;
  };
  const auto placed = Status(*agents_[0]);
  ASSERT_TRUE(placed.ok());
  const std::string held = placed->deployments(0).plan().assignments(0).hostname();
  const ToolRun dedicated = Tool(*agents_[1], "nodes dedicate " + held + " acme");
  ASSERT_EQ(dedicated.exit_code, 0) << dedicated.out;
  WaitFor("the model has left it", Running(), 60, [&](const v1::ClusterStatus& status) {
    return status.deployments_size() == 1 && !on(status, held) &&
           status.deployments(0).state() == v1::DEPLOYMENT_STATE_READY;
  });
  const std::string only = " --ranks 1 --nodes " + held;
  const ToolRun refused = Tool(*agents_[0], std::string("plan ") + kModel + only);
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_NE(refused.out.find("dedicated"), std::string::npos) << refused.out;
  const ToolRun own = Tool(*agents_[0], std::string("plan ") + kModel + only + " --tenant acme");
  EXPECT_EQ(own.exit_code, 0) << own.out;
  const ToolRun labelled = Tool(*agents_[2], "nodes label " + held + " rack=a");
  EXPECT_EQ(labelled.exit_code, 0) << labelled.out;
  const ToolRun listed = Tool(*agents_[0], "nodes");
  EXPECT_NE(listed.out.find("tenant acme, rack=a"), std::string::npos) << listed.out;
}

TEST_F(DrainTest, TheWholeClusterIsDrainedStoppedAndStarted) {
  StartThree();
  const ToolRun loaded =
      Tool(*agents_[0], std::string("-q model load ") + kModel + " --ranks 2 --timeout 90s");
  ASSERT_EQ(loaded.exit_code, 0) << loaded.out;
  Streamer first(*agents_[0]), second(*agents_[1]);
  for (int i = 0; i < 600 && first.asked() + second.asked() < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const ToolRun drained = Tool(*agents_[2], "cluster drain --deadline 90s");
  EXPECT_EQ(drained.exit_code, 0) << drained.out;
  first.Stop();
  second.Stop();
  EXPECT_GE(first.asked() + second.asked(), 4);
  std::istringstream failures(first.failures() + second.failures());
  int refused_answers = 0;
  for (std::string line; std::getline(failures, line); ++refused_answers) {
    EXPECT_NE(line.find("takes no new requests"), std::string::npos)
        << "an answer under way broke: " << line;
  }
  EXPECT_GT(refused_answers, 0);
  const std::string ask = std::string("-q model infer ") + kModel + " --prompt hi --max-tokens 4";
  for (const auto& agent : agents_) {
    const ToolRun refused = Tool(*agent, ask);
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_NE(refused.out.find("CLUSTER_PAUSED"), std::string::npos) << refused.out;
  }
  const ToolRun health = Tool(*agents_[0], "cluster health");
  EXPECT_EQ(health.exit_code, 0) << health.out;
  EXPECT_NE(health.out.find("CLUSTER_PAUSED"), std::string::npos) << health.out;

  const ToolRun stopped = Tool(*agents_[0], "cluster stop -o json");
  EXPECT_EQ(stopped.exit_code, 0) << stopped.out;
  EXPECT_NE(stopped.out.find("\"stopped\""), std::string::npos) << stopped.out;
  const auto empty = Status(*agents_[1]);
  ASSERT_TRUE(empty.ok());
  for (const v1::NodeStatus& node : empty->nodes()) EXPECT_EQ(node.ranks_running(), 0u);
  const ToolRun load = Tool(*agents_[1], std::string("-q model load ") + kModel);
  EXPECT_EQ(load.exit_code, 5) << load.out;
  // It outlives an agent, the coordinator among them.
  Coordinator().Kill(SIGKILL);
  for (const auto& agent : agents_) {
    if (!agent->IsRunning()) agent->Start();
  }
  WaitFor("all are back", Running(), 30, [](const v1::ClusterStatus& status) {
    return AliveCount(status) == 3 && HasCoordinator(status);
  });
  EXPECT_NE(Tool(*agents_[1], ask).out.find("CLUSTER_PAUSED"), std::string::npos);

  const ToolRun started = Tool(*agents_[1], "cluster start");
  EXPECT_EQ(started.exit_code, 0) << started.out;
  EXPECT_NE(started.out.find(kModel), std::string::npos) << started.out;
  WaitFor("it serves again", Running(), 60, [](const auto& status) {
    return status.deployments_size() == 1 &&
           status.deployments(0).state() == v1::DEPLOYMENT_STATE_READY &&
           status.deployments(0).plan().assignments_size() == 2;
  });
  const ToolRun again = Tool(*agents_[2], ask);
  EXPECT_EQ(again.exit_code, 0) << again.out;
  EXPECT_NE(Tool(*agents_[2], "cluster start").out.find("already"), std::string::npos);
  const ToolRun events = Tool(*agents_[1], "events");
  for (const char* told : {"the cluster was started"}) {
    EXPECT_NE(events.out.find(told), std::string::npos) << told << " in\n" << events.out;
  }
}

TEST_F(DrainTest, TheLastNodeKeepsItsModelAndSaysSo) {
  AddAgent("ada").Start();
  WaitFor("it leads", Running(), 20, HasCoordinator);
  const ToolRun answer =
      Tool(*agents_[0], std::string("-q run ") + kModel + " 'Why is the sky blue?' --max-tokens 8");
  ASSERT_EQ(answer.exit_code, 0) << answer.out;
  const ToolRun drained = Tool(*agents_[0], "drain ada");
  EXPECT_EQ(drained.exit_code, 5) << drained.out;
  EXPECT_NE(drained.out.find("no other node"), std::string::npos) << drained.out;
  const ToolRun asked = Tool(*agents_[0], "-q chat < /dev/null");
  EXPECT_EQ(asked.exit_code, 2) << asked.out;
  const ToolRun still =
      Tool(*agents_[0], std::string("-q run ") + kModel + " 'Are you there?' --max-tokens 8");
  EXPECT_EQ(still.exit_code, 0) << still.out;
}

}  // namespace
}  // namespace macrame::tests
