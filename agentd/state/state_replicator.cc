#include "agentd/state/state_replicator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "agentd/base/log_text.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/member_list.h"
#include "agentd/cores/state_keys.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// A heartbeat that was sent before the state arrived still carries the old digest.
constexpr int kDigestsUntilResent = 2;

// A disk that refuses for long must not cost memory for each change.
StateChange LastOfEachKey(StateChange change) {
  StateChange last;
  std::set<std::string> seen;
  for (auto it = change.put.rbegin(); it != change.put.rend(); ++it) {
    if (seen.insert(it->key()).second) last.put.push_back(std::move(*it));
  }
  std::reverse(last.put.begin(), last.put.end());
  std::sort(change.dropped.begin(), change.dropped.end());
  change.dropped.erase(std::unique(change.dropped.begin(), change.dropped.end()),
                       change.dropped.end());
  last.dropped = std::move(change.dropped);
  return last;
}

// What somebody ordered, and would miss. Which gang stays is told with the gang; of the list of
// members, of links and speeds nobody wants to know.
bool IsOrdered(std::string_view key) {
  const absl::string_view name(key.data(), key.size());
  const absl::string_view prefixes[] = {kDeploymentPrefix, kCordonPrefix, kMarksPrefix,
                                        kProfilePrefix,    kApiKeyPrefix, kTenantPrefix};
  return name == kPauseKey ||
         std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

}  // namespace

StateReplicator::StateReplicator(transport::Dispatcher& dispatcher, NodeId self, StateStore& store,
                                 const Election& election, PeerChannels& channels, Options options,
                                 Callbacks callbacks)
    : dispatcher_(dispatcher),
      self_(self),
      store_(store),
      election_(election),
      channels_(channels),
      options_(options),
      callbacks_(std::move(callbacks)),
      table_(self) {
  table_.Load(store_.loaded_entries());
}

void StateReplicator::BeginLeading(const FencePair& fence) {
  peers_.clear();
  table_.BeginLeading(fence);
  StateTable::Proposal restored = table_.RestoreKept();
  const bool kept = !restored.change.empty();
  if (Save(std::move(restored.change)).ok() && kept) table_.OnPersisted(restored.sequence);
  if (kept) callbacks_.on_changed();
  SendToAll();
}

void StateReplicator::StopLeading() {
  table_.StopLeading();
  std::vector<Waiting> waiting;
  waiting.swap(waiting_);
  for (const Waiting& write : waiting) {
    write.done(
        ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                     "this node stopped being coordinator before the change was acknowledged"));
  }
}

absl::Status StateReplicator::CheckOpen(std::string_view key) const {
  if (key != kMembersKey && !callbacks_.open()) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                        "the first list of the cluster's members is not written yet");
  }
  if (waiting_.size() < kWritesWaitingMax) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kNotAcknowledged,
                      absl::StrCat(waiting_.size(),
                                   " changes wait for a majority of the members already; this one "
                                   "was not made"));
}

void StateReplicator::Write(const std::string& key, std::string value, Done done) {
  if (absl::Status open = CheckOpen(key); !open.ok()) return done(open);
  Finish(table_.Propose(key, std::move(value)), std::move(done));
}

void StateReplicator::Remove(const std::string& key, std::string residue, Done done) {
  if (absl::Status open = CheckOpen(key); !open.ok()) return done(open);
  Finish(table_.Remove(key, std::move(residue)), std::move(done));
}

void StateReplicator::Finish(absl::StatusOr<StateTable::Proposal> proposal, Done done) {
  if (!proposal.ok()) return done(proposal.status());
  const absl::Status saved = Save(std::move(proposal->change));
  if (saved.ok()) table_.OnPersisted(proposal->sequence);
  waiting_.push_back({proposal->sequence, dispatcher_.Now(), std::move(done)});
  SendToAll();
  // Whoever is answered finds the change wherever it is read on this node.
  callbacks_.on_changed();
  AnswerCommitted();
}

