// Rank 0's side of the KV blocks on disk: what is written when, what is read for whom, and what
// happens when a rank is slow, has less than the others or has gone quiet.

#include "runtime/serving/cold/cold_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace macrame::runtime::engine {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Next = ColdTier::Next;

// Block `number` of conversation `chat`.
BlockTokens TokensOf(int32_t chat, uint32_t number) {
  BlockTokens tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = chat * 100'000 + static_cast<int32_t>(number * kBlockTokens + i);
  }
  return tokens;
}

std::vector<int32_t> PromptOf(int32_t chat, uint32_t blocks) {
  std::vector<int32_t> prompt;
  for (uint32_t block = 0; block < blocks; ++block) {
    const BlockTokens tokens = TokensOf(chat, block);
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  }
  return prompt;
}

std::vector<BlockName> NamesOf(int32_t chat, uint32_t blocks, std::string_view salt = "") {
  std::vector<BlockName> names;
  BlockName name = RootName(salt);
  for (uint32_t block = 0; block < blocks; ++block) {
    name = ChildName(name, TokensOf(chat, block));
    names.push_back(name);
  }
  return names;
}

class ColdTierTest : public ::testing::Test {
 protected:
  static ColdTraits Traits() {
    ColdTraits traits;
    traits.ranks = 2;
    traits.load_blocks_max = 4;
    traits.stores_per_step = 2;
    traits.stores_at_once_max = 3;
    return traits;
  }

  void Tell(ColdEvent::Kind kind, std::vector<BlockName> names) {
    ColdEvent event;
    event.kind = kind;
    event.names = std::move(names);
    tier_.On(event, now_);
  }
  void Answer(uint64_t load, uint32_t rank, uint32_t blocks) {
    ColdEvent event;
    event.kind = ColdEvent::Kind::kLoaded;
    event.id = load;
    event.rank = rank;
    event.blocks = blocks;
    tier_.On(event, now_);
  }
  // Blocks of a conversation as the KV cache has them, by ids from `first` on.
  std::vector<BlockId> Cache(int32_t chat, uint32_t blocks, BlockId first) {
    PrefixIndex::NodeId node = index_.Root("");
    std::vector<BlockId> ids;
    for (uint32_t block = 0; block < blocks; ++block) {
      ids.push_back(first + static_cast<BlockId>(block));
      node = index_.Insert(node, TokensOf(chat, block), ids.back());
    }
    return ids;
  }
  void Offer(const std::vector<BlockId>& blocks) {
    for (uint32_t depth = 0; depth < blocks.size(); ++depth) {
      tier_.Offer(index_, blocks[depth], depth, now_);
    }
  }
  ColdOrders Orders() { return tier_.TakeOrders(index_); }

  // A prompt that looks for what is on disk.
  struct Seeking {
    std::vector<int32_t> tokens;
    uint32_t held = 0;
    std::string salt{};
    ColdTier::Seeker seeker{};
    uint32_t taken = 0;
  };
  Next Seek(Seeking& one) {
    const ColdTier::Prompt prompt{one.salt, one.tokens, one.held,
                                  static_cast<uint32_t>(one.tokens.size() / kBlockTokens)};
    return tier_.Seek(
        one.seeker, prompt, now_, [this](uint32_t blocks) { return computing_ * blocks; },
        &one.taken);
  }
  // The load that was ordered just now.
  ColdLoad Ordered() {
    const ColdOrders orders = Orders();
    EXPECT_EQ(orders.loads.size(), 1u);
    return orders.loads.empty() ? ColdLoad() : orders.loads[0];
  }

  PrefixIndex index_{100};
  ColdTier tier_{Traits()};
  MonotonicTime now_{seconds(1000)};
  Duration computing_{};  // of one block; 0: not known
};

