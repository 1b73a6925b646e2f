// Tables that talk at random: whatever was lost, repeated or late on the way, all hold the same in
// the end, and that is what a plain map of the highest writes says.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agentd/cores/state_table.h"

namespace macrame::agentd {
namespace {

using Random = std::mt19937_64;

NodeId Id(size_t index) { return NodeId(std::string(32, static_cast<char>('a' + index))); }

StateEntries All(const StateTable& table) {
  StateEntries entries;
  for (const auto& [key, entry] : table.entries()) *entries.Add() = entry;
  return entries;
}

StateEntries Entries(const std::vector<v1::StateEntry>& list) {
  StateEntries entries;
  for (const v1::StateEntry& entry : list) *entries.Add() = entry;
  return entries;
}

// Name and value of what is there.
std::map<std::string, std::string> Values(const StateTable& table) {
  std::map<std::string, std::string> values;
  for (const auto& [key, entry] : table.entries()) {
    if (!entry.removed() && key != kTombstoneFloorKey) values[key] = entry.value();
  }
  return values;
}

// --- several that write apart --------------------------------------------------------------------

// Each value is written once, so that it stands for its write.
class WritersApart {
 public:
  explicit WritersApart(uint64_t seed) : random_(seed) {
    for (size_t i = 0; i < 4; ++i) tables_.push_back(std::make_unique<StateTable>(Id(i)));
  }

  void Step() {
    const size_t node = Below(tables_.size());
    StateTable& table = *tables_[node];
    const size_t act = Below(10);
    if (act == 0 && terms_ < 6) {
      table.BeginLeading({Term(++terms_), Id(node)});
    } else if (act < 5) {
      if (table.leading()) WriteTo(table);
    } else {
      Tell(*tables_[Below(tables_.size())], table, act < 8);
    }
  }
  // Everybody hears of everything.
  void TellAll() {
    for (int round = 0; round < 2; ++round) {
      for (auto& from : tables_) {
        for (auto& to : tables_) Tell(*from, *to, true);
      }
    }
  }

  std::vector<std::unique_ptr<StateTable>> tables_;
  std::map<std::string, v1::StateEntry> highest_;  // by key: the write that has to win
  // By value: what its writer knew of the key.
  std::map<std::string, std::set<std::string>> known_;
  std::set<std::string> lost_;  // as somebody reported them

 private:
  size_t Below(size_t bound) { return random_() % bound; }

  void WriteTo(StateTable& table) {
    const std::string key = absl::StrCat("key", Below(3));
    const v1::StateEntry* before = table.Find(key);
    const std::string value = absl::StrCat("write ", ++writes_);
    std::set<std::string>& known = known_[value];
    if (before != nullptr) {
      known = known_[before->value()];
      known.insert(before->value());
    }
    const auto proposal = table.Propose(key, value);
    ASSERT_TRUE(proposal.ok()) << proposal.status();
    for (const v1::StateEntry& entry : proposal->change.put) {
      const auto present = highest_.find(key);
      const bool is_higher =
          present == highest_.end() || VersionOf(present->second) < VersionOf(entry);
      if (is_higher) highest_[key] = entry;
    }
  }

  void Tell(const StateTable& from, StateTable& to, bool complete) {
    if (&from == &to) return;
    StateEntries entries;
    for (const auto& [key, entry] : from.entries()) {
      if (complete || Below(2) == 0) *entries.Add() = entry;
    }
    const MergeResult result = to.Merge(entries, complete);
    EXPECT_EQ(result.refused, 0u) << result.first_refusal;
    for (const LostWrite& write : result.lost) {
      EXPECT_LT(VersionOf(write.lost), VersionOf(write.won));
      EXPECT_FALSE(known_[write.won.value()].contains(write.lost.value()))
          << "'" << write.won.value() << "' was written by one who knew '" << write.lost.value()
          << "': nothing was lost";
      lost_.insert(write.lost.value());
    }
  }

