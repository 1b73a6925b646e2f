// Three real agents with the bundled model over three ranks: loaded, asked, and recovered after
// each loss.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "proto/reasons.h"
#include "tests/integration/cluster_test_base.h"

namespace macrame::tests {
namespace {

constexpr char kModel[] = "knot-5m-4bit";
constexpr double kReadyLimitSeconds = 90;

const v1::DeploymentStatus* Deployment(const v1::ClusterStatus& status,
                                       const std::string& name = kModel) {
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    if (deployment.deployment().name() == name) return &deployment;
  }
  return nullptr;
}

std::function<bool(const v1::ClusterStatus&)> IsReady(const std::string& name, uint64_t after = 0) {
  return [name, after](const v1::ClusterStatus& status) {
    const v1::DeploymentStatus* found = Deployment(status, name);
    return found != nullptr && found->epoch() > after &&
           found->state() == v1::DEPLOYMENT_STATE_READY;
  };
}

// The exit code of a command and the JSON that it printed.
std::pair<int, nlohmann::json> RunTool(const std::string& command) {
  FILE* pipe = popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {-1, nullptr};
  std::string out;
  char block[4096];
  for (size_t got = 0; (got = fread(block, 1, sizeof block, pipe)) > 0;) out.append(block, got);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false)};
}

class GangsTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (!std::filesystem::exists(MACRAME_BIN "/rankd") ||
        !std::filesystem::exists(std::string(MACRAME_SOURCE "/deploy/models/") + kModel)) {
      GTEST_SKIP() << "rankd or the bundled model is not there";
    }
  }

  static v1::LoadModelRequest Wanted(uint32_t ranks) {
    v1::LoadModelRequest request;
    request.set_name_or_path(kModel);
    request.mutable_placement()->set_world_size(ranks);
    request.set_timeout_ms(90'000);
    return request;
  }

  absl::Status Load(AgentProcess& through, const v1::LoadModelRequest& request,
                    std::vector<v1::LoadModelProgress>* progress) {
    return Stream(through, agentd::kLoadModel, request, std::chrono::seconds(100), progress);
  }

  absl::Status Unload(AgentProcess& through, const std::string& name) {
    v1::UnloadModelRequest unload;
    unload.set_name(name);
    return Call(through, agentd::kUnloadModel, unload, std::chrono::seconds(30)).status();
  }

  void Load(AgentProcess& through, uint32_t ranks) {
    std::vector<v1::LoadModelProgress> progress;
    const absl::Status loaded = Load(through, Wanted(ranks), &progress);
    ASSERT_TRUE(loaded.ok()) << loaded;
    ASSERT_FALSE(progress.empty());
    EXPECT_EQ(progress.back().status().state(), v1::DEPLOYMENT_STATE_READY);
    EXPECT_EQ(progress.back().status().plan().world_size(), ranks);
  }

  std::string Infer(AgentProcess& through, const std::string& deployment = kModel) {
    v1::GenerateRequest request;
    request.set_deployment(deployment);
    v1::ChatMessage& message = *request.add_messages();
    message.set_role("user");
    message.set_content("Explain RDMA in simple terms");
    request.set_max_tokens(24);
    request.mutable_sampling()->set_temperature(0);
    std::vector<v1::GenerateChunk> chunks;
    const absl::Status ended =
        Stream(through, agentd::kInfer, request, std::chrono::seconds(60), &chunks);
    EXPECT_TRUE(ended.ok()) << ended;
    std::string text;
    for (const v1::GenerateChunk& chunk : chunks) text += chunk.text();
    return text;
  }

  uint64_t Epoch() {
    const auto status = Status(*Running().front());
    const v1::DeploymentStatus* deployment = status.ok() ? Deployment(*status) : nullptr;
    return deployment == nullptr ? 0 : deployment->epoch();
  }

  double WaitForReady(uint64_t after_epoch) {
    return WaitFor("ready again", Running(), kReadyLimitSeconds, IsReady(kModel, after_epoch));
  }

  // The process of a rank that is not the entry rank.
  pid_t SomeWorker() {
    const auto status = Status(*Running().front());
    for (const v1::RankStatus& rank : Deployment(*status)->ranks()) {
      if (rank.rank() > 0 && rank.pid() > 1) return static_cast<pid_t>(rank.pid());
    }
    return 0;
  }
};

