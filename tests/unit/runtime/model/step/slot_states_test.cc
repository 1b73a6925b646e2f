// Which states and snapshots a rank copies: whoever copies as SlotStates says has, behind each
// segment, a state that took in all tokens of its sequence and no others.

#include "runtime/model/step/slot_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace macrame::runtime::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSequences = 4, kSnapshots = 3;
using Tokens = std::vector<int32_t>;  // what a state has taken in

int Pick(std::mt19937& random, int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(random);
}

// Whoever holds the states' numbers.
class Holder {
 public:
  Holder() : states_(kSequences), snapshots_(kSnapshots) {}

  void Run(const SlotStates& slots, const ForwardStep& step) {
    for (const auto& opened : slots.opened()) {
      ASSERT_TRUE(0 <= opened.state && opened.state < kSequences);
      states_[static_cast<size_t>(opened.state)] =
          opened.from == kNoSnapshot ? Tokens() : snapshots_[static_cast<size_t>(opened.from)];
    }
    for (const Segment& segment : step.segments) {
      Tokens& state = states_[static_cast<size_t>(slots.StateOf(segment.slot))];
      state.insert(state.end(), segment.tokens.begin(), segment.tokens.end());
    }
    for (const auto& kept : slots.kept()) {
      snapshots_[static_cast<size_t>(kept.to)] = states_[static_cast<size_t>(kept.state)];
    }
  }
  const Tokens& state(int index) const { return states_[static_cast<size_t>(index)]; }

 private:
  std::vector<Tokens> states_, snapshots_;
};

// Rank 0: sequences, and what is behind each snapshot.
class Orders {
 public:
  explicit Orders(uint32_t seed) : random_(seed) {}

  ForwardStep Next() {
    ForwardStep step;
    const std::map<SnapshotId, Tokens> kept = kept_;  // as the step finds them
    for (uint32_t slot = 0; slot < 9; ++slot) {
      if (open_.contains(slot) && Pick(random_, 0, 3) == 0) {
        step.closed_slots.push_back(slot);
        open_.erase(slot);
      }
      const bool has_room = open_.size() < kSequences || open_.contains(slot);
      if (has_room && Pick(random_, 0, 1) == 0) step.segments.push_back(Extend(slot, kept));
    }
    for (const Segment& segment : step.segments) {
      if (segment.state_to != kNoSnapshot) kept_[segment.state_to] = open_.at(segment.slot);
    }
    return step;
  }
  const std::map<uint32_t, Tokens>& open() const { return open_; }

 private:
  Segment Extend(uint32_t slot, const std::map<SnapshotId, Tokens>& kept) {
    Segment segment;
    segment.slot = slot;
    if (!open_.contains(slot)) {
      const auto from = kept.find(Pick(random_, 0, kSnapshots - 1));
      if (from != kept.end() && Pick(random_, 0, 1) == 0) {
        segment.state_from = from->first;
        open_[slot] = from->second;
      }
    }
    Tokens& tokens = open_[slot];
    segment.begin = static_cast<uint32_t>(tokens.size());
    for (int i = Pick(random_, 1, 5); i > 0; --i) segment.tokens.push_back(next_token_++);
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
    if (Pick(random_, 0, 2) == 0) segment.state_to = Pick(random_, 0, kSnapshots - 1);
    return segment;
  }

  std::mt19937 random_;
  std::map<uint32_t, Tokens> open_;
  std::map<SnapshotId, Tokens> kept_;
  int32_t next_token_ = 0;
};

TEST(SlotStatesTest, EachStateHasTakenInItsSequence) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Orders orders(seed);
    SlotStates slots(kSequences, kSnapshots);
    Holder holder;
    for (int i = 0; i < 80; ++i) {
      const ForwardStep step = orders.Next();
      const absl::Status good = slots.Check(step);
      ASSERT_TRUE(good.ok()) << good;
      slots.Apply(step);
      ASSERT_NO_FATAL_FAILURE(holder.Run(slots, step));
      std::set<int> used;
      for (const auto& [slot, tokens] : orders.open()) {
        ASSERT_EQ(holder.state(slots.StateOf(slot)), tokens) << "slot " << slot << ", step " << i;
        ASSERT_TRUE(used.insert(slots.StateOf(slot)).second) << "two sequences in one state";
      }
    }
  }
}

Segment Part(uint32_t slot, uint32_t begin, size_t count, SnapshotId from = kNoSnapshot,
             SnapshotId to = kNoSnapshot) {
  Segment segment;
  segment.slot = slot;
  segment.begin = begin;
  segment.tokens.assign(count, 1);
  segment.state_from = from;
  segment.state_to = to;
  return segment;
}

