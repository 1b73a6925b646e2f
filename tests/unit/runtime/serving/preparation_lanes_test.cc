#include "runtime/serving/preparation_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/fake_dispatcher.h"

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

// Whatever part of a request holds it, and as JSON may spell it.
TEST(LaneOfTest, EachTextThatPreparingReadsCounts) {
  std::string marks, escaped_marks, escaped_pairs, escaped_lines;
  for (int i = 0; i < 1000; ++i) {
    marks += "\xcc\x81";
    escaped_marks += "\\u0301";
    escaped_pairs += "\\uD834\\uDD65";
    escaped_lines += "\\n";
  }
  escaped_lines += escaped_lines + escaped_lines + escaped_lines;
  using Put = std::function<void(v1::GenerateRequest*, const std::string&)>;
  const auto message = [](v1::GenerateRequest* request) { return request->mutable_messages(0); };
  const std::vector<std::pair<std::string, Put>> plain = {
      {"role", [&](auto* request, auto& text) { message(request)->set_role(text); }},
      {"name", [&](auto* request, auto& text) { message(request)->set_name(text); }},
      {"reasoning", [&](auto* request, auto& text) { message(request)->set_reasoning(text); }},
      {"call", [&](auto* request, auto& text) { message(request)->set_tool_call_id(text); }},
      {"id", [&](auto* r, auto& text) { message(r)->add_tool_calls()->set_id(text); }},
      {"called", [&](auto* r, auto& text) { message(r)->add_tool_calls()->set_name(text); }},
      {"tool", [&](auto* request, auto& text) { request->mutable_tools()->set_name(text); }}};
  const std::vector<std::pair<std::string, Put>> of_json = {
      {"arguments",
       [&](auto* r, auto& text) { message(r)->add_tool_calls()->set_arguments(text); }},
      {"tools", [](auto* r, auto& text) { r->mutable_tools()->set_tools_json(text); }},
      {"template", [](auto* r, auto& text) { r->set_template_arguments_json(text); }}};
  for (const auto& [name, put] : plain) {
    v1::GenerateRequest request = Chat(100);
    put(&request, "plain");
    EXPECT_EQ(LaneOf(request), Lane::kShort) << name;
    put(&request, marks);
    EXPECT_EQ(LaneOf(request), Lane::kLong) << name;
  }
  for (const auto& [name, put] : of_json) {
    for (const std::string& text : {marks, escaped_marks, escaped_pairs, escaped_lines}) {
      v1::GenerateRequest request = Chat(100);
      put(&request, R"({"a":"b \"c\" \u00e9 \n \\ d"})");
      EXPECT_EQ(LaneOf(request), Lane::kShort) << name;
      put(&request, R"({"a":")" + text + R"("})");
      EXPECT_EQ(LaneOf(request), Lane::kLong) << name << " " << text.substr(0, 12);
    }
  }
}

TEST(LaneOfTest, AGrammarIsSeenHoweverItsToolSpellsIt) {
  for (const char* spelled : {R"([{"strict":true}])", R"([{"\u0073trict":true}])"}) {
    v1::GenerateRequest request = Chat(100);
    request.mutable_tools()->set_tools_json(spelled);
    EXPECT_EQ(LaneOf(request), Lane::kStructure) << spelled;
  }
}

TEST(LaneOfTest, TheUsersOfAKeyShareItsTurns) {
  v1::GenerateRequest request;
  EXPECT_EQ(LaneKeyOf(request), "");
  request.set_fairness_key("/user-one");
  EXPECT_EQ(LaneKeyOf(request), "") << "those without a key share one lane";
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
