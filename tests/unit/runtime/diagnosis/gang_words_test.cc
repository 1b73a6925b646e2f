// Of what many ranks said last, in whatever order: the one line that says why the gang failed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "runtime/diagnosis/rank_messages.h"

namespace macrame::runtime {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// Lines by how much they say of a failure: nothing, waiting, a lost peer, another's symptom, a
// cause.
const std::vector<std::vector<std::string>> kLines = {
    {"loading weights", "", "step 7 took 12 ms", "\x1b[0m", "rank 0 of 16 with tp 4 and pp 4",
     "Traceback (most recent call last):", "errno 60"},
    {"[ring] Attempt 3 waiting 1000 ms", "[jaccl] Connection attempt 2 waiting 500 ms"},
    {"[ring] Sending to socket 5 failed", "[jaccl] Recv failed with errno=2",
     "[WARN] Node with rank 1 exited with code 1", "Too many send/recv errors. Aborting..."},
    {"[jaccl] Couldn't allocate protection domain", "[jaccl] Could not open device rdma_en2",
     "[jaccl] Couldn't connect (error: 60)", "hosts don't have RDMA enabled"},
    {"[jaccl] No IPv4-mapped GID for this device", "Malformed hostfile",
     "Couldn't create queue pair", "[ERROR] Incomplete mesh, a is not connected to b",
     "came up as rank 0 of 1"},
};

struct Said {
  std::string text;
  int weight = 0;          // of its weightiest line
  std::string weightiest;  // the first of them
};

Said SayingsOf(std::mt19937_64& random, int most) {
  Said said;
  for (size_t left = random() % 7; left > 0; --left) {
    const size_t weight = random() % static_cast<size_t>(most + 1);
    const std::string& line = kLines[weight][random() % kLines[weight].size()];
    said.text += line + (random() % 8 == 0 ? "\r\n" : "\n");
    if (static_cast<int>(weight) <= said.weight) continue;
    said.weight = static_cast<int>(weight);
    said.weightiest = line;
  }
  return said;
}

TEST(GangWords, TheFirstOfTheWeightiestLinesCounts) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    const Said said = SayingsOf(random, static_cast<int>(random() % kLines.size()));
    const auto found = RecogniseLastLines(said.text);
    ASSERT_EQ(found.has_value(), said.weight > 0) << "seed " << seed << ":\n" << said.text;
    if (!found.has_value()) continue;
    ASSERT_EQ(found->reason.evidence(), said.weightiest) << "seed " << seed << ":\n" << said.text;
  }
}

TEST(GangWords, OfSeveralRanksTheFirstWithTheWeightiestLineIsTheRoot) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    const int most = static_cast<int>(random() % kLines.size());
    std::vector<RankWords> ranks;
    std::vector<Said> said;
    std::vector<int> numbers(2 + random() % 6);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
    std::shuffle(numbers.begin(), numbers.end(), random);  // as they came to be known
    for (const int rank : numbers) {
      said.push_back(SayingsOf(random, most));
      ranks.push_back({rank, said.back().text});
    }
    const auto first = std::max_element(
        said.begin(), said.end(), [](const Said& a, const Said& b) { return a.weight < b.weight; });
    const auto root = RecogniseGang(ranks);
    ASSERT_EQ(root.has_value(), first->weight > 0) << "seed " << seed;
    if (!root.has_value()) continue;
    ASSERT_EQ(root->first, ranks[static_cast<size_t>(first - said.begin())].rank)
        << "seed " << seed << ": " << root->second.reason.evidence();
    ASSERT_EQ(root->second.reason.evidence(), first->weightiest) << "seed " << seed;
  }
}

// Who waited for a rank that was gone did not fail first.
TEST(GangWords, ARankThatOnlyWaitedIsNotTheRoot) {
  for (const char* waits :
       {"[ring] Attempt 1 waiting 1000 ms", "[jaccl] Connection attempt 4 waiting 1000 ms"}) {
    const auto root =
        RecogniseGang({{0, waits}, {1, "[ring] Receiving from socket 7 failed"}, {2, waits}});
    ASSERT_TRUE(root.has_value());
    EXPECT_EQ(root->first, 1) << root->second.reason.evidence();
  }
}

TEST(GangWords, EachLineIsASymptomOrACauseWithAMeaning) {
  for (size_t weight = 1; weight < kLines.size(); ++weight) {
    for (const std::string& line : kLines[weight]) {
      const auto found = RecogniseMessage(line);
      ASSERT_TRUE(found.has_value()) << line;
      EXPECT_FALSE(found->reason.message().empty()) << line;
      EXPECT_EQ(found->is_symptom, weight < 4) << line;
    }
  }
}

