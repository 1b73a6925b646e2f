#include "agentd/cores/state_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

NodeId Id(char letter) { return NodeId(std::string(32, letter)); }
FencePair Fence(uint64_t term, char who) { return {Term(term), Id(who)}; }

StateEntries All(const StateTable& table) {
  StateEntries entries;
  for (const auto& [key, entry] : table.entries()) *entries.Add() = entry;
  return entries;
}

MergeResult MergeAll(StateTable& into, const StateTable& from) {
  return into.Merge(All(from), true);
}

void Write(StateTable& table, const std::string& key, const std::string& value) {
  const auto proposal = table.Propose(key, value);
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  table.OnPersisted(proposal->sequence);
}

TEST(StateTable, OnlyACoordinatorWrites) {
  StateTable table(Id('a'));
  EXPECT_EQ(ReasonOf(table.Propose("k", "v").status()).code(), "NO_COORDINATOR");
  table.BeginLeading(Fence(1, 'a'));
  EXPECT_TRUE(table.Propose("k", "v").ok());
  table.StopLeading();
  EXPECT_FALSE(table.Propose("k", "w").ok());
}

TEST(StateTable, MergeIsTheSameInAnyOrderAndAnyNumberOfTimes) {
  std::mt19937 random(7);
  std::vector<v1::StateEntry> writes;
  for (char who : {'a', 'b'}) {
    StateTable table(Id(who));
    table.BeginLeading(Fence(3, who));
    for (int i = 0; i < 20; ++i) {
      const std::string key(1, static_cast<char>('k' + i % 4));
      const auto proposal =
          i % 7 == 6 ? table.Remove(key) : table.Propose(key, std::to_string(i) + who);
      for (const auto& entry : proposal->change.put) writes.push_back(entry);
    }
  }
  std::set<std::string> digests;
  for (int round = 0; round < 50; ++round) {
    std::shuffle(writes.begin(), writes.end(), random);
    StateTable table(Id('c'));
    for (const auto& entry : writes) {
      StateEntries one;
      *one.Add() = entry;
      table.Merge(one, false);
      if (random() % 3 == 0) table.Merge(one, false);
    }
    digests.insert(table.Digest());
  }
  EXPECT_EQ(digests.size(), 1u);
}

TEST(StateTable, SuccessorsReplaceWithoutLoss) {
  StateTable a(Id('a')), b(Id('b'));
  a.BeginLeading(Fence(1, 'a'));
  Write(a, "deployment/x", "one");
  MergeAll(b, a);
  b.BeginLeading(Fence(2, 'b'));
  Write(b, "deployment/x", "two");
  const MergeResult result = MergeAll(a, b);
  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(a.Find("deployment/x")->value(), "two");
  EXPECT_EQ(a.Digest(), b.Digest());
}

TEST(StateTable, WritesMadeApartAreReportedAsLost) {
  StateTable a(Id('a')), b(Id('b')), c(Id('c'));
  a.BeginLeading(Fence(1, 'a'));
  Write(a, "deployment/x", "base");
  MergeAll(b, a);
  Write(a, "deployment/x", "mine");
  b.BeginLeading(Fence(2, 'b'));
  Write(b, "deployment/x", "theirs");
  MergeAll(c, b);  // and on that side it is led by a third
  c.BeginLeading(Fence(3, 'c'));
  Write(c, "deployment/x", "last");
  const MergeResult at_a = MergeAll(a, c);
  ASSERT_EQ(at_a.lost.size(), 1u);
  EXPECT_EQ(at_a.lost[0].lost.value(), "mine");
  EXPECT_EQ(at_a.lost[0].won.value(), "last");
}

TEST(StateTable, LossIsSeenFromTheWinnersSideToo) {
  StateTable a(Id('a')), b(Id('b'));
  a.BeginLeading(Fence(1, 'a'));
  Write(a, "k", "mine");
  b.BeginLeading(Fence(2, 'b'));
  Write(b, "k", "theirs");
  const MergeResult at_b = MergeAll(b, a);
  EXPECT_EQ(at_b.lost.size(), 1u);
  EXPECT_EQ(at_b.newer_here.size(), 1u);
  EXPECT_TRUE(at_b.change.empty());
}

TEST(StateTable, ARemovedKeyIsNotBroughtBack) {
  StateTable a(Id('a')), b(Id('b'));
  a.BeginLeading(Fence(1, 'a'));
  Write(a, "k", "v");
  MergeAll(b, a);
  ASSERT_TRUE(a.Remove("k", "residue").ok());
  EXPECT_EQ(a.Find("k"), nullptr);
  MergeAll(a, b);
  EXPECT_EQ(a.Find("k"), nullptr);
  MergeAll(b, a);
  EXPECT_EQ(b.Find("k"), nullptr);
  EXPECT_EQ(b.entries().at("k").value(), "residue");
}

TEST(StateTable, CommittedWhenAMajorityOfTheLiveHasIt) {
  StateTable a(Id('a'));
  const std::set<NodeId> live = {Id('a'), Id('b'), Id('c')};
  a.BeginLeading(Fence(1, 'a'));
  const auto proposal = a.Propose("k", "v");
  EXPECT_EQ(a.CommittedUpTo(live), 0u);
  a.OnReplicated(Id('b'), proposal->sequence);
  a.OnReplicated(Id('c'), proposal->sequence);
  EXPECT_EQ(a.CommittedUpTo(live), 0u) << "its own disk is one that counts";
  a.OnPersisted(proposal->sequence);
  EXPECT_EQ(a.CommittedUpTo(live), proposal->sequence);
  EXPECT_EQ(a.CommittedUpTo({Id('a'), Id('b'), Id('d'), Id('e')}), 0u);
  EXPECT_EQ(a.CommittedUpTo({Id('a')}), proposal->sequence);
}

