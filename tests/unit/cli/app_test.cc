#include "cli/app.h"
#include "cli/answer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/exit_codes.h"
#include "proto/reasons.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/fake_cluster_service.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/fresh_folder.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

class AppTest : public ::testing::Test {
 protected:
  CliRun Run(std::vector<std::string> arguments, CliWorld world = {}) {
    world.variables["MACRAME_SOCKET"] = agent_.socket_path();
    return Clusterctl(arguments, world);
  }
  FakeAgent agent_;
};

TEST_F(AppTest, MetricsAreToldInTheFormatThatIsAskedFor) {
  EXPECT_EQ(Run({"metrics"}).out, "# prometheus\n");
  EXPECT_EQ(Run({"metrics", "-o", "json"}).out, "# json\n");
  EXPECT_EQ(Run({"metrics", "--format", "openmetrics"}).out, "# openmetrics\n");
  const CliRun wrong = Run({"metrics", "--format", "xml"});
  EXPECT_EQ(wrong.exit_code, kExitUsage);
  EXPECT_NE(wrong.err.find("xml"), std::string::npos);
  CliWorld alone;
  alone.variables["MACRAME_SOCKET"] = "/nonexistent/a.sock";
  EXPECT_NE(Clusterctl({"metrics"}, alone).exit_code, kExitOk);
}

TEST_F(AppTest, DevicesListAndStatusShowTheNodes) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"devices", "list"}, {"status"}, {"cluster", "status"}}) {
    const CliRun run = Run(words);
    EXPECT_EQ(run.exit_code, kExitOk) << run.err;
    EXPECT_NE(run.out.find("mini-3"), std::string::npos);
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  }
}

TEST_F(AppTest, TheHealthyLineIsThereExactlyWhenHealthy) {
  EXPECT_NE(Run({"status"}).out.find("\nAll nodes healthy\n"), std::string::npos);
  agent_.service.troubled = true;
  EXPECT_EQ(Run({"status"}).out.find("All nodes healthy"), std::string::npos);
}

TEST_F(AppTest, StatusJsonHasNodesAndAggregateLoad) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status", "--json"},
                                                {"--json", "status"},
                                                {"status", "-o", "json"},
                                                {"cluster", "status", "--output=json"}}) {
    const json document = json::parse(Run(words).out);
    EXPECT_EQ(document["apiVersion"], "macrame/v1");
    EXPECT_EQ(document["kind"], "ClusterStatus");
    EXPECT_EQ(document["nodes"].size(), 3u);
    EXPECT_TRUE(document["aggregate_load"].is_object());
    EXPECT_TRUE(document["nodes"][0]["inventory"]["memory_total_bytes"].is_number());
    EXPECT_EQ(document["nodes"][0]["state"], "alive");
  }
  CliWorld world;
  world.variables["MACRAME_OUTPUT"] = "yaml";
  EXPECT_NE(Run({"status"}, world).out.find("\nnodes:\n  - identity:\n"), std::string::npos);
  world.variables["MACRAME_OUTPUT"] = "xml";
  EXPECT_EQ(Run({"status"}, world).exit_code, kExitUsage);
}

TEST_F(AppTest, NobodyAtTheSocketIsItsOwnExitCode) {
  const CliRun run = Clusterctl({"status", "--socket", "/nowhere/agentd.sock"});
  EXPECT_EQ(run.exit_code, kExitUnreachable);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("AGENT_UNREACHABLE"), std::string::npos);
  EXPECT_NE(run.err.find("next:"), std::string::npos);
  EXPECT_EQ(Clusterctl({"version", "--socket", "/nowhere/agentd.sock"}).exit_code, kExitOk);
}

TEST_F(AppTest, ErrorsOfTheAgentKeepTheirReasonAndExitCode) {
  const struct {
    absl::StatusCode status;
    const char* reason;
    int exit_code;
  } cases[] = {{absl::StatusCode::kNotFound, "MODEL_NOT_FOUND", kExitNotFound},
               {absl::StatusCode::kFailedPrecondition, "MEMORY_SHORT", kExitConflict},
               {absl::StatusCode::kUnavailable, "NO_COORDINATOR", kExitUnreachable},
               {absl::StatusCode::kUnavailable, "NOT_READY", kExitConflict},
               {absl::StatusCode::kDeadlineExceeded, "RANK_STALLED", kExitTimedOut},
               {absl::StatusCode::kInvalidArgument, "BAD_REQUEST", kExitUsage},
               {absl::StatusCode::kInternal, "RANK_EXITED", kExitFailure}};
  for (const auto& one : cases) {
    v1::Reason reason = MakeReason(one.reason, "what happened", "node-7");
    reason.set_evidence("a line it printed");
    agent_.service.failure = ReasonStatus(one.status, reason);
    const CliRun run = Run({"model", "load", "tiny", "--timeout", "1s"});
    EXPECT_EQ(run.exit_code, one.exit_code) << one.reason;
    EXPECT_NE(run.err.find("what happened"), std::string::npos);
    EXPECT_NE(run.err.find("node-7"), std::string::npos);
    EXPECT_NE(run.err.find("a line it printed"), std::string::npos);
    const CliRun as_json = Run({"model", "load", "tiny", "--json", "--timeout", "1s"});
    const json error = json::parse(as_json.err)["error"];
    EXPECT_EQ(error["code"], one.reason);
    EXPECT_EQ(error["node"], "node-7");
  }
}

