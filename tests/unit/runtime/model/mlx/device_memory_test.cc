#include "runtime/model/mlx/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "mlx/mlx.h"
#include "tests/unit/runtime/model/mlx/buffer_cache_model.h"
#include "tests/unit/runtime/model/mlx/recorded_memory.h"

namespace macrame::runtime::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

ForwardStep StepOf(size_t tokens, LogitRows rows) {
  ForwardStep step;
  Segment segment;
  segment.tokens.assign(tokens, 1);
  segment.logit_rows = rows;
  step.segments.push_back(segment);
  return step;
}

TEST(DeviceLimitsTest, APlanIsWiredAndItsHeadroomIsWhatMlxMayTakeBesides) {
  EXPECT_EQ(DeviceLimitsOf({20 * kGiB, kGiB}, 96 * kGiB),
            (DeviceLimits{20 * kGiB, 21 * kGiB, 512 * kMiB}));
  EXPECT_EQ(DeviceLimitsOf({96 * kGiB, 0}, 96 * kGiB),
            (DeviceLimits{96 * kGiB, 96 * kGiB, 512 * kMiB}));
}

TEST(DeviceLimitsTest, NeitherLimitIsAboveTheWorkingSet) {
  EXPECT_EQ(DeviceLimitsOf({95 * kGiB, 4 * kGiB}, 96 * kGiB),
            (DeviceLimits{95 * kGiB, 96 * kGiB, 512 * kMiB}));
  EXPECT_EQ(DeviceLimitsOf({120 * kGiB, 6 * kGiB}, 96 * kGiB),
            (DeviceLimits{96 * kGiB, 96 * kGiB, 512 * kMiB}));
  EXPECT_EQ(DeviceLimitsOf({~uint64_t{0}, ~uint64_t{0}}, 96 * kGiB),
            (DeviceLimits{96 * kGiB, 96 * kGiB, 512 * kMiB}));
}

TEST(DeviceLimitsTest, WhereMlxReportsNoWorkingSetThePlanHolds) {
  EXPECT_EQ(DeviceLimitsOf({20 * kGiB, kGiB}, std::nullopt),
            (DeviceLimits{20 * kGiB, 21 * kGiB, 512 * kMiB}));
  EXPECT_EQ(DeviceLimitsOf({~uint64_t{0}, 5}, std::nullopt),
            (DeviceLimits{~uint64_t{0}, ~uint64_t{0}, 512 * kMiB}));
}

TEST(DeviceLimitsTest, WithoutAPlanTheWorkingSetIsWired) {
  EXPECT_EQ(DeviceLimitsOf({}, 96 * kGiB), (DeviceLimits{96 * kGiB, {}, 512 * kMiB}));
  EXPECT_EQ(DeviceLimitsOf({}, std::nullopt), (DeviceLimits{{}, {}, 512 * kMiB}));
}

