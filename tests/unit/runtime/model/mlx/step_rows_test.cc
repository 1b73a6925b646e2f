// What attention takes of a step: keys and values of random sequences against lists of them, rows
// laid out and taken apart again, and the window that each row sees.

#include "runtime/model/mlx/step_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

constexpr int kHeads = 2, kWidth = 3, kBlocks = 14;

std::vector<float> Values(const mx::array& x) {
  mx::array plain = mx::contiguous(x);
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

using Position = std::vector<float>;  // of all heads

// [1, heads, count, width]
mx::array ArrayOf(const std::vector<Position>& positions) {
  std::vector<float> numbers;
  for (int head = 0; head < kHeads; ++head) {
    for (const Position& position : positions) {
      const auto begin = position.begin() + head * kWidth;
      numbers.insert(numbers.end(), begin, begin + kWidth);
    }
  }
  return mx::array(numbers.data(), {1, kHeads, static_cast<int>(positions.size()), kWidth});
}

// A slot with its blocks, and what its positions hold.
struct Held {
  std::vector<int32_t> blocks;
  size_t told = 0;
  std::vector<Position> positions{};
};

class StepRowsTest : public ::testing::Test {
 protected:
  StepRowsTest() : tables_(kBlocks, 32 * kBlocks) { mx::set_default_device(mx::Device::cpu); }

  int Pick(int lowest, int highest) {
    return std::uniform_int_distribution<int>(lowest, highest)(random_);
  }
  // Adds the slot's segment to the step; its rows to `rows`.
  void Extend(uint32_t slot, Held& own, int begin, int count, std::vector<Position>& rows) {
    Segment segment;
    segment.slot = slot;
    segment.begin = static_cast<uint32_t>(begin);
    segment.tokens.assign(static_cast<size_t>(count), 0);
    for (; own.told < static_cast<size_t>(BlocksFor(begin + count)); ++own.told) {
      segment.new_blocks.push_back(own.blocks[own.told]);
    }
    own.positions.resize(static_cast<size_t>(begin));
    for (int i = 0; i < count; ++i) {
      Position position(kHeads * kWidth);
      for (float& number : position) number = next_ += 1.0F;
      own.positions.push_back(position);
      rows.push_back(position);
    }
    step_.segments.push_back(std::move(segment));
  }
  // [rows, heads x width], and what goes for a segment's own.
  static mx::array Flat(const std::vector<Position>& rows) {
    std::vector<float> numbers;
    for (const Position& row : rows) numbers.insert(numbers.end(), row.begin(), row.end());
    return mx::array(numbers.data(), {static_cast<int>(rows.size()), kHeads * kWidth});
  }

  std::mt19937 random_{4};
  float next_ = 0;
  SlotTables tables_;
  ForwardStep step_;
};

TEST_F(StepRowsTest, EachSequenceSeesItsOwnPositions) {
  KvPools pools(1, kBlocks);
  // One in a run, one anywhere, one that leaves its run halfway.
  std::vector<Held> slots = {{{0, 1, 2, 3, 4}}, {{13, 7, 11, 9}}, {{5, 6, 12, 8}}};
  for (int round = 0; round < 80; ++round) {
    step_ = {};
    std::vector<Position> rows;
    std::vector<uint32_t> order = {0, 1, 2};
    std::shuffle(order.begin(), order.end(), random_);
    order.resize(static_cast<size_t>(Pick(1, 3)));
    for (const uint32_t slot : order) {
      Held& own = slots[slot];
      const int held = static_cast<int>(own.positions.size());
      const int begin = held - Pick(0, std::min(held, 6));  // over drafts that were wrong
      const int room = static_cast<int>(own.blocks.size()) * 32 - begin;
      if (room > 0) Extend(slot, own, begin, Pick(0, 1) ? 1 : Pick(1, std::min(room, 40)), rows);
    }
    if (step_.segments.empty()) break;
    ASSERT_TRUE(tables_.Apply(step_, 1).ok());
    const StepRows layout(step_, tables_);
    ASSERT_EQ(layout.rows(), static_cast<int>(rows.size()));
    const mx::array laid = layout.Laid(Flat(rows), kHeads, kWidth);
    EXPECT_EQ(Values(layout.Flat(laid)), Values(Flat(rows)));
    const std::vector<mx::array> parts = layout.Each(laid);
    ASSERT_EQ(parts.size(), step_.segments.size());
    const KvRowsKept pool = pools.Write(0, KvSide::kKeys, laid, layout.written());
    for (const StepRows::Sequence& sequence : layout.sequences()) {
      const Held& own = slots[step_.segments[sequence.number].slot];
      ASSERT_EQ(Values(layout.Seen(pool, sequence)), Values(ArrayOf(own.positions))) << round;
      const int from = sequence.end() / 2;
      const std::vector<Position> late(own.positions.begin() + from, own.positions.end());
      ASSERT_EQ(Values(layout.Seen(pool, sequence, from)), Values(ArrayOf(late))) << round;
      const std::vector<Position> fresh(own.positions.begin() + sequence.begin,
                                        own.positions.end());
      ASSERT_EQ(Values(parts[sequence.number]), Values(ArrayOf(fresh))) << round;
    }
    EXPECT_EQ(Values(layout.Joined(parts)), Values(Flat(rows)));
    mx::eval(pool.numbers);
  }
  EXPECT_GT(slots[0].positions.size(), 100u);
}

TEST_F(StepRowsTest, AWindowIsAViewOfTheLastPositions) {
  Held own{{0, 1, 2, 3}};
  std::vector<Position> rows;
  Extend(0, own, 0, 90, rows);
  ASSERT_TRUE(tables_.Apply(step_, 1).ok());
  for (const auto& [begin, count] : {std::pair(90, 1), std::pair(3, 2), std::pair(50, 40)}) {
    step_ = {};
    rows.clear();
    Extend(0, own, begin, count, rows);
    const StepRows layout(step_, tables_);
    const StepRows::Sequence& sequence = layout.sequences()[0];
    for (const int window : {0, 3, 64, 500}) {
      const StepRows::Sight sight = layout.SightOf(sequence, window);
      const int end = sequence.end();
      for (int row = 0; row < count; ++row) {
        for (int key = 0; key < end; ++key) {
          const bool is_seen = key <= begin + row && (window == 0 || key > begin + row - window);
          if (key < sight.from) {
            ASSERT_FALSE(is_seen) << key;
            continue;
          }
          const bool is_causal = std::string(sight.mode) == "causal";
          bool shown = !is_causal || key <= begin + row;
          if (sight.mask.has_value()) {
            const mx::array mask = mx::astype(*sight.mask, mx::float32);
            shown =
                Values(mask)[static_cast<size_t>(row * (end - sight.from) + key - sight.from)] > 0;
          }
          ASSERT_EQ(shown, is_seen) << begin << "+" << row << ", key " << key << ", " << window;
        }
      }
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
