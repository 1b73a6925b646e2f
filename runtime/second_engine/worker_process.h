#pragma once

// The Python process that runs a model with mlx_lm (mlx_lm_worker.py), as its parent sees it. It
// reads orders and writes answers on one socket, in frames: a byte, the payload's length as eight
// bytes (little endian), the payload.
//
//   order                               answer
//   none: it has come up                H  {python, version, device} of mlx_lm
//   D  describe                         D  {model type: {tensor, pipeline}}
//   C  connect: who, and over what      C  {backend, size}: the group stands and is proven
//   L  load                             P  {loaded, total}, many; L  {bytes, active}
//   S  step (uint32 each: closed slots  R  uint64 active memory, uint64 width, float32 rows in the
//      by number, segments: slot,       order of the segments (rank 0's only)
//      begin, salt as two words,
//      LogitRows, tokens)              P  {} before it, after each part of a long one
//   Q  stop                             none
//   any                                 E  {code, message, remedy}: it has failed, and ends
//
// It ends with its stdin, and when its parent has gone. One thread.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace macrame::runtime {

// In ModelDescription.engine, and among a node's engines.
inline constexpr char kMlxLmEngine[] = "mlx-lm";

// From its start until mlx_lm is imported; a cold disk takes tens of seconds. Less than a rank may
// stay in STAGING, so that the rank says itself what it waited for.
inline constexpr std::chrono::milliseconds kWorkerStartLimit{50'000};
// To end by itself once its stdin has ended; then it is killed.
inline constexpr std::chrono::milliseconds kWorkerStopLimit{300};
inline constexpr size_t kWorkerFrameBytesMax = size_t{4} << 30;

struct WorkerFrame {
  char kind = 0;
  std::string payload;
};

class WorkerProcess {
 public:
  // Starts `python` with `script`, which must not answer before it is asked but with H.
  // `shows_errors`: its stderr is this process's; else nobody's. ENGINE_MISSING: there is no such
  // program.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(const std::string& python,
                                                              std::string_view script,
                                                              bool shows_errors);
  // Ends it: within kWorkerStopLimit by itself, or it is killed.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // ENGINE_FAILED when it is gone.
  absl::Status Send(char kind, std::string_view payload);
  // The next answer. What the worker says went wrong, with its code; ENGINE_FAILED when it is gone,
  // with how it ended; DEADLINE_EXCEEDED after `limit` (0: none) without a byte.
  absl::StatusOr<WorkerFrame> Receive(std::chrono::milliseconds limit);

  // Receive gives up (CANCELLED) soon after `stop`, which must live as long, is set.
  void StopWith(const std::atomic<bool>* stop) { stop_ = stop; }

  pid_t pid() const { return pid_; }
  // Blocks until the process `pid` has ended, without reaping it; OK when it was reaped already,
  // and so is known of. Any thread.
  static absl::Status AwaitEnd(pid_t pid);

  // "the mlx-lm worker (/usr/bin/python3, process 4711)"
  std::string Name() const;

 private:
  WorkerProcess() = default;
  absl::Status AwaitBytes(std::chrono::milliseconds limit) const;
  absl::Status ReadAll(char* out, size_t bytes, std::chrono::milliseconds limit);
  absl::Status Gone();

  std::string python_;
  pid_t pid_ = -1;
  int socket_ = -1;
  bool is_reaped_ = false;
  int end_state_ = 0;  // as waitpid told it
  const std::atomic<bool>* stop_ = nullptr;
};

}  // namespace macrame::runtime