TEST_F(AppTest, ModelLoadSendsOptionsAndSaysHowItWent) {
  const CliRun run =
      Run({"model", "load", "tiny", "--context", "2048", "--parallelism", "pipeline", "--nodes",
           "mini-1,a1b2c3d3", "--ranks", "2", "--timeout", "90s", "--kv-bits", "8"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("tiny is ready: pipeline over 3"), std::string::npos) << run.out;
  EXPECT_NE(run.err.find("rank 1 mini-2: loading 50%"), std::string::npos) << run.err;
  const v1::LoadModelRequest& request = agent_.service.last_load;
  EXPECT_EQ(request.name_or_path(), "tiny");
  EXPECT_EQ(request.placement().context_length(), 2048u);
  EXPECT_EQ(request.placement().parallelism(), v1::PARALLELISM_PIPELINE);
  EXPECT_EQ(request.placement().node_ids_size(), 2);
  EXPECT_EQ(request.placement().world_size(), 2u);
  EXPECT_EQ(request.placement().kv_bits(), 8u);
  EXPECT_EQ(request.timeout_ms(), 90'000u);
  EXPECT_EQ(Run({"model", "load", "--nodes", "mini-1", "tiny"}).exit_code, kExitOk);
  EXPECT_EQ(Run({"model", "load", "tiny", "--nodes", "mini-9"}).exit_code, kExitNotFound);
  EXPECT_EQ(Run({"-q", "model", "load", "tiny"}).err, "");
  Run({"model", "load", "./some-model"});
  EXPECT_TRUE(std::filesystem::path(agent_.service.last_load.name_or_path()).is_absolute());
}

TEST_F(AppTest, AKvCacheOfOtherBitsIsRefusedBeforeAnythingIsAsked) {
  const std::vector<std::string> load = {"model", "load", "tiny", "--kv-bits", "5"};
  const std::vector<std::string> plan = {"plan", "tiny", "--kv-bits", "5"};
  for (const std::vector<std::string>& words : {load, plan}) {
    agent_.service.last_load.set_name_or_path("nothing");
    const CliRun run = Run(words);
    EXPECT_EQ(run.exit_code, kExitUsage) << run.err;
    EXPECT_NE(run.err.find("16 bits (the default), in 8 or, on GPUs, in 4"), std::string::npos)
        << run.err;
    EXPECT_EQ(agent_.service.last_load.name_or_path(), "nothing");
  }
  EXPECT_EQ(Run({"model", "load", "tiny", "--kv-bits", "16"}).exit_code, kExitOk);
  EXPECT_EQ(agent_.service.last_load.placement().kv_bits(), 16u);
}

TEST_F(AppTest, ModelLoadOnATerminalDrawsBarsAndShowsTheCursorAgain) {
  CliWorld world;
  world.out_is_terminal = true;
  const CliRun run = Run({"model", "load", "tiny"}, world);
  EXPECT_NE(run.err.find("[####"), std::string::npos);
  EXPECT_NE(run.err.find("\x1b[?25l"), std::string::npos);
  EXPECT_GT(run.err.rfind("\x1b[?25h"), run.err.rfind("\x1b[?25l"));
}

TEST_F(AppTest, InferPrintsTheTextAloneOnStdout) {
  const CliRun run = Run({"model", "infer", "tiny", "--prompt", "Explain RDMA", "--max-tokens",
                          "200", "--temperature", "0", "--seed", "0", "--stop", "a", "--stop", "b",
                          "--system", "Be brief"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_EQ(run.out, "RDMA is \x1b[31mquick\n");
  EXPECT_NE(run.err.find("4 tokens in 100 ms (40.0 tokens/s)"), std::string::npos) << run.err;
  const v1::GenerateRequest& request = agent_.service.last_infer;
  EXPECT_EQ(request.max_tokens(), 200u);
  EXPECT_TRUE(request.sampling().has_temperature());
  EXPECT_TRUE(request.sampling().has_seed());
  EXPECT_FALSE(request.sampling().has_top_p());
  ASSERT_EQ(request.messages_size(), 2);
  EXPECT_EQ(request.messages(0).role(), "system");
  EXPECT_EQ(request.messages(1).content(), "Explain RDMA");
  EXPECT_EQ(request.stop_size(), 2);
}

TEST_F(AppTest, AModelCannotSteerTheTerminal) {
  CliWorld world;
  world.out_is_terminal = true;
  const std::string out = Run({"model", "infer", "tiny", "-p", "x", "-q"}, world).out;
  const std::string answer = "RDMA is ?[31mquick\n";
  ASSERT_GE(out.size(), answer.size());
  EXPECT_EQ(out.substr(out.size() - answer.size()), answer) << out;
}

TEST_F(AppTest, ATerminalShowsHowFarThePromptIsUntilTheAnswerComes) {
  EXPECT_EQ(Run({"model", "infer", "tiny", "-p", "x", "-q"}).out, "RDMA is \x1b[31mquick\n");
  EXPECT_FALSE(agent_.service.last_infer.progress()) << "a file is told nothing";
  CliWorld world;
  world.out_is_terminal = true;
  const std::string out = Run({"model", "infer", "tiny", "-p", "x", "-q"}, world).out;
  const size_t told = out.find("reading the prompt: 50 % of 12 tokens");
  ASSERT_NE(told, std::string::npos) << out;
  // The line is taken away, and the cursor is there again, before the answer.
  const size_t cleared = out.find("\x1b[1F\x1b[J", told);
  ASSERT_NE(cleared, std::string::npos) << out;
  EXPECT_GT(out.find("RDMA is"), cleared);
  EXPECT_NE(out.rfind("\x1b[?25h"), std::string::npos);
  v1::PromptProgress waiting;
  waiting.set_is_queued(true);
  waiting.set_prompt_tokens(1);
  EXPECT_EQ(ProgressText(waiting),
            "waiting for a turn: other requests are answered first (1 token)");
  v1::PromptProgress cached;
  cached.set_prompt_tokens(200'000'000);
  cached.set_computed_tokens(150'000'000);
  cached.set_cached_tokens(64);
  EXPECT_EQ(ProgressText(cached),
            "reading the prompt: 75 % of 200000000 tokens, 64 of them cached");
}

TEST_F(AppTest, InferShowsReasoningDimmedAndCalls) {
  CliWorld world;
  world.out_is_terminal = true;
  const std::vector<std::string> words = {"model", "infer", "thinker", "-p", "x"};
  EXPECT_EQ(Run({"model", "infer", "thinker", "-p", "x", "-q", "--color", "always"}, world).out,
            "\x1b[2mLet me\x1b[0m\x1b[2m see\x1b[0m\nI look.\n"
            "\x1b[1m→ get_weather\x1b[0m {\"city\": \"Oslo\"}\n");
  // A file gets the answer alone.
  const CliRun piped = Run(words);
  EXPECT_EQ(piped.out, "I look.\n→ get_weather {\"city\": \"Oslo\"}\n");
  EXPECT_NE(piped.err.find("3 of them reasoning"), std::string::npos) << piped.err;
  const json document = json::parse(Run({"model", "infer", "thinker", "-p", "x", "--json"}).out);
  EXPECT_EQ(document["reasoning"], "Let me see");
  EXPECT_EQ(document["tool_calls"][0]["name"], "get_weather");
}

TEST_F(AppTest, InferTakesToolsAndABudgetOfReasoning) {
  const std::string path = FreshFolder() + "/tools.json";
  std::ofstream(path) << R"([{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(Run({"model", "infer", "tiny", "-p", "x", "--tools", path, "--thinking-tokens", "0"})
                .exit_code,
            kExitOk);
  const v1::GenerateRequest& request = agent_.service.last_infer;
  EXPECT_EQ(request.tools().tools_json(), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_TRUE(request.reasoning().has_tokens_max());
  EXPECT_EQ(Run({"model", "infer", "tiny", "-p", "x", "--no-thinking"}).exit_code, kExitOk);
  EXPECT_FALSE(agent_.service.last_infer.reasoning().enabled());
  EXPECT_TRUE(agent_.service.last_infer.reasoning().has_enabled());
  std::ofstream(path) << "{}";
  const CliRun refused = Run({"model", "infer", "tiny", "-p", "x", "--tools", path});
  EXPECT_EQ(refused.exit_code, kExitUsage);
  EXPECT_NE(refused.err.find(path), std::string::npos) << refused.err;
}

TEST_F(AppTest, InferHoldsTheAnswerToASchema) {
  const std::string path = FreshFolder() + "/schema.json";
  std::ofstream(path) << R"({"type": "object", "properties": {"z": {}, "a": {}}})";
  const std::vector<std::string> words = {"model", "infer",         "tiny", "-p",
                                          "x",     "--json-schema", path};
  EXPECT_EQ(Run(words).exit_code, kExitOk);
  EXPECT_EQ(agent_.service.last_infer.structure().json_schema(),
            R"({"type":"object","properties":{"z":{},"a":{}}})");
  std::ofstream(path) << "[";
  const CliRun refused = Run(words);
  EXPECT_EQ(refused.exit_code, kExitUsage);
  EXPECT_NE(refused.err.find(path), std::string::npos) << refused.err;
}

TEST_F(AppTest, InferReadsItsPromptFromStdin) {
  CliWorld world;
  world.stdin_text = "piped\nprompt\n";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"model", "infer", "tiny"},
                                                {"model", "infer", "tiny", "--prompt", "-"}}) {
    EXPECT_EQ(Run(words, world).exit_code, kExitOk);
    EXPECT_EQ(agent_.service.last_infer.messages(0).content(), "piped\nprompt");
  }
  world.in_is_terminal = true;
  EXPECT_EQ(Run({"model", "infer", "tiny"}, world).exit_code, kExitUsage);
  world.in_is_terminal = false;
  world.stdin_text.assign(5 * 1024 * 1024, 'x');
  EXPECT_EQ(Run({"model", "infer", "tiny"}, world).exit_code, kExitFailure);
}

TEST_F(AppTest, InferAsJsonIsOneDocument) {
  const json document = json::parse(Run({"model", "infer", "tiny", "-p", "x", "--json"}).out);
  EXPECT_EQ(document["kind"], "Completion");
  EXPECT_EQ(document["finish_reason"], "stop");
  EXPECT_EQ(document["completion_tokens"], 4);
}

TEST_F(AppTest, PlanSaysByItsExitCodeWhetherItFits) {
  const CliRun fits = Run({"plan", "tiny"});
  EXPECT_EQ(fits.exit_code, kExitOk);
  EXPECT_NE(fits.out.find("tensor parallel over 3: 8 heads"), std::string::npos) << fits.out;
  agent_.service.fits = false;
  const CliRun misfit = Run({"plan", "huge"});
  EXPECT_EQ(misfit.exit_code, kExitFailure);
  EXPECT_NE(misfit.out.find("812 GiB"), std::string::npos);
  EXPECT_EQ(Run({"plan", "huge", "--json"}).exit_code, kExitFailure);
}

TEST_F(AppTest, ModelListAndUnload) {
  EXPECT_NE(Run({"model", "list"}).out.find("not loaded"), std::string::npos);
  EXPECT_EQ(json::parse(Run({"model", "list", "--json"}).out)["items"].size(), 2u);
  EXPECT_EQ(Run({"model", "unload", "tiny"}).exit_code, kExitOk);
  EXPECT_EQ(agent_.service.last_unload, "tiny");
}

TEST_F(AppTest, ModelCheckTriesEachReplica) {
  v1::ClusterStatus status = HealthyCluster();
  for (v1::NodeStatus& node : *status.mutable_nodes()) {
    node.mutable_inventory()->clear_gpu_cores();
  }
  const std::string name = status.deployments(0).deployment().name();
  const std::string second = name + "#2";
  *status.add_deployments() = status.deployments(0);
  v1::DeploymentStatus& copy = *status.mutable_deployments(status.deployments_size() - 1);
  copy.mutable_deployment()->set_name(second);
  agent_.service.status = status;
  const json both = json::parse(Run({"model", "check", name, "--json"}).out);
  EXPECT_EQ(agent_.service.inferred, (std::set<std::string>{name, second}));
  std::set<std::string> replicas;
  for (const json& check : both["checks"]) replicas.insert(check["replica"]);
  EXPECT_EQ(replicas, (std::set<std::string>{name, second}));

  copy.set_state(v1::DEPLOYMENT_STATE_PENDING);
  agent_.service.status->mutable_deployments()->CopyFrom(status.deployments());
  const CliRun run = Run({"model", "check", name});
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_NE(run.out.find(second + " is not ready"), std::string::npos) << run.out;
  agent_.service.inferred.clear();
  Run({"model", "check", second});
  EXPECT_TRUE(agent_.service.inferred.empty()) << "only the copy that was named";
}

TEST_F(AppTest, AProfileIsSetShownAndTakenBack) {
  const CliRun set = Run({"model", "profile", "qwen", "--temperature", "0.6", "--top-k", "20",
                          "--thinking", "off", "--template-arg", "style=short", "--template-arg",
                          "n=2", "--alias", "sonnet", "--pin", "--idle-unload", "2h"});
  EXPECT_EQ(set.exit_code, kExitOk) << set.err;
  EXPECT_EQ(
      set.out,
      "qwen: temperature 0.6, top_k 20, thinking off, template {\"style\":\"short\",\"n\":2}, "
      "alias sonnet, pinned, unloaded after 2 h without a request\n");
  const v1::ModelProfile& sent = agent_.operations.last_profile.set();
  EXPECT_TRUE(sent.reasoning().has_enabled());
  EXPECT_FALSE(sent.sampling().has_top_p());
  Run({"model", "profile", "qwen", "--unset", "temperature", "--unset", "alias.sonnet", "--unpin",
       "--idle-unload", "never"});
  const v1::ChangeProfileRequest& less = agent_.operations.last_profile;
  EXPECT_EQ(std::vector<std::string>(less.cleared().begin(), less.cleared().end()),
            (std::vector<std::string>{"temperature", "alias.sonnet", "pinned"}));
  EXPECT_EQ(less.set().idle_unload_s(), 0u);
  EXPECT_TRUE(less.set().has_idle_unload_s());

  EXPECT_EQ(Run({"model", "profile", "qwen", "--thinking", "maybe"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"model", "profile", "qwen", "--pin", "--unpin"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"model", "profile", "qwen", "--idle-unload", "soon"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"model", "profile", "qwen", "--template-arg", "x"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"model", "profile", "--pin"}).exit_code, kExitUsage);
}

TEST_F(AppTest, ProfilesAreListed) {
  EXPECT_NE(Run({"model", "profile"}).out.find("No model has a profile"), std::string::npos);
  v1::ModelProfile& profile = *agent_.operations.profiles.add_profiles();
  profile.set_model("qwen");
  profile.set_max_tokens(512);
  EXPECT_EQ(Run({"model", "profile", "qwen"}).out, "qwen: max_tokens 512\n");
  EXPECT_EQ(Run({"model", "profile", "llama"}).out, "llama: no profile\n");
  const std::string all = Run({"model", "profile"}).out;
  EXPECT_NE(all.find("MODEL"), std::string::npos);
  EXPECT_NE(all.find("max_tokens 512"), std::string::npos) << all;
  const json document = json::parse(Run({"model", "profile", "--json"}).out);
  EXPECT_EQ(document["kind"], "ModelProfileList");
  EXPECT_EQ(document["profiles"][0]["max_tokens"], 512);
}

// A name that programs use is one that people use.
TEST_F(AppTest, AnAliasIsTakenWhereverAModelIsNamed) {
  v1::ModelProfile& profile = *agent_.operations.profiles.add_profiles();
  profile.set_model("tiny");
  profile.add_aliases("gpt-4o");
  EXPECT_EQ(Run({"model", "infer", "gpt-4o", "--prompt", "Why?"}).exit_code, kExitOk);
  EXPECT_EQ(agent_.service.last_infer.deployment(), "tiny");
  EXPECT_EQ(Run({"model", "load", "gpt-4o", "--draft-model", "gpt-4o"}).exit_code, kExitOk);
  EXPECT_EQ(agent_.service.last_load.name_or_path(), "tiny");
  EXPECT_EQ(agent_.service.last_load.placement().draft_model(), "tiny");
  Run({"plan", "gpt-4o"});
  EXPECT_EQ(agent_.service.last_plan.name_or_path(), "tiny");
  Run({"model", "verify", "gpt-4o"});
  EXPECT_EQ(agent_.operations.last_verified.name_or_path(), "tiny");
  CliWorld asking;
  asking.stdin_text = "Why?";
  EXPECT_EQ(Run({"chat", "gpt-4o"}, asking).exit_code, kExitOk);
  EXPECT_EQ(Run({"run", "gpt-4o", "Why?"}).exit_code, kExitOk);
  EXPECT_EQ(agent_.service.last_infer.deployment(), "tiny");
  for (const char* words : {"status", "stats", "check"}) {
    const CliRun run = Run({"model", words, "gpt-4o"});
    EXPECT_EQ(run.err.find("is loaded"), std::string::npos) << words << ": " << run.err;
    EXPECT_NE(run.exit_code, kExitNotFound) << words;
  }
  const std::string benched =
      Run({"bench", "gpt-4o", "--requests", "1", "--answer-tokens", "1"}).out;
  EXPECT_EQ(benched.rfind("tiny: ", 0), 0u) << benched;
  Run({"model", "profile", "gpt-4o", "--temperature", "0"});
  EXPECT_EQ(agent_.operations.last_profile.set().model(), "tiny");
  Run({"key", "create", "--model", "gpt-4o"});
  EXPECT_EQ(agent_.access.last_created.models(0), "tiny");
  EXPECT_EQ(Run({"model", "unload", "gpt-4o"}).out, "tiny is unloaded\n");
  EXPECT_EQ(agent_.service.last_unload, "tiny");
  // What is served under a name of its own comes first, and what is no alias stays as typed.
  profile.add_aliases("tiny-2");
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_deployments(0)->mutable_deployment()->set_name("tiny-2");
  agent_.service.SetStatus(status);
  Run({"model", "unload", "tiny-2"});
  EXPECT_EQ(agent_.service.last_unload, "tiny-2");
  Run({"model", "unload", "gpt-4"});
  EXPECT_EQ(agent_.service.last_unload, "gpt-4");
}

TEST_F(AppTest, ALoadOfWhatIsServedSaysWhatChanges) {
  v1::ClusterStatus before = HealthyCluster();
  before.mutable_deployments(0)->mutable_plan()->set_context_length(512);
  agent_.service.SetStatus(before);
  const CliRun changed = Run({"model", "load", "tiny", "--context", "4096"});
  EXPECT_EQ(changed.exit_code, kExitOk) << changed.err;
  EXPECT_EQ(changed.out.rfind("Changed: context 512 -> ", 0), 0u) << changed.out;
  EXPECT_NE(changed.out.find("; as before: pipeline over 3 via ring (mini-1, "), std::string::npos)
      << changed.out;
  agent_.service.SetStatus(HealthyCluster());
  EXPECT_EQ(Run({"model", "load", "tiny"}).out.rfind("Nothing changes", 0), 0u);
  v1::ClusterStatus none = HealthyCluster();
  none.clear_deployments();
  agent_.service.SetStatus(none);
  EXPECT_EQ(Run({"model", "load", "tiny"}).out.rfind("tiny is ready", 0), 0u);
}

TEST_F(AppTest, AFolderIsNoFileToImport) {
  namespace fs = std::filesystem;
  const fs::path folder = FreshFolder();
  CliRun run = Run({"model", "import", folder.string()});
  EXPECT_NE(run.exit_code, kExitOk);
  EXPECT_NE(run.err.find("a folder without a GGUF file"), std::string::npos) << run.err;
  std::ofstream(folder / "config.json") << "{}";
  std::ofstream(folder / "model.safetensors") << "x";
  run = Run({"model", "import", folder.string()});
  EXPECT_NE(run.err.find("clusterctl model load " + folder.string()), std::string::npos) << run.err;
  std::ofstream(folder / "b-00002-of-00002.gguf") << "x";
  std::ofstream(folder / "b-00001-of-00002.gguf") << "x";
  run = Run({"model", "import", folder.string()});
  EXPECT_NE(run.err.find("import " + (folder / "b-00001-of-00002.gguf").string()),
            std::string::npos)
      << run.err;
}

TEST_F(AppTest, NodesAreLabelledDedicatedAndNamedByTheirLabels) {
  const CliRun labelled = Run({"nodes", "label", "mini-2", "rack=a", "old-"});
  EXPECT_EQ(labelled.exit_code, kExitOk) << labelled.err;
  EXPECT_EQ(labelled.out, "mini-2: rack=a\n");
  ASSERT_EQ(agent_.operations.last_marks.removed_size(), 1);
  EXPECT_EQ(agent_.operations.last_marks.removed(0), "old");
  EXPECT_FALSE(agent_.operations.last_marks.has_tenant());
  EXPECT_NE(Run({"nodes", "label", "mini-2", "rack"}).exit_code, kExitOk);
  EXPECT_EQ(Run({"nodes", "label", "mini-2"}).exit_code, kExitUsage);

  EXPECT_EQ(Run({"nodes", "dedicate", "mini-2", "acme"}).out, "mini-2: tenant acme\n");
  EXPECT_EQ(Run({"nodes", "dedicate", "mini-2", "--none"}).out, "mini-2: no labels, anybody's\n");
  EXPECT_TRUE(agent_.operations.last_marks.has_tenant());
  EXPECT_EQ(Run({"nodes", "dedicate", "mini-2"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"nodes", "dedicate", "mini-2", "acme", "--none"}).exit_code, kExitUsage);
  EXPECT_EQ(Run({"nodes", "dedicate", "nobody", "acme"}).exit_code, kExitNotFound);

  v1::ClusterStatus status = HealthyCluster();
  for (const int i : {0, 2}) {
    v1::NodeLabel& label = *status.mutable_nodes(i)->mutable_marks()->add_labels();
    label.set_key("rack");
    label.set_value("a");
  }
  agent_.service.status = status;
  EXPECT_NE(Run({"nodes"}).out.find("rack=a"), std::string::npos);
  agent_.operations.verification.set_passed(true);
  Run({"model", "verify", "m", "--node", "rack=a"});
  EXPECT_EQ(agent_.operations.last_verified.node_ids_size(), 2);
  EXPECT_EQ(Run({"model", "verify", "m", "--node", "rack=z"}).exit_code, kExitNotFound);
}

TEST_F(AppTest, ClusterStopDrainsFirstAndSaysWhatGoesOn) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_nodes(0)->mutable_load()->set_requests_running(2);
  agent_.service.status = status;
  const CliRun busy = Run({"cluster", "drain", "--deadline", "1s"});
  EXPECT_EQ(busy.exit_code, kExitTimedOut) << busy.err;
  EXPECT_NE(busy.err.find("2 requests go on"), std::string::npos) << busy.err;
  status.clear_deployments();
  status.mutable_nodes(0)->mutable_load()->clear_requests_running();
  agent_.service.status = status;
  agent_.operations.pauses.clear();
  const CliRun stopped = Run({"cluster", "stop"});
  EXPECT_EQ(stopped.exit_code, kExitOk) << stopped.err;
  EXPECT_NE(stopped.out.find("loads again: tiny"), std::string::npos) << stopped.out;
  EXPECT_EQ(agent_.operations.pauses,
            (std::vector<v1::PauseOrder>{v1::PAUSE_ORDER_DRAIN, v1::PAUSE_ORDER_STOP}));
  EXPECT_EQ(json::parse(Run({"cluster", "start", "--json"}).out)["state"], "serving");
  agent_.operations.changes = false;
  EXPECT_NE(Run({"cluster", "start"}).out.find("serves already"), std::string::npos);
  EXPECT_EQ(Run({"cluster", "drain", "--deadline", "soon"}).exit_code, kExitUsage);
}