TEST_F(ColdTierTest, BlocksAreWrittenAFewWithEachStepTheBeginningFirst) {
  const std::vector<BlockId> blocks = Cache(1, 7, 20);
  Offer(blocks);
  EXPECT_TRUE(tier_.has_orders());
  const ColdOrders first = Orders();
  ASSERT_THAT(first.stores, SizeIs(2));
  BlockName parent = RootName("");
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(first.stores[i].block, blocks[i]);
    EXPECT_EQ(first.stores[i].content.tokens, TokensOf(1, i));
    EXPECT_EQ(first.stores[i].content.parent, parent);
    EXPECT_EQ(first.stores[i].content.depth, i);
    parent = NameOf(first.stores[i].content);
  }
  EXPECT_THAT(Orders().stores, SizeIs(1)) << "no more than three wait for rank 0's disk";
  EXPECT_THAT(Orders().stores, IsEmpty());
  const std::vector<BlockName> names = NamesOf(1, 7);
  Tell(ColdEvent::Kind::kStored, {names[0]});
  const ColdOrders next = Orders();
  ASSERT_THAT(next.stores, SizeIs(1));
  EXPECT_EQ(next.stores[0].block, blocks[3]);
  EXPECT_EQ(tier_.blocks(), 1u);
}

TEST_F(ColdTierTest, WhatIsOfferedAgainIsWrittenOnceAndThenTouched) {
  const std::vector<BlockId> blocks = Cache(1, 1, 20);
  Offer(blocks);
  Offer(blocks);
  EXPECT_THAT(Orders().stores, SizeIs(1));
  Offer(blocks);
  EXPECT_THAT(Orders().stores, IsEmpty()) << "it is being written";
  Tell(ColdEvent::Kind::kStored, NamesOf(1, 1));
  Offer(blocks);
  EXPECT_TRUE(Orders().empty()) << "it was used when it was written";
  now_ += kColdTouchPause;
  Offer(blocks);
  Offer(blocks);
  EXPECT_THAT(Orders().touches, ElementsAre(NamesOf(1, 1)[0]));
  now_ += kColdTouchPause - seconds(1);
  Offer(blocks);
  EXPECT_TRUE(Orders().empty());
  now_ += seconds(1);
  Offer(blocks);
  EXPECT_THAT(Orders().touches, SizeIs(1));
}

// When the files of the last run were used is not known here: their first use is told at once.
TEST_F(ColdTierTest, WhatWasThereAtTheStartIsTouchedAtItsFirstUse) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 3));
  EXPECT_EQ(tier_.blocks(), 3u);
  Offer(Cache(1, 3, 20));
  const ColdOrders orders = Orders();
  EXPECT_THAT(orders.stores, IsEmpty());
  EXPECT_EQ(orders.touches, NamesOf(1, 3)) << "in the order of the conversation";
}

TEST_F(ColdTierTest, TheTouchesOfOneMessageAreBoundedAndTheRestComesLater) {
  const uint32_t many = kColdTouchesMax + 10;
  Tell(ColdEvent::Kind::kListed, NamesOf(1, many));
  const std::vector<BlockId> blocks = Cache(1, many, 0);
  Offer(blocks);
  EXPECT_THAT(Orders().touches, SizeIs(kColdTouchesMax));
  Offer(blocks);
  EXPECT_THAT(Orders().touches, SizeIs(10)) << "what had no place is told with the next message";
}

TEST_F(ColdTierTest, WhatHasGivenWayIsNotWritten) {
  const std::vector<BlockId> blocks = Cache(1, 2, 20);
  Offer(blocks);
  index_.Remove(blocks[1]);
  // The block's memory is another conversation's by now.
  index_.Insert(index_.Root("x"), TokensOf(9, 0), blocks[1]);
  const ColdOrders orders = Orders();
  ASSERT_THAT(orders.stores, SizeIs(1));
  EXPECT_EQ(orders.stores[0].block, blocks[0]);
  EXPECT_EQ(tier_.counts().dropped_stores, 1u);
  EXPECT_FALSE(tier_.has_orders());
  // Computed again, it is offered again.
  const PrefixIndex::NodeId parent = index_.Child(index_.Root(""), TokensOf(1, 0));
  index_.Insert(parent, TokensOf(1, 1), 30);
  tier_.Offer(index_, 30, 1, now_);
  EXPECT_THAT(Orders().stores, SizeIs(1));
}

