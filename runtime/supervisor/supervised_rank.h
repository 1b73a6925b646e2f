#pragma once

// One rank of this node from its reservation to its end. Owner thread.

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/bytes.h"
#include "proto/monotonic_time.h"
#include "runtime/supervisor/child_process.h"
#include "runtime/supervisor/crash_report_finder.h"
#include "runtime/supervisor/memory_admission.h"
#include "runtime/supervisor/port_reservation.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "runtime/supervisor/run_files.h"
#include "runtime/supervisor/stack_sampling.h"
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
    // The process has crashed, which is all that is known yet: `gone` follows once the report of
    // the crash has been read or did not come in time.
    std::function<void(const v1::Reason&)> died;
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
  // Nothing hears a request any more while only the report of a crash is waited for.
  bool serves() const { return running() && !exit_.has_value(); }
  // What is promised to it: nothing once its process has ended.
  AdmittedRank memory() const {
    if (exit_.has_value()) return {};
    return {need_, Bytes(status_.memory_bytes()), wired_};
  }
  const v1::RankStatus& status() const { return status_; }

  absl::Status Launch(v1::LaunchSpec spec, const std::string& rankd_path, uint64_t serial);
  // Stop is asked for, then SIGTERM, then SIGKILL; `at_once`: it stands still, and SIGKILL follows
  // once its stacks are known. A second call changes nothing but that.
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
  void Adopt(const v1::RankStatus& report);
  // Of a rank that stands still. `verdict`, where there is one, becomes its status as it is killed.
  void KillStalled(std::optional<v1::RankStatus> verdict);
  void StacksTaken();
  void AdoptVerdict();
  void CheckSilence(MonotonicTime due);
  void ScheduleSilenceCheck();
  void ScheduleSignal(Duration delay, int signal);
  void Exited(const ProcessExit& exit);
  // Again and again until the report is there or its time is over.
  void LookForCrashReport();
  void Settle();
  v1::Reason WhyEnded(const ProcessExit& exit) const;
  v1::Reason WhyGone(const ProcessExit& exit, const std::string& fault) const;
  std::string EvidenceOf(const std::string& last_lines) const;
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
  std::string program_;  // the file name of rankd
  uint64_t started_unix_ms_ = 0;
  std::unique_ptr<StackSampling> sampling_;  // while it is asked where it stands
  std::optional<v1::RankStatus> verdict_;    // known, and told when the stacks are
  bool is_own_verdict_ = false;              // the rank's own report
  std::vector<std::string> stalled_calls_;
  std::optional<ProcessExit> exit_;
  std::unique_ptr<CrashReportFinder> crash_finder_;
  MonotonicTime crash_deadline_{};
  std::optional<FoundCrashReport> crash_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace macrame::runtime