  Random random_;
  uint64_t terms_ = 0;
  int writes_ = 0;
};

TEST(StateConvergence, TheHighestWriteOfEachKeyWinsEverywhere) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    WritersApart writers(seed);
    for (int step = 0; step < 120; ++step) writers.Step();
    writers.TellAll();
    std::map<std::string, std::string> expected;
    for (const auto& [key, entry] : writers.highest_) expected[key] = entry.value();
    for (const auto& table : writers.tables_) {
      ASSERT_EQ(Values(*table), expected) << "seed " << seed;
      ASSERT_EQ(table->Digest(), writers.tables_[0]->Digest()) << "seed " << seed;
    }
    if (::testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(StateConvergence, EachWriteThatNobodyBuiltUponIsReportedAsLostOrStands) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    WritersApart writers(seed);
    for (int step = 0; step < 120; ++step) writers.Step();
    writers.TellAll();
    std::set<std::string> built_upon, standing;
    for (const auto& [value, known] : writers.known_) {
      built_upon.insert(known.begin(), known.end());
    }
    for (const auto& [key, entry] : writers.highest_) standing.insert(entry.value());
    for (const auto& [value, known] : writers.known_) {
      if (built_upon.contains(value) || standing.contains(value)) continue;
      ASSERT_TRUE(writers.lost_.contains(value))
          << "seed " << seed << ": '" << value << "' is gone and nobody said so";
    }
    for (const std::string& value : standing) {
      ASSERT_FALSE(writers.lost_.contains(value)) << "seed " << seed << ": " << value;
    }
  }
}

// --- one that writes, over a network that loses ------------------------------------------------

StateTableOptions FewTombstones() {
  StateTableOptions options;
  options.tombstones_kept = 2;
  return options;
}

// A coordinator and its followers; the disk of each is what it was last told to write.
class LossyCluster {
 public:
  explicit LossyCluster(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) AddNode();
    Lead(0);
  }

  void Step() {
    const size_t act = Below(20);
    if (act < 8) return Order();
    if (act < 14) return Replicate(1 + Below(nodes_.size() - 1), Below(3) == 0);
    if (act < 16) return Restart(Below(nodes_.size()));
    if (act < 17 && nodes_.size() < 6) return AddNode();
    if (act < 18) return Lead(Below(nodes_.size()));
    DropTombstones();
  }

  // Nothing is lost any more.
  void Settle() {
    for (int round = 0; round < 4; ++round) {
      for (size_t i = 1; i < nodes_.size(); ++i) Replicate(i, false);
      for (size_t i = 1; i < nodes_.size(); ++i) {
        if (Follower(i).Digest() != Leader().Digest()) Leader().OnDigestDiffers(IdOf(i));
      }
    }
  }

  StateTable& Leader() { return *nodes_[order_[0]]; }
  StateTable& Follower(size_t i) { return *nodes_[order_[i]]; }
  size_t size() const { return nodes_.size(); }
  const std::map<std::string, std::string>& model() const { return model_; }
  size_t drops() const { return drops_; }

  // What counts as acknowledged is on a majority's disks.
  void ExpectCommittedIsHeld() {
    std::set<NodeId> all;
    for (size_t i = 0; i < nodes_.size(); ++i) all.insert(IdOf(i));
    const uint64_t committed = Leader().CommittedUpTo(all);
    for (const auto& [key, entry] : Leader().entries()) {
      if (VersionOf(entry).fence != fence_ || entry.sequence() > committed) continue;
      size_t holders = 0;
      for (const auto& node : nodes_) {
        const auto held = node->entries().find(key);
        holders += held != node->entries().end() && VersionOf(held->second) == VersionOf(entry);
      }
      ASSERT_GT(2 * holders, nodes_.size()) << key << " counts as committed";
    }
  }

 private:
  size_t Below(size_t bound) { return random_() % bound; }
  NodeId IdOf(size_t i) const { return Id(order_[i]); }

  void AddNode() {
    order_.push_back(nodes_.size());
    nodes_.push_back(std::make_unique<StateTable>(Id(nodes_.size()), FewTombstones()));
  }

  // As an election has it: whoever leads next first hears what all others hold.
  void Lead(size_t i) {
    Settle();
    Leader().StopLeading();
    std::swap(order_[0], order_[i]);
    for (size_t other = 1; other < order_.size(); ++other) {
      Leader().Merge(All(Follower(other)), false);
    }
    fence_ = {Term(++term_), IdOf(0)};
    Leader().BeginLeading(fence_);
  }

