#include "tests/sim/sim_disk.h"

#include <utility>

#include "proto/reasons.h"

namespace macrame::agentd::sim {

SimStore::SimStore(SimDisk& disk, ProcessPtr process, DiskEvents events)
    : disk_(disk),
      process_(std::move(process)),
      events_(std::move(events)),
      node_id_(disk.node_id),
      incarnation_(++disk.incarnation),
      last_machine_(disk.machine),
      loaded_revocations_(disk.revocations),
      loaded_grant_(disk.grant) {
  for (const auto& [key, entry] : disk.entries) loaded_entries_.push_back(entry);
}

absl::Status SimStore::CheckWritable() {
  if (!process_->is_alive()) return absl::UnavailableError("the process is gone");
  if (!disk_.is_full) {
    failure_.reset();
    return absl::OkStatus();
  }
  failure_ = MakeReason(reasons::kStateDiskFull, "the disk is full", node_id_.value());
  return ReasonStatus(absl::StatusCode::kUnavailable, *failure_);
}

absl::Status SimStore::SaveMachine(const std::string& machine) {
  const absl::Status writable = CheckWritable();
  if (!writable.ok()) return writable;
  disk_.machine = last_machine_ = machine;
  return absl::OkStatus();
}

absl::Status SimStore::SaveRevocations(const std::string& list) {
  const absl::Status writable = CheckWritable();
  if (writable.ok()) disk_.revocations = list;
  return writable;
}

absl::Status SimStore::SaveGrant(const GrantRecord& record) {
  events_.before_grant();
  const absl::Status writable = CheckWritable();
  if (!writable.ok()) return writable;
  if (!events_.forgets_grant()) disk_.grant = record;
  events_.after_grant();
  return absl::OkStatus();
}

absl::Status SimStore::SaveChange(const StateChange& change) {
  const absl::Status writable = CheckWritable();
  if (!writable.ok() || events_.forgets_change()) return writable;
  for (const v1::StateEntry& entry : change.put) {
    events_.before_entry(entry);
    disk_.entries[entry.key()] = entry;
  }
  for (const std::string& key : change.dropped) disk_.entries.erase(key);
  return absl::OkStatus();
}

}  // namespace macrame::agentd::sim
