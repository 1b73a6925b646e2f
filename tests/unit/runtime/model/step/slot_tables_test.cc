// The block tables that a rank keeps, against a model of what rank 0 orders: many sequences over
// many steps, and each way in which a step can be malformed, which changes nothing.

#include "runtime/model/step/slot_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace macrame::runtime::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kBlocks = 40, kPositions = 300, kVocabulary = 50;

int Pick(std::mt19937& random, int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(random);
}

std::vector<int32_t> Table(const SlotTables& tables, uint32_t slot) {
  const auto table = tables.Table(slot);
  return {table.begin(), table.end()};
}

Segment Part(uint32_t slot, int begin, int count, std::vector<int32_t> blocks) {
  Segment segment;
  segment.slot = slot;
  segment.begin = static_cast<uint32_t>(begin);
  segment.tokens.assign(static_cast<size_t>(count), 7);
  segment.new_blocks = std::move(blocks);
  return segment;
}

// What rank 0 knows of its sequences.
class Orders {
 public:
  explicit Orders(uint32_t seed) : random_(seed) {}

  ForwardStep Next() {
    ForwardStep step;
    for (uint32_t slot = 0; slot < 6; ++slot) {
      const bool is_open = sequences_.contains(slot);
      const bool closes = is_open && Pick(random_, 0, 5) == 0;
      if (closes) {
        step.closed_slots.push_back(slot);
        sequences_.erase(slot);
      }
      if (Pick(random_, 0, 2) > 0) step.segments.push_back(Extend(slot));
    }
    std::shuffle(step.segments.begin(), step.segments.end(), random_);
    return step;
  }

  void ExpectSame(const SlotTables& tables) const {
    for (const auto& [slot, sequence] : sequences_) {
      ASSERT_EQ(Table(tables, slot), sequence.blocks) << "slot " << slot;
    }
  }

 private:
  struct Sequence {
    int length = 0;
    std::vector<int32_t> blocks;
  };
  Segment Extend(uint32_t slot) {
    const bool is_new = !sequences_.contains(slot);
    Sequence& sequence = sequences_[slot];
    if (is_new) sequence.length = 32 * Pick(random_, 0, 2);  // a cached prefix
    // Drafts that were wrong are run over.
    const int back = is_new ? 0 : Pick(random_, 0, std::min(sequence.length, 9));
    const int begin = sequence.length - back;
    const int count = std::min(Pick(random_, 1, 70), kPositions - begin);
    Segment segment = Part(slot, begin, std::max(count, 1), {});
    if (count < 1) segment.begin = static_cast<uint32_t>(begin - 1);
    sequence.length = static_cast<int>(segment.begin + segment.tokens.size());
    for (int32_t& token : segment.tokens) token = Pick(random_, 0, kVocabulary - 1);
    while (static_cast<int>(sequence.blocks.size()) < BlocksFor(sequence.length)) {
      segment.new_blocks.push_back(Pick(random_, 0, kBlocks - 1));
      sequence.blocks.push_back(segment.new_blocks.back());
    }
    return segment;
  }

  std::mt19937 random_;
  std::map<uint32_t, Sequence> sequences_;
};

struct Fault {
  const char* words;
  std::function<void(Segment&)> make;
};

std::vector<Fault> Faults() {
  return {
      {"has no tokens", [](Segment& own) { own.tokens.clear(); }},
      {"has token -1", [](Segment& own) { own.tokens.back() = -1; }},
      {"has token 50", [](Segment& own) { own.tokens.front() = kVocabulary; }},
      {"gets block -1 of 40", [](Segment& own) { own.new_blocks.push_back(-1); }},
      {"gets block 40 of 40", [](Segment& own) { own.new_blocks.push_back(kBlocks); }},
      {"blocks for ", [](Segment& own) { own.new_blocks.push_back(3); }},
      // Two blocks too few, or beyond the last position.
      {"position", [](Segment& own) { own.tokens.resize(own.tokens.size() + 65, 7); }},
      {"of 300", [](Segment& own) { own.tokens.resize(kPositions - own.begin + 1, 7); }},
      {"of 300", [](Segment& own) { own.begin = 0xFFFFFFFF; }},
  };
}

TEST(SlotTablesTest, FollowWhatRankZeroOrders) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Orders orders(seed);
    SlotTables tables(kBlocks, kPositions);
    for (int i = 0; i < 60; ++i) {
      const absl::Status applied = tables.Apply(orders.Next(), kVocabulary);
      ASSERT_TRUE(applied.ok()) << applied;
      orders.ExpectSame(tables);
    }
  }
}

