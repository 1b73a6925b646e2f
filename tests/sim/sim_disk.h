#pragma once

// What outlives the runs of an agent on one machine, and the store that an agent has on it.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cores/state_store.h"
#include "tests/sim/scheduler.h"

namespace macrame::agentd::sim {

struct SimDisk {
  NodeId node_id;
  uint64_t incarnation = 0;
  std::string machine;
  std::string revocations;
  std::optional<GrantRecord> grant;
  std::map<std::string, v1::StateEntry> entries;
  bool is_full = false;
};

// What happens at writes. Each may end the process.
struct DiskEvents {
  std::function<void()> before_grant;
  std::function<void()> after_grant;
  std::function<void(const v1::StateEntry&)> before_entry;
  std::function<bool()> forgets_grant;   // planted: it says that it wrote
  std::function<bool()> forgets_change;  // likewise
};

// Opening raises the incarnation.
class SimStore final : public StateStore {
 public:
  SimStore(SimDisk& disk, ProcessPtr process, DiskEvents events);

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

 private:
  // Whether it can be written, with what failure() says of it.
  absl::Status CheckWritable();

  SimDisk& disk_;
  const ProcessPtr process_;
  const DiskEvents events_;
  const NodeId node_id_;
  const Incarnation incarnation_;
  std::string last_machine_;
  const std::string loaded_revocations_;
  const std::optional<GrantRecord> loaded_grant_;
  std::vector<v1::StateEntry> loaded_entries_;
  std::optional<v1::Reason> failure_;
};

}  // namespace macrame::agentd::sim