TEST_F(AppTest, ModelVerifySaysByItsExitCodeWhatItFound) {
  v1::ModelVerification& all = agent_.operations.verification;
  all = DamagedModel();
  const CliRun damaged = Run({"model", "verify", "org/m", "--node", "mini-2"});
  EXPECT_EQ(damaged.exit_code, kExitFailure);
  EXPECT_EQ(agent_.operations.last_verified.name_or_path(), "org/m");
  ASSERT_EQ(agent_.operations.last_verified.node_ids_size(), 1);
  EXPECT_EQ(agent_.operations.last_verified.node_ids(0).size(), 32u);
  EXPECT_NE(damaged.out.find("truncated"), std::string::npos) << damaged.out;
  EXPECT_EQ(json::parse(Run({"model", "verify", "org/m", "--json"}).out)["passed"], false);

  const v1::Reason unreachable = MakeReason("ENTRY_UNREACHABLE", "no answer");
  all.mutable_nodes(1)->clear_files();
  all.mutable_nodes(1)->clear_broken();
  *all.mutable_nodes(1)->mutable_failure() = unreachable;
  EXPECT_EQ(Run({"model", "verify", "org/m"}).exit_code, kExitPartial);
  all.set_passed(true);
  EXPECT_EQ(Run({"model", "verify", "org/m"}).exit_code, kExitOk);
  all.set_passed(false);
  for (v1::NodeModelFiles& node : *all.mutable_nodes()) {
    node.clear_files();
    *node.mutable_failure() = MakeReason("MODEL_NOT_FOUND", "no model 'org/m' on this node");
  }
  const CliRun none = Run({"model", "verify", "org/m"});
  EXPECT_EQ(none.exit_code, kExitNotFound);
  EXPECT_NE(none.err.find("no model 'org/m'"), std::string::npos) << none.err;
  EXPECT_EQ(Run({"model", "verify", "org/m", "--node", "nobody"}).exit_code, kExitNotFound);
  EXPECT_EQ(Run({"model", "verify"}).exit_code, kExitUsage);
}