TEST(LimitDeviceMemoryTest, EachLimitIsSetOnce) {
  RecordedMemory memory(10'000);
  EXPECT_EQ(LimitDeviceMemory(EngineDevice::kGpu, {2'000, 100}, memory), "");
  EXPECT_THAT(memory.calls, ElementsAre("cache 536870912", "memory 2100", "wired 2000"));
}

TEST(LimitDeviceMemoryTest, OurCpuKernelsSetNothing) {
  RecordedMemory memory;
  EXPECT_EQ(LimitDeviceMemory(EngineDevice::kCpu, {2'000, 100}, memory), "");
  EXPECT_THAT(memory.calls, IsEmpty());
}

TEST(LimitDeviceMemoryTest, APlanBeyondTheWorkingSetIsCutAndReported) {
  RecordedMemory memory(96 * kGiB);
  EXPECT_THAT(LimitDeviceMemory(EngineDevice::kGpu, {120 * kGiB, kGiB}, memory),
              testing::AllOf(HasSubstr("120.0 GiB"), HasSubstr("96.0 GiB"),
                             HasSubstr("iogpu.wired_limit_mb")));
  EXPECT_EQ(memory.calls.back(), absl::StrCat("wired ", 96 * kGiB));
}

// As on a rank of `--device mlx-cpu`.
TEST(MlxMemoryTest, MlxOnACpuTakesTheCallsAndCountsEachArrayOnce) {
  namespace mx = mlx::core;
  const auto memory = MakeDeviceMemory(EngineDevice::kMlxCpu);
  EXPECT_EQ(memory->WorkingSetBytes(), std::nullopt);
  EXPECT_EQ(LimitDeviceMemory(EngineDevice::kMlxCpu, {kGiB, 64 * kMiB}, *memory), "");
  EXPECT_EQ(mx::get_memory_limit(), kGiB + 64 * kMiB);
  const uint64_t before = memory->HeldBytes();
  {
    mx::array ones = mx::ones({1024, 1024}, mx::float32, mx::Device::cpu);
    mx::eval(ones);
    EXPECT_GE(memory->HeldBytes(), before + 4 * kMiB);
    EXPECT_LE(memory->HeldBytes(), before + 5 * kMiB);
  }
  EXPECT_GE(memory->HeldBytes(), before + 4 * kMiB) << "the freed buffer is kept";
  memory->ClearCache();
  EXPECT_LE(memory->HeldBytes(), before);
}

TEST(CacheClearingTest, DecodeClearsEach256Steps) {
  RecordedMemory memory;
  CacheClearing clearing(&memory);
  std::vector<int> cleared_at;
  for (int step = 1; step <= 4096; ++step) {
    const size_t before = memory.calls.size();
    clearing.AfterStep(StepOf(1, LogitRows::kLast));
    if (memory.calls.size() > before) cleared_at.push_back(step);
  }
  ASSERT_EQ(cleared_at.size(), 16u);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(cleared_at[static_cast<size_t>(i)], 256 * (i + 1));
}

TEST(CacheClearingTest, APromptClearsBehindItsLastChunkOnly) {
  RecordedMemory memory;
  CacheClearing clearing(&memory);
  for (int chunk = 0; chunk < 7; ++chunk) clearing.AfterStep(StepOf(256, LogitRows::kNone));
  EXPECT_THAT(memory.calls, IsEmpty());
  clearing.AfterStep(StepOf(31, LogitRows::kLast));
  EXPECT_THAT(memory.calls, ElementsAre("clear"));
  // Steps count from there.
  for (int step = 0; step < 255; ++step) clearing.AfterStep(StepOf(1, LogitRows::kLast));
  EXPECT_EQ(memory.calls.size(), 1u);
  clearing.AfterStep(StepOf(1, LogitRows::kLast));
  EXPECT_EQ(memory.calls.size(), 2u);
}

// With two steps in flight the next one is submitted before a prompt's results are there.
TEST(CacheClearingTest, AStepInFlightClearsWhenItsResultsAreThere) {
  RecordedMemory memory;
  CacheClearing clearing(&memory);
  EXPECT_TRUE(clearing.IsDueAfter(StepOf(31, LogitRows::kLast)));
  EXPECT_FALSE(clearing.IsDueAfter(StepOf(1, LogitRows::kLast)));
  EXPECT_THAT(memory.calls, IsEmpty());
  clearing.Clear();
  EXPECT_THAT(memory.calls, ElementsAre("clear"));
  for (int step = 0; step < 254; ++step) {
    EXPECT_FALSE(clearing.IsDueAfter(StepOf(1, LogitRows::kLast)));
  }
  EXPECT_TRUE(clearing.IsDueAfter(StepOf(1, LogitRows::kLast)));
}

TEST(CacheClearingTest, AnEmbeddingsLastChunkEndsAPrompt) {
  RecordedMemory memory;
  CacheClearing clearing(&memory);
  clearing.AfterStep(StepOf(31, LogitRows::kHiddenLast));
  EXPECT_THAT(memory.calls, ElementsAre("clear"));
}

TEST(CacheClearingTest, DraftsAndStepsThatCloseSlotsOnlyClearNothing) {
  RecordedMemory memory;
  CacheClearing clearing(&memory);
  for (int step = 0; step < 255; ++step) clearing.AfterStep(StepOf(5, LogitRows::kAll));
  for (int step = 0; step < 1000; ++step) clearing.AfterStep(ForwardStep());
  EXPECT_THAT(memory.calls, IsEmpty());
  CacheClearing none(nullptr);
  for (int step = 0; step < 300; ++step) none.AfterStep(StepOf(1, LogitRows::kLast));
}

TEST(RankMemoryTest, WeightsOfAnMlxGraphAreCountedOnce) {
  // 1,000 bytes of weights were loaded; MLX holds them and 200 bytes of caches.
  EXPECT_EQ(RankMemoryOf(EngineDevice::kGpu, 1'000, 1'000).With(1'200), 1'200u);
  EXPECT_EQ(RankMemoryOf(EngineDevice::kMlxCpu, 1'000, 1'050).With(1'200), 1'200u);
}

TEST(RankMemoryTest, MappedWeightsCountBesideWhatMlxTakesLater) {
  // 40 of the 1,000 bytes are vectors, which MLX holds.
  const RankMemory memory = RankMemoryOf(EngineDevice::kCpu, 1'000, 40);
  EXPECT_EQ(memory.With(40), 1'000u);
  EXPECT_EQ(memory.With(340), 1'300u);
  EXPECT_EQ(memory.With(0), 1'000u);
}

// An allocator as on a Mac with a working set of 96 GiB, behind MLX's calls.
class MacMemory final : public RecordedMemory {
 public:
  static constexpr uint64_t kWorkingSet = 96 * kGiB;
  MacMemory() : RecordedMemory(kWorkingSet) {}

  void SetMemoryLimit(uint64_t bytes) override {
    buffers.SetCollectLimit(std::min(bytes, kCollect));
  }
  void SetCacheLimit(uint64_t bytes) override { buffers.SetCacheLimit(bytes); }
  void ClearCache() override { buffers.Clear(); }
  uint64_t HeldBytes() override { return buffers.active_bytes() + buffers.cached_bytes(); }

  static constexpr uint64_t kCollect = kWorkingSet / 20 * 19;
  tests::BufferCacheModel buffers{kWorkingSet / 2 * 3, kCollect};
};

// What a decode of 4,096 tokens allocates when each layer gathers the keys and the values of all
// positions, for a model of 32 layers with 8 KV heads of 128 numbers. Buffers are freed when so
// many later ones were allocated: work that the GPU has not finished.
constexpr uint64_t kLayers = 32;
constexpr uint64_t kRowBytes = 8 * 128 * 2;
constexpr size_t kUnderWay = 12;
constexpr uint64_t kTokens = 4096;

uint64_t StepBytes(uint64_t tokens) { return 2 * kLayers * tokens * kRowBytes; }

// The most freed bytes that were kept at once.
uint64_t Decode(MacMemory& memory, CacheClearing& clearing) {
  uint64_t most = 0;
  std::deque<uint64_t> in_use;
  const ForwardStep step = StepOf(1, LogitRows::kLast);
  for (uint64_t tokens = 16; tokens < 16 + kTokens; ++tokens) {
    for (uint64_t gather = 0; gather < 2 * kLayers; ++gather) {
      in_use.push_back(memory.buffers.Allocate(tokens * kRowBytes));
      if (in_use.size() <= kUnderWay) continue;
      memory.buffers.Free(in_use.front());
      in_use.pop_front();
      most = std::max(most, memory.buffers.cached_bytes());
    }
    clearing.AfterStep(step);
  }
  return most;
}

TEST(CachedBytesTest, ALongAnswerStaysUnderTheLimitAndOneStep) {
  MacMemory memory;
  LimitDeviceMemory(EngineDevice::kGpu, {20 * kGiB, kGiB}, memory);
  CacheClearing clearing(&memory);
  const uint64_t most = Decode(memory, clearing);
  EXPECT_LE(most, kCacheBytesMax + StepBytes(kTokens + 16));
  // The limit alone holds to within a buffer.
  EXPECT_LE(most,
            kCacheBytesMax + (kTokens + 16) * kRowBytes + tests::BufferCacheModel::kPageBytes);
}

TEST(CachedBytesTest, WithoutLimitsTheSameAnswerLeavesGigabytes) {
  MacMemory memory;
  CacheClearing never(nullptr);
  EXPECT_GT(Decode(memory, never), 10 * kGiB);
}

TEST(CachedBytesTest, AShortPlanGivesBuffersBackBeforeItIsPassed) {
  MacMemory memory;
  const PlannedMemory planned{400 * kMiB, 64 * kMiB};
  LimitDeviceMemory(EngineDevice::kGpu, planned, memory);
  memory.buffers.Allocate(300 * kMiB);  // weights and KV cache
  CacheClearing clearing(&memory);
  Decode(memory, clearing);
  EXPECT_LE(memory.HeldBytes(), planned.wired + planned.headroom + 16 * kMiB);
}

}  // namespace
}  // namespace macrame::runtime::engine