TEST_F(ColdTierTest, AStoreThatIsRefusedIsCountedAndMayBeTriedAgain) {
  const std::vector<BlockId> blocks = Cache(1, 5, 20);
  Offer(blocks);
  Orders();
  Orders();
  Tell(ColdEvent::Kind::kRefused, NamesOf(1, 3));
  EXPECT_EQ(tier_.counts().dropped_stores, 3u);
  EXPECT_EQ(tier_.blocks(), 0u);
  EXPECT_THAT(Orders().stores, SizeIs(2)) << "their places are free again";
  Offer({blocks[0]});
  Tell(ColdEvent::Kind::kStored, {NamesOf(1, 5)[3], NamesOf(1, 5)[4]});
  const ColdOrders again = Orders();
  ASSERT_THAT(again.stores, SizeIs(1));
  EXPECT_EQ(again.stores[0].block, blocks[0]);
  // What is told of names that nobody waits for changes nothing.
  Tell(ColdEvent::Kind::kStored, NamesOf(7, 5));
  EXPECT_EQ(tier_.blocks(), 2u);
}

TEST_F(ColdTierTest, BlocksThatWaitToBeWrittenAreBounded) {
  Offer(Cache(1, kColdCandidatesMax + 5, 0));
  EXPECT_EQ(tier_.counts().dropped_stores, 5u);
}

TEST_F(ColdTierTest, OnceARankHasNoneNothingIsWrittenOrRead) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 3));
  Offer(Cache(2, 3, 20));
  ColdEvent off;
  off.kind = ColdEvent::Kind::kOff;
  off.rank = 1;
  off.text = "/var/kv: No space left on device";
  tier_.On(off, now_);
  off.rank = 0;
  off.text = "something else";
  tier_.On(off, now_);
  EXPECT_FALSE(tier_.on());
  EXPECT_EQ(tier_.off_reason(), "rank 1: /var/kv: No space left on device") << "what came first";
  EXPECT_TRUE(Orders().empty());
  Offer(Cache(3, 3, 40));
  EXPECT_FALSE(tier_.has_orders());
  Seeking one{PromptOf(1, 3)};
  EXPECT_EQ(Seek(one), Next::kCompute);
}

TEST_F(ColdTierTest, APromptWaitsForAllRanksAndGoesOnBehindWhatCame) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 5));
  Seeking one{PromptOf(1, 6)};
  EXPECT_EQ(Seek(one), Next::kWait);
  const ColdLoad load = Ordered();
  EXPECT_EQ(load.parent, RootName(""));
  EXPECT_EQ(load.depth, 0u);
  EXPECT_EQ(load.tokens, PromptOf(1, 4)) << "as many as one load has";
  EXPECT_EQ(Seek(one), Next::kWait);
  Answer(load.id, 1, 4);
  EXPECT_EQ(Seek(one), Next::kWait) << "rank 0 has not answered";
  Answer(load.id, 0, 4);
  ASSERT_EQ(Seek(one), Next::kTake);
  EXPECT_EQ(one.taken, 4u);
  tier_.Take(one.seeker, {7, 8, 9, 10});
  const ColdOrders orders = Orders();
  ASSERT_THAT(orders.fills, SizeIs(1));
  EXPECT_EQ(orders.fills[0], (ColdFill{load.id, {7, 8, 9, 10}}));
  one.held = 4;
  EXPECT_EQ(Seek(one), Next::kWait);
  const ColdLoad rest = Ordered();
  EXPECT_EQ(rest.parent, NamesOf(1, 4)[3]);
  EXPECT_EQ(rest.depth, 4u);
  EXPECT_THAT(rest.tokens, SizeIs(kBlockTokens));
  Answer(rest.id, 0, 1);
  Answer(rest.id, 1, 1);
  ASSERT_EQ(Seek(one), Next::kTake);
  tier_.Take(one.seeker, {11});
  one.held = 5;
  EXPECT_EQ(Seek(one), Next::kCompute) << "the last one is on no disk";
  EXPECT_EQ(tier_.counts().loads, 2u);
  EXPECT_EQ(tier_.counts().loaded_blocks, 5u);
}

