// `run`, `chat`, `ps`, `ls`, `nodes`, `cordon`, `drain`, `events`, `cluster health`: words that
// people bring along, against a scripted agent.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/exit_codes.h"
#include "cli/format/drain_view.h"
#include "proto/reasons.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

class WordsTest : public ::testing::Test {
 protected:
  CliRun Run(const std::vector<std::string>& arguments, CliWorld world = {}) {
    world.variables["MACRAME_SOCKET"] = agent_.socket_path();
    return Clusterctl(arguments, world);
  }
  // Types these lines at a terminal.
  CliRun Type(const std::vector<std::string>& arguments, const std::string& lines,
              CliWorld world = {}) {
    world.stdin_text = lines;
    world.in_is_terminal = true;
    return Run(arguments, world);
  }
  FakeAgent agent_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(WordsTest, RunAsksWhatIsLoadedWithoutLoadingItAnew) {
  const CliRun run = Run({"run", "tiny", "Explain RDMA", "--max-tokens", "9"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.out, "RDMA is")) << run.out;
  EXPECT_TRUE(Has(run.err, "tokens/s")) << run.err;
  EXPECT_EQ(agent_.service.last_load.name_or_path(), "");
  EXPECT_EQ(agent_.service.last_infer.deployment(), "tiny");
  EXPECT_EQ(agent_.service.last_infer.max_tokens(), 9u);
  ASSERT_EQ(agent_.service.last_infer.messages_size(), 1);
  EXPECT_EQ(agent_.service.last_infer.messages(0).content(), "Explain RDMA");
}

TEST_F(WordsTest, RunLoadsWhatIsNotLoaded) {
  agent_.service.status = v1::ClusterStatus();
  const CliRun run = Run({"run", "tiny", "hello", "--timeout", "90s"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(agent_.service.last_load.name_or_path(), "tiny");
  EXPECT_EQ(agent_.service.last_load.timeout_ms(), 90'000u);
  EXPECT_TRUE(Has(run.err, "rank 1 mini-2: loading 50%")) << run.err;
  EXPECT_TRUE(Has(run.out, "RDMA is"));
}

TEST_F(WordsTest, APipeIsOneQuestion) {
  CliWorld world;
  world.stdin_text = "a diff\n";
  const CliRun run = Run({"chat", "--system", "Review.", "-o", "json"}, world);
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(json::parse(run.out)["kind"], "Completion");
  EXPECT_EQ(agent_.service.last_infer.deployment(), "tiny") << "the one that is loaded";
  EXPECT_EQ(agent_.service.last_infer.messages(1).content(), "a diff");
  EXPECT_EQ(Run({"chat", "tiny"}).exit_code, kExitUsage) << "nothing was piped in";
  EXPECT_EQ(Type({"chat", "-o", "json"}, "x\n").exit_code, kExitUsage);
}

TEST_F(WordsTest, ChatRemembersAndObeysItsCommands) {
  const CliRun run =
      Type({"chat"}, "first\n/set temperature 0.5\n\"\"\"two\nlines\"\"\"\n/bye\nx\n");
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  const v1::GenerateRequest& last = agent_.service.last_infer;
  ASSERT_EQ(last.messages_size(), 3);
  EXPECT_EQ(last.messages(0).content(), "first");
  EXPECT_EQ(last.messages(1).role(), "assistant");
  EXPECT_EQ(last.messages(2).content(), "two\nlines");
  EXPECT_DOUBLE_EQ(last.sampling().temperature(), 0.5);
  EXPECT_EQ(Type({"chat"}, "only\n").exit_code, kExitOk) << "the end of the input leaves";
}

TEST_F(WordsTest, ChatSaysWhatIsWrongWithAQuestionAndGoesOn) {
  CliWorld world;
  agent_.service.infer_failures = 1;
  const CliRun run = Type({"chat"}, "first\nsecond\n");
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_TRUE(Has(run.err, "PROMPT_TOO_LONG")) << run.err;
  EXPECT_TRUE(Has(run.out, "RDMA is"));
}

TEST_F(WordsTest, ChatForgetsTheOldestWhereItNoLongerFits) {
  agent_.service.messages_max = 3;
  const CliRun run = Type({"chat"}, "one\ntwo\nthree\n");
  EXPECT_EQ(run.exit_code, kExitOk);
  EXPECT_TRUE(Has(run.err, "the oldest 1 question")) << run.err;
  EXPECT_EQ(agent_.service.last_infer.messages_size(), 3);
  EXPECT_EQ(agent_.service.last_infer.messages(2).content(), "three");
}

TEST_F(WordsTest, CtrlCStopsTheAnswerAndNotTheChat) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_deployments(0)->mutable_deployment()->set_name("slow");
  agent_.service.status = status;
  CliWorld world;
  bool is_pressed = false;
  world.on_output = [&](const std::string& out) {
    if (is_pressed || !Has(out, "RDMA is")) return;
    is_pressed = true;
    kill(getpid(), SIGINT);
  };
  const CliRun run = Type({"chat"}, "go on for ever\n/show\n", world);
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.err, "(stopped)")) << run.err;
  EXPECT_TRUE(Has(run.out, "1 question remembered")) << run.out;
}

TEST_F(WordsTest, ChatNeedsToKnowWithWhom) {
  EXPECT_EQ(Type({"chat", "tinny"}, "x\n").exit_code, kExitNotFound);
  EXPECT_TRUE(Has(Type({"chat", "tinny"}, "x\n").err, "did you mean"));
  v1::ClusterStatus status = HealthyCluster();
  *status.add_deployments() = status.deployments(0);
  status.mutable_deployments(1)->mutable_deployment()->set_name("other");
  agent_.service.status = status;
  const CliRun run = Type({"chat"}, "x\n");
  EXPECT_EQ(run.exit_code, kExitNotFound);
  EXPECT_TRUE(Has(run.err, "which one")) << run.err;
  EXPECT_EQ(Type({"chat", "oth"}, "x\n").exit_code, kExitOk) << "a beginning will do";
}

TEST_F(WordsTest, PsLsAndNodesListWhatTheyDoElsewhere) {
  const CliRun ps = Run({"ps"});
  EXPECT_EQ(ps.exit_code, kExitOk);
  EXPECT_TRUE(Has(ps.out, "tiny")) << ps.out;
  EXPECT_EQ(json::parse(Run({"ps", "--json"}).out)["items"].size(), 1u);
  EXPECT_EQ(Run({"ls"}).out, Run({"model", "list"}).out);
  EXPECT_EQ(Run({"nodes"}).out, Run({"devices", "list"}).out);
  EXPECT_EQ(Run({"nodes", "frget", "x"}).exit_code, kExitUsage);
  EXPECT_TRUE(Has(Run({"nodes", "frget", "x"}).err, "forget"));
}

TEST_F(WordsTest, CordonNamesTheNodeAndCanBeRepeated) {
  const CliRun run = Run({"cordon", "mini-2"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(run.out, "mini-2 is cordoned: nothing new is placed on it\n");
  EXPECT_EQ(agent_.operations.last_cordon.order(), v1::CORDON_ORDER_CORDON);
  EXPECT_EQ(agent_.operations.last_cordon.node_id(),
            HealthyCluster().nodes(1).identity().node_id());
  agent_.operations.changes = false;
  EXPECT_EQ(Run({"uncordon", "mini-2"}).out, "mini-2 was already uncordoned\n");
  EXPECT_EQ(Run({"cordon", "mini-9"}).exit_code, kExitNotFound);
  EXPECT_EQ(Run({"cordon"}).exit_code, kExitUsage);
}

TEST_F(WordsTest, DrainWaitsUntilTheNodeIsEmpty) {
  v1::ClusterStatus busy = HealthyCluster();
  busy.mutable_nodes(1)->set_ranks_running(1);
  v1::ClusterStatus empty = HealthyCluster();
  empty.clear_deployments();
  agent_.service.status = busy;
  std::thread mover([&] {
    for (int i = 0; i < 1000 && agent_.operations.cordons == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    agent_.service.SetStatus(empty);
  });
  const CliRun run = Run({"drain", "mini-2", "--deadline", "90s"});
  mover.join();
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.out, "mini-2 is empty")) << run.out;
  EXPECT_EQ(agent_.operations.last_cordon.order(), v1::CORDON_ORDER_DRAIN);
  EXPECT_EQ(agent_.operations.last_cordon.deadline_ms(), 90'000u);
}

TEST_F(WordsTest, ACordonIsOrderedAgainWhenTheCoordinatorChanges) {
  agent_.operations.coordinator_changes = 2;
  const CliRun run = Run({"uncordon", "mini-2"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(agent_.operations.cordons, 1);
  EXPECT_TRUE(Has(run.out, "mini-2 is uncordoned")) << run.out;
}

TEST_F(WordsTest, DrainOfTheLastNodeIsRefusedInWords) {
  v1::ClusterStatus alone = HealthyCluster();
  alone.mutable_nodes()->DeleteSubrange(1, 2);
  agent_.service.status = alone;
  const CliRun run = Run({"drain", "mini-1"});
  EXPECT_EQ(run.exit_code, kExitConflict);
  EXPECT_TRUE(Has(run.err, "no other node")) << run.err;
}

TEST_F(WordsTest, ANodeThatWasSilentForAMomentKeepsItsRanksAndCanTakeSome) {
  v1::ClusterStatus status = HealthyCluster();
  status.clear_deployments();
  for (v1::NodeStatus& node : *status.mutable_nodes()) node.set_state(v1::NODE_STATE_SUSPECT);
  status.mutable_nodes(0)->set_ranks_running(1);
  const std::string node_id = status.nodes(0).identity().node_id();
  EXPECT_FALSE(DrainOf(status, node_id).is_empty());
  EXPECT_TRUE(DrainOf(status, node_id).has_other);
  for (v1::NodeStatus& node : *status.mutable_nodes()) node.set_state(v1::NODE_STATE_DEAD);
  EXPECT_TRUE(DrainOf(status, node_id).is_empty());
  EXPECT_FALSE(DrainOf(status, node_id).has_other);
}

TEST_F(WordsTest, HealthIsALineAndAnExitCode) {
  EXPECT_EQ(Run({"cluster", "health"}).out, "All nodes healthy\n");
  EXPECT_EQ(Run({"cluster", "health"}).exit_code, kExitOk);
  agent_.service.troubled = true;
  const CliRun run = Run({"cluster", "health"});
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_FALSE(Has(run.out, "All nodes healthy"));
  const json document = json::parse(Run({"cluster", "health", "--json"}).out);
  EXPECT_EQ(document["healthy"], false);
  EXPECT_FALSE(document["problems"].empty());
}

TEST_F(WordsTest, EventsAreLinesOrDocuments) {
  const CliRun run = Run({"events", "--since", "1h"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.out, "mini-2 is dead: no heartbeat")) << run.out;
  EXPECT_GT(agent_.operations.last_events.since_unix_ms(), 0u);
  EXPECT_EQ(json::parse(Run({"events", "--json"}).out)["items"][0]["subject"], "mini-2");
  EXPECT_EQ(Run({"events", "--since", "soon"}).exit_code, kExitUsage);
}

TEST_F(WordsTest, ModelStatusTellsOfOneModelAndOfItsBalance) {
  const CliRun run = Run({"model", "status", "tiny"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_FALSE(Has(run.out, "MEASURED"));
  EXPECT_TRUE(Has(Run({"model", "status", "tiny", "--detail"}).out, "MEASURED"));
  EXPECT_EQ(Run({"model", "status", "tinny"}).exit_code, kExitNotFound);
  EXPECT_EQ(json::parse(Run({"model", "status", "--json"}).out)["items"].size(), 1u);
}

TEST_F(WordsTest, ADebugBundleHoldsWhatThereIsAndSaysWhatIsMissing) {
  const std::string path = FreshFolder() + "/bundle.tar.gz";
  const CliRun run = Run({"debug", "bundle", "--out", path});
  EXPECT_TRUE(run.exit_code == kExitOk || run.exit_code == kExitPartial) << run.err;
  EXPECT_TRUE(Has(run.out, path)) << run.out;
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
  const CliRun refused = Run({"debug", "bundle", "--out", "/nowhere/x.tar.gz"});
  EXPECT_EQ(refused.exit_code, kExitUsage);
  EXPECT_TRUE(Has(refused.err, "can't be written to /nowhere/x.tar.gz: No such file"))
      << refused.err;
  EXPECT_TRUE(Has(refused.err, "with --out")) << refused.err;
  agent_.service.failure = absl::InternalError("no");
  const CliRun none = Run({"debug", "bundle", "--out", path});
  EXPECT_EQ(none.exit_code, kExitPartial) << "also where the agent is of no use";
  EXPECT_TRUE(Has(none.err, "status: no")) << none.err;
  CliWorld nobody;
  nobody.variables["MACRAME_SOCKET"] = FreshFolder() + "/nobody";
  const CliRun alone = Clusterctl({"debug", "bundle", "--out", path}, nobody);
  EXPECT_EQ(alone.exit_code, kExitPartial);
  EXPECT_TRUE(Has(alone.err, "status, models, links, findings and events: agentd does not answer"))
      << "said once: " << alone.err;
  EXPECT_FALSE(Has(alone.err, "version: ")) << alone.err;
}

TEST_F(WordsTest, TheManualPageHasEveryCommandAndNoHiddenOne) {
  const CliRun run = Clusterctl({"help", "--man"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(run.out.find(".TH CLUSTERCTL 1"), 0u);
  for (const char* part : {".SS run \\fImodel\\fR [\\fIquestion\\fR]", ".SS model load",
                           ".SS nodes remove", "\\-\\-deadline", ".SH \"EXIT STATUS\""}) {
    EXPECT_TRUE(Has(run.out, part)) << part;
  }
  EXPECT_FALSE(Has(run.out, "__complete"));
  EXPECT_EQ(Clusterctl({"help"}).out, Clusterctl({"--help"}).out);
}

// A test that hangs is how it was: asked again for ever.
TEST_F(WordsTest, FollowedEventsEndWithTheKey) {
  agent_.operations.events_told_max = 2;
  const CliRun run = Run({"events", "-f"});
  EXPECT_EQ(run.exit_code, kExitUnauthorised) << run.err;
  EXPECT_TRUE(Has(run.out, "mini-2 is dead")) << run.out;
  EXPECT_TRUE(Has(run.err, "was revoked")) << run.err;
}

// What was noted while a clock was ahead keeps nobody from being asked for what comes.
TEST_F(WordsTest, FollowedEventsAreAskedForFromTheNewestThatIsPast) {
  constexpr uint64_t kPast = 1'764'081'005'000;
  agent_.operations.also_at_unix_ms = kPast + 100ull * 365 * 24 * 3600 * 1000;
  agent_.operations.events_told_max = 2;
  Run({"events", "-f"});
  EXPECT_EQ(agent_.operations.last_events.since_unix_ms(), kPast - 15'000);
}

TEST_F(WordsTest, NobodyAtTheSocketIsSaidByEachOfThem) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", "m", "x"},
                                                {"ps"},
                                                {"ls"},
                                                {"nodes"},
                                                {"cordon", "n"},
                                                {"drain", "n"},
                                                {"events"},
                                                {"events", "-f"},
                                                {"cluster", "health"}}) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--socket", "/nowhere/agentd.sock"});
    EXPECT_EQ(Clusterctl(all).exit_code, kExitUnreachable) << words[0];
  }
}

}  // namespace
}  // namespace macrame::cli