  void Order() {
    // Names before and behind the key of the floor.
    const std::string key = absl::StrCat(Below(2) == 0 ? "cordon/" : "tenant/", Below(8));
    const bool removes = Below(2) == 0;
    const std::string value = absl::StrCat("write ", ++writes_);
    const auto proposal = removes ? Leader().Remove(key) : Leader().Propose(key, value);
    ASSERT_TRUE(proposal.ok()) << proposal.status();
    if (!proposal->change.empty()) Leader().OnPersisted(proposal->sequence);
    if (removes) {
      model_.erase(key);
    } else {
      model_[key] = value;
    }
  }

  void Replicate(size_t i, bool is_lost) {
    const auto batch = Leader().PendingFor(IdOf(i));
    if (batch.has_value()) {
      if (is_lost && Below(2) == 0) return;  // the request
      const MergeResult merged = Follower(i).Merge(Entries(batch->entries), batch->complete);
      if (is_lost) return;  // the answer
      Leader().OnReplicated(IdOf(i), batch->sequence);
      Leader().Merge(Entries(merged.newer_here), false);
    }
    Leader().NoteDigest(IdOf(i), Follower(i).Digest());
  }

  // A follower goes on with its disk.
  void Restart(size_t i) {
    if (i == 0) return;
    std::vector<v1::StateEntry> disk;
    for (const auto& [key, entry] : Follower(i).entries()) disk.push_back(entry);
    nodes_[order_[i]] = std::make_unique<StateTable>(IdOf(i), FewTombstones());
    Follower(i).Load(disk);
    Leader().ForgetProgress(IdOf(i));
  }

  void DropTombstones() {
    std::set<NodeId> known;
    for (size_t i = 0; i < nodes_.size(); ++i) known.insert(IdOf(i));
    const auto dropped = Leader().DropTombstones(known);
    if (!dropped.has_value()) return;
    Leader().OnPersisted(dropped->sequence);
    ++drops_;
  }

  Random random_;
  std::vector<std::unique_ptr<StateTable>> nodes_;
  std::vector<size_t> order_;  // indices of nodes_, the coordinator first
  FencePair fence_;
  std::map<std::string, std::string> model_;
  uint64_t term_ = 0;
  size_t drops_ = 0;
  int writes_ = 0;
};

TEST(StateConvergence, FollowersHoldWhatWasOrderedWhateverWasLostOnTheWay) {
  size_t drops = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    LossyCluster cluster(seed);
    for (int step = 0; step < 150; ++step) {
      cluster.Step();
      cluster.ExpectCommittedIsHeld();
      if (::testing::Test::HasFailure()) FAIL() << "seed " << seed << ", step " << step;
    }
    cluster.Settle();
    for (size_t i = 0; i < cluster.size(); ++i) {
      ASSERT_EQ(Values(cluster.Follower(i)), cluster.model()) << "seed " << seed << ", node " << i;
      ASSERT_EQ(cluster.Follower(i).Digest(), cluster.Leader().Digest()) << "seed " << seed;
    }
    drops += cluster.drops();
  }
  EXPECT_GT(drops, 20u) << "tombstones have to go in some of the runs";
}

// --- who comes after removed keys were dropped --------------------------------------------------

// A coordinator that holds one key before and one behind the floor's, all older than the floor.
class AfterTheFloor : public ::testing::Test {
 protected:
  AfterTheFloor() {
    leader_.BeginLeading({Term(1), Id(0)});
    for (const char* key : {"cordon/x", "profile/m", "tenant/acme"}) Put(key, "there");
    for (int i = 0; i < 4; ++i) Put(absl::StrCat("deployment/", i), "once");
    forgotten_.Merge(All(leader_), true);
    for (int i = 0; i < 4; ++i) {
      const auto gone = leader_.Remove(absl::StrCat("deployment/", i));
      leader_.OnPersisted(gone->sequence);
    }
    const auto dropped = leader_.DropTombstones({Id(0)});
    EXPECT_TRUE(dropped.has_value());
    leader_.OnPersisted(dropped->sequence);
  }
  void Put(const std::string& key, const std::string& value) {
    const auto proposal = leader_.Propose(key, value);
    ASSERT_TRUE(proposal.ok());
    leader_.OnPersisted(proposal->sequence);
  }

