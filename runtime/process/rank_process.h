#pragma once

// One rank process: the owner thread with its RankService, the engine thread, the watchdog, and how
// it all ends. Threads and who owns what: README.md in this folder.

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/gang/gang_watch.h"
#include "runtime/gang/watchdog.h"
#include "runtime/process/exit_codes.h"
#include "runtime/process/rank_boot.h"
#include "runtime/process/termination_message.h"
#include "runtime/serving/cold/cold_event.h"
#include "runtime/serving/mailbox.h"
#include "runtime/serving/rank_service.h"
#include "runtime/serving/serving_loop.h"
#include "runtime/watch/step_recorder.h"
#include "transport/asio_dispatcher.h"
#include "transport/gang/secret_bytes.h"

namespace macrame::runtime::engine {

// From the order to stop until the process is gone, whatever hangs.
inline constexpr Duration kStopLimit = std::chrono::milliseconds(1500);
// When the agent is gone nobody waits for an end in order, and the next agent wants the memory.
inline constexpr Duration kOrphanStopLimit = std::chrono::milliseconds(500);
// What a failing rank waits so that its watchers hear the reason.
inline constexpr std::chrono::milliseconds kFarewellLimit{300};
// How long a rank waits, after a collective broke, to hear which rank it was.
inline constexpr std::chrono::milliseconds kBlameLimit{300};
// While requests wait and no step can be run: how long until the scheduler is asked again.
inline constexpr std::chrono::milliseconds kNothingToRunPause{5};
// So long a rank that follows waits for the next step while the one before is being computed.
inline constexpr std::chrono::milliseconds kNextStepPause{20};
// About how long a verification holds up the gang, where a link is so slow that not all rounds fit.
inline constexpr Duration kVerifyShare = std::chrono::seconds(10);
// For the sums that all ranks run at once. Over our own transports, which tell of bytes that move,
// it begins anew with each of them.
inline constexpr std::chrono::milliseconds kVerifyLimit{60'000};

class RankProcess {
 public:
  explicit RankProcess(v1::LaunchSpec spec, const BoundSockets& bound = {},
                       const EngineOverrides& types = {});
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // Serves until told to stop; returns the exit code, or ends the process itself when it can't
  // wait.
  int Run();

 private:
  // Owner thread.
  void WatchParent();
  void WatchSignals();
  // Ends at the latest after `limit`.
  void BeginStop(Duration limit);
  // Engine thread.
  void RunEngine();
  absl::Status Lead(BootedRank& rank);
  absl::Status FollowLeader(BootedRank& rank);
  // A step of rank 0's that is no forward step.
  absl::Status FollowOrder(BootedRank& rank, const Step& step);
  void Take(BootedRank& rank, ServingLoop& serving, std::shared_ptr<PendingRequest> request);
  ServingLoop::Hooks HooksFor(const BootedRank& rank);
  BatchTraits StartLeading(BootedRank& rank);
  void StartFollowing(BootedRank& rank);
  void TellCold(const BootedRank& rank);
  void Say(const std::string& line) const;
  void Verify(BootedRank& rank, ServingLoop& serving,
              const std::shared_ptr<PendingRequest>& request);
  absl::StatusOr<v1::VerifyGroupResponse> TimeSums(BootedRank& rank, ServingLoop& serving,
                                                   const v1::VerifyGroupRequest& request);
  // From here on a rank that makes no progress is found out.
  void WatchGang(GangLink& link);
  // The second engine's process may end while no step needs it.
  void WatchWorker(pid_t worker);
  // Rank 0: waits for the step channel to say that a rank is gone.
  void WatchFollowers();
  // Any thread: termination message, the status for watchers, and the end. Does not return.
  // `verdict`: of the gang's watch, when that is why.
  void Fail(const absl::Status& why, const Stall* verdict = nullptr);

  transport::SecretBytes gang_secret_;  // until the gang is being formed
  const BoundSockets bound_;
  const EngineOverrides types_;
  const v1::LaunchSpec spec_;  // without it
  transport::AsioDispatcher dispatcher_;
  TerminationMessage termination_message_;
  Watchdog watchdog_;
  RankService service_;
  Mailbox<std::shared_ptr<PendingRequest>> mailbox_;
  Mailbox<ColdEvent> cold_events_;  // rank 0: of all ranks; bounded by what was ordered
  StepRecorder recorder_;
  // Kept where booting fails behind it: others look at it until the process ends.
  std::shared_ptr<GangLink> kept_link_;
  std::atomic<GangLink*> link_ = nullptr;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<BootedRank> rank_;  // engine thread
  std::thread engine_;
  std::thread follower_watch_;
  std::unique_ptr<GangWatch> gang_watch_;  // once the gang is ready
  struct Parts;                            // what needs Boost's headers
  std::unique_ptr<Parts> parts_;
};

}  // namespace macrame::runtime::engine