TEST_F(ColdTierTest, WhatOneRankLacksIsDroppedEverywhereAndComputed) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 4));
  Seeking one{PromptOf(1, 4)};
  Seek(one);
  const ColdLoad load = Ordered();
  Answer(load.id, 0, 4);
  Answer(load.id, 1, 2);
  EXPECT_THAT(Orders().drops, ElementsAre(NamesOf(1, 4)[2]));
  ASSERT_EQ(Seek(one), Next::kTake);
  EXPECT_EQ(one.taken, 2u) << "what both have";
  tier_.Take(one.seeker, {3, 4});
  one.held = 2;
  EXPECT_EQ(Seek(one), Next::kCompute);
  EXPECT_EQ(tier_.counts().failed_loads, 1u);
  // Another prompt asks no further than that either.
  Seeking other{PromptOf(1, 4)};
  EXPECT_EQ(Seek(other), Next::kWait);
  EXPECT_EQ(Ordered().tokens, PromptOf(1, 2));
}

TEST_F(ColdTierTest, WhereARankHasNothingThePromptIsComputedAndItsMemoryGivenBack) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 4));
  Seeking one{PromptOf(1, 4)};
  Seek(one);
  const ColdLoad load = Ordered();
  Answer(load.id, 0, 4);
  Answer(load.id, 1, 0);
  EXPECT_EQ(Seek(one), Next::kCompute);
  EXPECT_THAT(Orders().fills, ElementsAre(ColdFill{load.id, {}}));
  EXPECT_EQ(Seek(one), Next::kCompute);
}

TEST_F(ColdTierTest, AnswersThatNobodyAskedForChangeNothing) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 4));
  Seeking one{PromptOf(1, 4)};
  Seek(one);
  const ColdLoad load = Ordered();
  Answer(load.id + 1, 0, 4);  // of no load
  Answer(load.id, 2, 0);      // of no rank
  Answer(load.id, 0, 4);
  Answer(load.id, 0, 0);  // a second time
  EXPECT_EQ(Seek(one), Next::kWait);
  Answer(load.id, 1, 400);  // more than was ordered
  ASSERT_EQ(Seek(one), Next::kTake);
  EXPECT_EQ(one.taken, 4u);
}

TEST_F(ColdTierTest, ALoadThatDoesNotComeIsGivenUpAndForgottenWhenItDoes) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 4));
  Seeking one{PromptOf(1, 4)};
  Seek(one);
  const ColdLoad load = Ordered();
  Answer(load.id, 0, 4);
  now_ += kColdLoadLimit - Duration(1);
  EXPECT_EQ(Seek(one), Next::kWait);
  now_ += Duration(1);
  EXPECT_EQ(Seek(one), Next::kCompute);
  EXPECT_EQ(tier_.counts().late_loads, 1u);
  EXPECT_EQ(Seek(one), Next::kCompute) << "it is computed, whatever comes";
  EXPECT_THAT(Orders().fills, IsEmpty()) << "rank 1 may still be reading into its memory";
  Answer(load.id, 1, 4);
  EXPECT_THAT(Orders().fills, ElementsAre(ColdFill{load.id, {}}));
}

// A rank that hangs keeps its loads for ever: prompts are computed then, and none waits.
TEST_F(ColdTierTest, LoadsOfARankThatHangsHoldNobodyUp) {
  for (int32_t chat = 1; chat <= 6; ++chat) Tell(ColdEvent::Kind::kListed, NamesOf(chat, 2));
  std::vector<Seeking> all;
  for (int32_t chat = 1; chat <= 5; ++chat) all.push_back({PromptOf(chat, 2)});
  for (size_t i = 0; i < kColdLoadsMax; ++i) EXPECT_EQ(Seek(all[i]), Next::kWait);
  EXPECT_THAT(Orders().loads, SizeIs(kColdLoadsMax));
  EXPECT_EQ(Seek(all[4]), Next::kWait) << "for one of those to come";
  EXPECT_THAT(Orders().loads, IsEmpty());
  now_ += kColdLoadLimit;
  for (size_t i = 0; i < kColdLoadsMax; ++i) EXPECT_EQ(Seek(all[i]), Next::kCompute);
  EXPECT_EQ(Seek(all[4]), Next::kCompute);
  Seeking later{PromptOf(6, 2)};
  EXPECT_EQ(Seek(later), Next::kCompute);
}