TEST_F(AppTest, EvidenceOfSeveralLinesStaysLines) {
  v1::Reason reason = MakeReason("MEMORY_SHORT", "it does not fit");
  reason.set_evidence("tensor over 2: no\nnode b: 1 GiB short");
  agent_.service.failure = ReasonStatus(absl::StatusCode::kFailedPrecondition, reason);
  EXPECT_NE(Run({"model", "load", "m"})
                .err.find("  it said: tensor over 2: no\n"
                          "           node b: 1 GiB short\n"),
            std::string::npos);
}

TEST_F(AppTest, LogsOfThisAndOfAnotherNode) {
  const CliRun own = Run({"logs", "-n", "5"});
  EXPECT_EQ(own.exit_code, kExitOk) << own.err;
  EXPECT_EQ(own.out.rfind("heard mini-3", 0), 0u);
  EXPECT_EQ(own.out.find('\x1b'), std::string::npos) << "a log line steers the terminal";
  EXPECT_EQ(agent_.service.last_logs.lines(), 5u);
  EXPECT_EQ(agent_.service.last_logs.node_id(), "");
  const CliRun other = Run({"logs", "mini-3", "-f"});
  EXPECT_NE(other.out.find("followed\n"), std::string::npos);
  EXPECT_EQ(agent_.service.last_logs.node_id().size(), 32u);
  EXPECT_EQ(Run({"logs", "no-such-node"}).exit_code, kExitNotFound);
  const json all = json::parse(Run({"logs", "-o", "json"}).out);
  EXPECT_EQ(all["kind"], "Logs");
  ASSERT_EQ(all["lines"].size(), 1u);
  EXPECT_EQ(all["lines"][0].get<std::string>().find('\x1b'), std::string::npos);
  std::istringstream followed(Run({"logs", "-f", "-o", "json"}).out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(followed, line);) lines.push_back(json::parse(line)["line"]);
  ASSERT_EQ(lines.size(), 2u) << "a document a line";
  EXPECT_EQ(lines[1], "followed");
}

