// What ranks say while and after they load, in any order and at the same time; and who is named
// when one of them says what makes no sense.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "proto/reasons.h"
#include "runtime/gang/step_channel.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr milliseconds kLimit{20'000};

std::string Bytes(size_t count) { return std::string(count, 'r'); }

GangPlace Place(uint32_t rank, uint32_t world) { return {rank, world, 5, std::string(32, 'k')}; }

struct Gang {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  std::string address = "127.0.0.1:" + std::to_string(listener.LocalPort());
  std::vector<std::unique_ptr<StepFollower>> followers;
  std::unique_ptr<StepLeader> leader;

  explicit Gang(uint32_t world) : followers(world) {
    std::vector<std::thread> joining;
    for (uint32_t rank = 1; rank < world; ++rank) {
      joining.emplace_back([this, rank, world] {
        followers[rank] = *StepFollower::Join(address, Place(rank, world), kLimit, Bytes);
      });
    }
    leader = *StepLeader::Gather(listener, Place(0, world), kLimit, Bytes);
    for (std::thread& thread : joining) thread.join();
  }
  void Tell(uint32_t rank, const Report& report) {
    EXPECT_TRUE(followers[rank]->Tell(report).ok());
  }
};

void ExpectGone(const absl::Status& status, const std::string& message) {
  EXPECT_EQ(ReasonOf(status).code(), "RANK_EXITED") << status;
  EXPECT_THAT(ReasonOf(status).message(), HasSubstr(message));
}

TEST(GangReports, ARankThatFailsWhileOthersLoadIsNamed) {
  Gang gang(4);
  gang.Tell(1, {ReportKind::kLoaded, ""});
  gang.Tell(3, {ReportKind::kFailed, "model.safetensors is cut short"});
  ExpectGone(gang.leader->AwaitLoaded(), "rank 3 is gone: model.safetensors is cut short");
}

// Were it counted twice, the gang would begin before its last rank is ready.
TEST(GangReports, OneRankThatHasLoadedTwiceIsOneRank) {
  Gang gang(3);
  gang.Tell(1, {ReportKind::kLoaded, ""});
  gang.Tell(1, {ReportKind::kLoaded, ""});
  std::thread later([&] { gang.Tell(2, {ReportKind::kFailed, "no memory left"}); });
  ExpectGone(gang.leader->AwaitLoaded(), "rank 2 is gone: no memory left");
  later.join();
}

TEST(GangReports, LoadingOnceMoreLaterIsOutOfTurn) {
  Gang gang(3);
  for (const uint32_t rank : {2, 1}) gang.Tell(rank, {ReportKind::kLoaded, ""});
  ASSERT_TRUE(gang.leader->AwaitLoaded().ok());
  gang.Tell(2, {ReportKind::kLoaded, ""});
  ExpectGone(gang.leader->WaitForLoss(kLimit, [](uint32_t, const Report&) {}),
             "rank 2 is gone: it spoke out of turn");
}

TEST(GangReports, WhereNobodyAsksOfTheColdTierItIsOutOfTurn) {
  Gang gang(2);
  gang.Tell(1, {ReportKind::kColdOff, "no space"});
  ExpectGone(gang.leader->WaitForLoss(kLimit), "rank 1 is gone: it spoke out of turn");
}

TEST(GangReports, ShuttingDownEndsTheWaitWithoutNamingAnybody) {
  Gang gang(3);
  std::thread waker([&] { gang.leader->ShutDown(); });
  const absl::Status ended = gang.leader->WaitForLoss(kLimit);
  waker.join();
  EXPECT_TRUE(absl::IsCancelled(ended)) << ended;
  EXPECT_TRUE(absl::IsCancelled(gang.leader->WaitForLoss(milliseconds(0))));
  ExpectGone(gang.followers[1]->Receive().status(), "rank 0 is gone");
}

// Ranks tell of their disks at the same time, each in its order; none of it is lost.
TEST(GangReports, OfAllRanksAtOnceArriveEachInItsOrder) {
  constexpr uint32_t kWorld = 5;
  constexpr uint64_t kEach = 200;
  Gang gang(kWorld);
  std::vector<std::thread> telling;
  for (uint32_t rank = 1; rank < kWorld; ++rank) {
    telling.emplace_back([&gang, rank] {
      for (uint64_t load = 0; load < kEach; ++load) {
        gang.Tell(rank, {ReportKind::kColdLoaded, "", load, rank});
      }
    });
  }
  std::vector<uint64_t> next(kWorld, 0);
  for (uint64_t heard = 0; heard < kEach * (kWorld - 1);) {
    const absl::Status status =
        gang.leader->WaitForLoss(kLimit, [&](uint32_t rank, const Report& report) {
          EXPECT_EQ(report.cold_load, next[rank]++) << "rank " << rank;
          EXPECT_EQ(report.cold_blocks, rank);
          ++heard;
        });
    if (!status.ok()) {
      ADD_FAILURE() << status;
      break;
    }
  }
  for (std::thread& thread : telling) thread.join();
  for (uint32_t rank = 1; rank < kWorld; ++rank) EXPECT_EQ(next[rank], kEach);
}

