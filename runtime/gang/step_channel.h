#pragma once

// How rank 0 drives the other ranks: each waits in a blocking read, without using the CPU, until
// rank 0 names the next step. Collectives alone can't do this: a rank that waits inside MLX's ring
// spins.
//
// Both sides prove that they know the gang's secret before anything else is said, and every frame
// is sealed (transport/gang): token ids of prompts and answers pass here.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "runtime/gang/step_codec.h"
#include "transport/gang/gang_connection.h"
#include "transport/gang/sealed_socket.h"
#include "transport/stream_socket.h"

namespace macrame::runtime::engine {

// A rank's place in its gang. `secret` has 32 bytes and is new for each epoch.
struct GangPlace {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint64_t epoch = 0;
  transport::SecretBytes secret;
  // Where the other ranks are likely to call from: these are heard first.
  std::vector<std::string> member_ips{};
};

using RandomBytes = transport::RandomBytesSource;

// Rank 0: one connection from each other rank, by rank ([0] is closed), each proven. CONNECT_FAILED
// names those that have not come when `limit` has passed.
absl::StatusOr<std::vector<transport::SealedSocket>> GatherRanks(
    const transport::StreamSocket& listener, const GangPlace& place, transport::GangChannel channel,
    std::chrono::milliseconds limit, const RandomBytes& random_bytes);
// The other ranks: a connection to rank 0, which has proven itself too.
absl::StatusOr<transport::SealedSocket> JoinRankZero(const std::string& address,
                                                     const GangPlace& place,
                                                     transport::GangChannel channel,
                                                     std::chrono::milliseconds limit,
                                                     const RandomBytes& random_bytes);

// Rank 0's side. Send, AwaitReports from one thread; WaitForLoss from another; ShutDown from any.
class StepLeader {
 public:
  // Waits until all other ranks have connected and proved themselves. CONNECT_FAILED names those
  // that have not when `limit` has passed.
  static absl::StatusOr<std::unique_ptr<StepLeader>> Gather(const transport::StreamSocket& listener,
                                                            const GangPlace& place,
                                                            std::chrono::milliseconds limit,
                                                            const RandomBytes& random_bytes);

  // To every rank, or one of them. RANK_EXITED names the rank that can't be reached.
  absl::Status Send(const Step& step);
  absl::Status SendTo(uint32_t rank, const Step& step);

  // Waits for one kLoaded from every rank. RANK_EXITED with a rank's termination message, or that
  // it is gone; there is no limit here: ranks watch over their own loading.
  absl::Status AwaitLoaded();

  // Blocks until a rank fails or goes (RANK_EXITED, naming it), or ShutDown (CANCELLED), or `limit`
  // passes (OK). What ranks tell of the cold tier goes to `on_cold`.
  absl::Status WaitForLoss(std::chrono::milliseconds limit,
                           const std::function<void(uint32_t rank, const Report&)>& on_cold = {});

  void ShutDown();

 private:
  StepLeader() = default;
  absl::Status ReadReport(uint32_t rank, Report& report);
  // Waits for a report of any rank in `awaited` or, when empty, of any at all.
  absl::StatusOr<uint32_t> WaitForReport(const std::vector<bool>& awaited,
                                         std::chrono::milliseconds limit);

  std::vector<transport::SealedSocket> followers_;  // by rank; [0] is closed
  std::atomic<bool> shut_down_ = false;
};

// The other ranks' side. AwaitStep and Receive from one thread, Tell and ShutDown from any.
class StepFollower {
 public:
  // CONNECT_FAILED after `limit`, or when rank 0 can't prove itself.
  static absl::StatusOr<std::unique_ptr<StepFollower>> Join(const std::string& address,
                                                            const GangPlace& place,
                                                            std::chrono::milliseconds limit,
                                                            const RandomBytes& random_bytes);

  // Whether Receive would not wait, after `limit` at the latest.
  bool AwaitStep(std::chrono::milliseconds limit) const;
  // Blocks. RANK_EXITED when rank 0 is gone.
  absl::StatusOr<Step> Receive();
  absl::Status Tell(const Report& report);
  void ShutDown() { socket_.ShutDown(); }

 private:
  StepFollower() = default;
  transport::SealedSocket socket_;
  absl::Mutex telling_;  // one report at a time
  uint64_t next_number_ = 0;
};

}  // namespace macrame::runtime::engine
