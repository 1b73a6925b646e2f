// What the planner says a rank needs, against what a real one takes: the most that was ever
// resident while it loaded, took the longest prompt and gave sixteen answers at once.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
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

v1::RankStatus StatusOf(v1::RankService::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto reader = stub.Watch(&context, v1::WatchRequest());
  v1::RankStatus status;
  EXPECT_TRUE(reader->Read(&status));
  context.TryCancel();
  return status;
}

std::string Words(size_t count, size_t seed) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (seed * 31 + i * i) % 7 < 3 ? "the " : "of ";
  return text;
}

v1::GenerateRequest Request(size_t words, size_t seed, uint32_t tokens) {
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
  for (size_t user = 0; user < kAnsweredAtOnceMax; ++user) {
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

v1::MemoryNeed PlanOf(const v1::ModelDescription& model, const v1::LaunchSpec& spec) {
  planner::ServingLoad load;
  load.context_tokens = kContext;
  load.sequences = kSequences;
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
};

class RankMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(RankMemoryTest, NoRankIsLargerThanItsPlanAtAnyMoment) {
#ifndef __linux__
  GTEST_SKIP() << "/proc says how large a process was at most";
#endif
  RandomModelShape shape;
  shape.bits = GetParam().bits;
  shape.layers = 4;
  shape.hidden = 1024;
  shape.intermediate = 4096;
  shape.heads = 16;
  shape.kv_heads = 8;
  shape.head_dim = 64;
  shape.vocabulary = 32768;
  shape.group_size = 64;
  const std::string folder = WriteRandomModel(shape, kBundledModel);
  const auto model = DescribeModel(folder);
  ASSERT_TRUE(model.ok()) << model.status();
  GangOptions options;
  options.context_length = kContext;
  auto specs = MakeSpecs(folder, GetParam().shape, GetParam().ranks, options);
  for (v1::LaunchSpec& spec : specs) spec.set_concurrent_sequences(kSequences);
  Gang gang(specs);
  ASSERT_TRUE(gang.WaitUntilReady());
  std::vector<uint64_t> loaded_most;
  for (size_t rank = 0; rank < specs.size(); ++rank) {
    loaded_most.push_back(AccountOf(StatusOf(gang.stub(rank)).pid(), "VmHWM"));
  }
  WorkHard(gang);
  for (size_t rank = 0; rank < specs.size(); ++rank) {
    SCOPED_TRACE(rank);
    const v1::RankStatus status = StatusOf(gang.stub(rank));
    const v1::MemoryNeed need = PlanOf(*model, specs[rank]);
    const uint64_t fixed = need.runtime_bytes() + need.headroom_bytes();
    const uint64_t most = AccountOf(status.pid(), "VmHWM");
    const uint64_t now = AccountOf(status.pid(), "VmRSS");
    std::printf(
        "%s rank %zu: plan %.1f MiB (%.1f fixed, kv %.1f, activations %.1f), most resident "
        "%.1f (%.1f once loaded), now %.1f, it says %.1f\n",
        GetParam().name, rank, need.total_bytes() / 1048576.0, fixed / 1048576.0,
        need.kv_cache_bytes() / 1048576.0, need.activation_bytes() / 1048576.0, most / 1048576.0,
        loaded_most[rank] / 1048576.0, now / 1048576.0, status.memory_bytes() / 1048576.0);
    EXPECT_LE(most, need.total_bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RankMemoryTest,
                         ::testing::Values(Case{"one_q4", 4, GangShape::kPipeline, 1},
                                           Case{"one_bf16", 0, GangShape::kPipeline, 1},
                                           Case{"tp2_q4", 4, GangShape::kTensor, 2},
                                           Case{"tp2_bf16", 0, GangShape::kTensor, 2},
                                           Case{"pp2_q8", 8, GangShape::kPipeline, 2}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace macrame::runtime::engine
