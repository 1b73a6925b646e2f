#pragma once

// Who comes next among requests that wait. Pure.
//
// - Higher priority first. A request gains one level for each `aging_interval` that it waits, up to
//   the highest priority that waits, so that it is not passed over forever.
// - Within a level, those that were preempted come first: they had been served already.
// - Then the key (client) that was served least, in tokens that were computed for it: deficit round
//   robin with a quantum of one token. A key that comes back after a pause starts level with the
//   least served of those that are active; it saves nothing up.
// - Within a key, in the order of arrival.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/monotonic_time.h"

namespace macrame::runtime::engine {

using RequestId = uint64_t;

struct WaitingRequest {
  RequestId id = 0;
  std::string key;
  int32_t priority = 0;
  MonotonicTime arrived{};
  uint64_t order = 0;  // of arrival, no two alike
  bool was_preempted = false;
};

class RequestQueue {
 public:
  explicit RequestQueue(Duration aging_interval);

  // A request is active for its key from Arrived to Left, waiting or running.
  void Arrived(const std::string& key);
  void Left(const std::string& key);
  void Served(const std::string& key, uint64_t tokens);

  void Push(WaitingRequest request);
  void Remove(RequestId id);
  // All that wait, in the order above.
  std::vector<RequestId> Candidates(MonotonicTime now) const;
  // Whom a full queue sends away so that `key` gets a place: the last request of the key with the
  // most waiting, if that is at least two more than `key` has, and is of no higher priority. Never
  // one that was preempted.
  std::optional<RequestId> Displaced(const std::string& key, int32_t priority) const;

  size_t size() const { return waiting_.size(); }

 private:
  struct Key {
    uint64_t served = 0;
    uint32_t active = 0;
  };
  void ForgetIdleKeys();

  const Duration aging_interval_;
  std::vector<WaitingRequest> waiting_;  // in the order of arrival
  std::map<std::string, Key, std::less<>> keys_;
  uint64_t level_ = 0;  // where a key that comes (back) starts
};

}  // namespace macrame::runtime::engine
