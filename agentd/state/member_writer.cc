#include "agentd/state/member_writer.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "agentd/base/log_text.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

v1::ForgetNodeResponse ResponseOf(const std::set<NodeId>& left) {
  v1::ForgetNodeResponse response;
  for (const NodeId& node : left) response.add_member_ids(node.value());
  return response;
}

}  // namespace

MemberWriter::MemberWriter(Parts parts, Consistency consistency)
    : parts_(std::move(parts)), list_(parts_.self, consistency) {}

std::set<NodeId> MemberWriter::Live() const {
  std::set<NodeId> live = parts_.members.Live();
  live.insert(parts_.self);
  return live;
}

void MemberWriter::Take() {
  const StateTable& table = parts_.replicator.table();
  if (revision_ == table.revision() && revision_ != 0) return;
  revision_ = table.revision();
  for (const NodeId& node : ForgottenMembers(table)) parts_.members.Forget(node);
  std::set<NodeId> listed = ListedMembers(table);
  for (const NodeId& node : forgotten_alone_) listed.erase(node);
  if (listed == listed_) return;
  listed_ = std::move(listed);
  parts_.leases.OnMemberList(listed_);
}

void MemberWriter::BeginLeading() {
  writing_ = uncommitted_ = false;
  list_.BeginLeading(parts_.dispatcher.Now());
}

void MemberWriter::ForgetAlone() {
  if (forgotten_alone_.empty()) return;
  forgotten_alone_.clear();
  revision_ = 0;
  Take();
}

void MemberWriter::Tick() {
  const MonotonicTime now = parts_.dispatcher.Now();
  if (writing_ || !parts_.election.Leading(now).has_value()) return;
  const StateTable& table = parts_.replicator.table();
  if (const v1::StateEntry* entry = table.Find(kMembersKey); uncommitted_ && entry != nullptr) {
    v1::MemberList same;
    same.ParseFromString(entry->value());
    return Write(same, [](const absl::Status&) {});
  }
  const std::set<NodeId> live = Live();
  std::set<NodeId> granted = {parts_.self};
  for (const NodeId& node : live) {
    if (parts_.election.HoldsLeaseOf(node, now)) granted.insert(node);
  }
  if (const auto due = list_.Due(table, granted, live, true, now); due.has_value()) {
    return Write(*due, [](const absl::Status&) {});
  }
  if (forgotten_alone_.empty()) return;
  const NodeId node = *forgotten_alone_.begin();
  const auto list = WithoutMember(table, live, true, node);
  if (!list.ok()) {
    forgotten_alone_.erase(node);
    return;
  }
  Write(*list, [this, node](const absl::Status& status) {
    if (status.ok()) forgotten_alone_.erase(node);
  });
}

void MemberWriter::Write(const v1::MemberList& list,
                         std::function<void(const absl::Status&)> done) {
  writing_ = uncommitted_ = true;
  parts_.replicator.Write(std::string(kMembersKey), list.SerializeAsString(),
                          [this, done = std::move(done)](const absl::Status& status) {
                            writing_ = false;
                            uncommitted_ = !status.ok();
                            if (!status.ok()) {
                              spdlog::warn("the list of members was not written: {}",
                                           LogText(status));
                            }
                            done(status);
                          });
}

void MemberWriter::Forget(const NodeId& node, Forgotten done) {
  if (writing_ || uncommitted_ || !list_.confirmed()) {
    return done(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotAcknowledged,
                             "another change to the list of members is on its way; try again"));
  }
  const bool known = parts_.members.IsMember(node);
  const auto list = WithoutMember(parts_.replicator.table(), Live(), known, node);
  if (!list.ok()) return done(list.status());
  spdlog::info("node {} is forgotten", ShortId(node));
  Write(*list, [this, done = std::move(done)](const absl::Status& status) {
    if (!status.ok()) return done(status);
    done(ResponseOf(listed_));
  });
}

absl::StatusOr<v1::ForgetNodeResponse> MemberWriter::ForgetAlone(const NodeId& node) {
  const bool known = parts_.members.IsMember(node) || listed_.contains(node);
  const auto list = WithoutMember(parts_.replicator.table(), Live(), known, node);
  if (!list.ok()) return list.status();
  spdlog::warn("node {} is forgotten by this side alone", ShortId(node));
  forgotten_alone_.insert(node);
  revision_ = 0;
  Take();
  return ResponseOf(listed_);
}

}  // namespace macrame::agentd