  StateTable leader_{Id(0), FewTombstones()};
  StateTable forgotten_{Id(1), FewTombstones()};
  StateTable newcomer_{Id(2), FewTombstones()};
  const std::map<std::string, std::string> wanted_ = {
      {"cordon/x", "there"}, {"profile/m", "there"}, {"tenant/acme", "there"}};
};

TEST_F(AfterTheFloor, ANewNodeGetsAllThatIsThere) {
  const auto batch = leader_.PendingFor(Id(2));
  ASSERT_TRUE(batch.has_value());
  const MergeResult merged = newcomer_.Merge(Entries(batch->entries), batch->complete);
  EXPECT_EQ(Values(newcomer_), wanted_);
  EXPECT_EQ(newcomer_.Digest(), leader_.Digest());
  EXPECT_EQ(merged.change.put.size(), batch->entries.size()) << "all of it goes to its disk";
}

TEST_F(AfterTheFloor, ANewNodeThatLeadsNextKnowsAllThatItsElectorsHold) {
  newcomer_.MergeElector(All(leader_));
  EXPECT_EQ(Values(newcomer_), wanted_);
}

// Its electors may be forgotten themselves, or know more; whichever answers first.
TEST_F(AfterTheFloor, WhoWasForgottenAndLeadsNextBringsNothingBack) {
  StateTable other(Id(3), FewTombstones());
  other.Merge(All(forgotten_), true);
  const StateEntries knows = All(leader_), does_not = All(other);
  for (const bool knows_first : {true, false}) {
    StateTable next(Id(4), FewTombstones());
    next.Merge(All(forgotten_), true);
    next.MergeElector(knows_first ? knows : does_not);
    next.MergeElector(knows_first ? does_not : knows);
    EXPECT_EQ(Values(next), wanted_) << knows_first;
    EXPECT_EQ(next.Digest(), leader_.Digest()) << knows_first;
  }
}

// An elector that holds less of the same is no sign that the rest was removed.
TEST_F(AfterTheFloor, WhatAnElectorOfTheSameFloorLacksIsKept) {
  StateTable next(Id(4), FewTombstones());
  next.Merge(All(leader_), true);
  StateEntries less;
  *less.Add() = leader_.entries().find(kTombstoneFloorKey)->second;
  next.MergeElector(less);
  EXPECT_EQ(Values(next), wanted_);
}

TEST_F(AfterTheFloor, ANodeThatLostItsDiskAfterTheFloorReachedItGetsTheRest) {
  StateEntries floor;
  *floor.Add() = leader_.entries().find(kTombstoneFloorKey)->second;
  newcomer_.Merge(floor, false);
  EXPECT_TRUE(Values(newcomer_).empty());
  newcomer_.Merge(All(leader_), true);
  EXPECT_EQ(Values(newcomer_), wanted_);
}

TEST_F(AfterTheFloor, WhoWasForgottenBringsNothingBackInAnyOrder) {
  leader_.Merge(All(forgotten_), false);
  EXPECT_EQ(Values(leader_), wanted_);
  newcomer_.Merge(All(leader_), true);
  newcomer_.Merge(All(forgotten_), true);
  EXPECT_EQ(Values(newcomer_), wanted_);
  forgotten_.Merge(All(newcomer_), true);
  EXPECT_EQ(Values(forgotten_), wanted_) << "and it lets go itself";
  EXPECT_EQ(forgotten_.Digest(), leader_.Digest());
}

TEST_F(AfterTheFloor, ANameThatWasDroppedCanBeUsedAgain) {
  Put("deployment/0", "anew");
  newcomer_.Merge(All(leader_), true);
  forgotten_.Merge(All(leader_), true);
  for (const StateTable* table : {&newcomer_, &forgotten_}) {
    ASSERT_NE(table->Find("deployment/0"), nullptr);
    EXPECT_EQ(table->Find("deployment/0")->value(), "anew");
    EXPECT_EQ(table->Digest(), leader_.Digest());
  }
}

TEST_F(AfterTheFloor, ARestartedNodeKeepsItsFloor) {
  std::vector<v1::StateEntry> disk;
  for (const auto& [key, entry] : leader_.entries()) disk.push_back(entry);
  StateTable again(Id(0), FewTombstones());
  again.Load(disk);
  again.Merge(All(forgotten_), true);
  EXPECT_EQ(Values(again), wanted_);
}

}  // namespace
}  // namespace macrame::agentd
