#pragma once

// A group of ours as MLX's distributed group: collectives become part of MLX's graphs and run on
// the CPU stream that MLX gives them, one after another, as MLX's own backends do.
//
// A collective that fails throws std::runtime_error with the group's own message out of the
// stream's task, as MLX's backends do; the group is broken from then on. MLX tells of what is
// thrown so only who waits, and once: who reads what a graph gave asks the group, too.

#include <atomic>
#include <memory>
#include <mutex>

#include "mlx/distributed/distributed.h"
#include "transport/collectives/group.h"

namespace macrame::transport {

// Times of the group's small all-reduces (at most kSmallCollectiveBytes), the last few hundred.
inline constexpr size_t kSmallCollectiveBytes = 64 << 10;
struct CollectiveTimes {
  uint64_t count = 0;
  double us_p50 = 0;
  double us_p99 = 0;
};

class MlxGroup {
 public:
  explicit MlxGroup(std::shared_ptr<Group> group);

  // What MLX's functions take. Keeps the group alive.
  const mlx::core::distributed::Group& handle() const { return handle_; }
  Group& group() { return *group_; }
  // values = their sum over all ranks, on the calling thread and without a graph; meanwhile no
  // graph may be evaluated that uses the group. Each element is added in rank order and rounded
  // once, whatever else is in the call and over whichever topology.
  absl::Status SumInRankOrder(void* values, size_t count, Element element);
  // Any thread.
  CollectiveTimes times() const;
  // The first failure of a collective in a graph.
  absl::Status status() const;

 private:
  class Impl;
  std::shared_ptr<Group> group_;
  std::shared_ptr<Impl> impl_;
  mlx::core::distributed::Group handle_;
};

}  // namespace macrame::transport
