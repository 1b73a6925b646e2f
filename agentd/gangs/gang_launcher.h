#pragma once

// Launches one gang: reserves on every node of the plan, then starts every rank. All or none: after
// the first failure nothing further is started, and whoever asked ends what runs. Owner thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agentd/cores/election.h"
#include "agentd/links/link_table.h"
#include "agentd/node/node_calls.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

struct GangOrder {
  v1::Fence fence;
  std::string deployment;
  uint64_t epoch = 0;
  v1::Plan plan;
  bool fast_synch_suspended = false;
  v1::ModelDescription model;
};

class GangLauncher {
 public:
  using Done = std::function<void(const absl::Status&)>;
  struct Options {
    uint32_t connect_timeout_ms = 30'000;
    uint32_t step_timeout_ms = 60'000;
    uint32_t queued_requests_max = 64;
    uint32_t hold_ms = 30'000;
  };

  GangLauncher(NodeCalls& calls, LinkTable& links, Options options)
      : calls_(calls), links_(links), options_(options) {}

  // `done` once, after every node has answered; the first failure's Reason names its node.
  void Launch(GangOrder order, Done done);

 private:
  struct Launching;
  void OnReserved(const std::shared_ptr<Launching>& launching, int rank,
                  absl::StatusOr<v1::ReserveResponse> response);
  void StartRanks(const std::shared_ptr<Launching>& launching);
  std::string AddressFor(const Launching& launching, int from, int to,
                         const std::string& reserved) const;
  // Whether nobody else can listen on the way between two ranks.
  bool IsPrivate(const Launching& launching, int one, int other) const;
  void AddPrivateLinks(const Launching& launching, int rank, v1::LaunchSpec* spec) const;
  void AddDevices(const Launching& launching, int rank, v1::LaunchSpec* spec) const;
  // NO_RING of a rank that no way leads to.
  absl::Status CheckAddresses(const Launching& launching) const;
  v1::LaunchSpec SpecOf(const Launching& launching, int rank) const;

  NodeCalls& calls_;
  LinkTable& links_;
  const Options options_;
};

}  // namespace macrame::agentd
