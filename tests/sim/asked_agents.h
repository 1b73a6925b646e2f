#pragma once

// Real agents on simulated machines that answer what a test asks them: the way of clusterctl's
// calls, from the socket of any agent to the coordinator and back, in virtual time. The checkers of
// the simulation look on meanwhile.

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "agentd/base/rpc_methods.h"
#include "proto/reasons.h"
#include "tests/sim/cluster_sim.h"

namespace macrame::agentd::sim {

// What came back so far.
template <typename Message>
struct Asked {
  std::vector<Message> messages;
  std::optional<absl::Status> end;

  absl::StatusOr<Message> Answer() const {
    if (!end.has_value()) return absl::DeadlineExceededError("the agent has not answered");
    if (!end->ok()) return *end;
    if (messages.empty()) return absl::InternalError("the agent answered with nothing");
    return messages.back();
  }
};
template <typename Message>
using AskedPtr = std::shared_ptr<Asked<Message>>;

class AskedAgents : public ::testing::Test {
 protected:
  // One coordinator leads when this returns.
  void Begin(int nodes, const std::function<void(SimOptions&)>& change = nullptr) {
    SimOptions options;
    options.seed = 4711 + static_cast<uint64_t>(nodes);
    options.nodes = nodes;
    options.trace = std::getenv("MACRAME_SIM_TRACE") != nullptr;
    if (change) change(options);
    nodes_ = options.nodes;
    spdlog::set_level(options.trace ? spdlog::level::info : spdlog::level::off);
    sim_ = std::make_unique<ClusterSim>(options);
    sim_->StartAll();
    sim_->RunFor(6000);
    ASSERT_TRUE(sim_->CoordinatorIndex().has_value());
  }
  void TearDown() override {
    if (sim_ != nullptr) {
      EXPECT_EQ(sim_->violation(), "");
    }
  }

  ClusterSim& sim() { return *sim_; }
  AgentParts& parts(int at) const { return sim_->machine(at).parts(); }
  const NodeId& id(int of) const { return sim_->machine(of).id; }
  const DesiredState& desired(int at) const { return parts(at).replicator.desired(); }
  // -1: not one alone leads.
  int Leader() const { return sim_->CoordinatorIndex().value_or(-1); }
  // A running node that does not lead.
  int Follower() const {
    for (int index = 0; index < nodes_; ++index) {
      if (index != Leader() && sim_->machine(index).up()) return index;
    }
    return -1;
  }
  // A rule is to hold wherever somebody asks.
  std::vector<int> LeaderAndFollower() const { return {Leader(), Follower()}; }
  // Until it is so, or `limit_ms` are over; whether it is.
  bool RunUntil(const std::function<bool()>& is_so, int limit_ms) {
    for (int waited = 0; waited < limit_ms && !is_so(); waited += 20) sim_->RunFor(20);
    return is_so();
  }
  // m0 or m1 is loaded, and ready.
  void LoadAndWait(const std::string& model) {
    sim_->Load(Leader(), model);
    ASSERT_TRUE(RunUntil([&] { return sim_->IsReady(model); }, 10'000)) << model;
  }

  // Asks the agent at this machine; what comes back stands in the result as time goes on.
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  AskedPtr<Message> Start(int at, const Rpc<Request, Message>& rpc,
                          const std::type_identity_t<Request>& request) {
    return StartAs({NodeId(), /*local=*/true, ""}, at, rpc, request);
  }
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  AskedPtr<Message> StartAs(const transport::Caller& caller, int at,
                            const Rpc<Request, Message>& rpc,
                            const std::type_identity_t<Request>& request) {
    auto asked = std::make_shared<Asked<Message>>();
    transport::RpcServer& server = caller.local ? *parts(at).local_server : *parts(at).peer_server;
    static_cast<SimServer&>(server).CallAs(
        caller, rpc, request,
        [asked](const std::string& bytes) {
          ASSERT_TRUE(asked->messages.emplace_back().ParseFromString(bytes));
        },
        [asked](const absl::Status& status) {
          ASSERT_FALSE(asked->end.has_value()) << "answered twice";
          asked->end = status;
        });
    return asked;
  }
  template <typename Message>
  absl::StatusOr<Message> Wait(const AskedPtr<Message>& asked, int limit_ms = 60'000) {
    RunUntil([&] { return asked->end.has_value(); }, limit_ms);
    return asked->Answer();
  }
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  absl::StatusOr<Message> Ask(int at, const Rpc<Request, Message>& rpc,
                              const std::type_identity_t<Request>& request) {
    return Wait(Start(at, rpc, request));
  }
  // As another member passes it on, or asks by itself.
  template <template <typename, typename> typename Rpc, typename Request, typename Message>
  absl::StatusOr<Message> AskAs(int member, int at, const Rpc<Request, Message>& rpc,
                                const std::type_identity_t<Request>& request) {
    return Wait(StartAs({id(member), /*local=*/false, IpOf(member)}, at, rpc, request));
  }

 private:
  int nodes_ = 0;
  std::unique_ptr<ClusterSim> sim_;
};

// The code that a person is told, and what kind of error it is; "" and OK when there is none.
template <typename Message>
std::string CodeOf(const absl::StatusOr<Message>& answer) {
  return answer.ok() ? "" : ReasonOf(answer.status()).code();
}

}  // namespace macrame::agentd::sim
