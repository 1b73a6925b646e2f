#include "agentd/cores/state_table.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

constexpr size_t kKeyBytesMax = 512;

v1::StateVersion ToProto(const StateVersion& version) {
  v1::StateVersion proto;
  proto.set_term(version.fence.term.value());
  proto.set_coordinator_id(version.fence.coordinator.value());
  proto.set_sequence(version.sequence);
  return proto;
}

StateVersion FromProto(const v1::StateVersion& proto) {
  return {{Term(proto.term()), NodeId(proto.coordinator_id())}, proto.sequence()};
}

// Whether the writer of `later` knew of `version`: it is in its history, or older than all of a
// history that was cut off.
bool Succeeds(const v1::StateEntry& later, const StateVersion& version) {
  if (VersionOf(later).fence == version.fence) return true;
  for (const v1::StateVersion& past : later.history()) {
    const StateVersion known = FromProto(past);
    if (known.fence == version.fence) return version.sequence <= known.sequence;
  }
  return later.history_size() == kHistoryMax && version < FromProto(later.history(kHistoryMax - 1));
}

bool SameContent(const v1::StateEntry& a, const v1::StateEntry& b) {
  return a.removed() == b.removed() && a.value() == b.value();
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    MACRAME_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void Add(std::string_view bytes) {
    Add(bytes.size());
    MACRAME_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  void Add(uint64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (8 * i));
    MACRAME_CHECK(EVP_DigestUpdate(context_.get(), bytes, sizeof(bytes)) == 1);
  }
  std::string Finish() {
    std::string digest(32, '\0');
    unsigned size = 0;
    auto* out = reinterpret_cast<unsigned char*>(digest.data());
    MACRAME_CHECK(EVP_DigestFinal_ex(context_.get(), out, &size) == 1 && size == digest.size());
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

StateVersion VersionOf(const v1::StateEntry& entry) {
  return {{Term(entry.term()), NodeId(entry.coordinator_id())}, entry.sequence()};
}

StateTable::StateTable(NodeId self, StateTableOptions options)
    : self_(std::move(self)), options_(options) {}

void StateTable::Load(const std::vector<v1::StateEntry>& entries) {
  MACRAME_CHECK(entries_.empty()) << "a table is loaded once";
  StateChange ignored;
  for (const v1::StateEntry& entry : entries) Put(entry, ignored);
}

// --- merging -------------------------------------------------------------------------------------

MergeResult StateTable::Merge(const StateEntries& entries, bool complete) {
  MergeResult result;
  std::set<std::string_view> named;
  const StateVersion buried_up_to = KnowsFloor(entries) ? StateVersion() : floor_;
  for (const v1::StateEntry& entry : entries) {
    named.insert(entry.key());
    if (IsAcceptable(entry, result)) {
      MergeOne(entry, buried_up_to, result);
    } else {
      ++result.refused;
    }
  }
  if (complete) CompareUnnamed(entries, named, result);
  if (fence_.has_value() && !kept_.empty()) {
    Proposal restored = RestoreKept();
    result.restored = restored.sequence;
    for (v1::StateEntry& entry : restored.change.put) result.change.put.push_back(std::move(entry));
  }
  if (fence_.has_value() && !result.change.empty()) {
    for (const auto& [node, sequence] : replicated_) OnDigestDiffers(node);
  }
  return result;
}

MergeResult StateTable::MergeElector(const StateEntries& entries) {
  const auto own = entries_.find(kTombstoneFloorKey);
  const bool was_forgotten = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.key() == kTombstoneFloorKey &&
           (own == entries_.end() || VersionOf(own->second) < VersionOf(entry));
  });
  return Merge(entries, /*complete=*/was_forgotten);
}

// Whether the sender dropped what this node's floor says was dropped everywhere: then what it holds
// below that floor is there, and this node lacks it for it is new or has lost its disk.
bool StateTable::KnowsFloor(const StateEntries& entries) const {
  const auto own = entries_.find(kTombstoneFloorKey);
  return std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.key() == kTombstoneFloorKey &&
           (own == entries_.end() || VersionOf(own->second) <= VersionOf(entry));
  });
}

// What this node holds and the sender's whole state lacks.
void StateTable::CompareUnnamed(const StateEntries& entries,
                                const std::set<std::string_view>& named, MergeResult& result) {
  const bool same_floor = std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
    const auto own = entries_.find(kTombstoneFloorKey);
    return entry.key() == kTombstoneFloorKey && own != entries_.end() &&
           VersionOf(entry) == VersionOf(own->second);
  });
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool buried = same_floor && VersionOf(it->second) <= floor_;
    if (named.contains(it->first)) {
      ++it;
    } else if (buried) {
      // Everyone removed it while this node was forgotten.
      result.change.dropped.push_back(it->first);
      it = entries_.erase(it);
      ++revision_;
      digest_.clear();
    } else {
      result.newer_here.push_back(it->second);
      ++it;
    }
  }
}

