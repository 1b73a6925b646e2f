#pragma once

// What a node must not forget: its id, its incarnation, its grant and the desired state.
// SqliteStateStore (sqlite_state_store.h) has it on disk; a simulation has disks of its own. Owner:
// the agent's owner thread.

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentd/cores/election.h"
#include "agentd/cores/state_table.h"
#include "macrame/v1/common.pb.h"
#include "proto/ids.h"

namespace macrame::agentd {

class StateStore {
 public:
  virtual ~StateStore() = default;

  virtual const NodeId& node_id() const = 0;
  // Of this run: one higher than that of the last.
  virtual Incarnation incarnation() const = 0;
  // The machine of the last run that was this node (NodeIdentity.machine); empty: not known.
  virtual const std::string& last_machine() const = 0;
  // As SaveRevocations had them; empty: never.
  virtual const std::string& loaded_revocations() const = 0;
  // As they were at opening.
  virtual const std::optional<GrantRecord>& loaded_grant() const = 0;
  virtual const std::vector<v1::StateEntry>& loaded_entries() const = 0;

  // Durable when OK: the machine that this node is from now on.
  virtual absl::Status SaveMachine(const std::string& machine) = 0;
  // Durable when OK: who was revoked (v1::RevocationList), whatever the desired state says.
  virtual absl::Status SaveRevocations(const std::string& list) = 0;

  // Of the last write; unset when it succeeded. STATE_DISK_FULL or STATE_UNREADABLE.
  virtual const std::optional<v1::Reason>& failure() const = 0;
  // Durable when OK.
  virtual absl::Status SaveGrant(const GrantRecord& record) = 0;
  // Durable when OK, all or nothing.
  virtual absl::Status SaveChange(const StateChange& change) = 0;
};

}  // namespace macrame::agentd
