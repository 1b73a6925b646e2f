#pragma once

// The ranks of a simulated machine, and the supervisor through which its agent has them. They are
// started, connect, load and end in time; what they wait for at the others is up to ClusterSim.

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "agentd/cores/election.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "tests/sim/scheduler.h"

namespace macrame::agentd::sim {

struct SimRank {
  v1::RankStatus status;
  v1::LaunchSpec spec;  // as it was told
  FencePair started_by;
  std::vector<int> peers;  // machines of the gang
  Us next_phase_at = 0;
  Us ready_at = 0;
  Us busy_until = 0;       // with requests
  uint64_t wanted_at = 0;  // created_unix_ms of the deployment that it was launched for
  Us peers_lost_at = 0;    // 0: all reachable
};

inline bool IsOver(const SimRank& rank) { return rank.status.phase() > v1::RANK_PHASE_READY; }

// What outlives the calls of a supervisor; gone with the process.
struct RankHost {
  std::vector<SimRank> ranks;
  std::map<std::tuple<std::string, uint64_t, uint32_t>, Us> reserved;  // until when
  std::function<void()> on_change = [] {};
  bool is_shutting_down = false;
};

// What ClusterSim knows of an order to launch.
struct LaunchFacts {
  FencePair fence;
  uint64_t wanted_at = 0;
};

class SimSupervisor final : public runtime::RankSupervisor {
 public:
  struct Parts {
    Scheduler& scheduler;
    Dice& dice;
    transport::Dispatcher& dispatcher;
    ProcessPtr process;
    RankHost& host;
    std::function<int()> room;  // ranks of one deployment that there is memory for
    // Whose order is carried out now.
    std::function<LaunchFacts(const v1::LaunchSpec&)> on_launch;
    std::function<void(const v1::StopRanksRequest&)> on_stop;
  };

  SimSupervisor(Parts parts, std::string node_id)
      : parts_(std::move(parts)), node_id_(std::move(node_id)) {}

  absl::Status Start() override { return absl::OkStatus(); }
  runtime::FastSynch metal_fast_synch() const override { return runtime::FastSynch::kAuto; }
  void SetPython(std::string) override {}
  absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest& request,
                                              const std::string& local_ip,
                                              const runtime::NodeMemory& memory) override;
  absl::StatusOr<v1::LaunchResponse> Launch(const v1::LaunchSpec& spec) override;
  uint32_t StopRanks(const std::string& deployment, uint64_t up_to_epoch, const std::string& why,
                     bool at_once, uint64_t from_epoch) override;
  std::vector<v1::RankStatus> Statuses() const override;
  void OnChange(std::function<void()> callback) override {
    parts_.host.on_change = std::move(callback);
  }
  Bytes ReservedBytes() const override { return Bytes(0); }
  Bytes AwaitedBytes() const override { return Bytes(0); }
  GenerateId Generate(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                      DoneCallback on_done) override;
  void VerifyGroup(const std::string& deployment, const v1::VerifyGroupRequest& request,
                   std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) override;
  void TraceRanks(const v1::TraceRankRequest& request,
                  std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) override;
  size_t generations() const override { return 0; }
  void CancelGenerate(GenerateId) override {}
  void ShutDown(std::function<void()> done) override;

 private:
  void Stop(SimRank& rank);

  Parts parts_;
  const std::string node_id_;
};

}  // namespace macrame::agentd::sim