TEST(RankLine, AGroupOfOneIsFoundBehindALargerOne) {
  const auto found = RecogniseMessage("the spec has rank 0 of 16, MLX came up as rank 0 of 1");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->reason.code(), "GROUP_MISMATCH");
  EXPECT_FALSE(RecogniseMessage("rank 0 of 16, rank 0 of 12, rank 0 of 1024").has_value());
}

// The number of an error is explained, and where it changes what is wrong, the code is another.
TEST(RankLine, ErrorsAreExplainedByTheirNumber) {
  struct Case {
    const char* line;
    const char* code;
    const char* explained;
  };
  for (const Case& each : {
           Case{"[jaccl] Couldn't connect (error: 61)", "COORDINATOR", "nobody listens there)"},
           Case{"[jaccl] Couldn't connect (error: 64)", "LOCAL_NETWORK_PRIVACY", ""},
           Case{"[ring] Couldn't connect, errno 65", "LOCAL_NETWORK_PRIVACY", "local network)"},
           Case{"[ring] Couldn't connect (error: 50)", "ROUTE_WRONG_IF", ""},
           Case{"[ring] Couldn't connect (error: 51)", "ROUTE_WRONG_IF", "that network)"},
           Case{"[ring] Couldn't connect 'timed out (60)'", "PEER_LOST", "timed out)"},
           Case{"[jaccl] Couldn't bind socket (error: 49)", "COORDINATOR", "have the address)"},
           Case{"[jaccl] Changing queue pair to RTR failed with errno 22", "NO_IPV4_GID",
                "invalid)"},
           Case{"[jaccl] Changing queue pair to RTR failed with errno 16", "RESOURCE_EXHAUSTED",
                "busy)"},
           Case{"[jaccl] Changing queue pair to INIT failed with errno 96", "PORT_DOWN", ""},
       }) {
    const auto found = RecogniseMessage(each.line);
    ASSERT_TRUE(found.has_value()) << each.line;
    EXPECT_EQ(found->reason.code(), each.code) << each.line;
    EXPECT_THAT(found->reason.message(), EndsWith(each.explained)) << each.line;
  }
}

// Wherever it stands in what was said: an exception's text comes wrapped in other words.
TEST(RankLine, IsFoundWithinALongerOneAndInAnyLine) {
  const std::string message = "[jaccl] Couldn't create queue pair";
  for (const std::string& text :
       {"RuntimeError: " + message, "\t  " + message + "  \t", "a\nb\n" + message + "\nc",
        "\x1b[1;31m" + message + "\x1b[0m", "2026-11-26 10:00:00 [rank 3] " + message + " at 0x0",
        std::string("\0\x07", 2) + message}) {
    const auto found = RecogniseMessage(text);
    ASSERT_TRUE(found.has_value()) << text;
    EXPECT_EQ(found->reason.code(), "RESOURCE_EXHAUSTED");
    EXPECT_THAT(found->reason.evidence(), HasSubstr(message));
    for (const char letter : found->reason.evidence()) EXPECT_GE(letter, ' ') << text;
  }
}

TEST(RankLine, FloodsAreReadToABound) {
  const std::string message = "[jaccl] Couldn't create queue pair";
  std::string flood;
  for (int line = 0; line < 1'999; ++line) flood += "nothing\n";
  EXPECT_TRUE(RecogniseMessage(flood + message).has_value());
  EXPECT_FALSE(RecogniseMessage(flood + "nothing\n" + message).has_value());
  const auto long_line = RecogniseMessage(std::string(1 << 20, '.') + message);
  ASSERT_TRUE(long_line.has_value());
  EXPECT_LE(long_line->reason.evidence().size(), 300u);
}

TEST(RankLine, WhatTheLoaderSaysIsToldFromOtherLoaders) {
  for (const char* line :
       {"[jaccl] dlsym(0x1, ibv_open_device): symbol not found",
        "[jaccl] dlopen(librdma.dylib, 2): image not found", "[jaccl] librdma is not there"}) {
    const auto found = RecogniseMessage(line);
    ASSERT_TRUE(found.has_value()) << line;
    EXPECT_EQ(found->reason.code(), "OS_TOO_OLD") << line;
  }
  EXPECT_FALSE(RecogniseMessage("dlopen(libfoo.dylib, 2): image not found").has_value());
}

}  // namespace
}  // namespace macrame::runtime
