// Every command that asks the agent, against agents that are gone, fail in each way, are older, say
// less than they should, or send what no agent sends.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "cli/agent_client.h"
#include "cli/exit_codes.h"
#include "proto/reasons.h"
#include "tests/unit/cli/any_agent.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/sample_messages.h"
#include "transport/status_codec.h"

namespace macrame::cli {
namespace {

using Words = std::vector<std::string>;

// What can be asked of an agent without changing this machine, and ends by itself.
const std::vector<Words>& Commands() {
  static const std::vector<Words> commands = {
      {"status"},
      {"cluster", "status"},
      {"cluster", "health"},
      {"devices", "list"},
      {"nodes"},
      {"ps"},
      {"ls"},
      {"model", "list"},
      {"model", "status"},
      {"model", "status", "--detail"},
      {"model", "stats"},
      {"model", "load", "tiny", "--timeout", "1s"},
      {"model", "unload", "tiny"},
      {"model", "infer", "tiny", "--prompt", "x"},
      {"model", "profile"},
      {"model", "profile", "tiny", "--pin"},
      {"model", "verify", "tiny"},
      {"run", "tiny", "x", "--timeout", "1s"},
      {"plan", "tiny"},
      {"links"},
      {"links", "--detail"},
      {"links", "bench"},
      {"links", "recheck"},
      {"stats"},
      {"stats", "--network"},
      {"doctor"},
      {"events"},
      {"speeds"},
      {"speeds", "reset"},
      {"metrics"},
      {"verify", "transport", "tiny"},
      {"trace", "tiny", "--seconds", "0.01", "--out", "-"},
      {"net", "plan"},
      {"export", "hostfile"},
      {"export", "hostfile", "--env"},
      {"cordon", "mini-1"},
      {"uncordon", "mini-1"},
      {"cluster", "start"},
      {"cluster", "token"},
      {"cluster", "join", "macrame1.x", "--wait", "1ms"},
      {"nodes", "forget", "mini-1"},
      {"nodes", "approve", "mini-1"},
      {"nodes", "revoke", "mini-1"},
      {"nodes", "label", "mini-1", "a=b"},
      {"nodes", "dedicate", "mini-1", "--none"},
      {"key", "list"},
      {"key", "revoke", "k"},
      {"tenant", "list"},
      {"tenant", "set", "acme", "--limit", "1"},
      {"tenant", "clear", "acme"},
      {"audit", "show"},
      {"audit", "verify"},
  };
  return commands;
}

CliRun Ask(const std::string& socket_path, Words words, const Words& further = {}) {
  words.insert(words.end(), further.begin(), further.end());
  CliWorld world;
  world.variables["MACRAME_SOCKET"] = socket_path;
  return Clusterctl(words, world);
}

std::string Line(const Words& words) { return absl::StrJoin(words, " "); }

AnyAnswer Failing(grpc::Status status) {
  AnyAnswer answer;
  answer.status = std::move(status);
  return answer;
}

TEST(EveryCommand, SaysThatNobodyIsAtTheSocketAndWhatToDo) {
  for (const Words& words : Commands()) {
    const CliRun run = Ask("/nowhere/agentd.sock", words);
    EXPECT_EQ(run.exit_code, kExitUnreachable) << Line(words) << "\n" << run.err;
    EXPECT_NE(run.err.find("agentd does not answer at /nowhere/agentd.sock"), std::string::npos)
        << Line(words) << "\n"
        << run.err;
    EXPECT_NE(run.err.find("next:"), std::string::npos) << Line(words);
    EXPECT_EQ(run.out, "") << Line(words);
  }
}

TEST(EveryCommand, SaysThatAnOlderAgentDoesNotKnowIt) {
  AnyAgent agent([](const std::string&) { return Failing({grpc::StatusCode::UNIMPLEMENTED, ""}); });
  for (const Words& words : Commands()) {
    const CliRun run = Ask(agent.socket_path(), words);
    EXPECT_EQ(run.exit_code, kExitFailure) << Line(words) << "\n" << run.err;
    EXPECT_NE(run.err.find("is older than this clusterctl"), std::string::npos)
        << Line(words) << "\n"
        << run.err;
    EXPECT_NE(run.err.find("reason: VERSION_SKEW"), std::string::npos) << Line(words);
    EXPECT_NE(run.err.find("next:   'clusterctl version'"), std::string::npos) << Line(words);
  }
}

struct Failure {
  grpc::StatusCode code;
  int exit_code;
};

// As exit_codes.h and README.md have them.
constexpr Failure kFailures[] = {{grpc::StatusCode::CANCELLED, kExitFailure},
                                 {grpc::StatusCode::UNKNOWN, kExitFailure},
                                 {grpc::StatusCode::INVALID_ARGUMENT, kExitFailure},
                                 {grpc::StatusCode::DEADLINE_EXCEEDED, kExitTimedOut},
                                 {grpc::StatusCode::NOT_FOUND, kExitNotFound},
                                 {grpc::StatusCode::ALREADY_EXISTS, kExitConflict},
                                 {grpc::StatusCode::PERMISSION_DENIED, kExitUnauthorised},
                                 {grpc::StatusCode::RESOURCE_EXHAUSTED, kExitFailure},
                                 {grpc::StatusCode::FAILED_PRECONDITION, kExitConflict},
                                 {grpc::StatusCode::ABORTED, kExitConflict},
                                 {grpc::StatusCode::OUT_OF_RANGE, kExitFailure},
                                 {grpc::StatusCode::INTERNAL, kExitFailure},
                                 {grpc::StatusCode::UNAVAILABLE, kExitUnreachable},
                                 {grpc::StatusCode::DATA_LOSS, kExitFailure},
                                 {grpc::StatusCode::UNAUTHENTICATED, kExitUnauthorised}};

TEST(EveryCommand, GivesEachStatusItsExitCodeAndNeverNoWords) {
  for (const Failure& failure : kFailures) {
    for (const bool has_words : {true, false}) {
      AnyAgent agent([&](const std::string&) {
        return Failing({failure.code, has_words ? "what went wrong" : ""});
      });
      for (const Words& words : Commands()) {
        const CliRun run = Ask(agent.socket_path(), words);
        EXPECT_EQ(run.exit_code, failure.exit_code)
            << Line(words) << ", status " << failure.code << "\n"
            << run.err;
        EXPECT_EQ(run.err.find("error: \n"), std::string::npos) << Line(words) << "\n" << run.err;
        EXPECT_NE(run.err.find("error: "), std::string::npos) << Line(words);
      }
      if (HasFailure()) return;
    }
  }
}

TEST(EveryCommand, KeepsTheReasonThatTheAgentGave) {
  const absl::Status given =
      ReasonStatus(absl::StatusCode::kFailedPrecondition,
                   MakeReason(reasons::kNodeDead, "mini-3 has not been heard for 42 s", "mini-3"));
  AnyAgent agent([&](const std::string&) { return Failing(transport::ToGrpcStatus(given)); });
  for (const Words& words : Commands()) {
    const CliRun run = Ask(agent.socket_path(), words);
    EXPECT_EQ(run.exit_code, kExitConflict) << Line(words) << "\n" << run.err;
    EXPECT_NE(run.err.find("error: mini-3 has not been heard for 42 s\n"), std::string::npos)
        << Line(words) << "\n"
        << run.err;
    EXPECT_NE(run.err.find("node:   mini-3\n"), std::string::npos) << Line(words);
    const CliRun as_json = Ask(agent.socket_path(), words, {"--json"});
    EXPECT_EQ(as_json.exit_code, kExitConflict) << Line(words);
    const auto document = nlohmann::json::parse(
        as_json.err.substr(std::min(as_json.err.find('{'), as_json.err.size())), nullptr, false);
    ASSERT_TRUE(document.is_object()) << Line(words) << "\n" << as_json.err;
    EXPECT_EQ(document["error"]["code"], std::string(reasons::kNodeDead)) << Line(words);
  }
}

// Of wild answers a command makes what it makes: it ends, steers nothing and prints documents that
// can be read.
void ExpectHarmless(const Words& words, const CliRun& run) {
  EXPECT_GE(run.exit_code, 0) << Line(words);
  // These print what they were asked for, byte by byte: it is for files and programs.
  const bool is_raw = words[0] == "metrics" || Line(words) == "export hostfile" ||
                      words[0] == "run" || Line(words).rfind("model infer", 0) == 0 ||
                      words[0] == "trace" || Line(words) == "cluster token";
  if (!is_raw) {
    EXPECT_EQ(WhatSteers(run.out), "") << Line(words) << "\n" << run.out;
  }
  EXPECT_EQ(WhatSteers(run.err), "") << Line(words) << "\n" << run.err;
}

TEST(EveryCommand, TakesWhatAnAgentThatKnowsLessSends) {
  AnyAgent agent([](const std::string& method) {
    return AnyAnswer{{OddAnswerOf(method, Oddity::kEmpty, 0)}, grpc::Status::OK};
  });
  AnyAgent silent([](const std::string&) { return AnyAnswer{{""}, grpc::Status::OK}; });
  for (const Words& words : Commands()) {
    for (const AnyAgent* one : {&agent, &silent}) {
      ExpectHarmless(words, Ask(one->socket_path(), words));
      const CliRun as_json = Ask(one->socket_path(), words, {"--json"});
      ExpectHarmless(words, as_json);
      if (as_json.out.empty() || words[0] == "metrics") continue;
      EXPECT_TRUE(nlohmann::json::accept(as_json.out)) << Line(words) << "\n" << as_json.out;
    }
  }
}

TEST(EveryCommand, IsNotSteeredByWhatAnAgentSends) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    AnyAgent agent([&](const std::string& method) {
      // So that orders which need a node are given.
      const bool is_status = method.find("GetStatus") != std::string::npos && seed % 2 == 0;
      return AnyAnswer{{is_status ? HealthyCluster().SerializeAsString()
                                  : OddAnswerOf(method, Oddity::kWild, seed)},
                       grpc::Status::OK};
    });
    for (const Words& words : Commands()) {
      ExpectHarmless(words, Ask(agent.socket_path(), words));
      const CliRun as_json = Ask(agent.socket_path(), words, {"--json"});
      if (as_json.out.empty() || words[0] == "metrics") continue;
      EXPECT_TRUE(nlohmann::json::accept(as_json.out)) << Line(words) << "\n" << as_json.out;
    }
    if (HasFailure()) return;
  }
}