// Slot 1 stands at 10, snapshot 0 behind 6 tokens; of two states one is free.
SlotStates Standing() {
  SlotStates slots(2, 2);
  slots.Apply({{}, {Part(1, 0, 6, kNoSnapshot, 0)}});
  slots.Apply({{}, {Part(1, 6, 4)}});
  return slots;
}

struct Refused {
  ForwardStep step;
  const char* words;
};

TEST(SlotStatesTest, WhatCanNotBeRunIsToldWithItsSlot) {
  const Refused cases[] = {
      {{{}, {Part(1, 9, 1)}}, "slot 1 begins at 9, its state stands at 10"},
      {{{}, {Part(1, 11, 1)}}, "slot 1 begins at 11, its state stands at 10"},
      {{{}, {Part(1, 10, 1, 0)}}, "slot 1 takes a state once more"},
      {{{}, {Part(2, 5, 1)}}, "slot 2 begins at 5, its state stands at 0"},
      {{{}, {Part(2, 5, 1, 0)}}, "slot 2 begins at 5, its state stands at 6"},
      {{{}, {Part(2, 0, 1, 1)}}, "slot 2 begins at 0, its state stands at nowhere"},
      {{{}, {Part(2, 0, 1, 2)}}, "slot 2 names snapshot 2 of 2"},
      {{{}, {Part(2, 0, 1, -2)}}, "slot 2 names snapshot -2 of 2"},
      {{{}, {Part(2, 0, 1, kNoSnapshot, 2)}}, "slot 2 names snapshot 2 of 2"},
      {{{1}, {Part(1, 10, 1)}}, "slot 1 begins at 10, its state stands at 0"},
      {{{}, {Part(2, 0, 1), Part(3, 0, 1)}}, "a step with 3 sequences; there are states for 2"},
      {{{2, 3}, {Part(2, 0, 1), Part(3, 0, 1)}}, "a step with 3 sequences; there are states for 2"},
  };
  const SlotStates slots = Standing();
  for (const Refused& refused : cases) {
    const absl::Status status = slots.Check(refused.step);
    EXPECT_TRUE(absl::IsInternal(status)) << refused.words;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 0 sent a step"), HasSubstr(refused.words)));
  }
  EXPECT_TRUE(slots.Check({{}, {Part(1, 10, 1), Part(2, 6, 1, 0)}}).ok());
  EXPECT_TRUE(slots.Check({{1}, {Part(1, 6, 1, 0), Part(2, 0, 1)}}).ok());
}

// What a step keeps is there from the next one on: within it, an id is what it was before.
TEST(SlotStatesTest, ASnapshotIsTakenBeforeItIsOverwritten) {
  SlotStates slots = Standing();
  const ForwardStep step{{}, {Part(1, 10, 5, kNoSnapshot, 0), Part(2, 6, 1, 0)}};
  ASSERT_TRUE(slots.Check(step).ok());
  EXPECT_FALSE(slots.Check({{}, {Part(1, 10, 5, kNoSnapshot, 1), Part(2, 15, 1, 1)}}).ok());
  slots.Apply(step);
  ASSERT_EQ(slots.opened().size(), 1u);
  EXPECT_EQ(slots.opened()[0].from, 0);
  EXPECT_EQ(slots.opened()[0].state, slots.StateOf(2));
  ASSERT_EQ(slots.kept().size(), 1u);
  EXPECT_EQ(slots.kept()[0].state, slots.StateOf(1));
  EXPECT_TRUE(slots.Check({{2}, {Part(3, 15, 1, 0)}}).ok());
  EXPECT_FALSE(slots.Check({{2}, {Part(3, 6, 1, 0)}}).ok());
}

TEST(SlotStatesTest, WhatOneStepOpenedIsNotToldAgain) {
  SlotStates slots = Standing();
  slots.Apply({{}, {Part(2, 0, 3, kNoSnapshot, 1)}});
  slots.Apply({{2}, {}});
  EXPECT_TRUE(slots.opened().empty());
  EXPECT_TRUE(slots.kept().empty());
}

// A model without such layers has no states: nothing may be opened.
TEST(SlotStatesTest, ZeroSequencesHaveNoPlace) {
  const SlotStates none(0, 0);
  EXPECT_TRUE(none.Check({{4}, {}}).ok());
  EXPECT_FALSE(none.Check({{}, {Part(0, 0, 1)}}).ok());
}

}  // namespace
}  // namespace macrame::runtime::engine
