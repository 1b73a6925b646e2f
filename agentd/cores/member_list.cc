#include "agentd/cores/member_list.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// Since when each of these is in the set; what is not in it any more is dropped.
void NoteSince(const std::set<NodeId>& present, MonotonicTime now,
               std::map<NodeId, MonotonicTime>& since) {
  for (const NodeId& node : present) since.try_emplace(node, now);
  std::erase_if(since, [&](const auto& item) { return !present.contains(item.first); });
}

bool Lasted(const std::map<NodeId, MonotonicTime>& since, const NodeId& node, Duration settle,
            MonotonicTime now) {
  const auto it = since.find(node);
  return it != since.end() && now - it->second >= settle;
}

}  // namespace

std::set<NodeId> ListedMembers(const StateTable& table) {
  std::set<NodeId> nodes;
  const v1::StateEntry* entry = table.Find(kMembersKey);
  v1::MemberList list;
  if (entry == nullptr || !list.ParseFromString(entry->value())) return nodes;
  for (const std::string& id : list.node_ids()) {
    if (IsValidNodeId(id) && nodes.size() < kListedMax) nodes.insert(NodeId(id));
  }
  return nodes;
}

std::string MemberListValue(const std::set<NodeId>& nodes) {
  v1::MemberList list;
  for (const NodeId& node : nodes) list.add_node_ids(node.value());
  return list.SerializeAsString();
}

MemberList::MemberList(NodeId self, Consistency consistency, Duration settle)
    : self_(std::move(self)), consistency_(consistency), settle_(settle) {}

void MemberList::BeginLeading(MonotonicTime) {
  confirmed_ = false;
  live_since_.clear();
  away_since_.clear();
}

std::optional<std::string> MemberList::Due(const std::set<NodeId>& listed,
                                           const std::set<NodeId>& granted,
                                           const std::set<NodeId>& live, bool committed,
                                           MonotonicTime now) {
  NoteSince(granted, now, live_since_);
  std::set<NodeId> away;
  for (const NodeId& node : listed) {
    if (!live.contains(node) && node != self_) away.insert(node);
  }
  NoteSince(away, now, away_since_);
  if (!committed) return std::nullopt;
  const bool first = listed.empty();
  std::set<NodeId> wanted = Wanted(listed, granted, now);
  if (consistency_ == Consistency::kQuorum && !first && !confirmed_) {
    confirmed_ = true;
    return MemberListValue(listed);
  }
  confirmed_ = true;
  if (wanted == listed || wanted.size() > kListedMax) return std::nullopt;
  return MemberListValue(wanted);
}

std::set<NodeId> MemberList::Wanted(const std::set<NodeId>& listed, const std::set<NodeId>& granted,
                                    MonotonicTime now) const {
  std::set<NodeId> wanted = listed;
  if (listed.empty()) {
    wanted = granted;
    wanted.insert(self_);
    return wanted;
  }
  const bool quorum = consistency_ == Consistency::kQuorum;
  for (const NodeId& node : granted) {
    if (listed.contains(node) || (quorum && !Lasted(live_since_, node, settle_, now))) continue;
    wanted.insert(node);
    if (quorum) return wanted;
  }
  if (!quorum) {
    wanted.insert(self_);
    std::erase_if(wanted,
                  [&](const NodeId& node) { return Lasted(away_since_, node, settle_, now); });
  }
  return wanted;
}

absl::StatusOr<std::set<NodeId>> MemberList::Forget(const std::set<NodeId>& listed,
                                                    const std::set<NodeId>& live,
                                                    const NodeId& node) {
  if (!listed.contains(node)) {
    return ReasonStatus(absl::StatusCode::kNotFound, "NODE_NOT_FOUND",
                        absl::StrCat("node ", ShortId(node), " is not in the list of members"),
                        node.value());
  }
  if (live.contains(node)) {
    return ReasonStatus(
        absl::StatusCode::kFailedPrecondition, "NODE_ALIVE",
        absl::StrCat("node ", ShortId(node), " is alive: stop its agent first, else it is listed ",
                     "again at once"),
        node.value());
  }
  std::set<NodeId> left = listed;
  left.erase(node);
  if (left.empty()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                        "the last member can't be forgotten", node.value());
  }
  return left;
}

}  // namespace macrame::agentd
