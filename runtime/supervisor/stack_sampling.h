#pragma once

// One run of the system's sampler on a process that stands still. Its output goes to a file, of
// which the beginning is kept.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/monotonic_time.h"
#include "runtime/supervisor/child_process.h"
#include "transport/dispatcher.h"

namespace macrame::runtime {

// Owner thread.
class StackSampling {
 public:
  // `sampler`: the command before the pid. `path` is written anew. `done` runs once, when the
  // sampler has ended or `limit` is over, unless the object has gone by then; never from within
  // this call.
  static absl::StatusOr<std::unique_ptr<StackSampling>> Start(
      const std::vector<std::string>& sampler, pid_t pid, const std::string& path, Duration limit,
      transport::Dispatcher* dispatcher, std::function<void()> done);

  // Ends the sampler where it still runs.
  ~StackSampling();
  StackSampling(const StackSampling&) = delete;
  StackSampling& operator=(const StackSampling&) = delete;

  // Of what it has printed so far (stack_sample.h).
  std::vector<std::string> Calls() const;

 private:
  StackSampling(std::string path, std::function<void()> done);
  void Finish();

  const std::string path_;
  std::function<void()> done_;
  std::unique_ptr<ChildProcess> process_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace macrame::runtime