bool StateTable::IsAcceptable(const v1::StateEntry& entry, MergeResult& result) const {
  std::string why;
  if (entry.key().empty() || entry.key().size() > kKeyBytesMax) {
    why = "its key is empty or too long";
  } else if (entry.value().size() > options_.value_bytes_max) {
    why = absl::StrCat("its value has ", entry.value().size(), " bytes");
  } else if (entry.term() == 0 || entry.term() > kTermMax || entry.sequence() == 0 ||
             entry.sequence() > kSequenceMax || entry.coordinator_id().empty() ||
             entry.history_size() > kHistoryMax) {
    why = "its version makes no sense";
  } else if (entries_.size() >= options_.entries_max && !entries_.contains(entry.key())) {
    why = absl::StrCat("the state holds ", options_.entries_max, " entries already");
  }
  if (why.empty()) return true;
  if (result.first_refusal.empty()) {
    result.first_refusal = absl::StrCat("state entry '", entry.key().substr(0, 64), "': ", why);
  }
  return false;
}

void StateTable::MergeOne(const v1::StateEntry& entry, const StateVersion& buried_up_to,
                          MergeResult& result) {
  const StateVersion version = VersionOf(entry);
  const auto present = entries_.find(entry.key());
  if (present == entries_.end()) {
    // Everyone had it removed once; only a node that was forgotten can still bring it.
    if (version <= buried_up_to && entry.key() != kTombstoneFloorKey) return;
    Put(entry, result.change);
    return;
  }
  const StateVersion have = VersionOf(present->second);
  if (version == have) return;
  const bool theirs_wins = have < version;
  const v1::StateEntry& winner = theirs_wins ? entry : present->second;
  const v1::StateEntry& loser = theirs_wins ? present->second : entry;
  const bool keeps = theirs_wins && !present->second.removed() && keeps_ && keeps_(entry.key()) &&
                     !SameContent(winner, loser);
  if (!keeps && !Succeeds(winner, VersionOf(loser)) && !SameContent(winner, loser)) {
    result.lost.push_back({loser, winner});
  }
  if (keeps) {
    kept_.try_emplace(entry.key(), present->second.value());
    result.kept.push_back({entry.key(), entry});
  }
  if (theirs_wins) {
    Put(entry, result.change);
  } else {
    result.newer_here.push_back(present->second);
  }
}

void StateTable::Put(v1::StateEntry entry, StateChange& change) {
  highest_sequence_ = std::max(highest_sequence_, entry.sequence());
  ++revision_;
  digest_.clear();
  std::erase(change.dropped, entry.key());
  change.put.push_back(entry);
  v1::StateEntry& kept = entries_[entry.key()];
  kept = std::move(entry);
  if (kept.key() == kTombstoneFloorKey) ApplyFloor(kept, change);
}

void StateTable::ApplyFloor(const v1::StateEntry& entry, StateChange& change) {
  v1::StateVersion proto;
  if (!proto.ParseFromString(entry.value())) return;
  floor_ = std::max(floor_, FromProto(proto));
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.removed() && VersionOf(it->second) <= floor_) {
      change.dropped.push_back(it->first);
      it = entries_.erase(it);
    } else {
      ++it;
    }
  }
}

const v1::StateEntry* StateTable::Find(std::string_view key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() || it->second.removed() ? nullptr : &it->second;
}

const std::string& StateTable::Digest() const {
  if (!digest_.empty()) return digest_;
  Sha256 hash;
  for (const auto& [key, entry] : entries_) {
    hash.Add(key);
    hash.Add(entry.value());
    hash.Add(entry.removed() ? 1 : 0);
    hash.Add(entry.term());
    hash.Add(entry.coordinator_id());
    hash.Add(entry.sequence());
  }
  return digest_ = hash.Finish();
}

// --- the coordinator's side ----------------------------------------------------------------------

void StateTable::BeginLeading(const FencePair& fence) {
  fence_ = fence;
  first_sequence_ = last_sequence_ = highest_sequence_;
  replicated_.clear();
  resend_.clear();
}

void StateTable::StopLeading() {
  fence_.reset();
  replicated_.clear();
  resend_.clear();
}

StateTable::Proposal StateTable::RestoreKept() {
  Proposal all{last_sequence_, {}};
  for (auto& [key, value] : std::exchange(kept_, {})) {
    auto proposal = Write(key, std::move(value), /*removed=*/false);
    if (!proposal.ok()) continue;
    all.sequence = proposal->sequence;
    for (v1::StateEntry& entry : proposal->change.put) all.change.put.push_back(std::move(entry));
  }
  return all;
}

absl::StatusOr<StateTable::Proposal> StateTable::Propose(std::string_view key, std::string value) {
  return Write(key, std::move(value), /*removed=*/false);
}

absl::StatusOr<StateTable::Proposal> StateTable::Remove(std::string_view key, std::string residue) {
  if (fence_.has_value() && Find(key) == nullptr) {
    // Why it is not there may wait to be committed; what was so before this lead does not.
    return Proposal{last_sequence_ > first_sequence_ ? last_sequence_ : 0, {}};
  }
  return Write(key, std::move(residue), /*removed=*/true);
}