TEST(EveryCommand, OneThatEndsInTheMiddleOfAStreamIsNoSuccess) {
  AnyAgent agent([](const std::string& method) {
    return AnyAnswer{{OddAnswerOf(method, Oddity::kEmpty, 0)},
                     {grpc::StatusCode::UNAVAILABLE, "connection reset"}};
  });
  for (const Words& words : {Words{"model", "load", "tiny", "--timeout", "1s"},
                             {"model", "infer", "tiny", "--prompt", "x"},
                             {"model", "verify", "tiny"},
                             {"links", "bench"},
                             {"logs", "mini-1"}}) {
    const CliRun run = Ask(agent.socket_path(), words);
    EXPECT_NE(run.exit_code, kExitOk) << Line(words) << "\n" << run.out << run.err;
  }
}

TEST(AgentClient, AnAgentThatTakesTheCallAndIsSilentIsGivenUp) {
  AnyAgent agent([](const std::string&) {
    AnyAnswer answer;
    answer.never = true;
    return answer;
  });
  AgentClient client({agent.socket_path(), "", ""}, std::chrono::milliseconds(50));
  const auto status = client.GetStatus();
  EXPECT_TRUE(absl::IsUnavailable(status.status())) << status.status();
  const v1::Reason reason = ReasonOf(status.status());
  EXPECT_EQ(reason.code(), reasons::kAgentUnreachable);
  EXPECT_EQ(reason.message(),
            "agentd at " + agent.socket_path() + " took the call and gave no answer within 0.05 s");
  EXPECT_NE(reason.remedy(), "");
  EXPECT_EQ(ExitCodeOf(status.status()), kExitUnreachable);
}