TEST_F(AppTest, WrongCommandLinesAreUsageErrorsWithASuggestion) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{},
                                                {"model"},
                                                {"devices"},
                                                {"plan"},
                                                {"status", "--nope"},
                                                {"model", "load"},
                                                {"model", "load", "a", "b"},
                                                {"model", "infer", "a", "--top-p", "2"},
                                                {"model", "infer", "a", "--seed", "x"},
                                                {"model", "load", "a", "--timeout", "0"},
                                                {"model", "load", "a", "--context", "0"},
                                                {"status", "-o", "xml"},
                                                {"model", "load", "a", "--parallelism", "both"}}) {
    const CliRun run = Run(words);
    EXPECT_EQ(run.exit_code, kExitUsage) << (words.empty() ? "" : words.back());
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find("error: "), std::string::npos);
    EXPECT_NE(run.err.find("--help"), std::string::npos);
  }
  EXPECT_NE(Run({"stauts"}).err.find("did you mean: clusterctl status"), std::string::npos);
  EXPECT_NE(Run({"--color", "never", "model", "lod", "x"}).err.find("clusterctl model load"),
            std::string::npos);
}

TEST_F(AppTest, UsageErrorsAreDocumentsWhereDocumentsAreAskedFor) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"stauts", "-o", "json"},
                                                {"--json", "model", "lod"},
                                                {"model", "load", "--output=json"},
                                                {"-oyaml", "status", "--no-such-flag"}}) {
    const CliRun run = Run(words);
    EXPECT_EQ(run.exit_code, kExitUsage);
    const json error = json::parse(run.err)["error"];
    EXPECT_EQ(error["code"], "BAD_REQUEST");
    EXPECT_NE(error["message"], "");
  }
  CliWorld world;
  world.variables["MACRAME_OUTPUT"] = "json";
  EXPECT_TRUE(json::accept(Run({"stauts"}, world).err));
}

