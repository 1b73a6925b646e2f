#include "agentd/cores/identity_guard.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "discovery/membership/membership_table.h"
#include "proto/reasons.h"

namespace macrame::agentd {

absl::Status CheckMachine(const v1::NodeIdentity& member, const v1::Fence& fence) {
  if (fence.machine().empty() || member.machine().empty() || fence.machine() == member.machine()) {
    return absl::OkStatus();
  }
  return ReasonStatus(
      absl::StatusCode::kFailedPrecondition,
      MakeReason(reasons::kNodeIdClash,
                 absl::StrCat("the id of the caller is that of ", discovery::NameAndAddress(member),
                              ", another machine"),
                 member.node_id()));
}

IdentityGuard::IdentityGuard(std::string last_machine, IdentityGuardOptions options,
                             MonotonicTime now)
    : options_(options),
      last_machine_(std::move(last_machine)),
      started_(now),
      look_again_(options.look_again) {}

void IdentityGuard::SetSelf(const v1::NodeIdentity& self) {
  const bool is_first = self_.node_id().empty();
  self_ = self;
  if (!is_first) return;
  is_elsewhere_ =
      !last_machine_.empty() && !self.machine().empty() && last_machine_ != self.machine();
  if (is_elsewhere_) standing_ = Standing::kLooking;
}

void IdentityGuard::SetListed(const std::set<NodeId>& listed) {
  has_list_ = !listed.empty();
  others_ = listed;
  others_.erase(NodeId(self_.node_id()));
}

void IdentityGuard::OnTaken(const NodeId& by) {
  if (standing_ == Standing::kLooking) taken_by_.insert(by);
  if (standing_ == Standing::kSure) is_settled_ = true;
}

bool IdentityGuard::OnRefused(const v1::NodeIdentity& holder) {
  if (holder.node_id() != self_.node_id() || !discovery::AreTwoAgents(holder, self_)) {
    return false;
  }
  holder_ = holder;
  holder_at_ = now_;
  if (standing_ == Standing::kRefused) return false;
  const auto rank = [](const v1::NodeIdentity& one) {
    return std::tuple(one.incarnation(), one.machine(), discovery::NameAndAddress(one));
  };
  const bool stays = KeepsPlace() && rank(self_) < rank(holder);
  if (!stays) standing_ = Standing::kRefused;
  return !stays;
}

void IdentityGuard::OnOtherHeard(const v1::NodeIdentity& other) {
  if (standing_ == Standing::kRefused && discovery::AreTwoAgents(other, self_)) holder_at_ = now_;
}

bool IdentityGuard::MayGoOn(MonotonicTime now) const {
  const Duration looked = now - started_;
  if (looked < options_.look) return false;
  const bool is_quorum = options_.consistency == Consistency::kQuorum;
  if (is_quorum && !has_list_) return false;
  if (others_.empty()) return true;
  const auto taken = std::count_if(others_.begin(), others_.end(),
                                   [&](const NodeId& node) { return taken_by_.contains(node); });
  if (is_quorum) {
    // With this node they are a majority of the list, and whoever had the id without them has none.
    const size_t listed = others_.size() + 1;
    return static_cast<size_t>(taken) >= (listed + 1) / 2;
  }
  return taken > 0 || looked >= options_.alone;
}

bool IdentityGuard::OnTick(MonotonicTime now) {
  now_ = now;
  if (standing_ == Standing::kSure && now - started_ >= options_.settle) is_settled_ = true;
  if (standing_ == Standing::kRefused && !is_elsewhere_ && now - holder_at_ >= look_again_) {
    standing_ = Standing::kLooking;
    started_ = now;
    taken_by_.clear();
    look_again_ = std::min(look_again_ * 2, options_.look_again_max);
  }
  if (standing_ != Standing::kLooking || !MayGoOn(now)) return false;
  standing_ = Standing::kSure;
  is_settled_ = true;
  is_elsewhere_ = false;
  look_again_ = options_.look_again;
  return true;
}

std::optional<v1::Reason> IdentityGuard::Problem() const {
  const bool is_told = holder_.has_value() && now_ - holder_at_ < kHolderTold;
  if (standing_ == Standing::kSure && !is_told) return std::nullopt;
  const std::string id = self_.node_id().substr(0, 8);
  const std::string here = discovery::NameAndAddress(self_);
  std::string message;
  if (standing_ == Standing::kLooking) {
    message = is_elsewhere_ ? absl::StrCat("the disk of ", here, " was last used as node ", id,
                                           " on another machine")
                            : absl::StrCat("another machine was node ", id, " before ", here);
    absl::StrAppend(&message,
                    "; until it is clear that nothing answers there, this node takes no part");
  } else if (standing_ == Standing::kRefused) {
    message =
        absl::StrCat("node id ", id, " is that of ", discovery::NameAndAddress(*holder_),
                     ", which answers; ", here,
                     discovery::AreTwoMachines(*holder_, self_)
                         ? " is another machine with the same id, a copy of its disk"
                         : " is another agent with the same id and machine-id, a copy of its disk "
                           "or container",
                     ": it stands for nothing, grants nothing and launches nothing");
  } else {
    message = absl::StrCat("node id ", id, " of ", here, " is also carried by ",
                           discovery::NameAndAddress(*holder_),
                           ", a copy of its disk, which members have taken for it");
  }
  v1::Reason reason = MakeReason(reasons::kNodeIdClash, std::move(message), self_.node_id());
  reason.set_remedy(discovery::NewIdentityRemedy(
      standing_ == Standing::kSure ? discovery::NameAndAddress(*holder_) : here));
  if (standing_ == Standing::kLooking) {
    reason.set_remedy(
        absl::StrCat("wait; or, if the other machine is to stay this node, ", reason.remedy()));
  }
  return reason;
}

}  // namespace macrame::agentd
