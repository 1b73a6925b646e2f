#pragma once

// The desired state on this node's disk and on everybody else's: the shell around StateTable and
// StateStore. Owner thread; a write blocks it for one fsync.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agentd/cores/desired_state.h"
#include "agentd/cores/election.h"
#include "agentd/cores/state_store.h"
#include "agentd/cores/state_table.h"
#include "agentd/node/peer_channels.h"
#include "macrame/v1/agent.pb.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

inline constexpr size_t kLostWritesShownMax = 8;
inline constexpr size_t kWritesWaitingMax = 256;

class StateReplicator {
 public:
  using Done = std::function<void(const absl::Status&)>;
  struct Options {
    Duration acknowledge_limit = std::chrono::seconds(5);
    Duration send_timeout = std::chrono::seconds(2);
    Duration retry_interval = std::chrono::milliseconds(250);
    Duration save_interval = std::chrono::seconds(1);   // between tries of a disk that refuses
    Duration drop_interval = std::chrono::seconds(10);  // between looks at the tombstones
  };
  struct Callbacks {
    // Of whom a majority acknowledges: the live members, or the listed ones with `consistency:
    // quorum`; with this node or without.
    std::function<std::set<NodeId>()> electorate;
    // Who gets what is written: the live members.
    std::function<std::set<NodeId>()> live;
    // Who may hold entries that others dropped: every member that has not left, and the listed.
    std::function<std::set<NodeId>()> known;
    // False while nothing but the list of members may be written or removed.
    std::function<bool()> open;
    std::function<void()> on_changed;
    // A gang's record that a merge decided against.
    std::function<void(const v1::GangRecord&)> on_apart;
  };

  StateReplicator(transport::Dispatcher& dispatcher, NodeId self, StateStore& store,
                  const Election& election, PeerChannels& channels, Options options,
                  Callbacks callbacks);

  const StateTable& table() const { return table_; }
  const DesiredState& desired() const { return desired_; }

  void BeginLeading(const FencePair& fence);
  // Writes that wait are answered with NO_COORDINATOR.
  void StopLeading();
  // What is kept here against what merges bring (StateTable::SetKeeps), and the end of it: another
  // coordinator is obeyed.
  void SetKeeps(std::function<bool(std::string_view)> keeps) { table_.SetKeeps(std::move(keeps)); }
  void ForgetKept() { table_.ForgetKept(); }

  // Coordinator only. `done` once, when the write is on disk at a majority (NOT_ACKNOWLEDGED when
  // it was not within acknowledge_limit; it may still come true), possibly before the call returns.
  void Write(const std::string& key, std::string value, Done done);
  void Remove(const std::string& key, std::string residue, Done done);
  // As a core decided it: an empty value removes the key.
  void Set(const std::string& key, std::string value, Done done);
  // Sends what is missing and answers writes that ran out of time. Each 100 ms or so.
  void Tick();
  // It was started again, perhaps with another disk.
  void NoteRestarted(const NodeId& node) { table_.ForgetProgress(node); }
  // Nothing waits to be acknowledged or written.
  bool IsIdle() const { return waiting_.empty() && unsaved_.empty(); }
  // From a member's heartbeat.
  void NoteDigest(const NodeId& node, const std::string& digest);

  // An order of the coordinator `from`.
  absl::StatusOr<v1::ReplicateResponse> OnReplicate(const NodeId& from,
                                                    const v1::ReplicateRequest& request);
  // What a node holds that this one lacks.
  absl::Status TakeEntries(const StateEntries& entries);
  // All that an elector holds, before its lease counts.
  absl::Status TakeElector(const StateEntries& entries);
  void AddAllEntries(StateEntries* entries) const;

  // Orders of people, written apart, that a merge decided against; latest last.
  const std::vector<v1::Reason>& lost_writes() const { return lost_writes_; }

 private:
  struct Waiting {
    uint64_t sequence = 0;
    MonotonicTime since;
    Done done;
  };
  struct Peer {
    bool sending = false;
    MonotonicTime retry_at;
    int digest_differed = 0;
  };

  // Whether this key may be changed now; asked before the table is, which forgets nothing.
  absl::Status CheckOpen(std::string_view key) const;
  void Finish(absl::StatusOr<StateTable::Proposal> proposal, Done done);
  absl::StatusOr<MergeResult> Take(MergeResult result);
  absl::Status Save(StateChange change);
  void RetrySave();
  void DropTombstones();
  void SendTo(const NodeId& node);
  void SendToAll();
  void OnReplicated(const NodeId& node, uint64_t sequence,
                    absl::StatusOr<v1::ReplicateResponse> response);
  void AnswerCommitted();
  void NoteLost(const MergeResult& result);

  transport::Dispatcher& dispatcher_;
  const NodeId self_;
  StateStore& store_;
  const Election& election_;
  PeerChannels& channels_;
  const Options options_;
  Callbacks callbacks_;
  StateTable table_;
  DesiredState desired_{table_};
  MonotonicTime save_tried_at_;
  MonotonicTime drop_tried_at_;
  bool save_failing_ = false;
  StateChange unsaved_;  // what the disk refused; tried again with the next write
  std::vector<Waiting> waiting_;
  std::map<NodeId, Peer> peers_;
  std::vector<v1::Reason> lost_writes_;
};

}  // namespace macrame::agentd
