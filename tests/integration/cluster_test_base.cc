#include "tests/integration/cluster_test_base.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "tests/unit/free_port.h"
#include "tests/unit/fresh_folder.h"
#include "transport/grpc_channel.h"
#include "transport/tls_credentials.h"
#include "transport/unix_socket.h"

namespace macrame::tests {

int AliveCount(const v1::ClusterStatus& status) {
  int count = 0;
  for (const v1::NodeStatus& node : status.nodes()) count += node.state() == v1::NODE_STATE_ALIVE;
  return count;
}

bool HasCoordinator(const v1::ClusterStatus& status) { return status.coordinator().term() > 0; }

v1::NodeState StateOf(const v1::ClusterStatus& status, const std::string& node_id) {
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.identity().node_id() == node_id) return node.state();
  }
  return v1::NODE_STATE_UNSPECIFIED;
}

void ClusterTest::SetUp() {
  folder_ = FreshFolder();
  discovery_port_ = FreePort(SOCK_DGRAM);
  secret_path_ = WriteSecret("trial", "cluster.secret");
}

void ClusterTest::TearDown() {
  for (const auto& agent : agents_) {
    if (agent->IsRunning()) ::kill(agent->pid(), SIGTERM);
  }
  for (const auto& agent : agents_) {
    if (agent->pid() != 0 && !agent->WaitForExit(10'000).has_value()) {
      ADD_FAILURE() << agent->folder() << " did not stop within 10 s";
      agent->Kill(SIGKILL);
    }
  }
  if (HasFailure()) {
    for (const auto& agent : agents_) {
      std::cout << "--- " << agent->folder() << "\n" << agent->Log();
    }
  }
  channel_.reset();
  agents_.clear();
  std::filesystem::remove_all(folder_);
}

std::string ClusterTest::WriteSecret(const std::string& cluster_name,
                                     const std::string& file_name) {
  const std::string path = folder_ + "/" + file_name;
  const auto secret = transport::CreateClusterSecret(cluster_name);
  MACRAME_CHECK(secret.ok());
  MACRAME_CHECK(transport::WriteClusterSecret(*secret, path).ok());
  return path;
}

AgentProcess& ClusterTest::AddAgent(const std::string& name, const std::string& secret_path,
                                    std::vector<std::string> more) {
  std::vector<std::string> settings = {
      absl::StrCat("node_name: ", name),
      absl::StrCat("cluster_secret_file: ", secret_path.empty() ? secret_path_ : secret_path),
      absl::StrCat("discovery_port: ", discovery_port_),
      "discovery_loopback: true",
      "control_bind: 127.0.0.1",
      "ring_bind: 127.0.0.1",
      "gateway_port: 0",
  };
  const bool has_own_models = std::any_of(more.begin(), more.end(), [](const std::string& setting) {
    return absl::StartsWith(setting, "model_folders:");
  });
  if (!has_own_models) settings.push_back("model_folders: [" MACRAME_SOURCE "/deploy/models]");
  settings.insert(settings.end(), more.begin(), more.end());
  agents_.push_back(std::make_unique<AgentProcess>(folder_ + "/" + name, std::move(settings)));
  return *agents_.back();
}

void ClusterTest::StartThree() {
  for (const char* name : {"ada", "bess", "cleo"}) AddAgent(name).Start();
  const double seconds = WaitFor("three agents discovered", Running(), 20, [](const auto& status) {
    return AliveCount(status) == 3 && HasCoordinator(status);
  });
  std::cout << "three agents discovered and a coordinator agreed: " << seconds << " s\n";
}

transport::PeerChannel& ClusterTest::ChannelTo(AgentProcess& agent) {
  channel_ = std::make_unique<transport::GrpcChannel>(
      dispatcher_, transport::PlainChannelCredentials(), "", NodeId());
  channel_->SetAddresses({transport::SocketTarget(agent.socket_path())});
  return *channel_;
}

absl::StatusOr<v1::ClusterStatus> ClusterTest::Status(AgentProcess& agent) {
  const auto ask = [&] {
    return Call(agent, agentd::kGetStatus, v1::GetStatusRequest(), std::chrono::seconds(3));
  };
  absl::StatusOr<v1::ClusterStatus> status = ask();
  for (int late = 0; late < 2 && absl::IsDeadlineExceeded(status.status()); ++late) status = ask();
  return status;
}

double ClusterTest::WaitFor(const std::string& what, std::vector<AgentProcess*> agents,
                            double limit_s, const Condition& condition) {
  const auto begun = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  absl::StatusOr<v1::ClusterStatus> last;
  for (AgentProcess* agent : agents) {
    while (true) {
      last = Status(*agent);
      if (last.ok() && condition(*last)) break;
      if (seconds() > limit_s || !agent->IsRunning()) {
        ADD_FAILURE() << what << ": not within " << limit_s << " s as " << agent->folder()
                      << " sees it; last status: "
                      << (last.ok() ? last->ShortDebugString() : last.status().ToString());
        return seconds();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return seconds();
}

std::vector<AgentProcess*> ClusterTest::Running() {
  std::vector<AgentProcess*> running;
  for (const auto& agent : agents_) {
    if (agent->IsRunning()) running.push_back(agent.get());
  }
  return running;
}

uint16_t ClusterTest::GatewayPort(AgentProcess& agent) {
  const auto status = Status(agent);
  if (!status.ok()) return 0;
  for (const v1::NodeStatus& node : status->nodes()) {
    if (node.is_self()) return static_cast<uint16_t>(node.identity().gateway_port());
  }
  return 0;
}

std::string ClusterTest::NodeIdOf(AgentProcess& agent) {
  const auto status = Status(agent);
  return status.ok() ? status->answered_by() : "";
}

AgentProcess* ClusterTest::FindByNodeId(const std::string& node_id) {
  for (AgentProcess* agent : Running()) {
    if (NodeIdOf(*agent) == node_id) return agent;
  }
  return nullptr;
}

AgentProcess& ClusterTest::ByNodeId(const std::string& node_id) {
  AgentProcess* agent = FindByNodeId(node_id);
  MACRAME_CHECK(agent != nullptr) << "no running agent has id " << node_id;
  return *agent;
}

// On a machine without time to spare an agent may be late once, or an election under way.
AgentProcess& ClusterTest::Coordinator() {
  absl::StatusOr<v1::ClusterStatus> status;
  for (int tries = 0; tries < 1000; ++tries) {
    status = Status(*Running().front());
    if (status.ok() && HasCoordinator(*status)) {
      AgentProcess* agent = FindByNodeId(status->coordinator().coordinator_id());
      if (agent != nullptr) return *agent;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  MACRAME_CHECK(false) << "no coordinator: "
                       << (status.ok() ? status->ShortDebugString() : status.status().ToString());
  std::abort();
}

}  // namespace macrame::tests
