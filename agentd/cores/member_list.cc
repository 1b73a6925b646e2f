#include "agentd/cores/member_list.h"

#include <algorithm>

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

v1::MemberList ReadList(const StateTable& table) {
  v1::MemberList list;
  const v1::StateEntry* entry = table.Find(kMembersKey);
  if (entry != nullptr && !list.ParseFromString(entry->value())) list.Clear();
  return list;
}

template <typename Ids>
std::set<NodeId> ValidIds(const Ids& ids) {
  std::set<NodeId> nodes;
  for (const std::string& id : ids) {
    if (IsValidNodeId(id) && nodes.size() < kListedMax) nodes.insert(NodeId(id));
  }
  return nodes;
}

// `forgotten`: those of before, of whom the ones that are back are forgotten no more.
template <typename Ids>
v1::MemberList MakeList(const std::set<NodeId>& nodes, const Ids& forgotten) {
  v1::MemberList list;
  for (const NodeId& node : nodes) list.add_node_ids(node.value());
  for (const std::string& id : forgotten) {
    if (!nodes.contains(NodeId(id))) list.add_forgotten_ids(id);
  }
  return list;
}

}  // namespace

std::set<NodeId> ListedMembers(const StateTable& table) {
  return ValidIds(ReadList(table).node_ids());
}

std::set<NodeId> ForgottenMembers(const StateTable& table) {
  return ValidIds(ReadList(table).forgotten_ids());
}

MemberList::MemberList(NodeId self, Consistency consistency, Duration settle)
    : self_(std::move(self)), consistency_(consistency), settle_(settle) {}

void MemberList::BeginLeading(MonotonicTime) {
  confirmed_ = false;
  live_since_.clear();
  away_since_.clear();
}

std::optional<v1::MemberList> MemberList::Due(const StateTable& table,
                                              const std::set<NodeId>& granted,
                                              const std::set<NodeId>& live, bool committed,
                                              MonotonicTime now) {
  const v1::MemberList present = ReadList(table);
  const std::set<NodeId> listed = ValidIds(present.node_ids());
  NoteSince(granted, now, live_since_);
  std::set<NodeId> away;
  for (const NodeId& node : listed) {
    if (!live.contains(node) && node != self_) away.insert(node);
  }
  NoteSince(away, now, away_since_);
  if (!committed) return std::nullopt;
  if (consistency_ == Consistency::kQuorum && !listed.empty() && !confirmed_) {
    confirmed_ = true;
    return present;
  }
  confirmed_ = true;
  const std::set<NodeId> wanted = Wanted(listed, granted, now);
  if (wanted == listed || wanted.size() > kListedMax) return std::nullopt;
  return MakeList(wanted, present.forgotten_ids());
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

absl::StatusOr<v1::MemberList> WithoutMember(const StateTable& table, const std::set<NodeId>& live,
                                             bool known, const NodeId& node) {
  const v1::MemberList present = ReadList(table);
  std::set<NodeId> left = ValidIds(present.node_ids());
  if (!left.contains(node) && !known) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kNodeNotFound,
                        absl::StrCat("no member of this cluster has the id ", ShortId(node)),
                        node.value());
  }
  if (live.contains(node)) {
    return ReasonStatus(
        absl::StatusCode::kFailedPrecondition, reasons::kNodeAlive,
        absl::StrCat("node ", ShortId(node), " is there and would be listed again at once"),
        node.value());
  }
  left.erase(node);
  if (left.empty()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        "the last member can't be forgotten", node.value());
  }
  v1::MemberList list = MakeList(left, present.forgotten_ids());
  auto& forgotten = *list.mutable_forgotten_ids();
  forgotten.erase(std::remove(forgotten.begin(), forgotten.end(), node.value()), forgotten.end());
  if (forgotten.size() >= kForgottenMax) forgotten.erase(forgotten.begin());
  list.add_forgotten_ids(node.value());
  return list;
}

}  // namespace macrame::agentd
