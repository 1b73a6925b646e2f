// What single commands make of answers that a scripted agent of samples never gives.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/exit_codes.h"
#include "macrame/v1/access.pb.h"
#include "macrame/v1/operation.pb.h"
#include "tests/unit/cli/any_agent.h"
#include "tests/unit/cli/cli_run.h"
#include "tests/unit/cli/sample_messages.h"

namespace macrame::cli {
namespace {

using nlohmann::json;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <typename Message>
AnyAgent::Answers Answering(const std::string& method, const Message& message) {
  return [=](const std::string& called) {
    const bool is_it = called.substr(called.rfind('/') + 1) == method;
    return is_it ? AnyAnswer{{message.SerializeAsString()}, grpc::Status::OK}
                 : AnyAnswer{{}, {grpc::StatusCode::UNIMPLEMENTED, ""}};
  };
}

CliRun Ask(const AnyAgent& agent, const std::vector<std::string>& words, CliWorld world = {}) {
  world.variables["MACRAME_SOCKET"] = agent.socket_path();
  return Clusterctl(words, world);
}

v1::ClusterStatus TwoReplicas() {
  v1::ClusterStatus status = HealthyCluster();
  v1::DeploymentStatus second = status.deployments(0);
  second.mutable_deployment()->set_name("tiny#2");
  second.set_state(v1::DEPLOYMENT_STATE_PENDING);
  *status.add_deployments() = second;
  v1::DeploymentStatus other = second;
  other.mutable_deployment()->set_name("other");
  *status.add_deployments() = other;
  return status;
}

TEST(ModelStatus, OfAModelIsOfAllItsReplicas) {
  const AnyAgent agent(Answering("GetStatus", TwoReplicas()));
  const CliRun run = Ask(agent, {"model", "status", "tiny"});
  EXPECT_EQ(run.exit_code, kExitOk) << run.err;
  EXPECT_TRUE(Has(run.out, "tiny ") && Has(run.out, "tiny#2 ")) << run.out;
  EXPECT_FALSE(Has(run.out, "other")) << run.out;
  EXPECT_EQ(json::parse(Ask(agent, {"model", "status", "tiny", "--json"}).out)["items"].size(), 2u);
  EXPECT_EQ(json::parse(Ask(agent, {"model", "status", "tiny#2", "--json"}).out)["items"].size(),
            1u);
  EXPECT_EQ(json::parse(Ask(agent, {"model", "stats", "tiny", "--json"}).out)["items"].size(), 2u);
  EXPECT_EQ(Ask(agent, {"model", "status", "tin"}).exit_code, kExitNotFound);
  EXPECT_EQ(Ask(agent, {"model", "stats", "tin"}).exit_code, kExitNotFound);
}

TEST(KeyList, OfAPipeIsNotCutToAWindow) {
  v1::ListKeysResponse keys;
  v1::ApiKey& key = *keys.add_keys();
  key.set_id("0123456789ab");
  key.set_name("the key of the build machine");
  key.add_scopes("infer");
  key.set_tenant("acme-research");
  const AnyAgent agent(Answering("ListKeys", keys));
  CliWorld narrow;
  narrow.size = {40, 24};
  EXPECT_TRUE(Has(Ask(agent, {"key", "list"}, narrow).out, "the key of the build machine"));
  narrow.out_is_terminal = true;
  EXPECT_FALSE(Has(Ask(agent, {"key", "list"}, narrow).out, "the key of the build machine"));
}

TEST(Logs, ALastLineWithoutALineBreakIsInTheDocument) {
  v1::LogsChunk chunk;
  chunk.set_text("one\ntwo\nthree");
  const AnyAgent agent(Answering("Logs", chunk));
  EXPECT_EQ(json::parse(Ask(agent, {"logs", "--json"}).out)["lines"],
            json::parse(R"(["one", "two", "three"])"));
  EXPECT_EQ(Ask(agent, {"logs"}).out, "one\ntwo\nthree");
}

TEST(Stats, NumbersOfAnySizeAreNumbers) {
  v1::LinksView view;
  for (const char* id : {"aaaaaaaa", "bbbbbbbb"}) view.add_identities()->set_node_id(id);
  v1::NodePath& path = *view.mutable_links()->add_paths();
  path.set_from_node_id("aaaaaaaa");
  path.set_to_node_id("bbbbbbbb");
  path.set_round_trip_us(1e15);
  const AnyAgent agent([&](const std::string& method) {
    const bool is_links = Has(method, "GetLinks");
    return AnyAnswer{{is_links ? view.SerializeAsString() : HealthyCluster().SerializeAsString()},
                     grpc::Status::OK};
  });
  const CliRun run = Ask(agent, {"stats"});
  EXPECT_TRUE(Has(run.out, "aaaaaaaa - bbbbbbbb: round trip 1000000000000000 us\n")) << run.out;
}

TEST(ClusterHealth, NamesTheModelThatKeepsItFromBeingHealthy) {
  v1::ClusterStatus status = HealthyCluster();
  status.set_healthy(false);
  v1::DeploymentStatus& model = *status.mutable_deployments(0);
  model.set_state(v1::DEPLOYMENT_STATE_PENDING);
  model.mutable_failure()->set_code("MEMORY_SHORT");
  model.mutable_failure()->set_message("it needs 812 GiB");
  v1::Reason& problem = *status.add_problems();
  problem = model.failure();
  problem.set_message("deployment 'tiny': it needs 812 GiB");
  const AnyAgent agent(Answering("GetStatus", status));
  const CliRun run = Ask(agent, {"cluster", "health"});
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_TRUE(Has(run.out, "1 problem below")) << run.out;
  EXPECT_TRUE(Has(run.out, "deployment 'tiny': it needs 812 GiB")) << run.out;
}

TEST(NodesForget, AnEmptyNameForgetsNobody) {
  v1::ClusterStatus status = HealthyCluster();
  status.mutable_nodes(2)->mutable_identity()->clear_hostname();
  const AnyAgent agent(Answering("GetStatus", status));
  const CliRun run = Ask(agent, {"nodes", "forget", ""});
  EXPECT_EQ(run.exit_code, kExitUsage) << run.err;
  EXPECT_EQ(agent.Called().count("ForgetNode"), 0u);
}

TEST(Events, SomeAgentThatWasNotAskedIsPartial) {
  v1::ListEventsResponse events;
  events.add_missing()->set_message("mini-3 does not answer");
  const AnyAgent agent(Answering("ListEvents", events));
  const CliRun run = Ask(agent, {"events"});
  EXPECT_EQ(run.exit_code, kExitPartial);
  EXPECT_TRUE(Has(run.out, "not asked: mini-3 does not answer")) << run.out;
}

TEST(VerifyTransport, WrongSumsAndAnotherBackendAreFailures) {
  v1::VerifyTransportResponse response;
  response.set_deployment("tiny");
  response.set_expected_backend("ring");
  response.set_expected_size(2);
  response.mutable_group()->set_backend("ring");
  response.mutable_group()->set_group_size(2);
  response.mutable_group()->set_sum_correct(true);
  v1::CollectiveTiming& timing = *response.mutable_group()->add_timings();
  timing.set_size_bytes(1024);
  timing.set_rounds(3);
  const std::vector<std::string> words = {"verify", "transport", "tiny"};
  {
    const AnyAgent agent(Answering("VerifyTransport", response));
    const CliRun run = Ask(agent, words);
    EXPECT_EQ(run.exit_code, kExitOk);
    EXPECT_TRUE(Has(run.out, "0.00 GB/s, 3 rounds\n") &&
                Has(run.out, "not summed: 3 larger sizes; the smaller ones took"))
        << run.out;
  }
  {
    v1::VerifyTransportResponse alone = response;  // and of an agent that tells no rounds
    alone.set_expected_size(1);
    alone.mutable_group()->set_group_size(1);
    alone.mutable_group()->mutable_timings(0)->clear_rounds();
    const AnyAgent agent(Answering("VerifyTransport", alone));
    const CliRun run = Ask(agent, words);
    EXPECT_TRUE(Has(run.out, "GB/s\n") && !Has(run.out, "not summed")) << run.out;
  }
  v1::VerifyTransportResponse wrong = response;
  wrong.mutable_group()->set_sum_correct(false);
  {
    const AnyAgent agent(Answering("VerifyTransport", wrong));
    const CliRun run = Ask(agent, words);
    EXPECT_EQ(run.exit_code, kExitFailure);
    EXPECT_TRUE(Has(run.out, "sums are wrong")) << run.out;
  }
  wrong = response;
  wrong.mutable_group()->set_group_size(1);
  const AnyAgent agent(Answering("VerifyTransport", wrong));
  const CliRun run = Ask(agent, words);
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_TRUE(Has(run.out, "1 rank over ring; planned: 2 over ring") &&
              Has(run.out, "not as planned"))
      << run.out;
}

}  // namespace
}  // namespace macrame::cli