absl::StatusOr<StateTable::Proposal> StateTable::Write(std::string_view key, std::string value,
                                                       bool removed) {
  if (!fence_.has_value()) {
    return ReasonStatus(
        absl::StatusCode::kFailedPrecondition, reasons::kNoCoordinator,
        absl::StrCat("'", std::string(key), "' can't be changed here: this node does not lead"),
        self_.value());
  }
  if (key.empty() || key.size() > kKeyBytesMax || value.size() > options_.value_bytes_max) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat("a key of ", key.size(), " bytes with a value of ",
                                     value.size(), " bytes is not taken (at most ", kKeyBytesMax,
                                     " and ", options_.value_bytes_max, ")"));
  }
  const auto present = entries_.find(key);
  if (present == entries_.end() && entries_.size() >= options_.entries_max) {
    return ReasonStatus(
        absl::StatusCode::kResourceExhausted, reasons::kBadRequest,
        absl::StrCat(
            "the desired state holds ", entries_.size(),
            " entries, removed ones included, as many as it may; removed ones go when every "
            "known node is back"));
  }
  Proposal proposal;
  v1::StateEntry entry = NextEntry(key, std::move(value), removed);
  proposal.sequence = entry.sequence();
  Put(std::move(entry), proposal.change);
  return proposal;
}

v1::StateEntry StateTable::NextEntry(std::string_view key, std::string value, bool removed) {
  last_sequence_ = highest_sequence_ + 1;
  v1::StateEntry entry;
  entry.set_key(std::string(key));
  entry.set_value(std::move(value));
  entry.set_removed(removed);
  entry.set_term(fence_->term.value());
  entry.set_coordinator_id(fence_->coordinator.value());
  entry.set_sequence(last_sequence_);
  const auto before = entries_.find(key);
  if (before == entries_.end()) return entry;
  const StateVersion version = VersionOf(before->second);
  if (version.fence != *fence_) *entry.add_history() = ToProto(version);
  for (const v1::StateVersion& past : before->second.history()) {
    if (entry.history_size() == kHistoryMax) break;
    if (FromProto(past).fence != *fence_) *entry.add_history() = past;
  }
  return entry;
}

void StateTable::OnPersisted(uint64_t sequence) { OnReplicated(self_, sequence); }

std::optional<StateTable::Batch> StateTable::PendingFor(const NodeId& node) const {
  if (!fence_.has_value()) return std::nullopt;
  Batch batch;
  batch.sequence = last_sequence_;
  const auto progress = replicated_.find(node);
  batch.complete = progress == replicated_.end() || resend_.contains(node);
  if (!batch.complete && progress->second >= last_sequence_) return std::nullopt;
  for (const auto& [key, entry] : entries_) {
    const bool new_there = batch.complete || (VersionOf(entry).fence == *fence_ &&
                                              entry.sequence() > progress->second);
    if (new_there) batch.entries.push_back(entry);
  }
  return batch;
}

void StateTable::OnReplicated(const NodeId& node, uint64_t sequence) {
  if (!fence_.has_value()) return;
  uint64_t& progress = replicated_[node];
  progress = std::max(progress, std::min(sequence, last_sequence_));
  resend_.erase(node);
}

void StateTable::OnDigestDiffers(const NodeId& node) {
  if (node != self_) resend_.insert(node);
}

uint64_t StateTable::CommittedUpTo(const std::set<NodeId>& electorate) const {
  if (!fence_.has_value()) return 0;
  std::vector<uint64_t> progress;
  bool counts_self = false;
  for (const NodeId& node : electorate) {
    const auto it = replicated_.find(node);
    progress.push_back(it == replicated_.end() ? 0 : it->second);
    counts_self |= node == self_;
  }
  const auto own = replicated_.find(self_);
  if (!counts_self) progress.push_back(own == replicated_.end() ? 0 : own->second);
  std::sort(progress.begin(), progress.end(), std::greater<>());
  const uint64_t majority = progress[progress.size() / 2];
  // Its own disk is one of those that count.
  const uint64_t here = own == replicated_.end() ? 0 : own->second;
  const uint64_t committed = std::min(majority, here);
  return committed > first_sequence_ ? committed : 0;
}

std::optional<StateTable::Proposal> StateTable::DropTombstones(const std::set<NodeId>& known) {
  std::erase_if(digests_, [&](const auto& told) { return !known.contains(told.first); });
  if (!fence_.has_value()) return std::nullopt;
  const bool all_agree = std::all_of(known.begin(), known.end(), [this](const NodeId& node) {
    const auto told = digests_.find(node);
    return node == self_ || (told != digests_.end() && told->second == Digest());
  });
  if (!all_agree) return std::nullopt;
  std::vector<StateVersion> tombstones;
  for (const auto& [key, entry] : entries_) {
    if (entry.removed()) tombstones.push_back(VersionOf(entry));
  }
  if (tombstones.size() <= options_.tombstones_kept) return std::nullopt;
  // All of them: to leave some would mean to come back soon.
  const StateVersion floor = *std::max_element(tombstones.begin(), tombstones.end());
  auto proposal = Write(kTombstoneFloorKey, ToProto(floor).SerializeAsString(), /*removed=*/false);
  if (!proposal.ok()) return std::nullopt;
  return *std::move(proposal);
}

}  // namespace macrame::agentd
