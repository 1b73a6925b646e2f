#pragma once

// The thread by which each rank tells the others that it goes on, and hears that they do
// (stall_monitor.h decides). Every rank but 0 has one line to rank 0, a connection beside the step
// channel; rank 0 has one to each. Rank 0 judges all ranks and tells its verdict before it acts on
// it; the others judge rank 0's silence.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/gang/progress_board.h"
#include "runtime/gang/stall_monitor.h"
#include "transport/gang/sealed_socket.h"

namespace macrame::runtime::engine {

struct GangWatchOptions {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  bool knows_waits = true;  // see StallMonitor
  StallLimits limits;
};

class GangWatch {
 public:
  // All on the watching thread.
  struct Hooks {
    std::function<void(const Stall&)> on_stall;  // at most once
    std::function<void()> on_progress;           // some rank has got something done
    std::function<uint64_t()> bytes_moved;       // by this rank's collectives so far; may be unset
  };

  // `lines`: by rank, those open that lead somewhere. `board` must live as long. Starts at once.
  GangWatch(const GangWatchOptions& options, const ProgressBoard& board,
            std::vector<transport::SealedSocket> lines, Hooks hooks);
  ~GangWatch();
  GangWatch(const GangWatch&) = delete;
  GangWatch& operator=(const GangWatch&) = delete;

 private:
  void Run();
  // Reads beats until `end`.
  void Listen(MonotonicTime end);
  void Read(uint32_t rank);
  Beat OwnBeat(MonotonicTime now);
  void Tell(const Beat& beat);
  void TellStall(const Stall& stall);
  void NoteProgress();
  void Stalled(const Stall& stall);

  const GangWatchOptions options_;
  const ProgressBoard& board_;
  std::vector<transport::SealedSocket> lines_;
  const Hooks hooks_;
  StallMonitor monitor_;
  BeatMaker maker_;
  uint64_t gang_marks_ = 0;         // as last seen
  uint64_t leader_gang_marks_ = 0;  // other ranks: as rank 0 last said
  bool has_stalled_ = false;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace macrame::runtime::engine
