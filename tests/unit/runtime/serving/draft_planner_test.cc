// When a draft model is asked, for whom, and how its KV cache is shared out: over steps and passes
// that take what a table says.

#include "runtime/serving/draft_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>

namespace macrame::runtime::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// What steps of the gang take, and passes of the draft model.
struct Price {
  Duration step = milliseconds(20);
  Duration row = milliseconds(1);
  Duration pass = milliseconds(2);
  Duration pass_token = microseconds(50);
};

StepCost CostOf(const Price& price) {
  StepCost cost(64);
  for (int round = 0; round < 400; ++round) {
    for (const uint32_t rows : {1u, 4u, 8u, 16u}) {
      StepWork work;
      work.decode_tokens = rows;
      cost.Learn(work, price.step + rows * price.row);
    }
  }
  return cost;
}

// Answers of which every token is known beforehand, and a draft model that is right where `right`
// says so.
class Bench {
 public:
  explicit Bench(Price price, DraftModelTraits traits = {64, 1024, 1 << 20})
      : price_(price), cost_(CostOf(price)), planner(traits, 8) {}

  void Add(RequestId id, uint32_t prompt) { lengths_[id] = prompt; }

  void Drop(RequestId id) {
    lengths_.erase(id);
    planner.Leave(id);
  }

  // One step for all answers (in a pipeline, for its share of them): drafts as ordered, and what is
  // right of them accepted. How many tokens were drafted.
  uint32_t Step() {
    std::vector<DraftPlanner::Answer> answers;
    StepWork work;
    ++turn_;
    for (const auto& [id, length] : lengths_) {
      if (!IsIn(id)) continue;
      texts_[id].resize(length);
      for (uint32_t i = 0; i < length; ++i) texts_[id][i] = TokenAt(i);
      answers.push_back({id, texts_[id], room, other_rate});
      ++work.decode_tokens;
      work.attended += length;
    }
    DraftPlanner::Base base{work, &cost_, 1.0, milliseconds(100), steps_in_flight};
    const DraftOrder order = planner.Plan(answers, base);
    planner.CheckInvariants();
    Carry(order);
    uint32_t drafted = 0;
    for (auto& [id, length] : lengths_) {
      if (IsIn(id)) drafted += Verify(id, length);
    }
    return drafted;
  }

  static int32_t TokenAt(uint32_t position) { return static_cast<int32_t>(position % 1000); }

  std::function<bool(uint32_t position)> right = [](uint32_t) { return true; };
  uint32_t room = 1000;
  double other_rate = 0.0;
  uint32_t steps_in_flight = 1;
  int slower = 1;              // passes take so many times as long
  uint32_t caught_up = 0;      // tokens of chunks
  uint32_t largest_chunk = 0;  // of one order
  std::set<uint32_t> slots;

 private:
  bool IsIn(RequestId id) const { return id % steps_in_flight == turn_ % steps_in_flight; }
  void Carry(const DraftOrder& order) {
    if (order.empty()) return;
    DraftsMade made;
    uint32_t chunk = 0, deepest = 0;
    StepWork first;
    for (const DraftOrder::Part& part : order.parts) {
      slots.insert(part.slot);
      made.tokens.emplace_back();
      const auto end = part.begin + static_cast<uint32_t>(part.tokens.size());
      for (uint32_t i = 0; i < part.tokens.size(); ++i) {
        EXPECT_EQ(part.tokens[i], TokenAt(part.begin + i)) << "what it runs is the answer's";
      }
      for (uint32_t i = 0; i < part.count; ++i) {
        made.tokens.back().push_back(right(end + i) ? TokenAt(end + i) : 1'000'000);
      }
      const uint32_t drafted = part.count == 0 ? 0 : part.count - 1;
      const uint32_t needed = (end + drafted + kBlockTokens - 1) / kBlockTokens;
      EXPECT_EQ(part.blocks_before + part.blocks.size(), std::max(part.blocks_before, needed))
          << "as a slot's table takes them";
      EXPECT_TRUE(part.count == 0 || end == lengths_.at(part.id)) << "drafts behind a hole";
      if (part.count == 0) chunk += static_cast<uint32_t>(part.tokens.size());
      (part.count == 0 ? first.prefill_tokens : first.decode_tokens) +=
          static_cast<uint32_t>(part.tokens.size());
      deepest = std::max(deepest, part.count);
    }
    caught_up += chunk;
    largest_chunk = std::max(largest_chunk, chunk);
    const auto took = [&](uint32_t tokens) {
      return slower * (price_.pass + tokens * price_.pass_token);
    };
    made.passes.push_back({first, took(first.prefill_tokens + first.decode_tokens)});
    for (uint32_t depth = 2; depth <= deepest; ++depth) made.passes.push_back({{1, 0, 0}, took(1)});
    planner.OnDrafted(order, std::move(made));
  }
  uint32_t Verify(RequestId id, uint32_t& length) {
    const auto draft = planner.DraftOf(id, length);
    const std::vector<int32_t> tokens(draft.begin(), draft.end());
    uint32_t at = length++;  // the next token comes in any case
    for (const int32_t token : tokens) {
      const bool is_right = token == TokenAt(at++);
      planner.OnVerified(id, is_right);
      if (!is_right) break;
      ++length;
    }
    return static_cast<uint32_t>(tokens.size());
  }