// The slots that a step closes and the segments before a bad one are left as they were too.
TEST(SlotTablesTest, AMalformedStepIsToldWithItsSlotAndChangesNothing) {
  std::mt19937 random(5);
  const std::vector<Fault> faults = Faults();
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Orders orders(seed);
    SlotTables tables(kBlocks, kPositions);
    for (int i = 0; i < 20; ++i) {
      const Orders before = orders;
      const ForwardStep good = orders.Next();
      for (const Fault& fault : faults) {
        if (good.segments.empty()) continue;
        ForwardStep bad = good;
        Segment& own = bad.segments[static_cast<size_t>(
            Pick(random, 0, static_cast<int>(bad.segments.size()) - 1))];
        fault.make(own);
        const absl::Status refused = tables.Apply(bad, kVocabulary);
        ASSERT_TRUE(absl::IsInternal(refused)) << fault.words;
        EXPECT_THAT(std::string(refused.message()),
                    AllOf(HasSubstr("rank 0 sent a step in which slot " + std::to_string(own.slot)),
                          HasSubstr(fault.words)));
        before.ExpectSame(tables);
      }
      ASSERT_TRUE(tables.Apply(good, kVocabulary).ok());
    }
  }
}

// Rows are those of the step that was applied last; one that only closes slots is none.
TEST(SlotTablesTest, ATokenMayBeWhatTheStepBeforeChose) {
  SlotTables tables(kBlocks, kPositions);
  const auto choosing = [](Segment segment) {
    segment.logit_rows = LogitRows::kChosen;
    return segment;
  };
  const auto ahead = [](uint32_t slot, int begin, int32_t row) {
    Segment segment = Part(slot, begin, 1, {});
    segment.tokens = {TokenOfChosenRow(row)};
    return segment;
  };
  const ForwardStep first{
      {}, {choosing(Part(0, 0, 4, {1})), Part(1, 0, 4, {2}), choosing(Part(2, 0, 4, {3}))}};
  ASSERT_TRUE(tables.Apply(first, kVocabulary).ok());
  ASSERT_TRUE(tables.Apply({{1}, {}}, kVocabulary).ok());
  EXPECT_FALSE(tables.Apply({{}, {ahead(0, 4, 2)}}, kVocabulary).ok()) << "it chose two";
  ASSERT_TRUE(tables.Apply({{}, {ahead(2, 4, 1), choosing(ahead(0, 4, 0))}}, kVocabulary).ok());
  EXPECT_FALSE(tables.Apply({{}, {ahead(2, 5, 1)}}, kVocabulary).ok()) << "it chose one";
  ASSERT_TRUE(tables.Apply({{}, {ahead(0, 5, 0)}}, kVocabulary).ok());
  EXPECT_FALSE(tables.Apply({{}, {ahead(0, 6, 0)}}, kVocabulary).ok()) << "it chose none";
}

TEST(SlotTablesTest, ASlotStandsOnceInAStep) {
  SlotTables tables(kBlocks, kPositions);
  ASSERT_TRUE(tables.Apply({{}, {Part(3, 0, 10, {1})}}, kVocabulary).ok());
  const absl::Status refused =
      tables.Apply({{}, {Part(3, 10, 1, {}), Part(3, 11, 1, {})}}, kVocabulary);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("slot 3 stands twice"));
}

TEST(SlotTablesTest, ASlotIsClosedAndOpenedInOneStep) {
  SlotTables tables(kBlocks, kPositions);
  ASSERT_TRUE(tables.Apply({{}, {Part(3, 0, 40, {1, 2})}}, kVocabulary).ok());
  ASSERT_TRUE(tables.Apply({{3, 9}, {Part(3, 0, 40, {8, 9})}}, kVocabulary).ok())
      << "that slot 9 was never open is no fault";
  EXPECT_THAT(Table(tables, 3), ElementsAre(8, 9));
}

// A table of a block more than is needed takes the next tokens without a new one.
TEST(SlotTablesTest, ABlockOfWrongDraftsIsUsedLater) {
  SlotTables tables(kBlocks, kPositions);
  ASSERT_TRUE(tables.Apply({{}, {Part(0, 0, 33, {1, 2})}}, kVocabulary).ok());
  ASSERT_TRUE(tables.Apply({{}, {Part(0, 20, 2, {})}}, kVocabulary).ok());
  EXPECT_FALSE(tables.Apply({{}, {Part(0, 22, 20, {5})}}, kVocabulary).ok());
  ASSERT_TRUE(tables.Apply({{}, {Part(0, 22, 20, {})}}, kVocabulary).ok());
  EXPECT_THAT(Table(tables, 0), ElementsAre(1, 2));
}

TEST(SlotTablesTest, TheLongestSequenceFillsItsBlocks) {
  EXPECT_EQ(BlocksFor(0), 0);
  EXPECT_EQ(BlocksFor(1), 1);
  EXPECT_EQ(BlocksFor(32), 1);
  EXPECT_EQ(BlocksFor(33), 2);
  SlotTables tables(2, 64);
  EXPECT_TRUE(tables.Apply({{}, {Part(0, 0, 64, {0, 1})}}, kVocabulary).ok());
  EXPECT_FALSE(tables.Apply({{}, {Part(0, 64, 1, {1})}}, kVocabulary).ok());
}

}  // namespace
}  // namespace macrame::runtime::engine
