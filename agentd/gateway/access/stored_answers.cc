#include "agentd/gateway/access/stored_answers.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace macrame::agentd {

bool StoredAnswers::IsTooOld(const ResponseStore::Turn& turn, uint64_t now_unix_ms) const {
  const auto kept_for = rules_.KeptFor(turn.tenant);
  if (!kept_for.has_value()) return false;
  const auto ms = static_cast<uint64_t>(std::chrono::milliseconds(*kept_for).count());
  return turn.since_unix_ms + ms <= now_unix_ms || turn.since_unix_ms > now_unix_ms + kClockSlackMs;
}

StoredAnswers::Dropped StoredAnswers::PurgeLocked(uint64_t now_unix_ms) {
  return store_.DropIf(
      [&](const ResponseStore::Turn& turn) { return IsTooOld(turn, now_unix_ms); });
}

StoredAnswers::Dropped StoredAnswers::SetRules(RetentionRules rules, uint64_t now_unix_ms) {
  const std::lock_guard lock(mutex_);
  rules_ = std::move(rules);
  return PurgeLocked(now_unix_ms);
}

bool StoredAnswers::MayStore(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  return rules_.MayStore(owner);
}

bool StoredAnswers::IsMemoryOnly(const std::string& tenant) const {
  const std::lock_guard lock(mutex_);
  return rules_.IsMemoryOnly(tenant);
}

uint64_t StoredAnswers::Begin() const {
  const std::lock_guard lock(mutex_);
  return erasures_;
}

void StoredAnswers::Put(const std::string& id, ResponseStore::Turn turn, uint64_t begun,
                        uint64_t now_unix_ms) {
  const std::lock_guard lock(mutex_);
  const auto erased = erased_.find(turn.tenant);
  if (begun < forgotten_ || (erased != erased_.end() && begun < erased->second)) return;
  if (turn.since_unix_ms == 0) turn.since_unix_ms = now_unix_ms;
  if (IsTooOld(turn, now_unix_ms)) return;
  store_.Put(id, std::move(turn));
}

std::optional<ResponseStore::Turn> StoredAnswers::Find(const std::string& id,
                                                       const std::string& owner,
                                                       uint64_t now_unix_ms) {
  const std::lock_guard lock(mutex_);
  const ResponseStore::Turn* turn = store_.Find(id, owner);
  if (turn == nullptr || IsTooOld(*turn, now_unix_ms)) return std::nullopt;
  return *turn;
}

bool StoredAnswers::Erase(const std::string& id, const std::string& owner, uint64_t now_unix_ms) {
  const std::lock_guard lock(mutex_);
  const ResponseStore::Turn* turn = store_.Find(id, owner);
  const bool was_there = turn != nullptr && !IsTooOld(*turn, now_unix_ms);
  store_.Erase(id, owner);
  return was_there;
}

StoredAnswers::Dropped StoredAnswers::EraseOf(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  ++erasures_;
  if (erased_.size() >= kErasedOwnersMax && !erased_.contains(owner)) {
    // Rather one answer less than one that should be gone.
    forgotten_ = erasures_;
    erased_.clear();
  }
  erased_[owner] = erasures_;
  return store_.DropIf([&](const ResponseStore::Turn& turn) { return turn.tenant == owner; });
}

StoredAnswers::Dropped StoredAnswers::Purge(uint64_t now_unix_ms) {
  const std::lock_guard lock(mutex_);
  return PurgeLocked(now_unix_ms);
}

size_t StoredAnswers::turns() const {
  const std::lock_guard lock(mutex_);
  return store_.turns();
}

}  // namespace macrame::agentd
