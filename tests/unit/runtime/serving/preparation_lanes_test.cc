#include "runtime/serving/preparation_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/fake_dispatcher.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;

v1::GenerateRequest Chat(size_t bytes) {
  v1::GenerateRequest request;
  for (size_t i = 0; i < bytes; i += 1000) {
    request.add_messages()->set_content(std::string(std::min<size_t>(1000, bytes - i), 'a'));
  }
  return request;
}

class PreparationLanesTest : public ::testing::Test {
 protected:
  // Runs the owner thread's tasks until `done`.
  void Await(const std::function<bool()>& done) {
    while (!done()) {
      dispatcher_.RunPosted();
      std::this_thread::yield();
    }
  }

  transport::FakeDispatcher dispatcher_;
  PreparationLanes lanes_{dispatcher_};
};

TEST(LaneOfTest, ARequestsLaneIsThatOfItsSizeAndItsAnswer) {
  EXPECT_EQ(LaneOf(Chat(100)), Lane::kShort);
  EXPECT_EQ(LaneOf(Chat(kShortRequestBytesMax)), Lane::kLong);
  v1::GenerateRequest held = Chat(100);
  held.mutable_structure()->set_json_object(true);
  EXPECT_EQ(LaneOf(held), Lane::kStructure);
  held.mutable_messages()->MergeFrom(Chat(kShortRequestBytesMax).messages());
  EXPECT_EQ(LaneOf(held), Lane::kLong);
  v1::GenerateRequest forced = Chat(100);
  forced.mutable_tools()->set_choice(v1::TOOL_CHOICE_KIND_REQUIRED);
  EXPECT_EQ(LaneOf(forced), Lane::kStructure);
}

TEST(LaneOfTest, AShortTextThatATokenizerMayChokeOnIsALongOne) {
  v1::GenerateRequest request;
  for (int i = 0; i < 1000; ++i) request.mutable_prompt()->append("\xf0\x9d\x85\xa5");
  EXPECT_EQ(LaneOf(request), Lane::kLong);
  v1::GenerateRequest chat = Chat(100);
  chat.add_messages()->set_content(request.prompt());
  EXPECT_EQ(LaneOf(chat), Lane::kLong);
}

TEST(LaneOfTest, TheUsersOfAKeyShareItsTurns) {
  v1::GenerateRequest request;
  EXPECT_EQ(LaneKeyOf(request), "");
  request.set_fairness_key("4711/user-one");
  EXPECT_EQ(LaneKeyOf(request), "4711");
}

TEST_F(PreparationLanesTest, AKeyKeepsItsOrderAndNoOtherLaneWaitsForIt) {
  std::promise<void> gate;
  std::vector<int> order;
  std::atomic<int> others = 0, own = 0;
  ASSERT_TRUE(lanes_.Add(Lane::kLong, "a", 1, [&](bool) { gate.get_future().wait(); }));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(lanes_.Add(Lane::kLong, "a", 1, [&, i](bool) {
      order.push_back(i);
      ++own;
    }));
  }
  for (const Lane lane : {Lane::kShort, Lane::kStructure}) {
    ASSERT_TRUE(lanes_.Add(lane, "a", 1, [&](bool) { ++others; }));
  }
  Await([&] { return others == 2; });
  EXPECT_EQ(own, 0);
  gate.set_value();
  Await([&] { return own == 3; });
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST_F(PreparationLanesTest, AnotherKeysLongTextDoesNotWait) {
  std::promise<void> gate;
  std::atomic<int> other = 0, own = 0;
  ASSERT_TRUE(lanes_.Add(Lane::kLong, "a", 1, [&](bool) { gate.get_future().wait(); }));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(lanes_.Add(Lane::kLong, "a", 1, [&](bool) { ++own; }));
  ASSERT_TRUE(lanes_.Add(Lane::kLong, "b", 1, [&](bool) { ++other; }));
  Await([&] { return other == 1; });
  EXPECT_EQ(own, 0);
  gate.set_value();
  Await([&] { return own == 12; });
}

TEST_F(PreparationLanesTest, WhatWaitedTooLongIsTold) {
  std::promise<void> gate;
  std::promise<bool> early, late;
  ASSERT_TRUE(lanes_.Add(Lane::kShort, "a", 1, [&](bool in_time) {
    early.set_value(in_time);
    gate.get_future().wait();
  }));
  EXPECT_TRUE(early.get_future().get());
  auto told = late.get_future();
  ASSERT_TRUE(lanes_.Add(Lane::kShort, "a", 1, [&](bool in_time) { late.set_value(in_time); }));
  dispatcher_.AdvanceBy(kPreparationWaitMax + std::chrono::milliseconds(1));
  gate.set_value();
  Await([&] { return told.wait_for(Duration(0)) == std::future_status::ready; });
  EXPECT_FALSE(told.get());
}

TEST_F(PreparationLanesTest, AKeyThatFillsItsShareIsRefusedAndOthersAreNot) {
  std::promise<void> gate;
  std::atomic<int> done = 0;
  ASSERT_TRUE(lanes_.Add(Lane::kLong, "a", kPreparingBytesMax, [&](bool) {
    gate.get_future().wait();
    ++done;
  }));
  EXPECT_FALSE(lanes_.Add(Lane::kLong, "a", 1, [](bool) {}));
  EXPECT_TRUE(lanes_.Add(Lane::kShort, "a", 1, [&](bool) { ++done; }));
  EXPECT_TRUE(lanes_.Add(Lane::kLong, "b", 8 << 20, [&](bool) { ++done; }));
  gate.set_value();
  Await([&] { return done == 3; });
  // The place is free again once the work is done.
  std::atomic<bool> again = false;
  Await([&] {
    return lanes_.Add(Lane::kLong, "a", kPreparingBytesMax, [&](bool) { again = true; });
  });
  Await([&] { return again.load(); });
}

}  // namespace
}  // namespace macrame::runtime::engine
