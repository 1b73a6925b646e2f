// The calling side of a gang's connections, against listeners of every kind.

#include "transport/gang/gang_connection.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/gang/gang_listener.h"
#include "transport/gang/sealed_socket.h"

namespace macrame::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kLimit = std::chrono::seconds(20);

GangMember Member(uint32_t rank, uint32_t size = 2, char secret = 's') {
  return {GangChannel::kGroup, rank, size, 7, SecretBytes(std::string(32, secret))};
}

std::string AddressOf(const StreamSocket& socket) {
  return absl::StrCat("127.0.0.1:", socket.LocalPort());
}

bool Says(const absl::Status& status, const std::string& words) {
  return std::string(status.message()).find(words) != std::string::npos;
}

class GangConnectionTest : public ::testing::Test {
 protected:
  // What both sides of one call come to, when `listener` listens for `for_at_most`.
  struct Met {
    absl::StatusOr<GangConnection> caller = absl::UnknownError(""),
                                   listener = absl::UnknownError("");
    std::string refused;
  };
  Met Meet(const GangMember& caller, bool caller_private, const GangMember& listener,
           GangListener::Options options, milliseconds for_at_most = milliseconds(20'000)) {
    Met met;
    const auto end = steady_clock::now() + for_at_most;
    std::thread calls([&] {
      met.caller = CallGang(caller, {address_, listener.rank, caller_private}, end);
    });
    GangListener heard(socket_, listener, std::move(options));
    met.listener = heard.Accept(end);
    met.refused = heard.Refused();
    calls.join();
    return met;
  }

  const StreamSocket socket_ = StreamSocket::Listen("127.0.0.1:0").value();
  const std::string address_ = AddressOf(socket_);
};

TEST_F(GangConnectionTest, BothSidesKnowWhoTheOtherIsAndReadEachOther) {
  Met met = Meet(Member(3, 5), false, Member(1, 5), {});
  ASSERT_TRUE(met.caller.ok()) << met.caller.status();
  ASSERT_TRUE(met.listener.ok()) << met.listener.status();
  EXPECT_EQ(met.caller->rank, 1u);
  EXPECT_EQ(met.listener->rank, 3u);
  SealedSocket caller(*std::move(met.caller)), listener(*std::move(met.listener));
  for (int i = 0; i < 20; ++i) {
    const std::string there = absl::StrCat("question ", i), back = absl::StrCat("answer ", i);
    ASSERT_TRUE(caller.SendFrame(there).ok());
    EXPECT_EQ(listener.ReceiveFrame().value(), there);
    ASSERT_TRUE(listener.SendFrame(back).ok());
    EXPECT_EQ(caller.ReceiveFrame().value(), back);
  }
}

TEST_F(GangConnectionTest, BytesGoAsTheyAreOnlyWhereBothHoldTheLinkForPrivate) {
  for (const bool caller_says : {false, true}) {
    for (const bool listener_says : {false, true}) {
      GangListener::Options options;
      options.is_private = [&](uint32_t rank) {
        EXPECT_EQ(rank, 0u);
        return listener_says;
      };
      const Met met = Meet(Member(0), caller_says, Member(1), options);
      ASSERT_TRUE(met.caller.ok() && met.listener.ok()) << met.caller.status();
      const bool is_sealed = !(caller_says && listener_says);
      EXPECT_EQ(met.caller->seal.has_value(), is_sealed);
      EXPECT_EQ(met.caller->open.has_value(), is_sealed);
      EXPECT_EQ(met.listener->seal.has_value(), is_sealed);
      EXPECT_EQ(met.listener->open.has_value(), is_sealed);
    }
  }
}

TEST_F(GangConnectionTest, WhoListensLaterIsFound) {
  const std::string address = address_;
  auto caller = std::async(std::launch::async, [&] {
    return CallGang(Member(0), {address, 1, false}, steady_clock::now() + kLimit);
  });
  // Somebody takes the first calls and hangs up, as a process that is just ending does.
  for (int i = 0; i < 2; ++i) {
    auto taken = socket_.Accept(kLimit);
    ASSERT_TRUE(taken.ok());
  }
  GangListener listener(socket_, Member(1), {});
  const auto connection = listener.Accept(steady_clock::now() + kLimit);
  ASSERT_TRUE(connection.ok()) << connection.status() << listener.Refused();
  EXPECT_TRUE(caller.get().ok());
}

// Each is refused by the listener, which says why; the caller learns only that it is not wanted.
TEST_F(GangConnectionTest, AListenerSaysWhatDidNotFit) {
  GangMember other_channel = Member(0), other_epoch = Member(0), other_secret = Member(0, 2, 't');
  other_channel.channel = GangChannel::kWatch;
  other_epoch.epoch = 6;
  const std::vector<std::pair<GangMember, std::string>> cases = {
      {other_channel, "another channel"},
      {other_epoch, "it is of epoch 6, this is epoch 7"},
      {other_secret, "does not know the gang's secret"},
      {Member(0, 3), "rank 0 of 3"},
      {Member(1), "this is rank 1 of 2"},
  };
  for (const auto& [caller, words] : cases) {
    const Met met = Meet(caller, false, Member(1), {}, milliseconds(400));
    EXPECT_EQ(met.listener.status().code(), absl::StatusCode::kDeadlineExceeded) << words;
    EXPECT_NE(met.refused.find(words), std::string::npos) << met.refused;
    EXPECT_NE(met.refused.find("(127.0.0.1)"), std::string::npos) << met.refused;
    EXPECT_FALSE(met.caller.ok()) << words;
    EXPECT_TRUE(Says(met.caller.status(), "does not take this rank for one of its gang"))
        << met.caller.status();
  }
}

TEST_F(GangConnectionTest, AnotherRankAtTheAddressIsNotTakenForTheOneThatIsCalled) {
  std::thread calls([&] {
    const auto met =
        CallGang(Member(0, 3), {address_, 1, false}, steady_clock::now() + milliseconds(300));
    EXPECT_FALSE(met.ok());
  });
  GangListener listener(socket_, Member(2, 3), {});
  EXPECT_FALSE(listener.Accept(steady_clock::now() + milliseconds(400)).ok());
  EXPECT_NE(listener.Refused().find("calls rank 1; this is rank 2 of 3"), std::string::npos)
      << listener.Refused();
  calls.join();
}

TEST_F(GangConnectionTest, WhoAnswersWithoutTheSecretIsFoundOut) {
  std::thread answerer([&] {
    while (true) {
      auto caller = socket_.Accept(milliseconds(1500));
      if (!caller.ok()) return;
      std::string hello(kHelloBytes, '\0');
      if (!caller->ReceiveBytes(hello.data(), hello.size()).ok()) continue;
      // An answer of the right length without the secret: what came, sent back.
      caller->SendBytes(hello.substr(0, kAnswerBytes)).IgnoreError();
    }
  });
  const auto called =
      CallGang(Member(0), {address_, 1, false}, steady_clock::now() + milliseconds(500));
  EXPECT_EQ(called.status().code(), absl::StatusCode::kPermissionDenied) << called.status();
  EXPECT_FALSE(called.status().message().empty());
  answerer.join();
}

TEST_F(GangConnectionTest, NobodyThereAndNoAddressAreToldApart) {
  std::string closed;
  {
    const StreamSocket gone = StreamSocket::Listen("127.0.0.1:0").value();
    closed = AddressOf(gone);
  }
  const auto end = [] { return steady_clock::now() + milliseconds(120); };
  const auto nobody = CallGang(Member(0), {closed, 1, false}, end());
  EXPECT_EQ(nobody.status().code(), absl::StatusCode::kDeadlineExceeded) << nobody.status();
  EXPECT_TRUE(Says(nobody.status(), closed)) << nobody.status();
  for (const char* address : {"", "mini-1", "mini-1:80", "127.0.0.1", "127.0.0.1:99999"}) {
    const auto called = CallGang(Member(0), {address, 1, false}, steady_clock::now() + kLimit);
    EXPECT_EQ(called.status().code(), absl::StatusCode::kInvalidArgument) << address;
  }
}

TEST_F(GangConnectionTest, WhatWasFoundIsSaidThoughTheTimeRanOutLater) {
  // Takes connections and never says a word.
  const auto called =
      CallGang(Member(0), {address_, 1, false}, steady_clock::now() + milliseconds(200));
  EXPECT_EQ(called.status().code(), absl::StatusCode::kUnavailable) << called.status();
  EXPECT_TRUE(Says(called.status(), "took too long")) << called.status();
}

TEST_F(GangConnectionTest, EachCallHasANonceOfItsOwn) {
  std::set<std::string> hellos;
  std::thread listens([&] {
    for (int i = 0; i < 3; ++i) {
      auto caller = socket_.Accept(kLimit);
      ASSERT_TRUE(caller.ok());
      std::string hello(kHelloBytes, '\0');
      ASSERT_TRUE(caller->ReceiveBytes(hello.data(), hello.size()).ok());
      EXPECT_TRUE(hellos.insert(hello).second) << "a hello was said twice";
    }
  });
  std::mt19937 random(4);
  const auto called = CallGang(Member(0), {address_, 1, false},
                               steady_clock::now() + milliseconds(600), [&](size_t count) {
                                 std::string bytes;
                                 while (bytes.size() < count)
                                   bytes.push_back(static_cast<char>(random()));
                                 return bytes;
                               });
  EXPECT_FALSE(called.ok());
  listens.join();
  EXPECT_EQ(hellos.size(), 3u);
}

TEST_F(GangConnectionTest, ManyRanksThatCallAtOnceAreAllLetIn) {
  constexpr uint32_t kSize = 12;
  std::vector<std::thread> ranks;
  for (uint32_t rank = 1; rank < kSize; ++rank) {
    ranks.emplace_back([&, rank] {
      auto called =
          CallGang(Member(rank, kSize), {address_, 0, false}, steady_clock::now() + kLimit);
      ASSERT_TRUE(called.ok()) << called.status();
      SealedSocket socket(*std::move(called));
      EXPECT_TRUE(socket.SendFrame(absl::StrCat("rank ", rank)).ok());
      EXPECT_EQ(socket.ReceiveFrame().value(), absl::StrCat("welcome ", rank));
    });
  }
  GangListener listener(socket_, Member(0, kSize), {});
  std::set<uint32_t> met;
  for (uint32_t joined = 1; joined < kSize; ++joined) {
    auto connection = listener.Accept(steady_clock::now() + kLimit);
    ASSERT_TRUE(connection.ok()) << connection.status();
    const uint32_t rank = connection->rank;
    EXPECT_TRUE(met.insert(rank).second) << rank;
    SealedSocket socket(*std::move(connection));
    // The key is that rank's own: nobody else's frame opens.
    EXPECT_EQ(socket.ReceiveFrame().value(), absl::StrCat("rank ", rank));
    EXPECT_TRUE(socket.SendFrame(absl::StrCat("welcome ", rank)).ok());
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(SystemRandomBytesTest, AreManyAndNeverTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = SystemRandomBytes(32);
    EXPECT_EQ(bytes.size(), 32u);
    EXPECT_TRUE(seen.insert(bytes).second);
  }
  EXPECT_TRUE(SystemRandomBytes(0).empty());
}

}  // namespace
}  // namespace macrame::transport
