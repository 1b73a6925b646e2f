// The thread that tells of progress, over connections within this process: who stalls is named
// within its limit, and the verdict reaches the others.

#include "runtime/gang/gang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>

#include "macrame/v1/rank.pb.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;
using transport::SealedSocket;

constexpr auto kLong = std::chrono::seconds(10);

SealedSocket End(int fd, char send, char receive) {
  return SealedSocket(transport::MakeConnection(
      transport::StreamSocket(fd),
      {1, false, transport::SecretBytes(std::string(transport::kTrafficSecretBytes, send)),
       transport::SecretBytes(std::string(transport::kTrafficSecretBytes, receive))}));
}

std::pair<SealedSocket, SealedSocket> Line() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {End(ends[0], 'a', 'b'), End(ends[1], 'b', 'a')};
}

// What a watch said, awaited.
class Heard {
 public:
  GangWatch::Hooks Hooks() {
    return {[this](const Stall& stall) {
              const std::lock_guard lock(mutex_);
              stalls_.push_back(stall);
              changed_.notify_all();
            },
            [this] {
              const std::lock_guard lock(mutex_);
              ++progress_;
              changed_.notify_all();
            },
            {}};
  }
  bool AwaitStall(std::chrono::milliseconds limit = kLong) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return !stalls_.empty(); });
  }
  bool AwaitProgress(int beyond) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return progress_ > beyond; });
  }
  int progress() {
    const std::lock_guard lock(mutex_);
    return progress_;
  }
  std::vector<Stall> stalls() {
    const std::lock_guard lock(mutex_);
    return stalls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stall> stalls_;
  int progress_ = 0;
};

// Short, so that a test does not take long; as long as AwakeClock's counting allows.
StallLimits Short() {
  StallLimits limits;
  limits.silence = milliseconds(500);
  limits.idle_silence = milliseconds(800);
  limits.resting = milliseconds(500);
  limits.standing = milliseconds(700);
  limits.unmeasured = milliseconds(700);
  return limits;
}

std::vector<SealedSocket> Lines(SealedSocket one, SealedSocket two = {}) {
  std::vector<SealedSocket> lines;
  lines.emplace_back();
  lines.push_back(std::move(one));
  if (two.open()) lines.push_back(std::move(two));
  return lines;
}

std::vector<SealedSocket> Only(SealedSocket line) {
  std::vector<SealedSocket> lines;
  lines.push_back(std::move(line));
  return lines;
}

TEST(GangWatch, RanksThatGoOnAreLeftAloneAndProgressIsHeardByAll) {
  auto [leader_end, follower_end] = Line();
  ProgressBoard zero, one;
  Heard at_zero, at_one;
  const auto begun = steady_clock::now();
  GangWatch leader({0, 2, true, Short()}, zero, Lines(std::move(leader_end)), at_zero.Hooks());
  GangWatch follower({1, 2, true, Short()}, one, Only(std::move(follower_end)), at_one.Hooks());
  // Beyond every limit, as long as something gets done.
  while (steady_clock::now() - begun < milliseconds(1500)) {
    const int zero_before = at_zero.progress(), one_before = at_one.progress();
    one.BeginStep();
    ASSERT_TRUE(at_zero.AwaitProgress(zero_before)) << "rank 1's progress, at rank 0";
    one.EndStep();
    zero.Mark();
    ASSERT_TRUE(at_one.AwaitProgress(one_before)) << "rank 0's progress, at rank 1";
  }
  EXPECT_TRUE(at_zero.stalls().empty());
  EXPECT_TRUE(at_one.stalls().empty());
}

TEST(GangWatch, ARankThatHangsInAStepIsNamedToAll) {
  auto [to_one, one_end] = Line();
  auto [to_two, two_end] = Line();
  ProgressBoard boards[3];
  Heard heard[3];
  GangWatch leader({0, 3, true, Short()}, boards[0], Lines(std::move(to_one), std::move(to_two)),
                   heard[0].Hooks());
  GangWatch first({1, 3, true, Short()}, boards[1], Only(std::move(one_end)), heard[1].Hooks());
  GangWatch second({2, 3, true, Short()}, boards[2], Only(std::move(two_end)), heard[2].Hooks());
  // Ranks 0 and 2 wait in a collective for rank 1, which computes and gets nothing done.
  for (ProgressBoard& board : boards) board.BeginStep();
  boards[0].BeginWait();
  boards[2].BeginWait();
  const auto begun = steady_clock::now();
  for (Heard& one : heard) {
    ASSERT_TRUE(one.AwaitStall());
    ASSERT_EQ(one.stalls().size(), 1u) << "at most once";
    EXPECT_EQ(one.stalls()[0].rank, 1u);
    EXPECT_THAT(one.stalls()[0].what, HasSubstr("rank 1 makes no progress"));
    EXPECT_THAT(one.stalls()[0].what, HasSubstr("rank 0 waits for other ranks in step 1"));
  }
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(5));
}

