#pragma once

// The answers that one gateway keeps for /v1/responses, held to the rules of retention: what is too
// old is not found, and goes with the next Purge. Time is handed in, as milliseconds since 1970 of
// the machine's clock, which goes on while the machine sleeps. Any thread.
//
// A conversation that goes on from a stored answer has that answer in it, and is as old as the
// oldest of them. Where the clock was set back by more than kClockSlackMs, what seems to come from
// the future counts as too old: it can't be told how old it is.

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "agentd/gateway/access/response_store.h"
#include "agentd/gateway/access/retention.h"

namespace macrame::agentd {

inline constexpr uint64_t kClockSlackMs = 60'000;
// Owners whose answers were erased, that requests under way are held against.
inline constexpr size_t kErasedOwnersMax = 1024;

class StoredAnswers {
 public:
  using Dropped = ResponseStore::Dropped;

  explicit StoredAnswers(size_t turns_max = kStoredResponsesMax,
                         size_t bytes_max = kStoredResponsesBytesMax)
      : store_(turns_max, bytes_max) {}

  // What they are too strict for goes at once.
  Dropped SetRules(RetentionRules rules, uint64_t now_unix_ms);
  bool MayStore(const std::string& owner) const;
  bool IsMemoryOnly(const std::string& tenant) const;

  // When a request begins: to be handed to Put with its answer. What was begun before its owner's
  // answers were erased is not stored after it.
  uint64_t Begin() const;
  // `since_unix_ms` of a turn that goes on from a stored one is that one's; 0 becomes now.
  void Put(const std::string& id, ResponseStore::Turn turn, uint64_t begun, uint64_t now_unix_ms);
  std::optional<ResponseStore::Turn> Find(const std::string& id, const std::string& owner,
                                          uint64_t now_unix_ms);
  bool Erase(const std::string& id, const std::string& owner, uint64_t now_unix_ms);
  // All of this owner's.
  Dropped EraseOf(const std::string& owner);
  // What is too old.
  Dropped Purge(uint64_t now_unix_ms);
  size_t turns() const;

 private:
  bool IsTooOld(const ResponseStore::Turn& turn, uint64_t now_unix_ms) const;
  Dropped PurgeLocked(uint64_t now_unix_ms);

  mutable std::mutex mutex_;
  RetentionRules rules_;
  ResponseStore store_;
  uint64_t erasures_ = 0;
  uint64_t forgotten_ = 0;                  // requests that began before this erasure store nothing
  std::map<std::string, uint64_t> erased_;  // by owner: the last
};

}  // namespace macrame::agentd