std::string TextOf(uint64_t thread) {
  return std::string(1000 + thread, static_cast<char>('a' + thread));
}

// Several threads of one rank tell: frames stay whole.
TEST(GangReports, OfSeveralThreadsOfARankStayWhole) {
  constexpr uint64_t kThreads = 4, kEach = 100;
  Gang gang(2);
  std::vector<std::thread> telling;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    telling.emplace_back([&gang, thread] {
      for (uint64_t i = 0; i < kEach; ++i) {
        gang.Tell(1, {ReportKind::kColdOff, TextOf(thread)});
      }
    });
  }
  std::vector<uint64_t> counts(kThreads, 0);
  for (uint64_t heard = 0; heard < kThreads * kEach; ++heard) {
    const absl::Status status =
        gang.leader->WaitForLoss(kLimit, [&](uint32_t, const Report& report) {
          const auto thread = static_cast<uint64_t>(report.text.at(0) - 'a');
          ASSERT_LT(thread, kThreads);
          EXPECT_EQ(report.text, TextOf(thread));
          ++counts[thread];
        });
    EXPECT_TRUE(status.ok()) << status;
  }
  for (std::thread& thread : telling) thread.join();
  for (const uint64_t count : counts) EXPECT_EQ(count, kEach);
}

// ---- what makes no sense, from a side that knows the secret

TEST(GangNonsense, OfARankNamesIt) {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  const std::string address = "127.0.0.1:" + std::to_string(listener.LocalPort());
  for (const std::string& nonsense :
       {std::string(), std::string("\x09"), std::string("\x03short"), std::string(5000, '\x02')}) {
    absl::StatusOr<transport::SealedSocket> rank;
    std::thread joining([&] {
      rank = JoinRankZero(address, Place(1, 2), transport::GangChannel::kSteps, kLimit, Bytes);
    });
    const auto leader = StepLeader::Gather(listener, Place(0, 2), kLimit, Bytes);
    joining.join();
    ASSERT_TRUE(leader.ok() && rank.ok()) << leader.status() << rank.status();
    ASSERT_TRUE(rank->SendFrame(nonsense).ok());
    ExpectGone((*leader)->WaitForLoss(kLimit), "rank 1 is gone: step channel: malformed report");
  }
}

TEST(GangNonsense, OfRankZeroIsNoStep) {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  const std::string address = "127.0.0.1:" + std::to_string(listener.LocalPort());
  absl::StatusOr<std::unique_ptr<StepFollower>> follower;
  std::thread joining([&] { follower = StepFollower::Join(address, Place(1, 2), kLimit, Bytes); });
  auto ranks = GatherRanks(listener, Place(0, 2), transport::GangChannel::kSteps, kLimit, Bytes);
  joining.join();
  ASSERT_TRUE(ranks.ok() && follower.ok()) << ranks.status() << follower.status();
  EXPECT_FALSE((*ranks)[0].open());
  ASSERT_TRUE((*ranks)[1].SendFrame("no step at all").ok());
  EXPECT_TRUE(absl::IsDataLoss((*follower)->Receive().status()));
}

// The same step twice, or one from before, would put keys of other positions into the cache.
TEST(GangNonsense, StepsThatDoNotFollowEachOtherAreRefused) {
  for (const std::vector<uint64_t>& numbers : std::vector<std::vector<uint64_t>>{
           {0, 0}, {0, 2}, {0, 1, 1}, {0, 1, 0}, {7}, {0, UINT64_MAX}}) {
    Gang gang(2);
    for (size_t i = 0; i < numbers.size(); ++i) {
      Step step;
      step.kind = StepKind::kReady;
      step.number = numbers[i];
      ASSERT_TRUE(gang.leader->SendTo(1, step).ok());
      const auto received = gang.followers[1]->Receive();
      ASSERT_EQ(received.ok(), i + 1 < numbers.size()) << received.status();
      if (received.ok()) continue;
      EXPECT_THAT(std::string(received.status().message()),
                  HasSubstr("step " + std::to_string(numbers[i]) + " came where " +
                            std::to_string(i) + " was due"));
    }
  }
}

// What rank 0 has sent is read before its end is told.
TEST(GangNonsense, TheLastStepsArriveThoughRankZeroIsGone) {
  Gang gang(2);
  for (uint64_t number = 0; number < 5; ++number) {
    Step step;
    step.kind = number < 4 ? StepKind::kReady : StepKind::kStop;
    step.number = number;
    ASSERT_TRUE(gang.leader->Send(step).ok());
  }
  gang.leader.reset();
  for (uint64_t number = 0; number < 5; ++number) {
    const auto step = gang.followers[1]->Receive();
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(step->number, number);
  }
  ExpectGone(gang.followers[1]->Receive().status(), "rank 0 is gone");
}

}  // namespace
}  // namespace macrame::runtime::engine
