#pragma once

// Where requests are prepared: templates rendered, texts tokenised, grammars compiled, misses of
// the prefix cache explained. How long that takes is up to what clients send, so none of it is done
// by a thread that reports or runs steps.
//
// A chat never waits for a long text, nor for a grammar: those have lanes of their own. Within a
// lane the keys take turns (lane_queue.h), and one key has one piece done at a time; the lanes of
// what may take long have two threads, so that another key need not wait for the end of it. What
// one piece of work may take is bounded where it is done: 5 s for a template, 10 s for tokenising,
// 5 s for a grammar (runtime/text), and it ends there. Tokenising ends at its next piece when its
// client is gone.

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"
#include "runtime/serving/lane_queue.h"
#include "transport/dispatcher.h"
#include "transport/worker_thread.h"

namespace macrame::runtime::engine {

// Requests of more bytes are long ones, and so are those whose texts a tokenizer may choke on
// (runtime/text/text_worker.h).
inline constexpr size_t kShortRequestBytesMax = 64 * 1024;
// All requests that are in the lanes; beyond, long ones of keys that have their share are refused.
inline constexpr size_t kPreparingBytesMax = size_t{64} << 20;
// What waited longer for its turn is not begun.
inline constexpr Duration kPreparationWaitMax = std::chrono::seconds(30);

enum class Lane { kShort, kLong, kStructure };
inline constexpr size_t kLanes = 3;
// Pieces of work at once, each of another key.
inline constexpr std::array<size_t, kLanes> kLaneThreads = {1, 2, 2};

// Of its size, its texts and what its answer is held to. Pure.
Lane LaneOf(const v1::GenerateRequest& request);

// Whose turn it is: the key that a gateway names, whichever of its users asks. Pure.
std::string_view LaneKeyOf(const v1::GenerateRequest& request);

// Owner thread.
class PreparationLanes {
 public:
  explicit PreparationLanes(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}
  // Waits for the work that runs; what waits is dropped.
  ~PreparationLanes() = default;
  PreparationLanes(const PreparationLanes&) = delete;
  PreparationLanes& operator=(const PreparationLanes&) = delete;

  // `work` runs on a thread of the lane and is told whether its turn came in time. False, and it is
  // dropped, when the bounds are reached for this key.
  bool Add(Lane lane, std::string_view key, size_t bytes, std::function<void(bool in_time)> work);

 private:
  struct Work {
    std::string key;
    size_t bytes = 0;
    MonotonicTime last{};  // to begin
    std::function<void(bool)> run;
  };
  struct LaneState {
    LaneQueue queue;
    absl::flat_hash_map<LaneQueue::WorkId, Work> waiting;
    std::vector<std::unique_ptr<transport::WorkerThread>> threads;  // made when first used
    std::vector<size_t> idle;                                       // of these
  };

  // Gives each thread of the lane that has nothing to do the next piece.
  void Begin(Lane lane);
  void OnDone(Lane lane, size_t thread, const std::string& key, size_t bytes, Duration taken);
  std::optional<size_t> IdleThread(Lane lane);
  LaneState& StateOf(Lane lane) { return lanes_[static_cast<size_t>(lane)]; }

  transport::Dispatcher& dispatcher_;
  const std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // owner thread alone
  LaneQueue::WorkId last_id_ = 0;
  size_t bytes_ = 0;                                 // in all lanes
  std::map<std::string, size_t, std::less<>> held_;  // of these, by key
  std::array<LaneState, kLanes> lanes_;              // their threads end first
};

}  // namespace macrame::runtime::engine
