#include "runtime/gang/step_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "proto/reasons.h"
#include "proto/utf8.h"
#include "tests/unit/transport/gang/recording_proxy.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string Bytes(size_t count) { return std::string(count, 'r'); }

GangPlace Place(uint32_t rank, uint32_t world = 3) {
  return {rank, world, 5, std::string(32, 'k')};
}

struct Channel {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  std::string address = "127.0.0.1:" + std::to_string(listener.LocalPort());
  std::vector<std::unique_ptr<StepFollower>> followers;
  std::unique_ptr<StepLeader> leader;

  explicit Channel(uint32_t world = 3) : followers(world) {
    std::vector<std::thread> joining;
    for (uint32_t rank = 1; rank < world; ++rank) {
      joining.emplace_back([this, rank, world] {
        followers[rank] =
            *StepFollower::Join(address, Place(rank, world), milliseconds(5000), Bytes);
      });
    }
    leader = *StepLeader::Gather(listener, Place(0, world), milliseconds(5000), Bytes);
    for (std::thread& thread : joining) thread.join();
  }
};

Step Forward(uint64_t number) {
  Step step;
  step.number = number;
  step.forward.closed_slots = {4};
  step.forward.segments = {{3, 17, {1, 2, 300000}, LogitRows::kLast, {0, 9}, 6, 40000, 1ULL << 60},
                           {5, 0, {7}, LogitRows::kHiddenAll, {2}}};
  return step;
}

Step Cold() {
  Step step;
  step.kind = StepKind::kCold;
  step.number = 3;
  ColdStore store;
  store.block = 70000;
  store.content.parent.fill(9);
  store.content.tokens.fill(300000);
  store.content.depth = 12;
  step.cold.stores = {store, store};
  step.cold.fills = {{5, {1, 2, 3}}, {6, {}}};
  step.cold.drops = {store.content.parent};
  step.cold.touches = {BlockName{}, store.content.parent};
  step.cold.loads = {{uint64_t{1} << 40, store.content.parent, 7, std::vector<int32_t>(64, 5)}};
  return step;
}

TEST(StepCodecTest, OrdersOfTheColdTierRoundTripAndEveryTruncationIsRefused) {
  const std::string bytes = EncodeStep(Cold());
  EXPECT_EQ(*DecodeStep(bytes), Cold());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeStep(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeStep(bytes + "x").ok());
  Step half = Cold();
  half.cold.loads[0].tokens.pop_back();
  EXPECT_FALSE(DecodeStep(EncodeStep(half)).ok()) << "a block is loaded whole or not";
  const Report loaded{ReportKind::kColdLoaded, "", uint64_t{1} << 33, 17};
  EXPECT_EQ(*DecodeReport(EncodeReport(loaded)), loaded);
  EXPECT_FALSE(DecodeReport(EncodeReport(loaded) + "x").ok());
  const Report off{ReportKind::kColdOff, "no space"};
  EXPECT_EQ(*DecodeReport(EncodeReport(off)), off);
}

TEST(StepCodecTest, RoundTrips) {
  Step step = Forward(9);
  step.wire_type = WireType::kBfloat16;
  EXPECT_EQ(*DecodeStep(EncodeStep(step)), step);
  Step verify;
  verify.kind = StepKind::kVerify;
  verify.verify_rounds = 30;
  verify.verify_kib = {1, 8, 1024};
  EXPECT_EQ(*DecodeStep(EncodeStep(verify)), verify);
  const Report report{ReportKind::kFailed, "why"};
  EXPECT_EQ(*DecodeReport(EncodeReport(report)), report);
}

TEST(StepCodecTest, EveryTruncationAndLieIsRefused) {
  const std::string bytes = EncodeStep(Forward(1));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeStep(bytes.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeStep(bytes + "x").ok());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(0xff);
    const auto step = DecodeStep(changed);
    EXPECT_TRUE(!step.ok() || step->forward.segments.size() <= kStepSegmentsMax);
  }
  EXPECT_FALSE(DecodeReport("").ok());
}

// It becomes a reason's message, which holds UTF-8 alone.
TEST(StepCodecTest, ATerminationMessageIsCutAtACharacter) {
  for (size_t before = 0; before < 4; ++before) {
    std::string text(before, '.');
    while (text.size() < kReportTextBytesMax + 100) text += "中";
    const auto report = DecodeReport(EncodeReport({ReportKind::kFailed, text}));
    ASSERT_TRUE(report.ok());
    EXPECT_LE(report->text.size(), kReportTextBytesMax);
    EXPECT_GT(report->text.size(), kReportTextBytesMax - 3);
    EXPECT_EQ(FirstNonUtf8(report->text), report->text.size());
  }
}

