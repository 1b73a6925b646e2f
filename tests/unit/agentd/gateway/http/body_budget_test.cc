#include "agentd/gateway/http/body_budget.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMiB = 1024 * 1024;
constexpr size_t kLarge = 4 * kMiB;

class BodyBudgetTest : public ::testing::Test {
 protected:
  BodyBudget::Id Ask(const std::string& client, size_t bytes, bool is_keyless = false) {
    return budget_.Ask({client, is_keyless}, bytes, now_);
  }
  // Of so many bodies of one client, how many have room.
  size_t RoomsOf(const std::string& client, size_t bytes, int count, bool is_keyless = false) {
    size_t rooms = 0;
    for (int i = 0; i < count; ++i) {
      rooms += budget_.HasRoom(Ask(client, bytes, is_keyless)) ? 1 : 0;
    }
    return rooms;
  }

  BodyBudget::Time now_{seconds(1000)};
  BodyBudget budget_{32 * kMiB, kLarge};
};

TEST_F(BodyBudgetTest, AThousandLargeBodiesHoldNoMoreThanTheBudget) {
  for (int i = 0; i < 1000; ++i) Ask(absl::StrCat("10.0.0.", i % 50), kLarge);
  EXPECT_LE(budget_.held(), 32 * kMiB);
  EXPECT_EQ(budget_.held(), 24 * kMiB) << "a quarter is for small ones";
  EXPECT_TRUE(budget_.HasRoom(Ask("key a", 60'000)));
}

TEST_F(BodyBudgetTest, OneClientHasHalfAtTheMost) {
  EXPECT_EQ(RoomsOf("key a", kLarge, 100), 3u) << "and of that three quarters by large ones";
  EXPECT_TRUE(budget_.HasRoom(Ask("key a", 60'000))) << "its small ones go on";
  EXPECT_TRUE(budget_.HasRoom(Ask("key b", kLarge)));
  EXPECT_TRUE(budget_.HasRoom(Ask("key c", kLarge)));
}

TEST_F(BodyBudgetTest, KeylessClientsTogetherHaveHalfAndKeysComeFirst) {
  size_t rooms = 0;
  for (int i = 0; i < 100; ++i) rooms += RoomsOf(absl::StrCat("10.0.0.", i), kLarge, 1, true);
  EXPECT_EQ(rooms, 3u);
  std::vector<BodyBudget::Id> held;
  for (const char* key : {"key a", "key b", "key c"}) held.push_back(Ask(key, kLarge));
  for (const auto id : held) EXPECT_TRUE(budget_.HasRoom(id));
  // All is taken: whoever has a key is next, whenever it came.
  const auto waits = Ask("key d", kLarge);
  EXPECT_FALSE(budget_.HasRoom(waits));
  budget_.Release(held[0]);
  EXPECT_TRUE(budget_.HasRoom(waits));
}

TEST_F(BodyBudgetTest, WhoHoldsLeastIsNextThenWhoCameFirst) {
  std::vector<BodyBudget::Id> held;
  for (const char* key : {"key a", "key a", "key a", "key b", "key b", "key b"}) {
    held.push_back(Ask(key, kLarge));
  }
  const auto of_a = Ask("key a", kLarge), first = Ask("key c", kLarge),
             second = Ask("key d", kLarge);
  EXPECT_EQ(budget_.waiting(), 3u);
  budget_.TakeGiven();
  budget_.Release(held[5]);
  EXPECT_TRUE(budget_.HasRoom(first));
  EXPECT_FALSE(budget_.HasRoom(second));
  EXPECT_EQ(budget_.TakeGiven(), std::vector<BodyBudget::Id>{first});
  budget_.Release(held[0]);
  EXPECT_TRUE(budget_.HasRoom(second));
  EXPECT_FALSE(budget_.HasRoom(of_a));
}

TEST_F(BodyBudgetTest, ABodyThatTricklesIsEndedSoonerWhileOthersWait) {
  const auto slow = Ask("key a", kLarge), faster = Ask("key a", kLarge);
  size_t of_slow = 0, of_faster = 0;
  const auto second_passes = [&] {
    now_ += seconds(1);
    budget_.NoteReceived(slow, of_slow += 100, now_);
    budget_.NoteReceived(faster, of_faster += 8 * 1024, now_);
  };
  for (int i = 0; i < 4; ++i) {
    second_passes();
    EXPECT_FALSE(budget_.IsTooSlow(slow, now_)) << i;
  }
  second_passes();
  EXPECT_TRUE(budget_.IsTooSlow(slow, now_)) << "100 bytes a second";
  EXPECT_FALSE(budget_.IsTooSlow(faster, now_));
  // 8 KiB a second do while nobody else wants the room.
  for (int i = 0; i < 20; ++i) {
    second_passes();
    EXPECT_FALSE(budget_.IsTooSlow(faster, now_)) << i;
  }
  for (int i = 0; i < 20; ++i) Ask(absl::StrCat("key ", i), kLarge);
  ASSERT_GT(budget_.waiting(), 0u);
  second_passes();
  second_passes();
  EXPECT_TRUE(budget_.IsTooSlow(faster, now_));
}

TEST_F(BodyBudgetTest, WhatIsWholeOrWaitsIsNeverTooSlow) {
  const auto whole = Ask("key a", kLarge);
  budget_.NoteReceived(whole, 10, now_);
  budget_.NoteWhole(whole, 10);
  EXPECT_EQ(budget_.held(), 10u) << "it needs no more than it is";
  RoomsOf("key b", kLarge, 10);
  const auto waits = Ask("key b", kLarge);
  now_ += seconds(3600);
  EXPECT_FALSE(budget_.IsTooSlow(whole, now_));
  EXPECT_FALSE(budget_.IsTooSlow(waits, now_));
}

TEST_F(BodyBudgetTest, TinyBodiesAlwaysCome) {
  for (int i = 0; i < 100; ++i) Ask(absl::StrCat("key ", i % 3), kSmallBodyBytes);
  for (int i = 0; i < 1000; ++i) Ask(absl::StrCat("key ", i % 3), kLarge);
  EXPECT_EQ(RoomsOf("key 0", kTinyBodyBytes, 100), 100u);
}

// Whatever comes and goes: the sums are those of the bodies, and none waits that would fit alone.
TEST_F(BodyBudgetTest, SumsHoldThroughAnyOrder) {
  std::mt19937 random(4711);
  std::map<BodyBudget::Id, size_t> open;
  const size_t sizes[] = {1, 3000, 60'000, 200'000, kLarge};
  for (int step = 0; step < 3000; ++step) {
    now_ += milliseconds(10);
    if (open.empty() || (open.size() < 60 && random() % 2 == 0)) {
      const size_t bytes = sizes[random() % 5];
      open[Ask(absl::StrCat("key ", random() % 9), bytes, random() % 3 == 0)] = bytes;
    } else {
      const auto one = std::next(open.begin(), static_cast<long>(random() % open.size()));
      if (random() % 2 == 0) {
        if (budget_.HasRoom(one->first)) budget_.NoteWhole(one->first, one->second / 2);
        one->second = budget_.HasRoom(one->first) ? one->second / 2 : one->second;
      } else {
        budget_.Release(one->first);
        open.erase(one);
      }
    }
    size_t held = 0, waiting = 0;
    for (const auto& [id, bytes] : open) (budget_.HasRoom(id) ? held : waiting) += 1;
    ASSERT_EQ(budget_.waiting(), waiting);
    ASSERT_LE(budget_.held(), 32 * kMiB + 60 * kTinyBodyBytes);
    if (held == 0) {
      ASSERT_EQ(budget_.held(), 0u);
      ASSERT_EQ(waiting, 0u);
    }
  }
  for (const auto& [id, bytes] : open) budget_.Release(id);
  EXPECT_EQ(budget_.held(), 0u);
  EXPECT_EQ(budget_.waiting(), 0u);
}

}  // namespace
}  // namespace macrame::agentd
