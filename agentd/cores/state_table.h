#pragma once

// The desired state: a small map from key to versioned value, equal on every node in the end.
//
// Each entry carries the version (term, coordinator, sequence) of its writer; per key the highest
// version wins, so merging is the same in any order and any number of times. Removed keys stay as
// tombstones. Every entry also remembers, per coordinator that wrote its key, that coordinator's
// last sequence (`history`): so that a merge can tell a successor from a write made apart, and
// report the latter as lost.
//
// Contract: pure. Bounds: entries_max, value_bytes_max, kHistoryMax. What a call reports as changed
// must be on disk (StateStore) before anyone is told that it is accepted.
// Owner: the agent's owner thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agentd/cores/election.h"
#include "macrame/v1/agent.pb.h"
#include "proto/ids.h"

namespace macrame::agentd {

struct StateVersion {
  FencePair fence;
  uint64_t sequence = 0;
  auto operator<=>(const StateVersion&) const = default;
};
StateVersion VersionOf(const v1::StateEntry& entry);

// Writers remembered per key; an older one is taken for an ancestor.
inline constexpr int kHistoryMax = 8;
// Sequences beyond this are refused: they come from no honest node of ours.
inline constexpr uint64_t kSequenceMax = uint64_t{1} << 62;
// The key whose value says up to which version tombstones were dropped everywhere.
inline constexpr std::string_view kTombstoneFloorKey = "meta/tombstone_floor";

struct StateTableOptions {
  size_t entries_max = 4096;  // tombstones included
  size_t value_bytes_max = 1 << 20;
  size_t tombstones_kept = 256;  // more are dropped once every known member has them
};

using StateEntries = google::protobuf::RepeatedPtrField<v1::StateEntry>;

// What has to be written to disk, in one transaction.
struct StateChange {
  std::vector<v1::StateEntry> put;
  std::vector<std::string> dropped;  // tombstones' keys
  bool empty() const { return put.empty() && dropped.empty(); }
};

// A write that was made apart from the one that won.
struct LostWrite {
  v1::StateEntry lost;
  v1::StateEntry won;
};

// What this node holds of a key that a merge would have taken from it (StateTable::SetKeeps).
struct KeptWrite {
  std::string key;
  v1::StateEntry theirs;
};

struct MergeResult {
  StateChange change;
  std::vector<KeptWrite> kept;
  uint64_t restored = 0;  // sequence of what was written over again at once; 0: nothing
  std::vector<LostWrite> lost;
  std::vector<v1::StateEntry> newer_here;  // for ReplicateResponse.newer
  size_t refused = 0;                      // malformed, too large, too many
  std::string first_refusal;               // why, of the first
};

class StateTable {
 public:
  explicit StateTable(NodeId self, StateTableOptions options = {});

  // Keys whose value here is to win over what merges bring, as long as this node leads or comes to
  // lead next: Merge takes the other value, and it is written over under this node's own pair, at
  // once or by RestoreKept. Asked for each key that a merge would change.
  void SetKeeps(std::function<bool(std::string_view key)> keeps) { keeps_ = std::move(keeps); }

  // Fills an empty table from disk.
  void Load(const std::vector<v1::StateEntry>& entries);

  // Takes what is newer. With `complete` the entries are the sender's whole state, and what it
  // lacks is reported in newer_here too.
  MergeResult Merge(const StateEntries& entries, bool complete);
  // Takes all that an elector holds. A node that was forgotten, whose floor is below the elector's,
  // also drops what was removed everywhere meanwhile: it is about to lead.
  MergeResult MergeElector(const StateEntries& entries);

  // Null when there is none or it is removed.
  const v1::StateEntry* Find(std::string_view key) const;
  // Removed ones included: a tombstone keeps the residue that Remove was given.
  const std::map<std::string, v1::StateEntry, std::less<>>& entries() const { return entries_; }
  // Raised by each change: derived values are computed again when it differs.
  uint64_t revision() const { return revision_; }
  // SHA-256 over the sorted entries, 32 bytes. Equal exactly when the maps are.
  const std::string& Digest() const;

  // --- the coordinator's side ---

