#include "runtime/gang/side_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/gang/step_channel.h"

namespace macrame::runtime::engine {
namespace {

using testing::HasSubstr;
using transport::GangChannel;
using transport::SealedSocket;
using transport::StreamSocket;

constexpr std::chrono::milliseconds kExchangeLimit{5000};
constexpr uint32_t kSideRanks = 3;

GangPlace SidePlace(uint32_t rank) {
  return {rank, kSideRanks, 7, transport::SecretBytes(std::string(32, 's'))};
}

// The lines of every rank, made as ranks make them.
std::vector<std::vector<SealedSocket>> Lines() {
  const StreamSocket listener = StreamSocket::Listen("127.0.0.1:0").value();
  const std::string address = absl::StrCat("127.0.0.1:", listener.LocalPort());
  std::vector<std::vector<SealedSocket>> lines(kSideRanks);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 1; rank < kSideRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      lines[rank].push_back(JoinRankZero(address, SidePlace(rank), GangChannel::kSide,
                                         kExchangeLimit, transport::SystemRandomBytes)
                                .value());
    });
  }
  lines[0] = GatherRanks(listener, SidePlace(0), GangChannel::kSide, kExchangeLimit,
                         transport::SystemRandomBytes)
                 .value();
  for (std::thread& rank : ranks) rank.join();
  return lines;
}

// What each rank has at the end when rank r tells `pieces[r]`.
std::vector<absl::StatusOr<std::string>> GatherAll(std::vector<std::vector<SealedSocket>> lines,
                                                   const std::vector<std::string>& pieces) {
  std::vector<absl::StatusOr<std::string>> got(pieces.size());
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < pieces.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      SideChannel side(rank, std::move(lines[rank]), kExchangeLimit);
      std::string all(pieces[rank].size() * kSideRanks, '?');
      const absl::Status gathered = side.AllGather(pieces[rank], all);
      got[rank] = gathered.ok() ? absl::StatusOr<std::string>(all) : gathered;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return got;
}

TEST(SideChannel, EachRankGetsEveryPieceInTheOrderOfRanks) {
  for (const auto& got : GatherAll(Lines(), {"ab", "cd", "ef"})) {
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, "abcdef");
  }
}

TEST(SideChannel, ExchangesFollowEachOtherAndMayBeEmpty) {
  auto lines = Lines();
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < kSideRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      SideChannel side(rank, std::move(lines[rank]), kExchangeLimit);
      for (size_t bytes : {4, 0, 96, 4}) {
        const std::string own(bytes, static_cast<char>('0' + rank));
        std::string all(bytes * kSideRanks, '?');
        ASSERT_TRUE(side.AllGather(own, all).ok());
        EXPECT_EQ(all, std::string(bytes, '0') + std::string(bytes, '1') + std::string(bytes, '2'));
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(SideChannel, APieceOfAnotherSizeNamesItsRank) {
  const auto got = GatherAll(Lines(), {"ab", "cd", "efg"});
  EXPECT_EQ(ReasonOf(got[0].status()).code(), reasons::kConnectFailed);
  EXPECT_THAT(ReasonOf(got[0].status()).message(), HasSubstr("rank 2: 3 bytes came instead of 2"));
  EXPECT_FALSE(got[1].ok()) << "rank 0 hung up";
}

TEST(SideChannel, ARankThatSaysNothingOrIsGoneIsNamedWithinTheLimit) {
  auto lines = Lines();
  const SealedSocket silent = std::move(lines[2][0]);
  ASSERT_TRUE(lines[1][0].SendFrame("cd").ok());
  SideChannel waits(0, std::move(lines[0]), std::chrono::milliseconds(200));
  std::string none(6, '?');
  EXPECT_THAT(ReasonOf(waits.AllGather("ab", none)).message(), HasSubstr("rank 2"));
  lines = Lines();
  lines[1][0].Close();
  lines[1].clear();
  SideChannel side(0, std::move(lines[0]), kExchangeLimit);
  std::string all(6, '?');
  EXPECT_THAT(ReasonOf(side.AllGather("ab", all)).message(), HasSubstr("rank 1"));
}

}  // namespace
}  // namespace macrame::runtime::engine