TEST(StepCodecTest, LengthsThatLieAreNotBelieved) {
  const auto decoded = [](Step step, size_t at, uint32_t count) {
    std::string bytes = EncodeStep(step);
    for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(count >> (8 * i));
    return DecodeStep(bytes);
  };
  // Kind, number, wire type: a list begins at 10.
  for (const uint32_t count : {0x7fffffffU, 0xffffffffU, 65537U, 2U}) {
    EXPECT_TRUE(absl::IsDataLoss(decoded(Forward(0), 10, count).status())) << count;
  }
  Step verify;
  verify.kind = StepKind::kVerify;
  verify.verify_kib = std::vector<uint32_t>(kVerifySizesInStepMax + 1, 1);
  EXPECT_TRUE(absl::IsDataLoss(DecodeStep(EncodeStep(verify)).status())) << "one too many";
  verify.verify_kib.pop_back();
  EXPECT_TRUE(DecodeStep(EncodeStep(verify)).ok());
  std::string unknown = EncodeStep(Forward(0));
  for (const char kind : {'\0', '\x08', '\xff'}) {
    unknown[0] = kind;
    EXPECT_FALSE(DecodeStep(unknown).ok());
  }
}

TEST(StepChannelTest, StepsReachEveryRankInOrder) {
  Channel channel;
  for (uint64_t number = 0; number < 3; ++number) {
    ASSERT_TRUE(channel.leader->Send(Forward(number)).ok());
  }
  for (uint32_t rank = 1; rank < 3; ++rank) {
    for (uint64_t number = 0; number < 3; ++number) {
      EXPECT_EQ(*channel.followers[rank]->Receive(), Forward(number));
    }
  }
}

TEST(StepChannelTest, WhatARankTellsOfItsDiskIsNoLoss) {
  Channel channel(2);
  const Report told{ReportKind::kColdLoaded, "", 4, 2};
  ASSERT_TRUE(channel.followers[1]->Tell(told).ok());
  std::vector<Report> heard;
  const absl::Status status = channel.leader->WaitForLoss(
      milliseconds(5000), [&](uint32_t, const Report& report) { heard.push_back(report); });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(heard, std::vector<Report>{told});
}

TEST(StepChannelTest, AGapInTheNumbersIsAnError) {
  Channel channel(2);
  ASSERT_TRUE(channel.leader->Send(Forward(1)).ok());
  EXPECT_FALSE(channel.followers[1]->Receive().ok());
}

TEST(StepChannelTest, WaitsUntilAllHaveLoadedAndHearsTerminationMessages) {
  Channel channel;
  ASSERT_TRUE(channel.followers[1]->Tell({ReportKind::kLoaded, ""}).ok());
  ASSERT_TRUE(channel.followers[2]->Tell({ReportKind::kLoaded, ""}).ok());
  EXPECT_TRUE(channel.leader->AwaitLoaded().ok());
  EXPECT_TRUE(channel.leader->WaitForLoss(milliseconds(10)).ok());
  ASSERT_TRUE(channel.followers[2]->Tell({ReportKind::kFailed, "disk on fire"}).ok());
  const absl::Status loss = channel.leader->WaitForLoss(milliseconds(5000));
  EXPECT_EQ(ReasonOf(loss).code(), "RANK_EXITED");
  EXPECT_THAT(std::string(loss.message()), HasSubstr("rank 2 is gone: disk on fire"));
}

// A rank that tells of its disk has not told that it has loaded.
TEST(StepChannelTest, AnotherReportDoesNotCountAsLoaded) {
  Channel channel(2);
  ASSERT_TRUE(channel.followers[1]->Tell({ReportKind::kColdOff, "no space"}).ok());
  const absl::Status status = channel.leader->AwaitLoaded();
  EXPECT_EQ(ReasonOf(status).code(), reasons::kRankExited) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 is gone: it spoke out of turn"));
}

TEST(StepChannelTest, ALostRankIsNamedOnBothSides) {
  Channel channel;
  channel.followers[1].reset();
  EXPECT_THAT(std::string(channel.leader->AwaitLoaded().message()), HasSubstr("rank 1 is gone"));
  channel.leader.reset();
  EXPECT_THAT(std::string(channel.followers[2]->Receive().status().message()),
              HasSubstr("rank 0 is gone"));
}

TEST(StepChannelTest, ShutDownWakesWhoeverWaits) {
  Channel channel(2);
  std::thread waker([&] { channel.followers[1]->ShutDown(); });
  EXPECT_FALSE(channel.followers[1]->Receive().ok());
  waker.join();
}

