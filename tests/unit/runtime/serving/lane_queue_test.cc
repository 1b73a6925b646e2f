// Whose work is done next, with time that only the test lets pass.

#include "runtime/serving/lane_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

// A lane with some threads, and the pieces of work that keys bring to it.
class Simulation {
 public:
  explicit Simulation(size_t threads) : idle_(threads) {}

  void Bring(const std::string& key, Duration takes) {
    const LaneQueue::WorkId id = ++last_id_;
    pieces_[id] = {key, takes, now_};
    queue_.Add(key, id);
    Begin();
  }
  // To the end of all, or of `until`.
  void Run(Duration until = Duration::max()) {
    while (!running_.empty() && running_.begin()->first <= until) {
      now_ = running_.begin()->first;
      const Piece piece = pieces_[running_.begin()->second];
      running_.erase(running_.begin());
      ++idle_;
      queue_.Done(piece.key, piece.takes);
      ended.push_back(piece.key);
      longest_wait[piece.key] = std::max(longest_wait[piece.key], now_ - piece.brought);
      Begin();
    }
  }

  std::vector<std::string> ended;                // by key, in order
  std::map<std::string, Duration> longest_wait;  // from being brought to the end
  bool empty() const { return queue_.empty(); }

 private:
  struct Piece {
    std::string key;
    Duration takes{0};
    Duration brought{0};
  };

  void Begin() {
    while (idle_ > 0) {
      const auto id = queue_.Next();
      if (!id.has_value()) return;
      --idle_;
      running_.emplace(now_ + pieces_[*id].takes, *id);
    }
  }

  LaneQueue queue_;
  size_t idle_;
  Duration now_{0};
  LaneQueue::WorkId last_id_ = 0;
  std::map<LaneQueue::WorkId, Piece> pieces_;
  std::multimap<Duration, LaneQueue::WorkId> running_;
};

TEST(LaneQueueTest, AKeysOwnWorkKeepsTheOrderOfArrival) {
  LaneQueue queue;
  for (const LaneQueue::WorkId id : {4, 5, 6}) queue.Add("a", id);
  std::vector<LaneQueue::WorkId> order;
  while (const auto id = queue.Next()) {
    order.push_back(*id);
    EXPECT_FALSE(queue.Next().has_value()) << "one at a time";
    queue.Done("a", seconds(1));
  }
  EXPECT_THAT(order, ElementsAre(4, 5, 6));
  EXPECT_TRUE(queue.empty());
}

TEST(LaneQueueTest, TwelveLongTextsOfOneKeyDoNotHoldUpAnother) {
  Simulation lane(2);
  for (int i = 0; i < 12; ++i) lane.Bring("greedy", milliseconds(2300));
  lane.Bring("other", milliseconds(40));
  lane.Run();
  EXPECT_EQ(lane.longest_wait["other"], milliseconds(40));
  EXPECT_EQ(lane.ended.front(), "other");
  EXPECT_TRUE(lane.empty());
}

TEST(LaneQueueTest, OnOneThreadAnotherKeyWaitsForOnePieceAlone) {
  Simulation lane(1);
  for (int i = 0; i < 12; ++i) lane.Bring("greedy", seconds(10));
  for (int i = 0; i < 5; ++i) lane.Bring("other", milliseconds(40));
  lane.Run();
  EXPECT_EQ(lane.longest_wait["other"], seconds(10) + milliseconds(200));
}

TEST(LaneQueueTest, KeysWithMuchToDoShareTheTimeAndNotTheTurns) {
  Simulation lane(1);
  for (int i = 0; i < 10; ++i) lane.Bring("slow", seconds(10));
  for (int i = 0; i < 100; ++i) lane.Bring("quick", seconds(1));
  lane.Run(seconds(100));
  const auto quick = std::count(lane.ended.begin(), lane.ended.end(), "quick");
  EXPECT_GE(quick, 40);
  EXPECT_LE(quick, 60);
}

TEST(LaneQueueTest, WhoComesLaterDoesNotCatchUpWithWhatOthersHad) {
  Simulation lane(1);
  for (int i = 0; i < 20; ++i) lane.Bring("early", seconds(1));
  lane.Run(seconds(10));
  for (int i = 0; i < 20; ++i) lane.Bring("late", seconds(1));
  lane.Run(seconds(20));
  const auto late = std::count(lane.ended.begin(), lane.ended.end(), "late");
  EXPECT_GE(late, 4);
  EXPECT_LE(late, 6);
}

TEST(ShareTest, AKeyAloneMayHoldAll) {
  EXPECT_TRUE((Share{.of_key = 63, .of_all = 63, .others = 0, .most = 64}.Fits(1)));
  EXPECT_FALSE((Share{.of_key = 64, .of_all = 64, .others = 0, .most = 64}.Fits(1)));
}

TEST(ShareTest, WhereOneKeyHoldsAllAnotherFindsItsShare) {
  EXPECT_TRUE((Share{.of_key = 0, .of_all = 64, .others = 1, .most = 64}.Fits(40)));
  EXPECT_TRUE((Share{.of_key = 31, .of_all = 95, .others = 1, .most = 64}.Fits(1)));
  EXPECT_FALSE((Share{.of_key = 32, .of_all = 96, .others = 1, .most = 64}.Fits(1)));
  EXPECT_FALSE((Share{.of_key = 64, .of_all = 65, .others = 1, .most = 64}.Fits(1)));
}

TEST(ShareTest, AllTogetherHoldTwiceAsMuchAtTheMost) {
  EXPECT_TRUE((Share{.of_key = 0, .of_all = 127, .others = 90, .most = 64}.Fits(1)));
  EXPECT_FALSE((Share{.of_key = 0, .of_all = 128, .others = 90, .most = 64}.Fits(1)));
}

}  // namespace
}  // namespace macrame::runtime::engine