TEST_F(ColdTierTest, TheSameBeginningIsReadOnceAndOthersWaitForIt) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 3));
  Seeking one{PromptOf(1, 3)}, other{PromptOf(1, 3)};
  EXPECT_EQ(Seek(one), Next::kWait);
  EXPECT_EQ(Seek(other), Next::kWait);
  const ColdLoad load = Ordered();
  Answer(load.id, 0, 3);
  Answer(load.id, 1, 3);
  EXPECT_EQ(Seek(other), Next::kWait) << "the first one takes it";
  ASSERT_EQ(Seek(one), Next::kTake);
  tier_.Take(one.seeker, {1, 2, 3});
  other.held = 3;  // it finds them in the cache now
  EXPECT_EQ(Seek(other), Next::kCompute);
}

TEST_F(ColdTierTest, WhoLeavesIsNotWaitedForAndOthersMayRead) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 3));
  for (const bool has_come : {false, true}) {
    Seeking one{PromptOf(1, 3)};
    EXPECT_EQ(Seek(one), Next::kWait);
    const ColdLoad load = Ordered();
    Answer(load.id, 0, 3);
    if (has_come) Answer(load.id, 1, 3);
    tier_.Leave(one.seeker);
    Seeking other{PromptOf(1, 3)};
    EXPECT_EQ(Seek(other), Next::kWait);
    const ColdOrders orders = Orders();
    EXPECT_THAT(orders.loads, SizeIs(1)) << "a load of its own";
    EXPECT_THAT(orders.fills, SizeIs(has_come ? 1 : 0));
    tier_.Leave(other.seeker);
    if (!has_come) Answer(load.id, 1, 3);
    for (const uint32_t rank : {0u, 1u}) Answer(load.id + 1, rank, 3);
    for (const ColdFill& fill : Orders().fills) EXPECT_THAT(fill.blocks, IsEmpty());
  }
}

TEST_F(ColdTierTest, WhatSomebodyComputedMeanwhileIsNotTakenFromTheDisk) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 4));
  Seeking one{PromptOf(1, 4)};
  Seek(one);
  const ColdLoad load = Ordered();
  one.held = 1;
  Answer(load.id, 0, 4);
  Answer(load.id, 1, 4);
  EXPECT_EQ(Seek(one), Next::kCompute);
  EXPECT_THAT(Orders().fills, ElementsAre(ColdFill{load.id, {}}));
  EXPECT_EQ(Seek(one), Next::kWait) << "the rest may be read";
  EXPECT_EQ(Ordered().depth, 1u);
}

TEST_F(ColdTierTest, NothingIsReadWhereComputingIsFaster) {
  for (int32_t chat = 1; chat <= 4; ++chat) Tell(ColdEvent::Kind::kListed, NamesOf(chat, 4));
  Seeking first{PromptOf(1, 4)};
  Seek(first);
  const ColdLoad load = Ordered();
  now_ += seconds(2);  // half a second for each block
  Answer(load.id, 0, 4);
  Answer(load.id, 1, 4);
  ASSERT_EQ(Seek(first), Next::kTake);
  tier_.Take(first.seeker, {1, 2, 3, 4});
  computing_ = std::chrono::milliseconds(400);
  Seeking second{PromptOf(2, 4)};
  EXPECT_EQ(Seek(second), Next::kCompute);
  EXPECT_EQ(tier_.counts().slower_loads, 1u);
  Seeking third{PromptOf(3, 4)};
  computing_ = std::chrono::milliseconds(600);
  EXPECT_EQ(Seek(third), Next::kWait);
  EXPECT_EQ(Seek(second), Next::kCompute) << "it was decided";
  // What is known of the disk is not known for ever.
  tier_.Leave(third.seeker);
  computing_ = std::chrono::milliseconds(1);
  now_ += kColdCostKept;
  Seeking fourth{PromptOf(4, 4)};
  EXPECT_EQ(Seek(fourth), Next::kWait);
}

TEST_F(ColdTierTest, AnotherSaltsBlocksAreNotSought) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 3, "tenant a"));
  Seeking mine{PromptOf(1, 3), 0, "tenant a"}, others{PromptOf(1, 3), 0, "tenant b"};
  EXPECT_EQ(Seek(others), Next::kCompute);
  EXPECT_EQ(Seek(mine), Next::kWait);
  EXPECT_EQ(Ordered().parent, RootName("tenant a"));
}