absl::Status StateReplicator::Save(StateChange change) {
  // What the disk refused before goes first: later entries of the same keys must win.
  StateChange all;
  std::swap(all, unsaved_);
  std::move(change.put.begin(), change.put.end(), std::back_inserter(all.put));
  std::move(change.dropped.begin(), change.dropped.end(), std::back_inserter(all.dropped));
  if (all.empty()) return absl::OkStatus();
  absl::Status saved = store_.SaveChange(all);
  save_tried_at_ = dispatcher_.Now();
  if (!saved.ok()) {
    if (!save_failing_) spdlog::error("the desired state can't be written: {}", LogText(saved));
    unsaved_ = LastOfEachKey(std::move(all));
  } else if (save_failing_) {
    spdlog::info("the desired state is on disk again");
  }
  save_failing_ = !saved.ok();
  return saved;
}

// A disk that was full may have room again; also on a node that does not lead.
void StateReplicator::RetrySave() {
  const bool due = dispatcher_.Now() - save_tried_at_ >= options_.save_interval;
  if (unsaved_.empty() || !due || !Save({}).ok()) return;
  for (const Waiting& write : waiting_) table_.OnPersisted(write.sequence);
}

void StateReplicator::DropTombstones() {
  const MonotonicTime now = dispatcher_.Now();
  if (now - drop_tried_at_ < options_.drop_interval || !waiting_.empty() || save_failing_ ||
      !callbacks_.open()) {
    return;
  }
  drop_tried_at_ = now;
  std::optional<StateTable::Proposal> dropped = table_.DropTombstones(callbacks_.known());
  if (!dropped.has_value()) return;
  spdlog::info("{} removed entries of the desired state are dropped for good",
               dropped->change.dropped.size());
  Finish(*std::move(dropped), [](const absl::Status&) {});
}

void StateReplicator::Set(const std::string& key, std::string value, Done done) {
  if (value.empty()) return Remove(key, "", std::move(done));
  Write(key, std::move(value), std::move(done));
}

void StateReplicator::Tick() {
  RetrySave();
  if (!table_.leading()) return;
  const MonotonicTime now = dispatcher_.Now();
  DropTombstones();
  SendToAll();
  AnswerCommitted();
  std::vector<Waiting> late;
  std::erase_if(waiting_, [&](Waiting& write) {
    if (now - write.since < options_.acknowledge_limit) return false;
    late.push_back(std::move(write));
    return true;
  });
  for (const Waiting& write : late) {
    write.done(
        ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotAcknowledged,
                     "the change is on this node's disk but not on a majority of the members'"));
  }
}

void StateReplicator::AnswerCommitted() {
  if (waiting_.empty()) return;
  std::set<NodeId> electorate = callbacks_.electorate();
  electorate.insert(self_);
  const uint64_t committed = table_.CommittedUpTo(electorate);
  std::vector<Waiting> ready;
  std::erase_if(waiting_, [&](Waiting& write) {
    if (write.sequence > committed) return false;
    ready.push_back(std::move(write));
    return true;
  });
  for (const Waiting& write : ready) write.done(absl::OkStatus());
}

void StateReplicator::NoteDigest(const NodeId& node, const std::string& digest) {
  table_.NoteDigest(node, digest);
  if (!table_.leading()) return;
  Peer& peer = peers_[node];
  if (peer.sending || digest == table_.Digest() || table_.PendingFor(node).has_value()) {
    peer.digest_differed = 0;
    return;
  }
  if (++peer.digest_differed < kDigestsUntilResent) return;
  peer.digest_differed = 0;
  table_.OnDigestDiffers(node);
  SendTo(node);
}

void StateReplicator::SendToAll() {
  if (!table_.leading()) return;
  for (const NodeId& node : callbacks_.live()) {
    if (node != self_) SendTo(node);
  }
}

void StateReplicator::SendTo(const NodeId& node) {
  const MonotonicTime now = dispatcher_.Now();
  const std::optional<FencePair> fence = election_.Leading(now);
  transport::PeerChannel* channel = channels_.For(node);
  if (!fence.has_value() || channel == nullptr || !election_.HoldsLeaseOf(node, now)) return;
  Peer& peer = peers_[node];
  if (peer.sending || now < peer.retry_at) return;
  std::optional<StateTable::Batch> batch = table_.PendingFor(node);
  if (!batch.has_value()) return;
  v1::ReplicateRequest request;
  *request.mutable_fence() = election_.FenceOf(*fence);
  request.set_complete(batch->complete);
  for (v1::StateEntry& entry : batch->entries) *request.add_entries() = std::move(entry);
  peer.sending = true;
  channel->Call(
      kReplicate, request, options_.send_timeout,
      [this, node, sequence = batch->sequence](absl::StatusOr<v1::ReplicateResponse> response) {
        OnReplicated(node, sequence, std::move(response));
      });
}