  const Price price_;
  const StepCost cost_;
  uint32_t turn_ = 0;
  std::map<RequestId, uint32_t> lengths_;
  std::map<RequestId, std::vector<int32_t>> texts_;

 public:
  DraftPlanner planner;
  uint32_t length(RequestId id) const { return lengths_.at(id); }
};

TEST(DraftPlanner, OneThatIsAlwaysRightStaysOnAndDraftsAsMuchAsItMay) {
  Bench bench({});
  bench.Add(1, 20);
  uint32_t drafted = 0;
  for (int step = 0; step < 50; ++step) drafted += bench.Step();
  EXPECT_GT(bench.length(1), 20u + 50 * 6) << drafted << " drafted";
  EXPECT_EQ(bench.length(1), 20u + 50 + drafted) << "all of them were right";
  EXPECT_EQ(std::max(bench.Step(), bench.Step()), 8u) << "one step of six goes without";
}

TEST(DraftPlanner, OneThatIsAlwaysWrongIsTurnedOffAndTriedAgainRarely) {
  Bench bench({}, {512, 8192, 1 << 20});
  bench.room = 100'000;
  bench.Add(1, 20);
  bench.right = [](uint32_t) { return false; };
  uint32_t steps_with_drafts = 0;
  for (int step = 0; step < 64; ++step) steps_with_drafts += bench.Step() > 0 ? 1 : 0;
  EXPECT_GT(steps_with_drafts, 0u);
  EXPECT_LE(steps_with_drafts, 20u) << "a bounded number of tries";
  uint32_t later = 0, drafted = 0;
  for (int step = 0; step < 4000; ++step) {
    const uint32_t tokens = bench.Step();
    drafted += tokens;
    later += tokens > 0 ? 1 : 0;
  }
  EXPECT_GE(later, 2u) << "it is tried again";
  EXPECT_LE(later, 10u) << "and rarely: 32 tokens later, 64, …, 1024";
  EXPECT_LE(drafted, 40u);
}

// One slow pass (a busy machine) does not turn it off for good.
TEST(DraftPlanner, WhatAPassIsTakenToCostIsFoundOutAgain) {
  Bench bench({}, {512, 8192, 1 << 20});
  bench.Add(1, 20);
  bench.slower = 200;
  for (int step = 0; step < 12; ++step) bench.Step();
  EXPECT_EQ(bench.Step() + bench.Step(), 0u);
  bench.slower = 1;
  for (int step = 0; step < 300; ++step) bench.Step();
  EXPECT_EQ(std::max(bench.Step(), bench.Step()), 8u) << "one step of six goes without";
}

TEST(DraftPlanner, OneThatBecomesRightIsFoundOut) {
  Bench bench({}, {512, 8192, 1 << 20});
  bench.Add(1, 20);
  bench.right = [](uint32_t position) { return position > 300; };
  for (int step = 0; step < 250; ++step) bench.Step();
  EXPECT_LE(bench.length(1), 300u);
  for (int step = 0; step < 700; ++step) bench.Step();
  EXPECT_EQ(std::max(bench.Step(), bench.Step()), 8u) << "one step of six goes without";
}