TEST_F(AppTest, WordsOfOtherToolsLeadToWhatDoesThatHere) {
  const std::pair<const char*, const char*> words[] = {
      {"pull", "model import"}, {"rm", "model unload"}, {"serve", "model load"},
      {"join", "cluster join"}, {"ask", "model infer"}, {"health", "cluster health"}};
  for (const auto& [word, command] : words) {
    const CliRun run = Run({word});
    EXPECT_EQ(run.exit_code, kExitUsage);
    EXPECT_NE(run.err.find(command), std::string::npos) << word << ": " << run.err;
  }
}

TEST_F(AppTest, HelpHasExamplesDefaultsAndTheGlobalFlags) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--help"}, {"model", "load", "--help"}, {"doctor", "--help"}}) {
    const std::string out = Run(words).out;
    EXPECT_NE(out.find("Examples:\n  clusterctl "), std::string::npos) << out;
    EXPECT_NE(out.find("--socket PATH"), std::string::npos) << out;
    EXPECT_NE(out.find("(MACRAME_OUTPUT; default: table)"), std::string::npos) << out;
  }
  EXPECT_EQ(Run({"model", "load", "--help"}).out.find("  130 "), std::string::npos);
}

TEST_F(AppTest, HelpGroupsCommandsAndShowsTheKindOfEachValue) {
  const std::string root = Run({"--help"}).out;
  size_t at = 0;
  for (const char* line : {"\nUse models:\n  run ", "\nLook:\n  status ", "\nOperate:\n  cordon ",
                           "\nSet up:\n  cluster ", "\nFind faults:\n  doctor "}) {
    const size_t next = root.find(line);
    ASSERT_NE(next, std::string::npos) << line << root;
    EXPECT_GT(next, at) << line;
    at = next;
  }
  const std::string load = Run({"model", "load", "--help"}).out;
  for (const char* flag :
       {"--replicas NUMBER [1..16]", "--timeout DURATION", "--nodes NODES ", "--draft-model MODEL",
        "--optimize {latency,throughput,memory}", "--evict  ", "  model (required)"}) {
    EXPECT_NE(load.find(flag), std::string::npos) << flag << "\n" << load;
  }
  for (const char* word : {"TEXT:", "UINT", "FLOAT"}) {
    EXPECT_EQ(load.find(word), std::string::npos) << word;
  }
  EXPECT_NE(Run({"service", "--help"}).out.find("\nSubcommands:\n  install "), std::string::npos);
  EXPECT_NE(Run({"capacity", "--help"}).out.find("--price NUMBER  "), std::string::npos);
}

