#include "runtime/serving/request_queue.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kKeysRememberedMax = 1024;

}  // namespace

RequestQueue::RequestQueue(Duration aging_interval) : aging_interval_(aging_interval) {
  MACRAME_CHECK(aging_interval_.count() > 0) << "requests that never age";
}

void RequestQueue::Arrived(const std::string& key) {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const auto& [name, state] : keys_) {
    if (state.active > 0) least = std::min(least, state.served);
  }
  if (least != std::numeric_limits<uint64_t>::max()) level_ = std::max(level_, least);
  Key& state = keys_[key];
  if (state.active++ == 0) state.served = std::max(state.served, level_);
  if (keys_.size() > kKeysRememberedMax) ForgetIdleKeys();
}

void RequestQueue::Left(const std::string& key) {
  const auto found = keys_.find(key);
  MACRAME_CHECK(found != keys_.end() && found->second.active > 0) << "a key that was not active";
  if (--found->second.active == 0 && found->second.served <= level_) keys_.erase(found);
}

void RequestQueue::Served(const std::string& key, uint64_t tokens) {
  const auto found = keys_.find(key);
  MACRAME_CHECK(found != keys_.end()) << "tokens of a key that is not active";
  found->second.served += tokens;
}

// Keys that are not active: what they were served beyond others is forgotten.
void RequestQueue::ForgetIdleKeys() {
  std::erase_if(keys_, [](const auto& entry) { return entry.second.active == 0; });
}

void RequestQueue::Push(WaitingRequest request) {
  const auto at = std::upper_bound(
      waiting_.begin(), waiting_.end(), request.order,
      [](uint64_t order, const WaitingRequest& other) { return order < other.order; });
  waiting_.insert(at, std::move(request));
}

void RequestQueue::Remove(RequestId id) {
  const size_t removed =
      std::erase_if(waiting_, [id](const WaitingRequest& request) { return request.id == id; });
  MACRAME_CHECK(removed == 1) << "request " << id << " does not wait";
}

std::vector<RequestId> RequestQueue::Candidates(MonotonicTime now) const {
  int64_t highest = std::numeric_limits<int32_t>::min();
  for (const WaitingRequest& request : waiting_) {
    highest = std::max<int64_t>(highest, request.priority);
  }
  struct Candidate {
    int64_t level;
    uint64_t served;
    const WaitingRequest* request;
  };
  std::vector<Candidate> candidates;
  for (const WaitingRequest& request : waiting_) {
    const int64_t gained = std::max<int64_t>(0, (now - request.arrived) / aging_interval_);
    candidates.push_back({std::min(highest, request.priority + gained),
                          request.was_preempted ? 0 : keys_.at(request.key).served, &request});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
      return std::tuple(-c.level, !c.request->was_preempted, c.served, c.request->order);
    };
    return rank(a) < rank(b);
  });
  std::vector<RequestId> ids;
  for (const Candidate& candidate : candidates) ids.push_back(candidate.request->id);
  return ids;
}

std::optional<RequestId> RequestQueue::Displaced(const std::string& key, int32_t priority) const {
  std::map<std::string_view, size_t> counts;
  for (const WaitingRequest& request : waiting_) ++counts[request.key];
  const size_t own = counts.contains(key) ? counts.at(key) : 0;
  size_t most = own + 1;
  std::optional<RequestId> last;
  for (auto at = waiting_.rbegin(); at != waiting_.rend(); ++at) {
    if (at->was_preempted || at->priority > priority || counts.at(at->key) <= most) continue;
    most = counts.at(at->key);
    last = at->id;
  }
  return last;
}

}  // namespace macrame::runtime::engine
