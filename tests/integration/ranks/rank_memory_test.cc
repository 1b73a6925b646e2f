// What the planner says a rank needs, against what a real one takes: the most that was ever
// resident while it loaded, took the longest prompt and gave sixteen answers at once.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "planner/memory_model.h"
#include "proto/serving_limits.h"
#include "runtime/model_files/model_description.h"
#include "tests/unit/runtime/model/random_model.h"
#include "tests/unit/runtime/process/rankd_runner.h"

namespace macrame::runtime::engine {
namespace {

constexpr uint32_t kContext = 1024;
constexpr uint32_t kSequences = 4;

// Of the kernel's account of a process, one line ("VmHWM"), in bytes.
uint64_t AccountOf(uint64_t pid, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

// What is there of its own memory and of mapped weights, but not of code.
uint64_t HeldForModel(uint64_t pid) {
  uint64_t bytes = AccountOf(pid, "RssAnon");
  std::ifstream maps("/proc/" + std::to_string(pid) + "/smaps");
  bool weights = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first;
    uint64_t kilobytes = 0;
    words >> first;
    if (first.find('-') != std::string::npos) {
      weights = line.find(".safetensors") != std::string::npos;
    } else if (weights && first == "Rss:" && words >> kilobytes) {
      bytes += kilobytes * 1024;
    }
  }
  return bytes;
}

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / 1048576.0; }

v1::RankStatus AnsweredStatus(v1::RankService::Stub& stub) {
  v1::RankStatus status = StatusOf(stub);
  EXPECT_NE(status.pid(), 0u) << "no answer";
  return status;
}

// Each seed's are others from the first word on, so that nobody shares a cache.
std::string Words(size_t count, uint32_t seed) {
  static const char* const kWords[] = {"the", "a", "of", "is", "to", "and", "in", "on"};
  std::minstd_rand random(seed * 7919 + 1);
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += (i > 0 ? " " : "") + std::string(kWords[random() / 16 % std::size(kWords)]);
  }
  return text;
}

v1::GenerateRequest Request(size_t words, uint32_t seed, uint32_t tokens) {
  v1::GenerateRequest request;
  request.set_prompt(Words(words, seed));
  request.set_max_tokens(tokens);
  request.mutable_sampling()->set_temperature(1.0);
  request.mutable_sampling()->set_seed(seed);
  return request;
}

// As much as the gang can be given to do.
void WorkHard(Gang& gang) {
  const Answer longest = Ask(gang.stub(), Request(kContext - 24, 1, 16));
  ASSERT_TRUE(longest.status.ok()) << longest.status.error_message();
  ASSERT_GE(longest.first.prompt_tokens(), kContext - 64) << "a prompt as long as the context";
  std::vector<std::thread> users;
  for (uint32_t user = 0; user < kAnsweredAtOnceMax; ++user) {
    users.emplace_back([&, user] {
      const Answer answer = Ask(gang.stub(), Request(180, 2 + user, 48));
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    });
  }
  for (std::thread& user : users) user.join();
}

planner::Slice SliceOf(const v1::LaunchSpec& spec) {
  if (spec.assignment().slice_count() == 0) return {1, spec.tp()};
  return {spec.assignment().slice_end() - spec.assignment().slice_begin(),
          spec.assignment().slice_count()};
}

v1::MemoryNeed PlanOf(const v1::ModelDescription& model, const v1::LaunchSpec& spec,
                      uint32_t kv_bits) {
  planner::ServingLoad load;
  load.context_tokens = kContext;
  load.sequences = kSequences;
  load.kv_bits = kv_bits;
  const v1::Assignment& part = spec.assignment();
  const bool last = part.layer_end() == model.layer_count();
  return planner::MemoryModel(model, load, SliceOf(spec))
      .Need(planner::ComputeKind::kCpu, part.layer_begin(), part.layer_end(),
            part.layer_begin() == 0, last && part.tp_rank() == 0);
}

struct Case {
  const char* name;
  int bits;
  GangShape shape;
  uint32_t ranks;
  uint32_t kv_bits = 0;
  bool drafts = false;  // rank 0 has a draft model
};

class RankMemoryTest : public ::testing::TestWithParam<Case> {
 protected:
  ~RankMemoryTest() override {
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
    if (!draft_folder_.empty()) std::filesystem::remove_all(draft_folder_, error);
  }

  std::string folder_;  // of a model of a hundred megabytes
  std::string draft_folder_;
};