// The manual page has the text of every command and flag, each on a line of its own.
TEST_F(AppTest, TextsOfHelpAreShortAndBeginWithAVerbOrANoun) {
  const std::set<std::string> retired = {
      "What", "Of",   "Whether", "Where", "How",  "Who",     "Which", "By",  "As", "For",
      "At",   "Also", "Only",    "Its",   "Does", "Instead", "Not",   "The", "A"};
  const std::vector<std::string> lines = absl::StrSplit(Run({"help", "--man"}).out, '\n');
  int texts = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const bool is_flag = absl::StartsWith(lines[i - 1], "\\fB");
    if (!is_flag && !absl::StartsWith(lines[i - 1], ".SS ")) continue;
    const std::string text = absl::StrReplaceAll(lines[i], {{"\\-", "-"}, {"\\&", ""}});
    if (lines[i - 1].find("version") != std::string::npos) continue;  // CLI11's own
    ++texts;
    // The default of a path depends on the user's home.
    EXPECT_LE(text.substr(0, text.find("default: /")).size(), 80u) << text;
    const std::string first = text.substr(0, text.find(' '));
    EXPECT_TRUE(absl::ascii_isupper(static_cast<unsigned char>(text[0]))) << text;
    EXPECT_EQ(retired.count(first), 0u) << text;
  }
  EXPECT_GT(texts, 200);
}