TEST(StateTable, AFollowerGetsEverythingFirstThenChanges) {
  StateTable a(Id('a'));
  a.BeginLeading(Fence(1, 'a'));
  Write(a, "old", "v");
  a.BeginLeading(Fence(2, 'a'));
  auto batch = a.PendingFor(Id('b'));
  ASSERT_TRUE(batch.has_value());
  EXPECT_TRUE(batch->complete);
  EXPECT_EQ(batch->entries.size(), 1u);
  a.OnReplicated(Id('b'), batch->sequence);
  EXPECT_FALSE(a.PendingFor(Id('b')).has_value());
  Write(a, "new", "v");
  batch = a.PendingFor(Id('b'));
  ASSERT_TRUE(batch.has_value());
  EXPECT_FALSE(batch->complete);
  ASSERT_EQ(batch->entries.size(), 1u);
  EXPECT_EQ(batch->entries[0].key(), "new");
  a.OnReplicated(Id('b'), batch->sequence);
  a.OnDigestDiffers(Id('b'));
  EXPECT_TRUE(a.PendingFor(Id('b'))->complete);
}

TEST(StateTable, NewsFromOneMemberGoesToAll) {
  StateTable a(Id('a')), d(Id('d'));
  a.BeginLeading(Fence(2, 'a'));
  Write(a, "k", "v");
  a.OnReplicated(Id('b'), a.PendingFor(Id('b'))->sequence);
  d.BeginLeading(Fence(1, 'd'));
  Write(d, "found", "v");
  MergeAll(a, d);
  EXPECT_TRUE(a.PendingFor(Id('b'))->complete);
  EXPECT_EQ(a.CommittedUpTo({Id('a'), Id('b')}), 1u) << "what was committed stays so";
}

TEST(StateTable, CompleteStateTellsWhatTheSenderLacks) {
  StateTable a(Id('a')), b(Id('b'));
  a.BeginLeading(Fence(1, 'a'));
  Write(a, "only_here", "v");
  const MergeResult result = MergeAll(a, b);
  ASSERT_EQ(result.newer_here.size(), 1u);
  EXPECT_EQ(result.newer_here[0].key(), "only_here");
}

TEST(StateTable, TombstonesGoOnlyWhenEveryoneHasThem) {
  StateTableOptions options;
  options.tombstones_kept = 3;
  StateTable a(Id('a'), options), b(Id('b'), options), forgotten(Id('f'), options);
  a.BeginLeading(Fence(1, 'a'));
  for (int i = 0; i < 5; ++i) Write(a, "k" + std::to_string(i), "v");
  MergeAll(b, a);
  MergeAll(forgotten, a);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a.Remove("k" + std::to_string(i)).ok());
  Write(a, "kept", "v");
  MergeAll(b, a);
  const std::set<NodeId> known = {Id('a'), Id('b')};
  EXPECT_FALSE(a.DropTombstones(known).has_value()) << "b has told nothing yet";
  a.NoteDigest(Id('b'), "another state");
  EXPECT_FALSE(a.DropTombstones(known).has_value());
  a.NoteDigest(Id('b'), a.Digest());
  EXPECT_FALSE(a.DropTombstones({Id('a'), Id('b'), Id('c')}).has_value()) << "nothing of c";
  a.NoteDigest(Id('b'), a.Digest());
  const auto dropped = a.DropTombstones(known);
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->change.dropped.size(), 5u);
  EXPECT_EQ(a.entries().size(), 2u) << "the floor and the kept key";
  MergeAll(b, a);
  EXPECT_EQ(a.Digest(), b.Digest());
  MergeAll(a, forgotten);
  EXPECT_EQ(a.Find("k0"), nullptr) << "a node that was forgotten brings nothing back";
  MergeAll(forgotten, a);
  EXPECT_EQ(a.Digest(), forgotten.Digest());
}

TEST(StateTable, BadEntriesAreRefusedAndCounted) {
  StateTableOptions options;
  options.entries_max = 2;
  options.value_bytes_max = 10;
  StateTable table(Id('a'), options);
  StateEntries entries;
  const auto add = [&](const std::string& key, const std::string& value, uint64_t term,
                       uint64_t seq) {
    v1::StateEntry* entry = entries.Add();
    entry->set_key(key);
    entry->set_value(value);
    entry->set_term(term);
    entry->set_sequence(seq);
    entry->set_coordinator_id(Id('b').value());
  };
  add("", "v", 1, 1);
  add("k", "far too long a value", 1, 1);
  add("k", "v", 0, 1);
  add("k", "v", 1, uint64_t{1} << 63);
  add("k1", "v", 1, 1);
  add("k2", "v", 1, 2);
  add("k3", "v", 1, 3);
  const MergeResult result = table.Merge(entries, false);
  EXPECT_EQ(result.refused, 5u);
  EXPECT_EQ(table.entries().size(), 2u);
  table.BeginLeading(Fence(2, 'a'));
  EXPECT_EQ(table.Propose("k4", "v").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table.Propose("k1", "far too long a value").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(StateTable, HistoryStaysBounded) {
  StateTable table(Id('a'));
  for (uint64_t term = 1; term < 40; ++term) {
    table.BeginLeading(Fence(term, 'a'));
    Write(table, "k", std::to_string(term));
    EXPECT_LE(table.Find("k")->history_size(), kHistoryMax);
  }
}

}  // namespace
}  // namespace macrame::agentd