TEST(DraftPlanner, ItIsOffWhereAPassCostsMoreThanItGains) {
  Price dear;
  dear.pass = milliseconds(25);
  Bench bench(dear);
  bench.Add(1, 20);
  uint32_t drafted = 0;
  for (int step = 0; step < 300; ++step) drafted += bench.Step();
  EXPECT_LE(drafted, 8u + 3 * 4) << "until the first pass was measured, and three tries later";
}

TEST(DraftPlanner, ItIsOffWhileSoManyAnswersRunThatRowsCostMoreThanTheyGain) {
  Price rows;
  rows.row = milliseconds(12);
  rows.step = milliseconds(40);
  Bench bench(rows, {1024, 4096, 1 << 20});
  bench.right = [](uint32_t position) { return position % 3 != 0; };
  bench.Add(1, 20);
  uint32_t alone = 0, together = 0;
  for (int step = 0; step < 40; ++step) alone += bench.Step();
  for (RequestId id = 2; id <= 12; ++id) bench.Add(id, 20);
  for (int step = 0; step < 10; ++step) bench.Step();
  for (int step = 0; step < 40; ++step) together += bench.Step();
  EXPECT_GT(alone, 20u);
  EXPECT_LE(together, 12u * 4) << "one try each, of 480 steps";
}

TEST(DraftPlanner, APromptIsCaughtUpOnInChunksIfTheAnswerIsWorthIt) {
  Bench bench({});
  bench.Add(1, 700);
  while (bench.Step() == 0) ASSERT_LT(bench.length(1), 760u);
  EXPECT_GE(bench.caught_up, 690u);
  EXPECT_LE(bench.largest_chunk, kDraftChunkTokens);

  Bench brief({});
  brief.room = 2;  // what the answer has left gains less than the prompt costs
  brief.Add(1, 20);
  for (int step = 0; step < 3; ++step) brief.Step();
  const uint32_t before = brief.caught_up;
  brief.Add(2, 900);
  for (int step = 0; step < 20; ++step) brief.Step();
  EXPECT_EQ(brief.caught_up, before);
}

TEST(DraftPlanner, TheChunksOfAllAnswersTogetherKeepWithinTheTimeOfAStep) {
  Price slow;
  slow.pass_token = microseconds(700);  // about 70 in half of a step's budget
  slow.step = milliseconds(90);
  Bench bench(slow, {1024, 16384, 1 << 20});
  bench.room = 100'000;
  bench.Add(1, 500);
  while (bench.Step() == 0) ASSERT_LT(bench.length(1), 560u);
  bench.largest_chunk = 0;
  for (RequestId id = 2; id <= 5; ++id) bench.Add(id, 300);
  const uint32_t before = bench.caught_up;
  for (int step = 0; step < 60; ++step) bench.Step();
  EXPECT_GE(bench.caught_up - before, 4 * 300u) << "all of them come to their turn";
  EXPECT_LE(bench.largest_chunk, 75u);
}

TEST(DraftPlanner, ALongPromptIsNotRunForADraftModelThatIsOfNoUse) {
  Bench bench({}, {1024, 16384, 1 << 20});
  bench.room = 100'000;
  bench.right = [](uint32_t) { return false; };
  for (RequestId id = 1; id <= 40; ++id) bench.Add(id, 20);
  for (int step = 0; step < 600; ++step) bench.Step();
  for (RequestId id = 1; id <= 40; ++id) bench.Drop(id);
  const uint32_t before = bench.caught_up;
  bench.Add(41, 8000);
  for (int step = 0; step < 300; ++step) bench.Step();
  EXPECT_EQ(bench.caught_up, before);
}

TEST(DraftPlanner, AnotherDraftThatIsLikelierRightIsLeftToIt) {
  Bench bench({});
  bench.other_rate = 0.9;
  bench.Add(1, 20);
  for (int step = 0; step < 20; ++step) EXPECT_EQ(bench.Step(), 0u);
  EXPECT_EQ(bench.caught_up, 0u);
}

