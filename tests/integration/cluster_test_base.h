#pragma once

// A cluster of real agents on this machine's loopback interface, with a discovery port, a secret
// and a folder of its own. Nothing is left behind; when a test fails, the agents' logs are printed.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agentd/base/rpc_methods.h"
#include "macrame/v1/cluster.pb.h"
#include "proto/ids.h"
#include "tests/integration/agent_process.h"
#include "transport/asio_dispatcher.h"
#include "transport/peer_channel.h"
#include "transport/trust.h"

namespace macrame::tests {

class ClusterTest : public ::testing::Test {
 protected:
  using Condition = std::function<bool(const v1::ClusterStatus&)>;

  void SetUp() override;
  void TearDown() override;

  // Not started. `secret_path`: empty for the cluster's own.
  AgentProcess& AddAgent(const std::string& name, const std::string& secret_path = "",
                         std::vector<std::string> more = {});
  void StartThree();
  // The secret of another cluster, in a file.
  std::string WriteSecret(const std::string& cluster_name, const std::string& file_name);

  absl::StatusOr<v1::ClusterStatus> Status(AgentProcess& agent);
  // Until every one of `agents` says so; fails the test after `limit_s`. Returns seconds taken.
  double WaitFor(const std::string& what, std::vector<AgentProcess*> agents, double limit_s,
                 const Condition& condition);
  std::vector<AgentProcess*> Running();
  AgentProcess* FindByNodeId(const std::string& node_id);  // null: none that runs and answers
  AgentProcess& ByNodeId(const std::string& node_id);
  std::string NodeIdOf(AgentProcess& agent);
  // Of its HTTP API; 0: it does not say.
  uint16_t GatewayPort(AgentProcess& agent);
  AgentProcess& Coordinator();

  // Unary and streaming calls over an agent's unix socket, waiting for the end.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(AgentProcess& agent, const Method<Request, Response>& method,
                                const std::type_identity_t<Request>& request,
                                Duration timeout = std::chrono::seconds(10)) {
    absl::StatusOr<Response> result;
    ChannelTo(agent).Call(method, request, timeout, [&](absl::StatusOr<Response> response) {
      result = std::move(response);
      dispatcher_.Stop();
    });
    dispatcher_.Run();
    return result;
  }
  template <typename Request, typename Message>
  absl::Status Stream(AgentProcess& agent, const StreamMethod<Request, Message>& method,
                      const std::type_identity_t<Request>& request, Duration timeout,
                      std::vector<Message>* messages) {
    absl::Status result;
    ChannelTo(agent).Stream(
        method, request, timeout, [&](Message message) { messages->push_back(std::move(message)); },
        [&](absl::Status status) {
          result = std::move(status);
          dispatcher_.Stop();
        });
    dispatcher_.Run();
    return result;
  }

  std::string folder_;
  std::string secret_path_;
  int discovery_port_ = 0;
  std::vector<std::unique_ptr<AgentProcess>> agents_;

 private:
  transport::PeerChannel& ChannelTo(AgentProcess& agent);

  transport::AsioDispatcher dispatcher_;
  std::unique_ptr<transport::PeerChannel> channel_;
};

int AliveCount(const v1::ClusterStatus& status);
bool HasCoordinator(const v1::ClusterStatus& status);
v1::NodeState StateOf(const v1::ClusterStatus& status, const std::string& node_id);

}  // namespace macrame::tests
