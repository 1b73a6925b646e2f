#include "runtime/serving/preparation_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "transport/fake_dispatcher.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;

v1::GenerateRequest Chat(size_t bytes) {
  v1::GenerateRequest request;
  request.add_messages()->set_content(std::string(bytes, 'a'));
  return request;
}

TEST(PreparationLanesTest, ARequestsLaneIsThatOfItsSizeAndItsAnswer) {
  EXPECT_EQ(LaneOf(Chat(100)), Lane::kShort);
  EXPECT_EQ(LaneOf(Chat(kShortRequestBytesMax)), Lane::kLong);
  v1::GenerateRequest held = Chat(100);
  held.mutable_structure()->set_json_object(true);
  EXPECT_EQ(LaneOf(held), Lane::kStructure);
  held.mutable_messages(0)->set_content(std::string(kShortRequestBytesMax, 'a'));
  EXPECT_EQ(LaneOf(held), Lane::kLong);
  v1::GenerateRequest forced = Chat(100);
  forced.mutable_tools()->set_choice(v1::TOOL_CHOICE_KIND_REQUIRED);
  EXPECT_EQ(LaneOf(forced), Lane::kStructure);
}

TEST(PreparationLanesTest, ALaneKeepsTheOrderAndNoOtherLaneWaitsForIt) {
  transport::FakeDispatcher clock;
  std::promise<void> gate;
  std::promise<void> done;
  std::vector<int> order;
  std::vector<std::future<void>> others;
  PreparationLanes lanes(clock);
  ASSERT_TRUE(lanes.Add(Lane::kLong, 1, [&](bool) { gate.get_future().wait(); }));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(lanes.Add(Lane::kLong, 1, [&order, i](bool) { order.push_back(i); }));
  }
  ASSERT_TRUE(lanes.Add(Lane::kLong, 1, [&](bool) { done.set_value(); }));
  for (const Lane lane : {Lane::kShort, Lane::kStructure}) {
    auto ran = std::make_shared<std::promise<void>>();
    others.push_back(ran->get_future());
    ASSERT_TRUE(lanes.Add(lane, 1, [ran](bool) { ran->set_value(); }));
  }
  for (auto& other : others) {
    EXPECT_EQ(other.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  }
  gate.set_value();
  done.get_future().wait();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(PreparationLanesTest, WhatWaitedTooLongIsTold) {
  transport::FakeDispatcher clock;
  std::promise<void> gate, begun;
  std::promise<bool> early, late;
  PreparationLanes lanes(clock);
  ASSERT_TRUE(lanes.Add(Lane::kShort, 1, [&](bool in_time) {
    early.set_value(in_time);
    begun.set_value();
    gate.get_future().wait();
  }));
  begun.get_future().wait();
  ASSERT_TRUE(lanes.Add(Lane::kShort, 1, [&](bool in_time) { late.set_value(in_time); }));
  clock.AdvanceBy(kPreparationWaitMax + std::chrono::milliseconds(1));
  gate.set_value();
  EXPECT_TRUE(early.get_future().get());
  EXPECT_FALSE(late.get_future().get());
}

TEST(PreparationLanesTest, LongRequestsAreRefusedWhenManyBytesWait) {
  transport::FakeDispatcher clock;
  std::promise<void> gate, done;
  PreparationLanes lanes(clock);
  ASSERT_TRUE(lanes.Add(Lane::kLong, kPreparingBytesMax, [&](bool) { gate.get_future().wait(); }));
  EXPECT_FALSE(lanes.Add(Lane::kLong, 1, [](bool) {}));
  EXPECT_TRUE(lanes.Add(Lane::kShort, 1, [](bool) {}));
  gate.set_value();
  // The place is free again once the work is done.
  while (!lanes.Add(Lane::kLong, kPreparingBytesMax, [&](bool) { done.set_value(); })) {
  }
  done.get_future().wait();
}

}  // namespace
}  // namespace macrame::runtime::engine