TEST_F(ColdTierTest, WhatWasRemovedFromTheDiskIsNotSought) {
  Tell(ColdEvent::Kind::kListed, NamesOf(1, 3));
  Tell(ColdEvent::Kind::kRemoved, {NamesOf(1, 3)[1]});
  Seeking one{PromptOf(1, 3)};
  EXPECT_EQ(Seek(one), Next::kWait);
  EXPECT_EQ(Ordered().tokens, PromptOf(1, 1));
  Tell(ColdEvent::Kind::kRemoved, NamesOf(1, 3));
  Seeking other{PromptOf(1, 3)};
  EXPECT_EQ(Seek(other), Next::kCompute);
}

// A rank's memory holds what it read until it is told what becomes of it: each load is filled once,
// when all ranks have answered, and never before.
TEST_F(ColdTierTest, EachLoadIsFilledOnceWhateverHappens) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    ColdTier tier(Traits());
    std::map<uint64_t, std::set<uint32_t>> unanswered;
    std::map<uint64_t, uint32_t> sizes;
    std::set<uint64_t> filled;
    std::vector<Seeking> all;
    const auto list = [&] {
      ColdEvent event;
      event.names = NamesOf(static_cast<int32_t>(random() % 6), 6);
      tier.On(event, now_);
    };
    const auto answer = [&] {
      if (unanswered.empty()) return;
      auto at = unanswered.begin();
      std::advance(at, random() % unanswered.size());
      const uint32_t rank = *at->second.begin();
      at->second.erase(rank);
      ColdEvent event;
      event.kind = ColdEvent::Kind::kLoaded;
      event.id = at->first;
      event.rank = rank;
      event.blocks = random() % 4 == 0 ? static_cast<uint32_t>(random() % 4) : sizes.at(at->first);
      if (at->second.empty()) unanswered.erase(at);
      tier.On(event, now_);
    };
    const auto carry_out = [&] {
      const ColdOrders orders = tier.TakeOrders(index_);
      for (const ColdFill& fill : orders.fills) {
        EXPECT_TRUE(filled.insert(fill.id).second) << "load " << fill.id << " filled twice";
        EXPECT_FALSE(unanswered.contains(fill.id)) << "a rank is still reading it";
        EXPECT_TRUE(sizes.contains(fill.id));
        EXPECT_LE(fill.blocks.size(), sizes[fill.id]);
      }
      for (const ColdLoad& load : orders.loads) {
        EXPECT_TRUE(sizes.emplace(load.id, load.tokens.size() / kBlockTokens).second);
        unanswered[load.id] = {0, 1};
      }
    };
    const auto seek = [&](Seeking& one) {
      const ColdTier::Prompt prompt{one.salt, one.tokens, one.held, 6};
      const Next next = tier.Seek(
          one.seeker, prompt, now_, [](uint32_t blocks) { return blocks * seconds(1); },
          &one.taken);
      if (next != Next::kTake) return;
      const uint32_t given = random() % 5 == 0 ? 0 : one.taken;
      std::vector<BlockId> blocks(given, 5);
      tier.Take(one.seeker, blocks);
      one.held += given;
    };
    for (int step = 0; step < 400; ++step) {
      const size_t what = random() % 10;
      if (what == 0) list();
      if (what == 1 && all.size() < 8) {
        all.push_back({PromptOf(static_cast<int32_t>(random() % 6), 6)});
      }
      if (what == 2 && !all.empty()) {
        const size_t who = random() % all.size();
        tier.Leave(all[who].seeker);
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(who));
      }
      if (what > 2 && what < 7 && !all.empty()) seek(all[random() % all.size()]);
      if (what >= 7) answer();
      now_ += std::chrono::milliseconds(random() % 300);
      carry_out();
    }
    for (Seeking& one : all) tier.Leave(one.seeker);
    while (!unanswered.empty()) answer();
    carry_out();
    EXPECT_EQ(filled.size(), sizes.size()) << "every load is let go, seed " << seed;
    EXPECT_GT(sizes.size(), 5u) << "seed " << seed;
    EXPECT_FALSE(tier.has_orders());
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