  // From BecameCoordinator on. Progress of earlier terms is forgotten.
  void BeginLeading(const FencePair& fence);
  void StopLeading();
  bool leading() const { return fence_.has_value(); }

  // Write at the next sequence, also what is there already: it is this lead's then.
  // FAILED_PRECONDITION (NO_COORDINATOR) when not leading, RESOURCE_EXHAUSTED when the table is
  // full, INVALID_ARGUMENT for a bad key or value.
  struct Proposal {
    uint64_t sequence = 0;
    StateChange change;
  };
  // After BeginLeading: writes again what SetKeeps kept from merges since this node led last; the
  // change is empty when there is nothing. When it is another that leads next: ForgetKept.
  Proposal RestoreKept();
  void ForgetKept() { kept_.clear(); }
  absl::StatusOr<Proposal> Propose(std::string_view key, std::string value);
  // `residue` stays readable in the tombstone (a removed gang's last epoch). Of a key that is not
  // there the change is empty; `sequence` is then that of what may have removed it, 0 when nothing
  // was written under this lead.
  absl::StatusOr<Proposal> Remove(std::string_view key, std::string residue = "");
  // This node has written everything up to `sequence`.
  void OnPersisted(uint64_t sequence);
  // What `node` lacks as far as is known; empty when nothing. `sequence` is to be handed back to
  // OnReplicated with the node's acceptance.
  struct Batch {
    std::vector<v1::StateEntry> entries;
    bool complete = false;
    uint64_t sequence = 0;
  };
  std::optional<Batch> PendingFor(const NodeId& node) const;
  void OnReplicated(const NodeId& node, uint64_t sequence);
  // The node's digest differs although nothing is pending for it (seen in a heartbeat): it is sent
  // the whole state once more. Merging something new while leading does this for every node by
  // itself.
  void OnDigestDiffers(const NodeId& node);
  // Writes of this coordinator up to this sequence are on disk on a majority of `electorate` (live
  // members, or all with Consistency::kQuorum), this node included.
  uint64_t CommittedUpTo(const std::set<NodeId>& electorate) const;
  // The node's disk may be another one than before (it was started again): it needs everything.
  void ForgetProgress(const NodeId& node) { replicated_.erase(node); }
  // The digest that a node last told of its own table.
  void NoteDigest(const NodeId& node, const std::string& digest) { digests_[node] = digest; }
  // Drops tombstones beyond tombstones_kept, when every one of `known` (all members, dead ones too)
  // last told that it holds this very state. Nullopt when there is nothing to do.
  std::optional<Proposal> DropTombstones(const std::set<NodeId>& known);

 private:
  using Map = std::map<std::string, v1::StateEntry, std::less<>>;

  bool IsAcceptable(const v1::StateEntry& entry, MergeResult& result) const;
  void CompareUnnamed(const StateEntries& entries, const std::set<std::string_view>& named,
                      MergeResult& result);
  bool KnowsFloor(const StateEntries& entries) const;
  // `buried_up_to`: what is not above it and not here was removed everywhere.
  void MergeOne(const v1::StateEntry& entry, const StateVersion& buried_up_to, MergeResult& result);
  void Put(v1::StateEntry entry, StateChange& change);
  void ApplyFloor(const v1::StateEntry& entry, StateChange& change);
  absl::StatusOr<Proposal> Write(std::string_view key, std::string value, bool removed);
  v1::StateEntry NextEntry(std::string_view key, std::string value, bool removed);

  const NodeId self_;
  const StateTableOptions options_;
  Map entries_;
  StateVersion floor_;
  uint64_t highest_sequence_ = 0;
  uint64_t revision_ = 0;
  mutable std::string digest_;  // empty: to be computed

  std::optional<FencePair> fence_;
  uint64_t first_sequence_ = 0;  // of this leadership; older ones are not ours to commit
  uint64_t last_sequence_ = 0;
  std::map<NodeId, uint64_t> replicated_;  // by node: accepted up to; absent: needs everything
  std::map<NodeId, std::string> digests_;
  std::set<NodeId> resend_;  // need everything once more
  std::function<bool(std::string_view)> keeps_;
  std::map<std::string, std::string> kept_;  // values by key, to be written when this node leads
};

}  // namespace macrame::agentd
