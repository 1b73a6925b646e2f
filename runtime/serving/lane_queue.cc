#include "runtime/serving/lane_queue.h"

#include <algorithm>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {

bool Share::Fits(size_t wanted) const {
  if (of_all + wanted <= most) return true;
  const bool is_within_share = of_key == 0 || of_key + wanted <= most / (others + 1);
  return is_within_share && of_all + wanted <= 2 * most;
}

void LaneQueue::Add(std::string_view key, WorkId id) {
  auto found = keys_.find(key);
  if (found == keys_.end()) {
    if (keys_.empty()) reached_ = Duration(0);
    found = keys_.emplace(std::string(key), Account{{}, reached_}).first;
  }
  found->second.waiting.push_back(id);
}

std::optional<LaneQueue::WorkId> LaneQueue::Next() {
  Account* next = nullptr;
  for (auto& [key, account] : keys_) {
    if (account.is_running || account.waiting.empty()) continue;
    const auto order = [](const Account& one) { return std::pair(one.taken, one.waiting.front()); };
    if (next == nullptr || order(account) < order(*next)) next = &account;
  }
  if (next == nullptr) return std::nullopt;
  const WorkId id = next->waiting.front();
  next->waiting.pop_front();
  next->is_running = true;
  reached_ = std::max(reached_, next->taken);
  return id;
}

void LaneQueue::Done(std::string_view key, Duration taken) {
  const auto found = keys_.find(key);
  MACRAME_CHECK(found != keys_.end() && found->second.is_running) << "nothing of it was begun";
  found->second.is_running = false;
  found->second.taken += taken;
  if (found->second.waiting.empty()) keys_.erase(found);
}

}  // namespace macrame::runtime::engine
