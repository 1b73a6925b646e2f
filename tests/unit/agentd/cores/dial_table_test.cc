#include "agentd/cores/dial_table.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace macrame::agentd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const MonotonicTime kStart = MonotonicTime() + std::chrono::hours(1);

NodeId Node(size_t index) {
  std::string id = std::to_string(index);
  return NodeId(std::string(32 - id.size(), '0') + id);
}

// `calls` in a row, evenly over `length`, all of which fail.
MonotonicTime Fail(DialTable& table, const NodeId& node, int calls, Duration length,
                   MonotonicTime from = kStart) {
  for (int i = 0; i < calls; ++i) table.NoteCall(node, false, from + length * i / (calls - 1));
  return from + length;
}

TEST(DialTable, ANodeThatIsHeardAndCannotBeCalledIsNamed) {
  DialTable table;
  EXPECT_TRUE(table.IsClear());
  const MonotonicTime end = Fail(table, Node(1), kDialFailuresMin, kUndialledAfter);
  EXPECT_FALSE(table.IsClear());
  EXPECT_EQ(table.Undialled({Node(1), Node(2)}, end), (std::set<NodeId>{Node(1)}));
  EXPECT_TRUE(table.Undialled({Node(2)}, end).empty()) << "whom nobody hears is dead, not this";
}

struct TooLittle {
  const char* why;
  int calls;
  Duration length;
};

TEST(DialTable, FewFailuresOrFailuresOfOneMomentSayNothing) {
  const TooLittle cases[] = {
      {"three calls", kDialFailuresMin - 1, kUndialledAfter * 2},
      {"a restart of the node: many calls, one second", 40, seconds(1)},
      {"just too short", kDialFailuresMin, kUndialledAfter - milliseconds(1)},
  };
  for (const TooLittle& one : cases) {
    DialTable table;
    const MonotonicTime end = Fail(table, Node(1), one.calls, one.length);
    EXPECT_TRUE(table.Undialled({Node(1)}, end).empty()) << one.why;
  }
}

TEST(DialTable, OneAnswerEndsIt) {
  DialTable table;
  MonotonicTime now = Fail(table, Node(1), 10, seconds(10));
  table.NoteCall(Node(1), true, now);
  EXPECT_TRUE(table.Undialled({Node(1)}, now).empty());
  EXPECT_TRUE(table.IsClear());
  now = Fail(table, Node(1), 2, seconds(9), now);
  EXPECT_TRUE(table.Undialled({Node(1)}, now).empty()) << "failures are counted from the answer";
}

TEST(DialTable, WhatFailedBeforeANodeWasStartedAnewSaysNothing) {
  DialTable table;
  const MonotonicTime now = Fail(table, Node(1), 10, seconds(10));
  Fail(table, Node(2), 10, seconds(10));
  table.Forget(Node(1));
  EXPECT_EQ(table.Undialled({Node(1), Node(2)}, now), (std::set<NodeId>{Node(2)}));
}

TEST(DialTable, ANodeThatNobodyCallsAnyMoreMayBeReachable) {
  DialTable table;
  const MonotonicTime end = Fail(table, Node(1), 10, seconds(10));
  EXPECT_FALSE(table.Undialled({Node(1)}, end + kDialForgottenAfter).empty());
  const MonotonicTime later = end + kDialForgottenAfter + milliseconds(1);
  EXPECT_TRUE(table.Undialled({Node(1)}, later).empty());
  table.NoteCall(Node(1), false, later);
  EXPECT_TRUE(table.Undialled({Node(1)}, later).empty()) << "one failure, after a long silence";
}

TEST(DialTable, IsBoundedAndMakesRoomOfWhatIsOld) {
  DialTable table;
  std::set<NodeId> heard;
  for (size_t i = 0; i <= kDialsMax; ++i) heard.insert(Node(i));
  for (size_t i = 0; i < kDialsMax; ++i) Fail(table, Node(i), 5, seconds(4));
  MonotonicTime now = Fail(table, Node(kDialsMax), 5, seconds(4));
  EXPECT_EQ(table.Undialled(heard, now).size(), kDialsMax);
  EXPECT_FALSE(table.Undialled(heard, now).contains(Node(kDialsMax)));
  now = Fail(table, Node(kDialsMax), 5, seconds(4), now + kDialForgottenAfter + seconds(1));
  EXPECT_EQ(table.Undialled(heard, now), (std::set<NodeId>{Node(kDialsMax)}));
}

// All calls of a node, looked at anew each time.
class CallsOfANode {
 public:
  void Note(bool reached, MonotonicTime now) { calls_.push_back({now, reached}); }
  bool IsUndialled(MonotonicTime now) const {
    int failures = 0;
    std::optional<MonotonicTime> last, first;
    for (auto call = calls_.rbegin(); call != calls_.rend() && !call->reached; ++call) {
      if (last.has_value() && *first - call->at > kDialForgottenAfter) break;
      if (!last.has_value()) last = call->at;
      first = call->at;
      ++failures;
    }
    return failures >= kDialFailuresMin && *last - *first >= kUndialledAfter &&
           now - *last <= kDialForgottenAfter;
  }

 private:
  struct Call {
    MonotonicTime at;
    bool reached;
  };
  std::vector<Call> calls_;
};

TEST(DialTable, AgreesWithAllCallsLookedAtAnew) {
  size_t undialled = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    DialTable table;
    std::map<NodeId, CallsOfANode> calls;
    std::set<NodeId> heard;
    for (size_t i = 0; i < 4; ++i) heard.insert(Node(i));
    MonotonicTime now = kStart;
    for (int step = 0; step < 400; ++step) {
      now += milliseconds(random() % 40 == 0 ? 31'000 : random() % 700);
      const NodeId node = Node(random() % 4);
      const bool reached = random() % 12 == 0;
      table.NoteCall(node, reached, now);
      calls[node].Note(reached, now);
      std::set<NodeId> expected;
      for (const auto& [id, all] : calls) {
        if (all.IsUndialled(now)) expected.insert(id);
      }
      ASSERT_EQ(table.Undialled(heard, now), expected) << "seed " << seed << ", step " << step;
      undialled += expected.size();
    }
  }
  EXPECT_GT(undialled, 1000u);
}

}  // namespace
}  // namespace macrame::agentd
