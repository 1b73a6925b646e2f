#include "agentd/cores/join_token_table.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "transport/socket_address.h"

namespace macrame::agentd {
namespace {

std::string KeyOf(const JoinAsker& asker) {
  return absl::StrCat(asker.node.value(), asker.request_digest);
}

}  // namespace

JoinPass::~JoinPass() { OPENSSL_cleanse(secret.data(), secret.size()); }

void JoinTokenTable::Expire(MonotonicTime now) {
  std::erase_if(entries_, [now](const auto& item) { return now >= item.second.pass.expires; });
  std::erase_if(waiting_, [this, now](const auto& item) {
    return now - item.second.last_asked > kJoinWaitingKept ||
           !entries_.contains(item.second.token_id);
  });
  failures_in_all_ = 0;
  for (auto& [address, times] : failures_) {
    std::erase_if(times, [now](MonotonicTime at) { return now - at > kAttemptWindow; });
    failures_in_all_ += times.size();
  }
  std::erase_if(failures_, [](const auto& item) { return item.second.empty(); });
}

absl::Status JoinTokenTable::Add(const JoinPass& pass, MonotonicTime now) {
  Expire(now);
  if (entries_.size() >= kJoinTokensMax) {
    return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kJoinLimited,
                        absl::StrCat(kJoinTokensMax, " join tokens are valid already"));
  }
  entries_[pass.id].pass = pass;
  return absl::OkStatus();
}

bool JoinTokenTable::Expects(MonotonicTime now) {
  Expire(now);
  return !entries_.empty();
}

absl::Status JoinTokenTable::MayTry(const std::string& address, MonotonicTime now) {
  Expire(now);
  const auto found = failures_.find(transport::CountedAddress(address));
  const bool is_known = found != failures_.end();
  const bool too_many = (is_known && found->second.size() >= kFailuresPerAddressMax) ||
                        failures_in_all_ >= kFailuresMax ||
                        (!is_known && failures_.size() >= kAttemptAddressesMax);
  if (!too_many) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kJoinLimited,
                      "too many attempts to join failed within a minute");
}

void JoinTokenTable::NoteFailure(const std::string& address, MonotonicTime now) {
  failures_[transport::CountedAddress(address)].push_back(now);
  ++failures_in_all_;
}

const JoinPass* JoinTokenTable::Find(const std::string& id, MonotonicTime now) {
  Expire(now);
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second.pass;
}

absl::StatusOr<JoinVerdict> JoinTokenTable::Take(const std::string& id, const JoinAsker& asker,
                                                 MonotonicTime now) {
  Expire(now);
  const auto found = entries_.find(id);
  const std::string key = KeyOf(asker);
  if (found != entries_.end() && found->second.issued.contains(key)) return JoinVerdict::kIssue;
  if (found == entries_.end() || found->second.pass.uses_left == 0) {
    return ReasonStatus(absl::StatusCode::kPermissionDenied, reasons::kTokenUsed,
                        "this token has been used as often as it may");
  }
  Entry& entry = found->second;
  if (entry.pass.approve && !entry.approved.contains(key)) {
    if (!waiting_.contains(key) && waiting_.size() >= kJoinWaitingMax) {
      return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kJoinLimited,
                          "too many nodes wait to be approved");
    }
    waiting_[key] = {asker, id, now};
    return JoinVerdict::kWait;
  }
  waiting_.erase(key);
  if (--entry.pass.uses_left == 0) {
    entry.pass.expires = std::min(entry.pass.expires, now + kUsedTokenKept);
  }
  entry.issued.insert(key);
  return JoinVerdict::kIssue;
}

void JoinTokenTable::ForgetTokensOf(const NodeId& node) {
  std::erase_if(entries_, [&node](const auto& item) {
    const std::set<std::string>& issued = item.second.issued;
    const auto first = issued.lower_bound(node.value());
    return first != issued.end() && first->starts_with(node.value());
  });
}

std::vector<JoinAsker> JoinTokenTable::Waiting(MonotonicTime now) const {
  std::vector<JoinAsker> askers;
  for (const auto& [key, wait] : waiting_) {
    const auto entry = entries_.find(wait.token_id);
    const bool waits = entry != entries_.end() && now < entry->second.pass.expires &&
                       !entry->second.approved.contains(key) &&
                       now - wait.last_asked <= kJoinWaitingKept;
    if (waits) askers.push_back(wait.asker);
  }
  return askers;
}

absl::StatusOr<JoinAsker> JoinTokenTable::Approve(const std::string& name, MonotonicTime now) {
  Expire(now);
  const std::string* found = nullptr;
  bool found_waits = false, is_ambiguous = false;
  for (const auto& [key, wait] : waiting_) {
    const bool by_id = IsBeginningOfId(name, wait.asker.node.value());
    if (!by_id && !absl::EqualsIgnoreCase(wait.asker.hostname, name)) continue;
    // One that is approved and has not asked since is in nobody's way.
    const bool waits = !entries_.at(wait.token_id).approved.contains(key);
    if (found != nullptr && found_waits && !waits) continue;
    is_ambiguous = found != nullptr && found_waits == waits;
    found = &key;
    found_waits = waits;
  }
  if (is_ambiguous) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kNodeAmbiguous,
                        "several nodes of that name wait to be approved");
  }
  if (found == nullptr) {
    std::string waiting;
    for (const auto& [key, wait] : waiting_) {
      if (entries_.at(wait.token_id).approved.contains(key)) continue;
      absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", wait.asker.hostname, " (",
                      wait.asker.node.value().substr(0, 8), ")");
    }
    v1::Reason reason =
        MakeReason(reasons::kNodeNotFound,
                   absl::StrCat("no node '", name, "' waits here to be approved; waiting are: ",
                                waiting.empty() ? "none" : waiting));
    reason.set_remedy(
        waiting.empty() ? "run 'clusterctl cluster join TOKEN' on the new machine first, and this "
                          "command where the token was made"
                        : "give one of these names, or the first digits of its id");
    return ReasonStatus(absl::StatusCode::kNotFound, reason);
  }
  const Wait& wait = waiting_.at(*found);
  entries_.at(wait.token_id).approved.insert(*found);
  return wait.asker;
}

}  // namespace macrame::agentd