TEST(StepChannelTest, UnknownCallersAndOtherEpochsAreRefused) {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  const std::string address = "127.0.0.1:" + std::to_string(listener.LocalPort());
  absl::Status wrong_secret;
  absl::Status wrong_epoch;
  std::thread knocking([&] {
    GangPlace place = Place(1, 2);
    place.secret = std::string(32, 'x');
    wrong_secret = StepFollower::Join(address, place, milliseconds(1200), Bytes).status();
    place = Place(1, 2);
    place.epoch = 4;
    wrong_epoch = StepFollower::Join(address, place, milliseconds(1200), Bytes).status();
  });
  const auto leader = StepLeader::Gather(listener, Place(0, 2), milliseconds(4000), Bytes);
  knocking.join();
  EXPECT_THAT(std::string(leader.status().message()), HasSubstr("rank 1 did not connect"));
  EXPECT_EQ(ReasonOf(wrong_secret).code(), "CONNECT_FAILED");
  EXPECT_EQ(ReasonOf(wrong_epoch).code(), "CONNECT_FAILED");
}

TEST(StepChannelTest, SilentCallersDoNotHoldUpTheGang) {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  const std::string address = "127.0.0.1:" + std::to_string(listener.LocalPort());
  std::vector<transport::StreamSocket> silent;
  for (int i = 0; i < 12; ++i) {
    silent.push_back(*transport::StreamSocket::Connect(address, milliseconds(1000)));
  }
  std::thread joining([&] {
    EXPECT_TRUE(StepFollower::Join(address, Place(1, 2), milliseconds(30'000), Bytes).ok());
  });
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_TRUE(StepLeader::Gather(listener, Place(0, 2), milliseconds(30'000), Bytes).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(2000));
  joining.join();
}

// Three tokens, as they stand in a step.
std::string AsSent(const std::vector<int32_t>& tokens) {
  std::string bytes;
  for (const int32_t token : tokens) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(token >> (8 * i) & 0xff));
  }
  return bytes;
}

TEST(StepChannelTest, WhoListensOnTheWayReadsNoTokensAndNoReports) {
  transport::StreamSocket listener = *transport::StreamSocket::Listen("127.0.0.1:0");
  transport::RecordingProxy proxy("127.0.0.1:" + std::to_string(listener.LocalPort()));
  const std::vector<int32_t> prompt{271828, 314159, 161803}, drafts{141421, 173205, 223606};
  std::unique_ptr<StepFollower> follower;
  std::thread joining([&] {
    follower = *StepFollower::Join(proxy.address(), Place(1, 2), milliseconds(10'000),
                                   transport::SystemRandomBytes);
  });
  const auto leader =
      StepLeader::Gather(listener, Place(0, 2), milliseconds(10'000), transport::SystemRandomBytes);
  joining.join();
  ASSERT_TRUE(leader.ok()) << leader.status();
  Step step;
  step.forward.segments = {{0, 0, prompt, LogitRows::kLast, {0}}, {1, 9, drafts}};
  ASSERT_NE(EncodeStep(step).find(AsSent(prompt)), std::string::npos) << "what is looked for";
  ASSERT_TRUE((*leader)->Send(step).ok());
  EXPECT_EQ(*follower->Receive(), step);
  ASSERT_TRUE(follower->Tell({ReportKind::kFailed, "the disk of my salary is full"}).ok());
  EXPECT_THAT(std::string((*leader)->WaitForLoss(milliseconds(5000)).message()),
              HasSubstr("salary"));
  EXPECT_GT(proxy.bytes(), EncodeStep(step).size()) << "it all passed there";
  EXPECT_FALSE(proxy.Saw(AsSent(prompt)));
  EXPECT_FALSE(proxy.Saw(AsSent(drafts)));
  EXPECT_FALSE(proxy.Saw("salary"));
  EXPECT_FALSE(proxy.Saw(std::string(Place(1, 2).secret.view())));
}

TEST(StepSocketTest, SaysWhenAPortIsTakenOrAnAddressIsNone) {
  const transport::StreamSocket first = *transport::StreamSocket::Listen("127.0.0.1:0");
  const auto second =
      transport::StreamSocket::Listen("127.0.0.1:" + std::to_string(first.LocalPort()));
  EXPECT_EQ(ReasonOf(second.status()).code(), "PORT_TAKEN");
  EXPECT_FALSE(transport::StreamSocket::Listen("nonsense").ok());
  EXPECT_FALSE(transport::StreamSocket::Connect("127.0.0.1:x", milliseconds(10)).ok());
}

}  // namespace
}  // namespace macrame::runtime::engine
