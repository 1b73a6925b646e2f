#include "transport/gang/gang_listener.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "transport/gang/sealed_socket.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kLimit = std::chrono::seconds(20);

GangMember Member(uint32_t rank, uint32_t size) {
  return {GangChannel::kSteps, rank, size, 7, SecretBytes(std::string(32, 's'))};
}

double Since(steady_clock::time_point begun) {
  return std::chrono::duration<double>(steady_clock::now() - begun).count();
}

class GangListenerTest : public testing::Test {
 protected:
  // People who connect and say `text`, if anything.
  void Crowd(size_t count, const std::string& text = "") {
    for (size_t i = 0; i < count; ++i) {
      auto caller = StreamSocket::Connect(address_, kLimit);
      ASSERT_TRUE(caller.ok()) << caller.status();
      if (!text.empty()) caller->SendBytes(text).IgnoreError();
      crowd_.push_back(*std::move(caller));
    }
  }
  // How long until ranks 1 … n-1 of a gang have all been let in.
  double TimeToGather(uint32_t size, const GangListener::Options& options) {
    std::vector<std::thread> ranks;
    for (uint32_t rank = 1; rank < size; ++rank) {
      ranks.emplace_back([this, rank, size] {
        auto connection = CallGang(Member(rank, size), {address_, 0}, steady_clock::now() + kLimit);
        ASSERT_TRUE(connection.ok()) << connection.status();
        SealedSocket socket(*std::move(connection));
        EXPECT_EQ(socket.ReceiveFrame().value(), "welcome");
      });
    }
    const auto begun = steady_clock::now();
    GangListener listener(socket_, Member(0, size), options);
    for (uint32_t joined = 1; joined < size; ++joined) {
      auto connection = listener.Accept(begun + kLimit);
      EXPECT_TRUE(connection.ok()) << connection.status() << listener.Refused();
      if (!connection.ok()) break;
      EXPECT_TRUE(SealedSocket(*std::move(connection)).SendFrame("welcome").ok());
    }
    const double took = Since(begun);
    for (std::thread& rank : ranks) rank.join();
    return took;
  }

  const StreamSocket socket_ = StreamSocket::Listen("127.0.0.1:0").value();
  const std::string address_ = "127.0.0.1:" + std::to_string(socket_.LocalPort());
  std::vector<StreamSocket> crowd_;
};

TEST_F(GangListenerTest, SilentCallersHoldNobodyUp) {
  Crowd(24);
  EXPECT_LT(TimeToGather(4, {}), 1.0);
}

TEST_F(GangListenerTest, NorDoThoseWhoTalkNonsense) {
  Crowd(12, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
  Crowd(12, std::string(1000, 'x'));
  EXPECT_LT(TimeToGather(4, {}), 1.0);
}

TEST_F(GangListenerTest, MoreThanCanBeHeardAtOncePreemptForEachOther) {
  Crowd(100);  // the system's queue has room for them
  EXPECT_LT(TimeToGather(3, {}), 1.5);
}

// One whose hello proved that it knows the secret, and whose finish takes a moment.
TEST_F(GangListenerTest, SilentCallersDoNotPushOutOneThatProvedItself) {
  Crowd(1);
  CallerHandshake caller(Member(1, 2), 0, false, SystemRandomBytes(kHandshakeNonceBytes));
  ASSERT_TRUE(crowd_[0].SendBytes(caller.hello()).ok());
  GangListener listener(socket_, Member(0, 2), {});
  EXPECT_FALSE(listener.Accept(steady_clock::now() + milliseconds(20)).ok());
  std::string answer(kAnswerBytes, '\0');
  ASSERT_TRUE(crowd_[0].ReceiveBytes(answer.data(), answer.size()).ok());
  Crowd(kPendingCallersMax + 4);
  EXPECT_FALSE(listener.Accept(steady_clock::now() + milliseconds(20)).ok());
  ASSERT_TRUE(crowd_[0].SendBytes(caller.OnAnswer(answer).value()).ok());
  const auto through = listener.Accept(steady_clock::now() + kLimit);
  ASSERT_TRUE(through.ok()) << through.status() << listener.Refused();
  EXPECT_EQ(through->rank, 1u);
}

// Somebody in the way who says one byte after the other, each of them in time.
TEST_F(GangListenerTest, AnAnswerThatDripsHoldsNoCallerUp) {
  std::thread in_the_way([this] {
    auto caller = socket_.Accept(kLimit);
    ASSERT_TRUE(caller.ok());
    const auto end = steady_clock::now() + 2 * kAnswerLimit;
    while (steady_clock::now() < end && caller->SendBytes("x").ok()) {
      std::this_thread::sleep_for(kAnswerLimit / 10);
    }
  });
  const auto begun = steady_clock::now();
  const auto connection = CallGang(Member(1, 2), {address_, 0}, begun + kAnswerLimit / 2);
  EXPECT_FALSE(connection.ok());
  EXPECT_LT(Since(begun), std::chrono::duration<double>(kAnswerLimit).count());
  in_the_way.join();
}

TEST_F(GangListenerTest, SilenceIsOverAfterAQuarterOfASecond) {
  Crowd(1);
  GangListener listener(socket_, Member(0, 2), {});
  std::thread silent([&] {
    char byte = 0;
    const auto begun = steady_clock::now();
    EXPECT_FALSE(crowd_[0].ReceiveBytes(&byte, 1).ok());
    EXPECT_LT(Since(begun), 0.9);
  });
  EXPECT_FALSE(listener.Accept(steady_clock::now() + milliseconds(1200)).ok());
  EXPECT_NE(listener.Refused().find("it said too little in time (127.0.0.1)"), std::string::npos)
      << listener.Refused();
  silent.join();
}

TEST_F(GangListenerTest, MembersAddressesGetMoreTime) {
  Crowd(1);
  GangListener listener(socket_, Member(0, 2), {{"127.0.0.1"}, {}});
  EXPECT_FALSE(listener.Accept(steady_clock::now() + milliseconds(600)).ok());
  EXPECT_EQ(listener.Refused(), "");
  CallerHandshake late(Member(1, 2), 0, false, SystemRandomBytes(kHandshakeNonceBytes));
  ASSERT_TRUE(crowd_[0].SendBytes(late.hello()).ok());
  std::thread rank([&] {
    std::string answer(kAnswerBytes, '\0');
    ASSERT_TRUE(crowd_[0].ReceiveBytes(answer.data(), answer.size()).ok());
    ASSERT_TRUE(crowd_[0].SendBytes(late.OnAnswer(answer).value()).ok());
  });
  EXPECT_TRUE(listener.Accept(steady_clock::now() + kLimit).ok());
  rank.join();
}

}  // namespace
}  // namespace macrame::transport