void StateReplicator::OnReplicated(const NodeId& node, uint64_t sequence,
                                   absl::StatusOr<v1::ReplicateResponse> response) {
  Peer& peer = peers_[node];
  peer.sending = false;
  if (!table_.leading()) return;
  if (!response.ok() || !response->accepted()) {
    peer.retry_at = dispatcher_.Now() + options_.retry_interval;
    return;
  }
  table_.OnReplicated(node, sequence);
  if (response->newer_size() > 0) {
    absl::Status taken = TakeEntries(response->newer());
    if (!taken.ok()) spdlog::warn("entries of {} are not taken: {}", ShortId(node), LogText(taken));
  }
  AnswerCommitted();
  SendTo(node);
}

absl::StatusOr<MergeResult> StateReplicator::Take(MergeResult result) {
  if (result.refused > 0) {
    spdlog::warn("{} entries of the desired state were refused; the first: {}", result.refused,
                 result.first_refusal);
  }
  NoteLost(result);
  const bool changed = !result.change.empty();
  absl::Status saved = Save(std::move(result.change));
  if (saved.ok() && result.restored != 0) table_.OnPersisted(result.restored);
  if (changed) callbacks_.on_changed();
  if (!saved.ok()) return saved;
  return result;
}

absl::Status StateReplicator::TakeEntries(const StateEntries& entries) {
  return Take(table_.Merge(entries, /*complete=*/false)).status();
}

absl::Status StateReplicator::TakeElector(const StateEntries& entries) {
  return Take(table_.MergeElector(entries)).status();
}

absl::StatusOr<v1::ReplicateResponse> StateReplicator::OnReplicate(
    const NodeId& from, const v1::ReplicateRequest& request) {
  const FencePair fence = FromProto(request.fence());
  if (from != fence.coordinator) {
    return absl::PermissionDeniedError("the caller is not the coordinator that its order names");
  }
  absl::Status obeyed = election_.CheckFence(fence);
  if (!obeyed.ok()) return obeyed;
  absl::StatusOr<MergeResult> merged = Take(table_.Merge(request.entries(), request.complete()));
  if (!merged.ok()) return merged.status();
  v1::ReplicateResponse response;
  response.set_accepted(true);
  *response.mutable_highest() = ToProto(election_.granted());
  response.set_state_digest(table_.Digest());
  for (v1::StateEntry& entry : merged->newer_here) *response.add_newer() = std::move(entry);
  return response;
}

void StateReplicator::AddAllEntries(StateEntries* entries) const {
  for (const auto& [key, entry] : table_.entries()) *entries->Add() = entry;
}

void StateReplicator::NoteLost(const MergeResult& result) {
  const auto note_apart = [this](const v1::StateEntry& entry) {
    v1::GangRecord record;
    const bool is_gang = absl::StartsWith(entry.key(), kGangPrefix) && !entry.removed();
    if (is_gang && record.ParseFromString(entry.value())) callbacks_.on_apart(record);
  };
  for (const KeptWrite& kept : result.kept) note_apart(kept.theirs);
  for (const LostWrite& write : result.lost) {
    note_apart(write.lost);
    if (!IsOrdered(write.lost.key())) continue;
    v1::Reason reason = MakeReason(
        reasons::kWriteLost,
        absl::StrCat("a change to ", write.lost.key(), " that was made apart (term ",
                     write.lost.term(), ") gave way to that of term ", write.won.term()));
    spdlog::warn("{}", reason.message());
    lost_writes_.push_back(std::move(reason));
  }
  if (lost_writes_.size() > kLostWritesShownMax) {
    lost_writes_.erase(lost_writes_.begin(), lost_writes_.end() - kLostWritesShownMax);
  }
}

}  // namespace macrame::agentd
