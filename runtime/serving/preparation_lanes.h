#pragma once

// Where requests are prepared: templates rendered, texts tokenised, grammars compiled, misses of
// the prefix cache explained. How long that takes is up to what clients send, so none of it is done
// by a thread that reports or runs steps.
//
// Each lane is a thread and keeps the order of arrival: a chat never waits for somebody's book, nor
// for somebody's grammar. What one piece of work may take is bounded where it is done: 5 s for a
// template, 10 s for tokenising, 5 s for a grammar (runtime/text). Tokenising ends at its next
// piece when nobody waits for it any more.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"
#include "transport/dispatcher.h"
#include "transport/worker_thread.h"

namespace macrame::runtime::engine {

// Requests of more bytes are long ones.
inline constexpr size_t kShortRequestBytesMax = 64 * 1024;
// All requests that are in the lanes; beyond, long ones are refused.
inline constexpr size_t kPreparingBytesMax = size_t{64} << 20;
// What waited longer for its turn is not begun.
inline constexpr Duration kPreparationWaitMax = std::chrono::seconds(30);

enum class Lane { kShort, kLong, kStructure };
inline constexpr size_t kLanes = 3;

// Of its size and of what its answer is held to. Pure.
Lane LaneOf(const v1::GenerateRequest& request);

class PreparationLanes {
 public:
  explicit PreparationLanes(const transport::Clock& clock) : clock_(clock) {}
  // Waits for the work that runs; what waits is dropped.
  ~PreparationLanes() = default;
  PreparationLanes(const PreparationLanes&) = delete;
  PreparationLanes& operator=(const PreparationLanes&) = delete;

  // Owner thread. `work` runs on the lane's thread and is told whether its turn came in time.
  // False, and it is dropped, when the bounds are reached.
  bool Add(Lane lane, size_t bytes, std::function<void(bool in_time)> work);

 private:
  const transport::Clock& clock_;
  std::atomic<size_t> bytes_ = 0;                                         // in all lanes
  std::array<std::unique_ptr<transport::WorkerThread>, kLanes> threads_;  // made when first used
};

}  // namespace macrame::runtime::engine