TEST_F(GangsTest, LoadedOverThreeAskedThroughEachAndUnloaded) {
  StartThree();
  Load(*agents_[1], 3);
  std::set<std::string> answers;
  for (AgentProcess* agent : Running()) answers.insert(Infer(*agent));
  EXPECT_EQ(answers.size(), 1u) << "greedy answers differ by the agent that was asked";
  EXPECT_GT(answers.begin()->size(), 10u);
  std::cout << "answer: " << *answers.begin() << "\n";
  // Once more is harmless and quick.
  const uint64_t epoch = Epoch();
  Load(*agents_[2], 3);
  EXPECT_EQ(Epoch(), epoch);
  const absl::Status unloaded = Unload(*agents_[2], kModel);
  EXPECT_TRUE(unloaded.ok()) << unloaded;
  WaitFor("nothing loaded", Running(), 20,
          [](const v1::ClusterStatus& status) { return status.deployments_size() == 0; });
}

TEST_F(GangsTest, AStoppedRankIsNamedKilledAndReplaced) {
  StartThree();
  Load(*agents_[0], 3);
  const std::string before = Infer(*agents_[0]);
  const uint64_t epoch = Epoch();
  const auto status = Status(*agents_[0]);
  ASSERT_TRUE(status.ok());
  v1::RankStatus stopped;
  for (const v1::RankStatus& rank : Deployment(*status)->ranks()) {
    if (rank.rank() == 2) stopped = rank;
  }
  const auto pid = static_cast<pid_t>(stopped.pid());
  ASSERT_GT(pid, 1);
  const auto begun = std::chrono::steady_clock::now();
  ::kill(pid, SIGSTOP);
  v1::GenerateRequest request;
  request.set_deployment(kModel);
  request.set_prompt("Explain RDMA in simple terms");
  request.set_max_tokens(8);
  std::vector<v1::GenerateChunk> chunks;
  // It fails, or goes on with the next epoch when nothing had come of it yet.
  Stream(*agents_[0], agentd::kInfer, request, std::chrono::seconds(60), &chunks).IgnoreError();
  // A stopped process can't end by itself: its agent must have killed it. A zombie is reaped.
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  while (::kill(pid, 0) == 0 && elapsed() < 30) usleep(10'000);
  const double gone_s = elapsed();
  std::cout << "rank 2 stopped; its process was gone after " << gone_s << " s\n";
  EXPECT_LT(gone_s, 8) << "three seconds where beats came late, and a margin for a busy host";
  std::cout << "ready again: " << WaitForReady(epoch) << " s\n";
  const auto after = Status(*agents_[0]);
  ASSERT_TRUE(after.ok());
  const v1::Reason failure = Deployment(*after)->failure();
  EXPECT_EQ(failure.code(), "RANK_STALLED");
  EXPECT_NE(failure.message().find("rank 2 has not been heard of"), std::string::npos)
      << failure.message();
  EXPECT_EQ(failure.node_id(), stopped.node_id()) << "its node is named, not that of who said so";
  EXPECT_EQ(Infer(*agents_[0]), before);
}

TEST_F(GangsTest, BenchStatsAndTraceTellOfEveryRank) {
  StartThree();
  Load(*agents_[0], 3);
  // Through an agent that need not hold the entry rank.
  const std::string tool =
      std::string(MACRAME_BIN "/clusterctl --socket ") + agents_[1]->socket_path() + " -o json ";
  const auto bench = RunTool(tool + "bench " + kModel +
                             " --users 1,2 --prompt-tokens 64 --answer-tokens 8 --requests 2");
  ASSERT_EQ(bench.first, 0) << bench.second.dump();
  ASSERT_EQ(bench.second["cases"].size(), 2u);
  EXPECT_EQ(bench.second["ranks"].size(), 3u);
  for (const auto& row : bench.second["cases"]) {
    EXPECT_EQ(row["errors"], 0) << row.dump();
    EXPECT_EQ(row["requests"], 2 * row["users"].get<int>());
    EXPECT_EQ(row["cached_tokens"], 0) << "no prompt begins like an earlier one";
    EXPECT_NEAR(row["prompt_tokens"].get<double>(), 64, 16);
    EXPECT_GT(row["ttft_ms"]["p50"].get<double>(), 0);
    EXPECT_GT(row["tokens_per_second"]["decode"].get<double>(), 0);
  }
  const auto shared = RunTool(tool + "bench " + kModel +
                              " --prompt-tokens 160 --shared-prefix 128 --answer-tokens 2");
  ASSERT_EQ(shared.first, 0);
  EXPECT_GE(shared.second["cases"][0]["cached_tokens"].get<int>(), 2 * 64);

  // Ranks tell each second, other nodes with the next heartbeat.
  std::pair<int, nlohmann::json> stats;
  for (int i = 0; i < 50; ++i) {
    stats = RunTool(tool + "model stats " + kModel);
    ASSERT_EQ(stats.first, 0);
    if (stats.second["items"][0]["ranks"].size() == 3) break;
    usleep(200'000);
  }
  ASSERT_EQ(stats.second["items"][0]["ranks"].size(), 3u);
  for (const auto& rank : stats.second["items"][0]["ranks"]) {
    EXPECT_GT(rank["decode_step_us"]["count"].get<int>(), 0) << rank.dump();
    EXPECT_GT(rank["collective_us"]["count"].get<int>(), 0) << rank.dump();
  }

  const std::string file = folder_ + "/trace.json";
  std::pair<int, nlohmann::json> trace;
  std::thread tracing(
      [&] { trace = RunTool(tool + "trace " + kModel + " --seconds 3 --out " + file); });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < end) Infer(*agents_[0]);
  tracing.join();
  ASSERT_EQ(trace.first, 0);
  const auto document = nlohmann::json::parse(ReadWholeFile(file));
  std::map<int, int> steps;
  int requests = 0;
  for (const auto& event : document["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "step") ++steps[event["pid"].get<int>()];
    requests += event["ph"] == "b" ? 1 : 0;
  }
  EXPECT_EQ(steps.size(), 3u) << "every rank's steps are in it";
  EXPECT_GT(steps[0], 20);
  EXPECT_GT(requests, 0);
}

TEST_F(GangsTest, KillingAWorkerAnAgentAndTheCoordinatorIsRecoveredFrom) {
  StartThree();
  Load(*agents_[0], 3);
  const std::string before = Infer(*agents_[0]);

  uint64_t epoch = Epoch();
  const pid_t worker = SomeWorker();
  ASSERT_GT(worker, 1);
  ::kill(worker, SIGKILL);
  std::cout << "worker killed, ready again: " << WaitForReady(epoch) << " s\n";
  EXPECT_EQ(Infer(*agents_[0]), before);

  epoch = Epoch();
  AgentProcess* bystander = nullptr;
  AgentProcess& coordinator = Coordinator();
  for (AgentProcess* agent : Running()) {
    if (agent != &coordinator) bystander = agent;
  }
  bystander->Kill(SIGKILL);
  std::cout << "agent killed, ready again: " << WaitForReady(epoch) << " s\n";
  EXPECT_EQ(Infer(coordinator), before);
  bystander->Start();
  WaitFor("three alive", Running(), 20, [](const auto& status) { return AliveCount(status) == 3; });

  epoch = Epoch();
  AgentProcess& leader = Coordinator();
  const auto status = Status(leader);
  bool held_a_rank = false;
  for (const v1::Assignment& assignment : Deployment(*status)->plan().assignments()) {
    held_a_rank = held_a_rank || assignment.node_id() == status->answered_by();
  }
  leader.Kill(SIGKILL);
  std::cout << "coordinator killed, ready again: " << WaitForReady(held_a_rank ? epoch : epoch - 1)
            << " s\n";
  EXPECT_EQ(Infer(*Running().front()), before);
}

TEST_F(GangsTest, ReplicasServeFromNodesOfTheirOwnAndOneIsEnough) {
  StartThree();
  v1::LoadModelRequest request = Wanted(1);
  request.set_replicas(2);
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status loaded = Load(*agents_[0], request, &progress);
  ASSERT_TRUE(loaded.ok()) << loaded;
  const auto status = Status(Coordinator());
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(status->deployments_size(), 2);
  const std::string first = status->deployments(0).entry_node_id();
  const std::string second = status->deployments(1).entry_node_id();
  EXPECT_EQ(status->deployments(1).state(), v1::DEPLOYMENT_STATE_READY);
  EXPECT_NE(first, second);
  const std::string answer = Infer(*agents_[0]);
  EXPECT_EQ(Infer(*agents_[0]), answer) << "the other replica's turn";
  AgentProcess& dying = ByNodeId(second);
  dying.Kill(SIGKILL);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Infer(*Running().front()), answer);
}

// What can't be is refused before anything that runs is touched.
TEST_F(GangsTest, MoreReplicasThanThereIsRoomForAreRefusedAndNothingChanges) {
  StartThree();
  Load(*agents_[0], 3);
  const uint64_t epoch = Epoch();
  v1::LoadModelRequest request;
  request.set_name_or_path(kModel);
  request.set_timeout_ms(90'000);
  request.set_replicas(2);
  std::vector<v1::LoadModelProgress> progress;
  const v1::Reason none_left = ReasonOf(Load(*agents_[1], request, &progress));
  EXPECT_EQ(none_left.code(), "TOO_FEW_NODES");
  EXPECT_EQ(none_left.message(),
            "'knot-5m-4bit' serves from all 3 nodes, so none is left for another replica");
  EXPECT_EQ(none_left.remedy(), "load it again with '--ranks 1 --replicas 2'");
  request.set_replicas(4);
  EXPECT_EQ(ReasonOf(Load(*agents_[1], request, &progress)).message(),
            "4 replicas need 4 nodes, 3 can be used");
  const auto status = Status(Coordinator());
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->deployments_size(), 1);
  EXPECT_TRUE(status->healthy());
  EXPECT_EQ(Epoch(), epoch);

  request.set_replicas(2);
  request.mutable_placement()->set_world_size(1);
  const absl::Status remedied = Load(*agents_[1], request, &progress);
  ASSERT_TRUE(remedied.ok()) << remedied;
  EXPECT_EQ(Status(Coordinator())->deployments_size(), 2);
  request.mutable_placement()->set_world_size(3);
  EXPECT_EQ(ReasonOf(Load(*agents_[1], request, &progress)).message(),
            "2 replicas over 3 ranks need 6 nodes, 3 can be used");
  EXPECT_EQ(Status(Coordinator())->deployments_size(), 2);
}

// A node that died a moment ago is not known to be dead yet.
TEST_F(GangsTest, ANodeThatJustDiedDidNotAnswerAndIsNotSaidToLackTheFiles) {
  StartThree();
  AgentProcess& asked = Coordinator();
  AgentProcess* dying = nullptr;
  for (AgentProcess* agent : Running()) {
    if (agent != &asked) dying = agent;
  }
  const std::string id = NodeIdOf(*dying);
  dying->Kill(SIGKILL);
  v1::PlanModelRequest request;
  request.set_name_or_path(kModel);
  const auto result = Call(asked, agentd::kPlanModel, request);
  ASSERT_TRUE(result.ok()) << result.status();
  bool told = false;
  for (const v1::Rejection& rejection : result->rejections()) {
    if (rejection.reason().node_id() != id) continue;
    told = true;
    EXPECT_EQ(rejection.reason().code(), "NODE_NOT_ALIVE") << rejection.reason().message();
  }
  EXPECT_TRUE(told);

  WaitFor("known to be dead", Running(), 20, [&](const v1::ClusterStatus& status) {
    return StateOf(status, id) == v1::NODE_STATE_DEAD;
  });
  const auto diagnosis = Call(asked, agentd::kDiagnose, v1::DiagnoseRequest());
  ASSERT_TRUE(diagnosis.ok()) << diagnosis.status();
  ASSERT_GT(diagnosis->findings_size(), 0);
  EXPECT_EQ(diagnosis->findings(0).reason().code(), "NODE_DEAD");
  EXPECT_EQ(diagnosis->findings(0).reason().node_id(), id);
  EXPECT_EQ(diagnosis->findings(0).severity(), v1::SEVERITY_ERROR);
}

TEST_F(GangsTest, AnswersTeachTheClusterItsSpeedAndItCanForget) {
  StartThree();
  Load(*agents_[0], 2);
  for (int i = 0; i < 3; ++i) Infer(*agents_[0]);
  WaitFor("speeds of the ring", Running(), 30, [](const v1::ClusterStatus& status) {
    return status.speeds().corrections_size() == 1 &&
           status.speeds().corrections(0).backend() == "ring";
  });
  const auto forgotten = Call(*agents_[1], agentd::kForgetSpeeds, v1::ForgetSpeedsRequest());
  ASSERT_TRUE(forgotten.ok()) << forgotten.status();
  EXPECT_EQ(forgotten->forgotten().corrections_size(), 1);
  WaitFor("forgotten", Running(), 10,
          [](const v1::ClusterStatus& status) { return status.speeds().corrections().empty(); });
}

// Each node has room for one rank only: the second deployment is refused, and told what is in its
// way; with a higher priority it may take the place, which goes back when it is unloaded.
TEST_F(GangsTest, WhatMattersMoreTakesTheMemoryAndGivesItBack) {
  for (const char* name : {"ada", "bess"}) {
    AddAgent(name, "", {"models_memory_max_mib: 400"}).Start();
  }
  WaitFor("both discovered", Running(), 20, [](const v1::ClusterStatus& status) {
    return AliveCount(status) == 2 && HasCoordinator(status);
  });
  Load(*agents_[0], 2);
  const std::string answer = Infer(*agents_[1]);
  const uint64_t epoch = Epoch();

  v1::LoadModelRequest urgent = Wanted(2);
  urgent.set_deployment_name("urgent");
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status refused = Load(*agents_[1], urgent, &progress);
  const v1::Reason reason = ReasonOf(refused);
  EXPECT_EQ(reason.code(), "MEMORY_SHORT") << refused;
  EXPECT_NE(reason.remedy().find(kModel), std::string::npos) << reason.remedy();
  EXPECT_EQ(Epoch(), epoch) << "what is loaded was disturbed by a refusal";
  EXPECT_EQ(Infer(*agents_[0]), answer);

  urgent.set_priority(10);
  urgent.set_may_evict(true);
  const absl::Status loaded = Load(*agents_[1], urgent, &progress);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(Infer(*agents_[0], "urgent"), answer);
  WaitFor("the other waits and says why", Running(), 30, [](const v1::ClusterStatus& status) {
    const v1::DeploymentStatus* evicted = Deployment(status);
    return evicted != nullptr && evicted->state() == v1::DEPLOYMENT_STATE_PENDING &&
           evicted->failure().code() == "MEMORY_SHORT";
  });
  EXPECT_TRUE(IsReady("urgent")(*Status(*agents_[0])));

  const absl::Status unloaded = Unload(*agents_[0], "urgent");
  EXPECT_TRUE(unloaded.ok()) << unloaded;
  std::cout << "evicted, served again: " << WaitForReady(epoch) << " s\n";
  EXPECT_EQ(Infer(*agents_[1]), answer);
}

TEST_F(GangsTest, AKvCacheOfEightBitsIsPlannedServedAndGivenUpAgain) {
  StartThree();
  v1::LoadModelRequest narrow = Wanted(2);
  narrow.mutable_placement()->set_kv_bits(4);
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status refused = Load(*agents_[0], narrow, &progress);
  EXPECT_EQ(ReasonOf(refused).code(), reasons::kKvBitsUnsupported) << refused;
  EXPECT_THAT(ReasonOf(refused).message(), ::testing::HasSubstr("CPU"));
  narrow.mutable_placement()->set_kv_bits(8);
  const absl::Status loaded = Load(*agents_[0], narrow, &progress);
  ASSERT_TRUE(loaded.ok()) << loaded;
  const v1::Plan eight = progress.back().status().plan();
  EXPECT_EQ(eight.kv_bits(), 8u);
  const std::string answer = Infer(*agents_[1]);
  EXPECT_GT(answer.size(), 10u);
  const uint64_t epoch = Epoch();
  EXPECT_EQ(Infer(*agents_[2]), answer);
  // The default, asked for by its number: launched anew, with twice the cache.
  narrow.mutable_placement()->set_kv_bits(16);
  const absl::Status again = Load(*agents_[0], narrow, &progress);
  ASSERT_TRUE(again.ok()) << again;
  EXPECT_GT(Epoch(), epoch);
  const v1::Plan sixteen = progress.back().status().plan();
  EXPECT_EQ(sixteen.kv_bits(), 0u);
  EXPECT_GT(sixteen.assignments(0).need().kv_cache_bytes(),
            eight.assignments(0).need().kv_cache_bytes() * 18 / 10);
}

TEST_F(GangsTest, ADraftModelOnTheEntryNodeLeavesTheTextAlone) {
  StartThree();
  Load(*agents_[0], 2);
  const std::string answer = Infer(*agents_[1]);
  ASSERT_TRUE(Unload(*agents_[0], kModel).ok());
  v1::LoadModelRequest request = Wanted(2);
  request.mutable_placement()->set_draft_model("no-such-model");
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status refused = Load(*agents_[0], request, &progress);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("no-such-model"), std::string_view::npos) << refused;
  request.mutable_placement()->set_draft_model(kModel);  // it drafts for itself
  const absl::Status loaded = Load(*agents_[0], request, &progress);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(Infer(*agents_[1]), answer);
  EXPECT_EQ(Infer(*agents_[2]), answer);
  WaitFor("the status names it", Running(), 20, [](const v1::ClusterStatus& status) {
    const v1::DeploymentStatus* found = Deployment(status);
    return found != nullptr && found->ranks_size() == 2 &&
           found->ranks(0).draft_model().name() == kModel;
  });
}

TEST_F(GangsTest, AModelThatIsNotThereIsRefusedAtOnce) {
  StartThree();
  v1::LoadModelRequest request;
  request.set_name_or_path("no-such-model");
  std::vector<v1::LoadModelProgress> progress;
  const absl::Status refused =
      Stream(*agents_[0], agentd::kLoadModel, request, std::chrono::seconds(20), &progress);
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound) << refused;
  EXPECT_TRUE(progress.empty());
  request.set_name_or_path(kModel);
  request.mutable_placement()->set_world_size(7);
  const absl::Status too_many =
      Stream(*agents_[0], agentd::kLoadModel, request, std::chrono::seconds(20), &progress);
  EXPECT_EQ(too_many.code(), absl::StatusCode::kFailedPrecondition) << too_many;
}

}  // namespace
}  // namespace macrame::tests