TEST(DraftPlanner, ItsBlocksAreBoundedAndGoToWhoeverRunsNow) {
  Bench bench({}, {8, 256, 1 << 20});  // one context
  bench.room = 100'000;
  for (RequestId id = 1; id <= 3; ++id) bench.Add(id, 20);
  bench.right = [](uint32_t position) { return position % 2 == 0; };
  for (int step = 0; step < 10; ++step) bench.Step();
  EXPECT_EQ(bench.slots.size(), 3u);
  // Beyond what the blocks hold together: some go on drafting, and none takes another's in turn.
  const uint32_t before = bench.caught_up;
  uint32_t steps_with_drafts = 0;
  for (int step = 0; step < 60; ++step) steps_with_drafts += bench.Step() > 0 ? 1 : 0;
  EXPECT_GT(bench.length(1) + bench.length(2) + bench.length(3), 8 * kBlockTokens);
  EXPECT_GE(steps_with_drafts, 45u);
  EXPECT_LE(bench.caught_up - before, 3 * 256u);
  EXPECT_LE(bench.slots.size(), 3u) << "slots are used again";
  bench.planner.Leave(1);
  bench.planner.Leave(2);
  bench.planner.CheckInvariants();
}

TEST(DraftPlanner, StepsOfAPipelineDontTakeEachOthersBlocks) {
  Bench bench({}, {8, 256, 1 << 20});
  bench.steps_in_flight = 2;
  bench.room = 100'000;
  bench.right = [](uint32_t position) { return position % 2 == 0; };
  for (RequestId id = 1; id <= 4; ++id) bench.Add(id, 20);
  std::vector<bool> drafts;
  for (int step = 0; step < 120; ++step) drafts.push_back(bench.Step() > 0);
  EXPECT_GE(std::count(drafts.begin(), drafts.end(), true), 60);
  EXPECT_LE(bench.caught_up, 4 * 256u);
}

TEST(DraftPlanner, StepsWithoutDraftsFollowOneAnotherInAPipeline) {
  Bench bench({}, {64, 1024, 1 << 20});
  bench.steps_in_flight = 2;
  for (RequestId id = 1; id <= 2; ++id) bench.Add(id, 20);
  for (int step = 0; step < 12; ++step) bench.Step();
  std::string seen;
  for (int step = 0; step < 24; ++step) seen += bench.Step() > 0 ? 'd' : '-';
  EXPECT_THAT(seen, ::testing::HasSubstr("d--d"));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), '-'), 4) << seen;
}

TEST(DraftPlanner, NothingIsDraftedBeyondWhatTheDraftModelCanHoldOrRead) {
  Bench bench({}, {8, 256, 1 << 20});
  bench.Add(1, 200);
  for (int step = 0; step < 300; ++step) {
    const uint32_t before = bench.length(1);
    const uint32_t drafted = bench.Step();
    EXPECT_LE(drafted == 0 ? 0 : before + drafted - 1, 256u);
  }
  EXPECT_GT(bench.length(1), 256u + 200);

  Bench narrow({}, {8, 256, 30});
  narrow.Add(1, 28);  // from position 30 on its ids are not in the draft model's table
  for (int step = 0; step < 10; ++step) narrow.Step();
  EXPECT_EQ(narrow.Step() + narrow.Step(), 0u);
}

// The bench looks at each order, and the planner at itself.
TEST(DraftPlanner, WhoeverComesAndGoesOrdersFitTheSlots) {
  std::mt19937 random(4711);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Price price;
    price.pass_token = microseconds(1 + random() % 500);
    const auto blocks = static_cast<uint32_t>(8 + random() % 30);
    Bench bench(price, {blocks, 256, 1 << 20, random() % 2 == 0});
    bench.steps_in_flight = 1 + random() % 3;
    bench.right = [&](uint32_t) { return random() % 4 != 0; };
    std::set<RequestId> running;
    RequestId next = 1;
    for (int step = 0; step < 150 && !HasFailure(); ++step) {
      if (random() % 12 == 0) {
        bench.Add(next, 1 + random() % 200);
        running.insert(next++);
      }
      if (random() % 40 == 0 && !running.empty()) {
        bench.Drop(*running.begin());
        running.erase(running.begin());
      }
      bench.Step();
    }
  }
}

TEST(DraftPlanner, TurnedOffItOrdersNothing) {
  Bench bench({});
  bench.Add(1, 20);
  bench.Step();
  bench.planner.TurnOff();
  for (int step = 0; step < 5; ++step) EXPECT_EQ(bench.Step(), 0u);
}

}  // namespace
}  // namespace macrame::runtime::engine
