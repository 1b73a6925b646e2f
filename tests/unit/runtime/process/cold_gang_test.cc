// The cold tier with real rankd processes: after all ranks were started anew, the next turn of a
// conversation goes on from disk, with the tokens that it has without; whatever is wrong with the
// files costs time and nothing else.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/fresh_folder.h"

#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr uint32_t kTokens = 24;

std::string LongText(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += i % 7 == 0 ? "RDMA and memory " : "links of nodes ";
  return text;
}

v1::GenerateRequest FirstTurn() { return Question(LongText(100), kTokens); }

v1::GenerateRequest SecondTurn(const Answer& first) {
  v1::GenerateRequest request = FirstTurn();
  auto* answer = request.add_messages();
  answer->set_role("assistant");
  answer->set_content(first.text);
  auto* question = request.add_messages();
  question->set_role("user");
  question->set_content("And what follows?");
  return request;
}

struct Shape {
  GangShape shape;
  uint32_t ranks;
  const char* name;
  uint32_t kv_bits = 16;
};

class ColdGangTest : public ::testing::TestWithParam<Shape> {
 protected:
  ColdGangTest() : root_(FreshFolder()) {}
  ~ColdGangTest() override { fs::remove_all(root_); }

  std::unique_ptr<Gang> Start(uint64_t bytes_max, uint32_t kv_bits = GetParam().kv_bits,
                              uint32_t hours = 0) {
    GangOptions options;
    options.kv_bits = kv_bits;
    auto specs = MakeSpecs(kBundledModel, GetParam().shape, GetParam().ranks, options);
    for (v1::LaunchSpec& spec : specs) {
      spec.set_kv_cache_folder(Folder(spec.rank()));
      spec.set_kv_cache_disk_bytes(bytes_max);
      spec.set_kv_cache_disk_hours(hours);
    }
    auto gang = std::make_unique<Gang>(specs);
    EXPECT_TRUE(gang->WaitUntilReady());
    return gang;
  }
  // Each rank is a node of its own.
  std::string Folder(uint32_t rank) const { return root_ + "/" + std::to_string(rank); }
  std::vector<fs::path> Files(uint32_t rank) const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(Folder(rank))) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    return files;
  }
  uint32_t last_rank() const { return GetParam().ranks - 1; }

  std::string root_;
};

TEST_P(ColdGangTest, TheNextTurnGoesOnFromDiskAfterARestart) {
  Answer first, expected;
  {
    const auto gang = Start(0);  // without
    first = Ask(gang->stub(), FirstTurn());
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    Gang& same = *gang;
    expected = Ask(same.stub(), SecondTurn(first));
  }
  ASSERT_EQ(expected.tokens.size(), kTokens);
  const uint64_t blocks = (first.first.prompt_tokens() + kTokens - 1) / 32;
  ASSERT_GE(blocks, 8u);
  {
    const auto gang = Start(uint64_t{64} << 20);
    EXPECT_EQ(Ask(gang->stub(), FirstTurn()).tokens, first.tokens);
    ASSERT_TRUE(AwaitOnDisk(*gang, blocks));
  }
  for (uint32_t rank = 0; rank < GetParam().ranks; ++rank) {
    struct stat folder {
    }, file{};
    ASSERT_EQ(stat(Folder(rank).c_str(), &folder), 0);
    EXPECT_EQ(folder.st_mode & 0777, 0700u);
    ASSERT_FALSE(Files(rank).empty());
    ASSERT_EQ(stat(Files(rank).front().c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600u);
  }
  {
    const auto gang = Start(uint64_t{64} << 20);
    ASSERT_TRUE(AwaitOnDisk(*gang, blocks)) << "found again";
    const Answer second = Ask(gang->stub(), SecondTurn(first));
    EXPECT_EQ(second.tokens, expected.tokens);
    EXPECT_GE(second.first.cached_tokens(), first.first.prompt_tokens() / 32 * 32);
    EXPECT_GE(second.first.cold_tokens(), first.first.prompt_tokens() / 32 * 32);
  }
  // One bit of one file of one rank.
  for (const fs::path& path : Files(last_rank())) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(300);
    const int byte = file.get();
    file.seekp(300);
    file.put(static_cast<char>(byte ^ 1));
  }
  const auto gang = Start(uint64_t{64} << 20);
  const Answer broken = Ask(gang->stub(), SecondTurn(first));
  EXPECT_TRUE(broken.status.ok()) << broken.status.error_message();
  EXPECT_EQ(broken.tokens, expected.tokens);
  EXPECT_EQ(broken.first.cached_tokens(), 0u);
}