TEST_F(AppTest, WhatCanNotBeWrittenIsAFailure) {
  std::ofstream full("/dev/full");
  if (!full) GTEST_SKIP() << "no /dev/full here";
  std::ostringstream err;
  Environment environment;
  std::istringstream in;
  environment.in = &in;
  environment.out = &full;
  environment.err = &err;
  environment.terminal_size = [] { return TerminalSize(); };
  environment.variable = [&](const char* name) {
    return std::string(name) == "MACRAME_SOCKET" ? agent_.socket_path() : std::string();
  };
  EXPECT_EQ(RunClusterctl({"status"}, environment), kExitFailure);
  EXPECT_NE(err.str().find("can't be written"), std::string::npos) << err.str();
  EXPECT_NE(err.str().find("No space left"), std::string::npos) << err.str();
}

TEST_F(AppTest, APromptThatIsNoTextIsRefusedHere) {
  CliWorld world;
  world.stdin_text = "caf\xe9";
  const CliRun run = Run({"model", "infer", "tiny"}, world);
  EXPECT_EQ(run.exit_code, kExitUsage);
  EXPECT_NE(run.err.find("not text in UTF-8: byte 4"), std::string::npos) << run.err;
}

TEST_F(AppTest, RawGoesOnWithThePromptAsItIs) {
  Run({"model", "infer", "tiny", "--raw", "--prompt", "Once"});
  EXPECT_EQ(agent_.service.last_infer.prompt(), "Once");
  EXPECT_EQ(agent_.service.last_infer.messages_size(), 0);
  EXPECT_TRUE(agent_.service.last_infer.plain_text());
}

TEST_F(AppTest, HelpListsTheExitCodes) {
  const CliRun run = Run({"--help"});
  EXPECT_EQ(run.exit_code, kExitOk);
  for (const char* code : {"\n  0 ", "\n  1 ", "\n  2 ", "\n  3 ", "\n  4 ", "\n  5 ", "\n  6 ",
                           "\n  7 ", "\n  8 ", "\n  130 "}) {
    EXPECT_NE(run.out.find(code), std::string::npos) << code;
  }
}

TEST_F(AppTest, ClusterInitWritesTheSecretOnceAndForOneUser) {
  const std::string path = FreshFolder() + "/new/secret";
  const CliRun run = Run({"cluster", "init", "--name", "lab", "--out", path});
  ASSERT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_NE(run.out.find("Next:"), std::string::npos);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  const CliRun again = Run({"cluster", "init", "--name", "lab", "--out", path});
  EXPECT_EQ(again.exit_code, kExitConflict) << again.err;
  EXPECT_NE(Run({"cluster", "init", "--name", "a b", "--out", path + "2"}).exit_code, kExitOk);
}

}  // namespace
}  // namespace macrame::cli