TEST_P(RankMemoryTest, NoRankIsLargerThanItsPlanAtAnyMoment) {
#ifndef __linux__
  GTEST_SKIP() << "/proc says how large a process was at most";
#endif
  RandomModelShape shape;
  shape.bits = GetParam().bits;
  shape.layers = 2;
  shape.hidden = 1024;
  shape.intermediate = 4096;
  shape.heads = 16;
  shape.kv_heads = 8;
  shape.head_dim = 64;
  shape.vocabulary = 32768;
  shape.group_size = 64;
  folder_ = WriteRandomModel(shape, kBundledModel);
  const auto model = DescribeModel(folder_);
  ASSERT_TRUE(model.ok()) << model.status();
  GangOptions options;
  options.context_length = kContext;
  options.kv_bits = GetParam().kv_bits;
  auto specs = MakeSpecs(folder_, GetParam().shape, GetParam().ranks, options);
  for (v1::LaunchSpec& spec : specs) spec.set_concurrent_sequences(kSequences);
  planner::ServingLoad with_draft;
  with_draft.context_tokens = kContext;
  with_draft.sequences = kSequences;
  if (GetParam().drafts) {
    shape.layers = 1;
    shape.hidden = 512;
    shape.intermediate = 2048;
    draft_folder_ = WriteRandomModel(shape, kBundledModel);
    const auto draft = DescribeModel(draft_folder_);
    ASSERT_TRUE(draft.ok()) << draft.status();
    with_draft.draft_bytes = planner::DraftBytes(*draft, with_draft);
    specs[0].mutable_draft_model()->set_path(draft_folder_);
    specs[0].set_draft_model_unpriced(true);
  }
  Gang gang(specs);
  ASSERT_TRUE(gang.WaitUntilReady());
  std::vector<uint64_t> loaded_most;
  for (size_t rank = 0; rank < specs.size(); ++rank) {
    loaded_most.push_back(AccountOf(AnsweredStatus(gang.stub(rank)).pid(), "VmHWM"));
  }
  WorkHard(gang);
  for (size_t rank = 0; rank < specs.size(); ++rank) {
    SCOPED_TRACE(rank);
    const v1::RankStatus status = AnsweredStatus(gang.stub(rank));
    v1::MemoryNeed need = PlanOf(*model, specs[rank], GetParam().kv_bits);
    if (rank == 0 && GetParam().drafts) {
      planner::AddDraft(with_draft, &need);
      EXPECT_GT(status.draft_model().draft_tokens_total(), 0u);
    }
    const uint64_t grows = need.total_bytes() - need.runtime_bytes() - need.headroom_bytes();
    const uint64_t most = AccountOf(status.pid(), "VmHWM");
    const uint64_t holds = HeldForModel(status.pid());
    std::printf(
        "%s rank %zu, MiB: plan %.1f, %.1f of it for the model (cache %.1f, activations "
        "%.1f); most resident %.1f, %.1f once loaded; held for the model %.1f, it says %.1f\n",
        GetParam().name, rank, MiB(need.total_bytes()), MiB(grows), MiB(need.kv_cache_bytes()),
        MiB(need.activation_bytes()), MiB(most), MiB(loaded_most[rank]), MiB(holds),
        MiB(status.memory_bytes()));
    EXPECT_LE(most, need.total_bytes());
    EXPECT_LE(grows, holds + holds / 2) << "much more was planned than it comes to hold";
    EXPECT_LE(status.memory_bytes(), most);
    EXPECT_GE(status.memory_bytes(), need.weights_bytes() + need.kv_cache_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RankMemoryTest,
    ::testing::Values(Case{"one_q4", 4, GangShape::kPipeline, 1},
                      Case{"one_bf16", 0, GangShape::kPipeline, 1},
                      Case{"one_q4_draft", 4, GangShape::kPipeline, 1, 0, true},
                      Case{"tp2_q4", 4, GangShape::kTensor, 2},
                      Case{"tp2_bf16", 0, GangShape::kTensor, 2},
                      Case{"pp2_q8", 8, GangShape::kPipeline, 2},
                      Case{"one_q4_kv8", 4, GangShape::kPipeline, 1, 8},
                      Case{"tp2_bf16_kv8", 0, GangShape::kTensor, 2, 8}),
    [](const ::testing::TestParamInfo<Case>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace macrame::runtime::engine
