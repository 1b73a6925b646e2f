// What others get to know of a gang of real rankd processes: on the network between two ranks, on
// the ports that are kept for them, and on disk when one crashes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/runtime/process/rankd_runner.h"
#include "tests/unit/transport/gang/recording_proxy.h"
#include "transport/gang/gang_connection.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::HasSubstr;
using transport::RecordingProxy;

const std::vector<int32_t> kPrompt{17, 230, 99, 101, 44, 203, 18, 150, 61, 222};
constexpr uint32_t kTokens = 24;

v1::GenerateRequest TokenQuestion() {
  v1::GenerateRequest request;
  request.mutable_prompt_token_ids()->Assign(kPrompt.begin(), kPrompt.end());
  request.set_max_tokens(kTokens);
  request.set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0.0);
  return request;
}

// As a step has them.
std::string AsSent(std::vector<int32_t>::const_iterator begin, size_t count) {
  std::string bytes;
  for (size_t at = 0; at < count; ++at) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(begin[at] >> (8 * i) & 0xff));
  }
  return bytes;
}

// Rank 1 reaches rank 0 by way of somebody who keeps all that passes.
void ListenBetween(GangShape shape, bool is_private, const std::vector<int32_t>& expected) {
  auto specs = MakeSpecs(kBundledModel, shape, 2);
  RecordingProxy steps(specs[1].step_address()), group(specs[1].ring_addresses(0));
  specs[1].set_step_address(steps.address());
  specs[1].set_ring_addresses(0, group.address());
  for (v1::LaunchSpec& spec : specs) {
    spec.add_private_links(is_private);
    spec.add_private_links(is_private);
  }
  Gang gang(specs);
  ASSERT_TRUE(gang.WaitUntilReady());
  const Answer answer = Ask(gang.stub(), TokenQuestion());
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens, expected);
  ASSERT_GT(steps.bytes(), kTokens * 20) << "all steps passed there";
  ASSERT_GT(group.bytes(), kTokens * 100) << "and all that ranks sum or hand on";
  EXPECT_FALSE(steps.Saw(AsSent(kPrompt.begin(), 4))) << "the step channel is never open";
  for (size_t at = 0; at + 3 < answer.tokens.size(); ++at) {
    EXPECT_FALSE(steps.Saw(AsSent(answer.tokens.begin() + static_cast<ptrdiff_t>(at), 3)));
  }
  // An open message of the group is known by a header, then by the activations that follow it.
  // Zeros in a row are in every one of those, and in no sealed one.
  EXPECT_EQ(group.Saw(std::string(16, '\0')), is_private);
}

TEST(GangPrivacyTest, WhoListensBetweenTwoRanksReadsNothing) {
  std::vector<int32_t> alone;
  {
    Gang gang(MakeSpecs(kBundledModel, GangShape::kPipeline, 1));
    ASSERT_TRUE(gang.WaitUntilReady());
    alone = Ask(gang.stub(), TokenQuestion()).tokens;
    ASSERT_EQ(alone.size(), kTokens);
  }
  ListenBetween(GangShape::kPipeline, /*is_private=*/false, alone);
  ListenBetween(GangShape::kTensor, /*is_private=*/false, alone);
  ListenBetween(GangShape::kPipeline, /*is_private=*/true, alone);
}

// Every Gang hands its ranks bound sockets.
TEST(GangPrivacyTest, RanksMeetAtTheSocketsThatTheyInherit) {
  const auto specs = MakeSpecs(kBundledModel, GangShape::kTensor, 2);
  Gang gang(specs);
  const std::vector<std::string> addresses{specs[0].step_address(), specs[0].ring_addresses(0),
                                           specs[0].ring_addresses(1)};
  for (const std::string& address : addresses) {
    EXPECT_FALSE(transport::StreamSocket::Listen(address).ok())
        << "nobody else gets to " << address << " first";
  }
  EXPECT_TRUE(gang.WaitUntilReady());
  EXPECT_EQ(Ask(gang.stub(), TokenQuestion()).tokens.size(), kTokens);
}

// Whether `what` stands anywhere in the memory that a process may write to; unset: it can't be
// read.
std::optional<bool> IsInMemory(pid_t pid, const std::string& what) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream maps(folder + "/maps"), memory(folder + "/mem", std::ios::binary);
  if (!maps.is_open() || !memory.is_open()) return std::nullopt;
  constexpr uint64_t kPieceBytes = 16 << 20;
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find(" rw") == std::string::npos) continue;
    const uint64_t begin = std::stoull(line, nullptr, 16);
    const uint64_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    for (uint64_t at = begin; at < end; at += kPieceBytes) {
      // A little more, so that nothing is cut.
      std::string piece(std::min(end - at, kPieceBytes + what.size()), '\0');
      memory.clear();
      memory.seekg(static_cast<std::streamoff>(at));
      memory.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      piece.resize(static_cast<size_t>(memory.gcount()));
      if (piece.find(what) != std::string::npos) return true;
    }
  }
  return false;
}

TEST(GangPrivacyTest, TheGangsSecretIsNotInMemoryOnceTheGangStands) {
  const std::string secret = transport::SystemRandomBytes(32);
  auto specs = MakeSpecs(kBundledModel, GangShape::kTensor, 2);
  for (v1::LaunchSpec& spec : specs) spec.set_gang_secret(secret);
  Gang gang(specs);
  ASSERT_TRUE(gang.WaitUntilReady());
  const auto own = IsInMemory(getpid(), secret);
  if (!own.has_value() || !IsInMemory(gang.rank(0).pid(), secret).has_value()) {
    GTEST_SKIP() << "other processes' memory can't be read here";
  }
  EXPECT_TRUE(*own) << "it is found where it is";
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(IsInMemory(gang.rank(rank).pid(), secret), false) << rank;
  }
}

std::string CoreLimitOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/limits");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("Max core file size")) return line;
  }
  return "";
}

TEST(GangPrivacyTest, ACrashLeavesNoConversationsOnDisk) {
  rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY}, before{};
  ASSERT_EQ(getrlimit(RLIMIT_CORE, &before), 0);
  if (setrlimit(RLIMIT_CORE, &unlimited) != 0 || CoreLimitOf(getpid()).empty()) GTEST_SKIP();
  const auto specs = MakeSpecs(kBundledModel, GangShape::kPipeline, 1);
  {
    Gang gang(specs);
    ASSERT_TRUE(gang.WaitUntilReady());
    EXPECT_THAT(CoreLimitOf(gang.rank(0).pid()), HasSubstr(" 0                    0 "));
  }
  Gang gang(specs, {{"--core-dumps"}});
  ASSERT_TRUE(gang.WaitUntilReady());
  EXPECT_THAT(CoreLimitOf(gang.rank(0).pid()), HasSubstr("unlimited"));
  setrlimit(RLIMIT_CORE, &before);
}

}  // namespace
}  // namespace macrame::runtime::engine
