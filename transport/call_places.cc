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

const char* NameOf(CallPlaces::Kind kind) {
  switch (kind) {
    case CallPlaces::Kind::kMember:
      return "members";
    case CallPlaces::Kind::kOther:
      return "nodes that are no members";
    case CallPlaces::Kind::kPerson:
      return "access files";
  }
  return "";
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
    return is_member ? Place{Kind::kMember, ""} : Place{Kind::kOther, caller.node_id.value()};
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
      return CountDown(&calls_of_, place.caller);
  }
}

absl::Status CallPlaces::Hold(size_t bytes, Place* place) {
  if (bytes <= kSmallMessageBytesMax) return absl::OkStatus();
  const bool is_member = place->kind == Kind::kMember;
  const size_t most = is_member ? kHeldBytesOfMembersMax : kHeldBytesMax;
  const std::lock_guard lock(mutex_);
  size_t own = bytes;
  if (!is_member) {
    const auto found = held_bytes_of_.find(place->caller);
    if (found != held_bytes_of_.end()) own += found->second;
    if (own > kHeldBytesOfCallerMax) {
      const std::string whose = place->kind == Kind::kPerson
                                    ? absl::StrCat("key ", place->caller)
                                    : absl::StrCat("node ", ShortId(NodeId(place->caller)));
      return NoPlace(absl::StrCat(whose, " may have messages of ", kHeldBytesOfCallerMax >> 20,
                                  " MiB open on this agent, and this one would exceed that"),
                     "wait for your own other calls to end, or send less");
    }
  }
  size_t& held = HeldBytesOf(place->kind);
  if (held + bytes > most) {
    return NoPlace(absl::StrCat(NameOf(place->kind), " may have messages of ", most >> 20,
                                " MiB open on this agent together, and this one would exceed that"),
                   "try again later, or ask another node");
  }
  held += bytes;
  if (!is_member) held_bytes_of_[place->caller] = own;
  place->held_bytes = bytes;
  return absl::OkStatus();
}

void CallPlaces::LetGo(Place* place) {
  const size_t bytes = std::exchange(place->held_bytes, 0);
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  HeldBytesOf(place->kind) -= bytes;
  const auto own = held_bytes_of_.find(place->caller);
  if (own == held_bytes_of_.end()) return;
  own->second -= bytes;
  if (own->second == 0) held_bytes_of_.erase(own);
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
