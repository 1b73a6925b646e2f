#pragma once

// The agent's hold on the ranks of its node: admits them to memory, starts them, watches them, ends
// them, and keeps their last lines. ProcessSupervisor (process_supervisor.h) has them as processes;
// a simulation has its own.
//
// Owner thread: the dispatcher's; every call and every callback but Generate's chunks happens on
// it, none of them blocks.
//
// Life of a rank: Reserve keeps memory and ports for `hold_ms`; Launch turns the reservation into a
// process (`rankd --launch-spec FILE`, own process group, stdin a pipe that closes when the agent
// dies); its RankService reports on a unix socket. It ends by itself (FAILED, RANK_EXITED or
// RANK_KILLED), by silence longer than `silence_limit` (FAILED, RANK_STALLED), or by StopRanks
// (STOPPED). Memory stays reserved until the process is gone for certain. On macOS the failure of a
// rank that crashed waits for its crash report, and one that stands still is killed and FAILED once
// its stacks are known: both within a limit.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/rank.pb.h"
#include "proto/bytes.h"
#include "proto/monotonic_time.h"
#include "runtime/supervisor/launch_environment.h"
#include "runtime/supervisor/memory_admission.h"
#include "runtime/supervisor/system_reports.h"

namespace macrame::runtime {

struct SupervisorOptions {
  std::string node_id;
  // Holds `ranks/` (specs, sockets, run files; 0700) and `logs/`. Short: socket paths have 104
  // bytes.
  std::string state_folder;
  std::string rankd_path;                             // empty: `rankd` beside the running program
  Duration silence_limit = std::chrono::seconds(10);  // rankd reports at least every 2 s
  Duration first_report_limit = std::chrono::seconds(30);  // from start to the first report
  Duration stop_grace = std::chrono::seconds(3);           // Stop is asked for; then SIGTERM
  Duration term_grace = std::chrono::seconds(2);           // after SIGTERM; then SIGKILL
  uint32_t ranks_max = 16;                                 // reserved, running and ending together
  uint32_t ended_statuses_max = 64;  // FAILED and STOPPED ones kept for the coordinator to see
  Duration stopped_status_kept = std::chrono::seconds(10);
  uint64_t log_bytes_max = 4 << 20;  // a rank's log file; one older one is kept beside it
  uint32_t last_lines_max = 20;      // of stderr, in the Reason's evidence
  FastSynch metal_fast_synch = FastSynch::kAuto;
  std::string python;                // that has mlx_lm; empty: none is known
  bool core_dumps = false;           // of ranks that crash
  uint64_t kv_cache_disk_bytes = 0;  // in `kv_cache/`, of all ranks together; 0: none
  uint32_t kv_cache_disk_hours = 0;  // without use; 0: any number
  // Searched for the report of a rank that crashed, for so long after its death. Empty: nothing is
  // searched or waited for.
  std::vector<std::string> crash_report_folders = CrashReportFolders();
  Duration crash_report_limit = std::chrono::seconds(5);
  // Run with "PID 1 -mayDie -file /dev/stdout" after it, before a rank that stands still is killed,
  // and never for longer than the limit. Empty: the rank is killed at once.
  std::vector<std::string> stack_sampler = StackSampler();
  Duration stack_sample_limit = std::chrono::seconds(5);
};

// Where rankd is looked for unless the options say: in the folder of the running program.
std::string RankdBesideThisProgram();

class RankSupervisor {
 public:
  using ChunkCallback = std::function<void(const v1::GenerateChunk&)>;
  using DoneCallback = std::function<void(const absl::Status&)>;
  using GenerateId = uint64_t;

  // Kills what still runs, at once. Call ShutDown first for an orderly end.
  virtual ~RankSupervisor() = default;

  // Makes the folders, finds rankd, and ends rank processes that an earlier agent of this state
  // folder left behind (a process is touched only when pid and start time are those of its run
  // file). NotFound when there is no rankd: the agent goes on, and Reserve refuses with
  // ENGINE_MISSING.
  virtual absl::Status Start() = 0;

  virtual FastSynch metal_fast_synch() const = 0;
  // SupervisorOptions.python, of ranks that are launched from now on.
  virtual void SetPython(std::string python) = 0;

  // Keeps `assignment.need.total_bytes` and a port (two for rank 0) bound on `local_ip` until
  // launched, ended, or `hold_ms` is over. A second call for the same rank replaces the first.
  // `model_path` of the answer is request.model().path(): the caller resolves it to this node's
  // beforehand. Errors: MEMORY_SHORT, PORT_TAKEN, ENGINE_MISSING (RESOURCE_EXHAUSTED, UNAVAILABLE,
  // FAILED_PRECONDITION).
  virtual absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest& request,
                                                      const std::string& local_ip,
                                                      const NodeMemory& memory) = 0;

  // Starts the rank of a reservation. The spec's socket_path is set here, and its model's path is
  // that of the reservation: no other node names a folder of this one. RESERVATION_LAPSED when
  // there is no reservation for (deployment, epoch, rank). Launching a rank that runs answers its
  // pid.
  virtual absl::StatusOr<v1::LaunchResponse> Launch(const v1::LaunchSpec& spec) = 0;

  // Ends ranks and reservations of `deployment` with from_epoch <= epoch <= `up_to_epoch`, and
  // forgets the ends of those that failed. Returns how many processes were told to stop; they pass
  // through STOPPING and STOPPED. Empty `deployment`: all. `at_once`: they stand still, and are
  // killed, not asked to stop.
  virtual uint32_t StopRanks(const std::string& deployment, uint64_t up_to_epoch,
                             const std::string& why, bool at_once = false,
                             uint64_t from_epoch = 0) = 0;

  // Running ranks, then ended ones that are still kept.
  virtual std::vector<v1::RankStatus> Statuses() const = 0;
  // Called after each change of phase, of progress by a hundredth, or of failure; not for counters.
  virtual void OnChange(std::function<void()> callback) = 0;

  // Promised to reservations and processes, by their plans.
  virtual Bytes ReservedBytes() const = 0;
  // Of these, what is not resident yet: free memory that is spoken for.
  virtual Bytes AwaitedBytes() const = 0;

  // Hands a request to the local entry rank (rank 0) of request.deployment(), of its newest READY
  // epoch or request.epoch() when given. `on_chunk` any number of times, one at a time on threads
  // of the rank's channel, and `on_done` once on the owner thread, never from within this call. Of
  // a rank that is gone a chunk may still come after `on_done`. NOT_READY and MODEL_NOT_LOADED come
  // through on_done. A rank that dies gives on_done(UNAVAILABLE) with the reason.
  virtual GenerateId Generate(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                              DoneCallback on_done) = 0;
  // Timed rounds of collectives over the local entry rank's gang; `done` once, on the owner thread.
  virtual void VerifyGroup(const std::string& deployment, const v1::VerifyGroupRequest& request,
                           std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) = 0;
  // What all ready ranks of request.deployment() on this node do for so long; NOT_READY when there
  // are none. `done` once, on the owner thread.
  virtual void TraceRanks(const v1::TraceRankRequest& request,
                          std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) = 0;
  // Requests and verifications at entry ranks of this node.
  virtual size_t generations() const = 0;
  // on_done(CANCELLED) follows. Unknown ids are ignored.
  virtual void CancelGenerate(GenerateId id) = 0;

  // Ends everything; `done` when the last process is gone. Nothing is admitted from here on.
  virtual void ShutDown(std::function<void()> done) = 0;
};

}  // namespace macrame::runtime
