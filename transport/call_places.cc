#include "transport/call_places.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::transport {
namespace {

absl::Status NoPlace(const std::string& what, const char* remedy) {
  v1::Reason reason = MakeReason(reasons::kQueueFull, what);
  reason.set_remedy(remedy);
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reason);
}

void CountDown(std::map<std::string, int>* counts, const std::string& key_id) {
  const auto found = counts->find(key_id);
  if (found != counts->end() && --found->second == 0) counts->erase(found);
}

}  // namespace

absl::StatusOr<CallPlaces::Place> CallPlaces::Take(const Caller& caller, bool is_member) {
  const std::lock_guard lock(mutex_);
  if (caller.key_id.empty()) {
    int& open = is_member ? members_ : others_;
    const int most = is_member ? kCallsMax : kCallsOfOthersMax;
    if (open >= most) {
      return NoPlace(
          absl::StrCat("too many calls are open on this agent: ",
                       is_member ? "members" : "nodes that are no members", " may have ", most),
          "try again when others have ended");
    }
    ++open;
    return Place{is_member ? Kind::kMember : Kind::kOther, ""};
  }
  const auto own = calls_of_.find(caller.key_id);
  if (own != calls_of_.end() && own->second >= kCallsOfKeyMax) {
    return NoPlace(absl::StrCat("key ", caller.key_id, " has ", kCallsOfKeyMax,
                                " calls open on this agent, which is its limit"),
                   "wait for your own other calls to end");
  }
  if (persons_ >= kCallsOfPersonsMax) {
    return NoPlace(absl::StrCat("access files have ", kCallsOfPersonsMax,
                                " calls open on this agent, which is their limit together"),
                   "wait for your own other calls to end, try again later, or ask another node");
  }
  ++persons_;
  ++calls_of_[caller.key_id];
  return Place{Kind::kPerson, caller.key_id};
}

void CallPlaces::GiveBack(const Place& place) {
  const std::lock_guard lock(mutex_);
  switch (place.kind) {
    case Kind::kMember:
      --members_;
      return;
    case Kind::kOther:
      --others_;
      return;
    case Kind::kPerson:
      --persons_;
      return CountDown(&calls_of_, place.key_id);
  }
}

void CallPlaces::Read(const std::string& key_id, const std::weak_ptr<void>& waiting,
                      std::function<void()> begin) {
  std::function<void()> next;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [](const Waiting& one) { return one.call.expired(); });
    waiting_.push_back({key_id, waiting, std::move(begin)});
    next = NextRead();
  }
  if (next) next();
}

void CallPlaces::EndRead(const std::string& key_id) {
  std::function<void()> next;
  {
    const std::lock_guard lock(mutex_);
    --reads_;
    CountDown(&reads_of_, key_id);
    next = NextRead();
  }
  if (next) next();
}

std::function<void()> CallPlaces::NextRead() {
  if (reads_ >= kReadsOfPersonsMax) return nullptr;
  std::erase_if(waiting_, [](const Waiting& one) { return one.call.expired(); });
  const auto next = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& one) {
    const auto own = reads_of_.find(one.key_id);
    return own == reads_of_.end() || own->second < kReadsOfKeyMax;
  });
  if (next == waiting_.end()) return nullptr;
  ++reads_;
  ++reads_of_[next->key_id];
  std::function<void()> begin = std::move(next->begin);
  waiting_.erase(next);
  return begin;
}

}  // namespace macrame::transport
