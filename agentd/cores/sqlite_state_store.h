#pragma once

// StateStore in SQLite.
//
// One database `state.db` in the state folder (WAL, synchronous=FULL: a call that returned OK
// survives a power cut), opened by one agent at a time. A database that is missing though it was
// there, torn, altered or of a newer schema is STATE_UNREADABLE: never silently a new one, for a
// node that forgot its grant could grant twice.
//
// Owner: the agent's owner thread; calls block for an fsync (milliseconds) and at most
// kBusyLimitMs.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agentd/cores/state_store.h"
#include "proto/ids.h"

struct sqlite3;
struct sqlite3_stmt;

namespace macrame::agentd {

inline constexpr int kStateSchemaVersion = 1;
// How long a call may wait for a lock that a backup tool holds.
inline constexpr int kBusyLimitMs = 2000;
// The integrity check at opening stops with an error after this many steps of SQLite's machine
// (about 5 s).
inline constexpr uint64_t kCheckStepsMax = 400'000'000;

class SqliteStateStore final : public StateStore {
 public:
  // Opens or makes the store in `folder` (made with mode 0700 when missing) and raises the
  // incarnation. `fresh_node_id` is taken only when the store is new. Errors: FAILED_PRECONDITION
  // with the holder's pid when another agent has the folder; DATA_LOSS with STATE_UNREADABLE;
  // UNAVAILABLE for disk trouble.
  static absl::StatusOr<std::unique_ptr<SqliteStateStore>> Open(const std::string& folder,
                                                                const NodeId& fresh_node_id);
  ~SqliteStateStore() override;
  SqliteStateStore(const SqliteStateStore&) = delete;
  SqliteStateStore& operator=(const SqliteStateStore&) = delete;

  const NodeId& node_id() const override { return node_id_; }
  Incarnation incarnation() const override { return incarnation_; }
  const std::string& last_machine() const override { return last_machine_; }
  const std::string& loaded_revocations() const override { return loaded_revocations_; }
  const std::optional<GrantRecord>& loaded_grant() const override { return loaded_grant_; }
  const std::vector<v1::StateEntry>& loaded_entries() const override { return loaded_entries_; }
  const std::optional<v1::Reason>& failure() const override { return failure_; }

  absl::Status SaveMachine(const std::string& machine) override;
  absl::Status SaveRevocations(const std::string& list) override;
  absl::Status SaveGrant(const GrantRecord& record) override;
  absl::Status SaveChange(const StateChange& change) override;

  // Durable when OK, all or nothing: a node of its own from the next opening on, which has promised
  // nothing and never ran. The desired state stays.
  absl::Status BecomeNewNode(const NodeId& fresh_node_id);

 private:
  class Statement;

  SqliteStateStore(std::string folder, int lock_fd);
  absl::Status Prepare(const NodeId& fresh_node_id);
  absl::Status OpenDatabase(bool expected);
  absl::Status CheckIntegrity();
  absl::Status CreateSchema(const NodeId& fresh_node_id);
  absl::Status LoadMeta();
  absl::Status LoadEntries();
  absl::Status RaiseIncarnation();
  absl::Status Execute(const char* sql);
  absl::StatusOr<std::optional<std::string>> ReadMeta(const std::string& key);
  absl::Status WriteMeta(const std::string& key, const std::string& value);
  absl::Status WriteEntries(const StateChange& change);
  absl::Status Unreadable(const std::string& what) const;
  absl::Status DiskError(const std::string& doing) const;
  absl::Status Note(absl::Status written);
  std::string DatabasePath() const { return folder_ + "/state.db"; }
  std::string MarkerPath() const { return folder_ + "/state.made"; }

  const std::string folder_;
  int lock_fd_ = -1;
  sqlite3* database_ = nullptr;
  NodeId node_id_;
  Incarnation incarnation_;
  std::string last_machine_;
  std::string loaded_revocations_;
  std::optional<GrantRecord> loaded_grant_;
  std::optional<v1::Reason> failure_;
  std::vector<v1::StateEntry> loaded_entries_;
};

}  // namespace macrame::agentd