// What is on disk is of the same bits or not there: no token of the other's comes from it.
TEST_P(ColdGangTest, BlocksOfOtherBitsAreNotUsed) {
  const uint32_t other_bits = GetParam().kv_bits == 8 ? 16 : 8;
  Answer first;
  {
    const auto gang = Start(uint64_t{64} << 20, other_bits);
    first = Ask(gang->stub(), FirstTurn());
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    ASSERT_TRUE(AwaitOnDisk(*gang, 8));
  }
  std::vector<int32_t> expected;
  {
    const auto gang = Start(0);
    expected = Ask(gang->stub(), SecondTurn(first)).tokens;
  }
  const auto gang = Start(uint64_t{64} << 20);
  const Answer second = Ask(gang->stub(), SecondTurn(first));
  EXPECT_EQ(second.first.cached_tokens(), 0u);
  EXPECT_EQ(second.tokens, expected);
  ASSERT_TRUE(AwaitOnDisk(*gang, 8)) << "it keeps its own beside them";
  for (uint32_t rank = 0; rank < GetParam().ranks; ++rank) {
    EXPECT_EQ(StatusOf(gang->stub(rank)).kv_cache_disk().files_broken(), 0u);
  }
}

TEST_P(ColdGangTest, ARankWithoutADiskCostsTimeOnly) {
  std::ofstream(Folder(last_rank())) << "not a folder";
  const auto gang = Start(uint64_t{64} << 20);
  const Answer first = Ask(gang->stub(), FirstTurn());
  EXPECT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(Ask(gang->stub(), SecondTurn(first)).tokens.size(), kTokens);
  const auto end = steady_clock::now() + seconds(5);
  while (StatusOf(gang->stub(last_rank())).kv_cache_disk().off_reason().empty() &&
         steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_THAT(StatusOf(gang->stub(last_rank())).kv_cache_disk().off_reason(),
              ::testing::HasSubstr(Folder(last_rank())));
  EXPECT_THAT(gang->rank(0).Log(), ::testing::HasSubstr("no KV blocks on disk"));
}

// A tenant whose prompts stay in memory, beside one whose prompts don't.
TEST_P(ColdGangTest, AMemoryOnlyPromptIsNotOnDisk) {
  const auto ask = [](Gang& gang, const std::string& salt, bool memory_only) {
    v1::GenerateRequest request = FirstTurn();
    request.set_cache_salt(salt);
    request.set_memory_only(memory_only);
    Answer answer = Ask(gang.stub(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer;
  };
  uint64_t blocks = 0;
  {
    const auto gang = Start(uint64_t{64} << 20);
    const Answer first = ask(*gang, "law", true);
    blocks = (first.first.prompt_tokens() + kTokens - 1) / 32;
    EXPECT_GE(ask(*gang, "law", true).first.cached_tokens(), 128u) << "from memory";
    ask(*gang, "art", false);
    ASSERT_TRUE(AwaitOnDisk(*gang, blocks));
  }
  const auto gang = Start(uint64_t{64} << 20);
  ASSERT_TRUE(AwaitOnDisk(*gang, blocks)) << "found again";
  EXPECT_EQ(ask(*gang, "law", false).first.cold_tokens(), 0u);
  EXPECT_GE(ask(*gang, "art", false).first.cold_tokens(), 128u);
}

TEST_P(ColdGangTest, WhatNobodyUsedForTooLongIsRemovedAtTheStart) {
  const uint64_t bytes = uint64_t{64} << 20;
  {
    const auto gang = Start(bytes, GetParam().kv_bits, 2);
    const Answer first = Ask(gang->stub(), FirstTurn());
    ASSERT_TRUE(first.status.ok()) << first.status.error_message();
    ASSERT_TRUE(AwaitOnDisk(*gang, (first.first.prompt_tokens() + kTokens - 1) / 32));
  }
  size_t files = 0;
  for (uint32_t rank = 0; rank < GetParam().ranks; ++rank) {
    for (const fs::path& path : Files(rank)) {
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(3));
      ++files;
    }
  }
  ASSERT_GT(files, 0u);
  const auto gang = Start(bytes, GetParam().kv_bits, 2);
  // The worker takes stock beside what makes a rank ready.
  const auto expired = [&] {
    uint64_t sum = 0;
    for (size_t rank = 0; rank < gang->ranks(); ++rank) {
      sum += StatusOf(gang->stub(rank)).kv_cache_disk().blocks_expired();
    }
    return sum;
  };
  const auto until = steady_clock::now() + seconds(20);
  while (expired() < files && steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(expired(), files);
  for (size_t rank = 0; rank < gang->ranks(); ++rank) {
    EXPECT_EQ(StatusOf(gang->stub(rank)).kv_cache_disk().blocks(), 0u);
    EXPECT_TRUE(Files(static_cast<uint32_t>(rank)).empty());
  }
  EXPECT_EQ(Ask(gang->stub(), FirstTurn()).first.cold_tokens(), 0u);
}

TEST(PrefixSharingTest, TenantsShareNothingAndWhatWasMissedIsNamed) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  const auto ask = [&](const std::string& salt, const std::string& date) {
    v1::GenerateRequest request;
    auto* system = request.add_messages();
    system->set_role("system");
    system->set_content("Today is " + date + ". Answer briefly, and only what was asked.");
    auto* question = request.add_messages();
    question->set_role("user");
    question->set_content(LongText(60));
    request.set_max_tokens(12);
    request.mutable_sampling()->set_temperature(0.0);
    request.set_cache_salt(salt);
    Answer answer = Ask(gang.stub(), request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    return answer;
  };
  const Answer first = ask("a", "2026-11-21");
  EXPECT_EQ(first.last.prefix_miss().kind(), "empty");
  const Answer other = ask("b", "2026-11-21");
  EXPECT_EQ(other.first.cached_tokens(), 0u);
  EXPECT_EQ(other.last.prefix_miss().kind(), "empty") << "not even that somebody asked the same";
  EXPECT_EQ(other.tokens, first.tokens);
  const Answer again = ask("a", "2026-11-21");
  EXPECT_GE(again.first.cached_tokens(), 128u);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_FALSE(again.last.has_prefix_miss());
  const v1::PrefixMiss miss = ask("a", "2026-11-22").last.prefix_miss();
  EXPECT_EQ(miss.kind(), "differs");
  EXPECT_EQ(miss.part(), "system message");
  EXPECT_EQ(miss.varying(), "a date or time");
  EXPECT_THAT(miss.text(), ::testing::HasSubstr("differs at token"));
}

TEST(PrefixSharingTest, AKeyThatIsTooLongIsRefused) {
  Gang gang(MakeSpecs(kBundledModel, GangShape::kPipeline, 1));
  ASSERT_TRUE(gang.WaitUntilReady());
  v1::GenerateRequest request = FirstTurn();
  request.set_cache_salt(std::string(257, 'x'));
  EXPECT_EQ(Ask(gang.stub(), request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ColdGangTest,
                         ::testing::Values(Shape{GangShape::kPipeline, 1, "One"},
                                           Shape{GangShape::kTensor, 2, "Tensor"},
                                           Shape{GangShape::kPipeline, 2, "Pipeline"},
                                           Shape{GangShape::kTensor, 2, "TensorEightBits", 8},
                                           Shape{GangShape::kPipeline, 2, "PipelineEightBits", 8}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace macrame::runtime::engine