TEST(AgentClient, ALimitThatTheAgentItselfFoundTooShortIsItsOwnWord) {
  AnyAgent agent([](const std::string&) {
    return Failing({grpc::StatusCode::DEADLINE_EXCEEDED, "mini-3 did not answer"});
  });
  AgentClient client({agent.socket_path(), "", ""});
  const auto status = client.GetStatus();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status.status()));
  EXPECT_EQ(status.status().message(), "mini-3 did not answer");
}

TEST(AgentClient, ACancelledClientAsksNothingAnyMore) {
  AnyAgent agent([](const std::string&) { return AnyAnswer{{""}, grpc::Status::OK}; });
  AgentClient client({agent.socket_path(), "", ""});
  EXPECT_TRUE(client.GetStatus().ok());
  client.Cancel();
  EXPECT_TRUE(absl::IsCancelled(client.GetStatus().status()));
  EXPECT_TRUE(absl::IsCancelled(client.UnloadModel("tiny")));
  EXPECT_EQ(agent.Called().count("UnloadModel"), 0u);
}

TEST(AgentClient, AnAnswerThatIsNoMessageIsAnError) {
  AnyAgent agent([](const std::string&) { return AnyAnswer{{"\xFF\xFF\xFF"}, grpc::Status::OK}; });
  AgentClient client({agent.socket_path(), "", ""});
  EXPECT_FALSE(client.GetStatus().ok());
  EXPECT_FALSE(client.Version().ok());
}

}  // namespace
}  // namespace macrame::cli