TEST(GangWatch, ARankThatFallsSilentIsNamedByRankZero) {
  auto [leader_end, silent_end] = Line();
  ProgressBoard board;
  Heard heard;
  board.BeginStep();
  board.BeginWait();
  GangWatch leader({0, 2, true, Short()}, board, Lines(std::move(leader_end)), heard.Hooks());
  ASSERT_TRUE(heard.AwaitStall());
  EXPECT_EQ(heard.stalls()[0].rank, 1u);
  EXPECT_THAT(heard.stalls()[0].what, HasSubstr("rank 1 has not been heard of for"));
  // The verdict was told before it was acted on.
  v1::GangBeat message;
  std::string text;
  silent_end.SetReceiveLimit(milliseconds(2000));
  for (int i = 0; i < 100 && text.empty(); ++i) {
    const auto frame = silent_end.ReceiveFrame();
    ASSERT_TRUE(frame.ok()) << frame.status();
    ASSERT_TRUE(message.ParseFromString(*frame));
    text = message.text();
  }
  EXPECT_EQ(text, heard.stalls()[0].what);
  EXPECT_EQ(message.stalled().rank(), 1u);
}

TEST(GangWatch, RankZeroThatFallsSilentIsNamedByTheOthers) {
  auto [follower_end, zero_end] = Line();
  ProgressBoard board;
  Heard heard;
  board.BeginStep();
  board.BeginWait();
  // It was heard of once.
  v1::GangBeat beat;
  beat.mutable_beat()->set_steps(1);
  beat.mutable_beat()->set_activity(1);
  ASSERT_TRUE(zero_end.SendFrame(beat.SerializeAsString()).ok());
  GangWatch follower({1, 2, true, Short()}, board, Only(std::move(follower_end)), heard.Hooks());
  ASSERT_TRUE(heard.AwaitStall());
  EXPECT_EQ(heard.stalls()[0].rank, 0u);
  EXPECT_THAT(heard.stalls()[0].what, HasSubstr("rank 0 has not been heard of"));
}

// A connection that brings nonsense is worth nothing: its rank comes to be missed.
TEST(GangWatch, ALineThatBringsNonsenseIsClosedAndItsRankMissed) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const transport::StreamSocket unknown_peer(ends[1]);
  ASSERT_TRUE(unknown_peer.SendFrame(std::string(200, 'x')).ok());
  ProgressBoard board;
  Heard heard;
  GangWatch leader({0, 2, true, Short()}, board, Lines(End(ends[0], 'a', 'b')), heard.Hooks());
  ASSERT_TRUE(heard.AwaitStall());
  EXPECT_EQ(heard.stalls()[0].rank, 1u);
  // Its end was closed: what was told before is read, then the end.
  char byte = 0;
  absl::Status status;
  const auto end = steady_clock::now() + kLong;
  while (status.ok()) status = unknown_peer.ReceiveBytesBefore(&byte, 1, end);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(GangWatch, WhatOthersClaimCannotBeAVerdict) {
  auto [leader_end, follower_end] = Line();
  ProgressBoard board;
  Heard heard;
  GangWatch leader({0, 2, true, Short()}, board, Lines(std::move(leader_end)), heard.Hooks());
  v1::GangBeat claim;
  claim.set_text("rank 0 stalls");
  claim.mutable_stalled()->set_rank(0);
  ASSERT_TRUE(follower_end.SendFrame(claim.SerializeAsString()).ok());
  ASSERT_TRUE(heard.AwaitStall());
  EXPECT_EQ(heard.stalls()[0].rank, 1u) << "it fell silent after that; rank 0 alone judges";
  EXPECT_THAT(heard.stalls()[0].what, testing::Not(HasSubstr("rank 0 stalls")));
}

TEST(GangWatch, EndsAtOnce) {
  auto [leader_end, follower_end] = Line();
  ProgressBoard board;
  Heard heard;
  const auto begun = steady_clock::now();
  { GangWatch leader({0, 2, true, {}}, board, Lines(std::move(leader_end)), heard.Hooks()); }
  EXPECT_LT(steady_clock::now() - begun, std::chrono::seconds(2));
  EXPECT_TRUE(heard.stalls().empty());
}

TEST(ProgressBoard, SaysWhatARankIsAt) {
  ProgressBoard board;
  EXPECT_EQ(board.activity(), RankActivity::kIdle);
  board.BeginStep();
  EXPECT_EQ(board.activity(), RankActivity::kComputing);
  EXPECT_EQ(board.steps(), 1u);
  board.BeginWait();
  board.BeginWait();
  EXPECT_EQ(board.activity(), RankActivity::kWaiting);
  board.EndWait();
  EXPECT_EQ(board.activity(), RankActivity::kWaiting) << "one wait within another";
  board.EndWait();
  EXPECT_EQ(board.activity(), RankActivity::kComputing);
  const uint64_t marks = board.marks();
  board.Mark();
  EXPECT_GT(board.marks(), marks);
  board.EndStep();
  EXPECT_EQ(board.activity(), RankActivity::kIdle);
  board.SetExpected(milliseconds(30));
  EXPECT_EQ(board.expected(), milliseconds(30));
}

}  // namespace
}  // namespace macrame::runtime::engine
