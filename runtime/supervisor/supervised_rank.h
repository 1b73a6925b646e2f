#pragma once

// One rank of this node from its reservation to its end. Owner thread.

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/bytes.h"
#include "proto/monotonic_time.h"
#include "runtime/supervisor/child_process.h"
#include "runtime/supervisor/memory_admission.h"
#include "runtime/supervisor/port_reservation.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "runtime/supervisor/run_files.h"
#include "transport/dispatcher.h"
#include "transport/peer_channel.h"

namespace macrame::runtime {

struct RankKey {
  std::string deployment;
  uint64_t epoch = 0;
  uint32_t rank = 0;
  auto operator<=>(const RankKey&) const = default;
};

class SupervisedRank {
 public:
  struct Events {
    std::function<void()> changed;
    // The process is gone and reaped; the final status is in status(). The rank may be destroyed.
    std::function<void()> gone;
  };

  SupervisedRank(const SupervisorOptions& options, transport::Dispatcher* dispatcher,
                 const v1::ReserveRequest& request, PortReservation ring, PortReservation step,
                 Events events);
  ~SupervisedRank();
  SupervisedRank(const SupervisedRank&) = delete;
  SupervisedRank& operator=(const SupervisedRank&) = delete;

  const std::string& ring_address() const { return ring_.address(); }
  const std::string& step_address() const { return step_.address(); }
  bool running() const { return process_ != nullptr; }
  AdmittedRank memory() const { return {need_, Bytes(status_.memory_bytes()), wired_}; }
  const v1::RankStatus& status() const { return status_; }

  absl::Status Launch(v1::LaunchSpec spec, const std::string& rankd_path, uint64_t serial);
  // Stop is asked for, then SIGTERM, then SIGKILL; `at_once`: SIGKILL alone. A second call changes
  // nothing but that.
  void End(const std::string& why, bool at_once);

  // To the rank's own Generate; `done` does not run any more once this is destroyed.
  void VerifyGroup(const v1::VerifyGroupRequest& request,
                   std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done);
  void Trace(const v1::TraceRankRequest& request,
             std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done);
  transport::CallHandle Generate(const v1::GenerateRequest& request,
                                 std::function<void(v1::GenerateChunk)> on_chunk,
                                 std::function<void(absl::Status)> done);

 private:
  void Watch();
  void Reported(const v1::RankStatus& report);
  void CheckSilence(MonotonicTime due);
  void ScheduleSilenceCheck();
  void ScheduleSignal(Duration delay, int signal);
  void Exited(const ProcessExit& exit);
  v1::Reason WhyEnded(const ProcessExit& exit) const;
  v1::Reason WhyGone(const ProcessExit& exit, const std::string& gpu_fault) const;
  std::string Name() const;
  // Runs `task` later unless this has been destroyed by then.
  void After(Duration delay, std::function<void()> task);

  const SupervisorOptions& options_;
  transport::Dispatcher* const dispatcher_;
  const Events events_;
  const RankKey key_;
  const Bytes need_;
  const Bytes wired_;             // of it, for a GPU
  const std::string model_path_;  // as this node resolved it
  const std::string draft_path_;  // empty: it has no draft model
  PortReservation ring_;
  PortReservation step_;
  RunFiles files_;
  RunPaths paths_;
  std::unique_ptr<ChildProcess> process_;
  std::unique_ptr<transport::PeerChannel> channel_;
  bool fast_synch_by_default_ = false;  // started with MLX_METAL_FAST_SYNCH=1 by "auto"
  v1::RankStatus status_;
  bool reported_ = false;  // at least once
  bool ending_ = false;    // asked for by End
  std::string why_ending_;
  MonotonicTime last_report_{};
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace macrame::runtime
