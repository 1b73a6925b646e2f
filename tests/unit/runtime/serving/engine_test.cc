// The engine's pieces in one process: masks, slices, the watchdog, and a tiny model as a
// whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "proto/reasons.h"
#include "runtime/model/mlx/decoder.h"
#include "runtime/process/rank_boot.h"
#include "runtime/serving/generation_job.h"
#include "runtime/serving/solo_sequence.h"
#include "tests/unit/runtime/model/mlx/recorded_memory.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using std::chrono::milliseconds;

TEST(WatchdogTest, FiresForWhatTakesTooLongOnly) {
  std::string stalled;
  std::atomic<bool> fired = false;
  Watchdog watchdog([&](const std::string& what, milliseconds) {
    stalled = what;
    fired = true;
  });
  { const auto guard = watchdog.Watch("short work with a long limit", milliseconds(60'000)); }
  { const auto guard = watchdog.Watch("unlimited", milliseconds(0)); }
  EXPECT_FALSE(fired);
  // A nearer deadline than the one that the thread waits for.
  const auto guard = watchdog.Watch("long work", milliseconds(20));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!fired && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(fired);
  EXPECT_EQ(stalled, "long work");
}

std::string TinyFolder() {
  return WriteFolder(
      {{"config.json", TinyLlamaConfig()}, {"model.safetensors", Safetensors(TinyLlama())}});
}

v1::LaunchSpec SingleSpec(const std::string& folder) {
  v1::LaunchSpec spec;
  spec.set_world_size(1);
  spec.set_tp(1);
  spec.set_pp(1);
  spec.mutable_model()->set_path(folder);
  return spec;
}

std::unique_ptr<BootedRank> Boot(const v1::LaunchSpec& spec, Watchdog& watchdog, int chunk) {
  BootOptions options;
  options.needs_text = false;
  options.prefill_chunk_tokens = chunk;
  auto rank = BootRank(spec, watchdog, options);
  EXPECT_TRUE(rank.ok()) << rank.status().ToString();
  return *std::move(rank);
}

// Boots the tiny model with this plan; the calls, and "weights" where the first ones were loaded.
std::vector<std::string> CallsWhile(EngineDevice device, const v1::MemoryNeed& need,
                                    RecordedMemory& memory, std::vector<std::string>& notes,
                                    const std::function<void(BootedRank&)>& then) {
  Watchdog watchdog([](const std::string&, milliseconds) {});
  v1::LaunchSpec spec = SingleSpec(TinyFolder());
  *spec.mutable_assignment()->mutable_need() = need;
  BootOptions options;
  options.needs_text = false;
  options.types.device = device;
  options.device_memory = &memory;
  options.on_note = [&](const std::string& line) { notes.push_back(line); };
  bool loads = false;
  options.on_progress = [&](uint64_t loaded, uint64_t, uint64_t) {
    if (loaded > 0 && !std::exchange(loads, true)) memory.calls.emplace_back("weights");
  };
  auto rank = BootRank(spec, watchdog, options);
  EXPECT_TRUE(rank.ok()) << rank.status().ToString();
  if (rank.ok()) then(**rank);
  return memory.calls;
}

v1::MemoryNeed SmallPlan() {
  v1::MemoryNeed need;
  need.set_weights_bytes(8 << 20);
  need.set_kv_cache_bytes(2 << 20);
  need.set_headroom_bytes(1 << 20);
  return need;
}

TEST(DeviceMemoryTest, LimitsAreSetBeforeTheFirstWeightAndThePromptClears) {
  RecordedMemory memory(uint64_t{1} << 30);
  std::vector<std::string> notes;
  const auto calls =
      CallsWhile(EngineDevice::kMlxCpu, SmallPlan(), memory, notes, [](BootedRank& rank) {
        const std::vector<int32_t> prompt(40, 7);
        SoloSequence sequence(*rank.engine);
        const auto always = [] { return true; };
        EXPECT_TRUE(sequence.Forward(prompt, 0, LogitRows::kLast, always).ok());
        for (int i = 40; i < 40 + 256; ++i) {
          const int32_t token[] = {i % 96};
          EXPECT_TRUE(sequence.Forward(token, i % 128, LogitRows::kLast, always).ok());
        }
      });
  EXPECT_THAT(calls, testing::ElementsAre("cache 536870912", "memory 11534336", "wired 10485760",
                                          "weights", "clear", "clear"));
  EXPECT_THAT(notes, testing::IsEmpty());
}

TEST(DeviceMemoryTest, APlanBeyondTheWorkingSetIsLogged) {
  RecordedMemory memory(uint64_t{4} << 20);
  std::vector<std::string> notes;
  const auto calls = CallsWhile(EngineDevice::kMlxCpu, SmallPlan(), memory, notes, [](auto&) {});
  EXPECT_THAT(
      calls, testing::ElementsAre("cache 536870912", "memory 4194304", "wired 4194304", "weights"));
  EXPECT_THAT(notes, testing::ElementsAre(testing::HasSubstr("working set of 4.0 MiB")));
}

TEST(DeviceMemoryTest, ARankOnACpuLeavesMlxAlone) {
  RecordedMemory memory;
  std::vector<std::string> notes;
  const auto calls =
      CallsWhile(EngineDevice::kCpu, SmallPlan(), memory, notes, [&](BootedRank& rank) {
        const std::vector<int32_t> prompt(40, 7);
        const auto always = [] { return true; };
        EXPECT_TRUE(SoloSequence(*rank.engine).Forward(prompt, 0, LogitRows::kLast, always).ok());
      });
  EXPECT_THAT(calls, testing::ElementsAre("weights"));
}

TEST(DeviceMemoryTest, ARankHoldsItsWeightsOnce) {
  const v1::LaunchSpec spec = SingleSpec(TinyFolder());
  for (const EngineDevice device : {EngineDevice::kCpu, EngineDevice::kMlxCpu}) {
    SCOPED_TRACE(device == EngineDevice::kCpu ? "our CPU kernels" : "MLX's graph");
    Watchdog watchdog([](const std::string&, milliseconds) {});
    BootOptions options;
    options.needs_text = false;
    options.types.device = device;
    uint64_t weights = 0;
    options.on_progress = [&](uint64_t loaded, uint64_t, uint64_t) { weights = loaded; };
    mx::clear_cache();
    const uint64_t before = mx::get_active_memory();
    auto rank = BootRank(spec, watchdog, options);
    ASSERT_TRUE(rank.ok()) << rank.status();
    mx::clear_cache();  // of what loading has freed
    const uint64_t held = (*rank)->HeldBytes() - (UsesMlxGraph(device) ? before : 0);
    // The KV cache of the warm-up's one block, buffers of a step and, in MLX's graph, the weights
    // that tokens are drawn by (kernels/token_weights.h).
    const uint64_t drawn_by = UsesMlxGraph(device) ? sizeof(uint64_t) << 16 : 0;
    EXPECT_GE(held, weights + drawn_by);
    EXPECT_LT(held, 2 * weights + drawn_by);
  }
}

TEST(ForwardEngineTest, ChunksAndSingleStepsGiveTheSameLogits) {
  Watchdog watchdog([](const std::string&, milliseconds) {});
  const auto spec = SingleSpec(TinyFolder());
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(i * 7 % 96);
  const auto always = [] { return true; };
  const auto all_rows = [&](int chunk) {
    const auto rank = Boot(spec, watchdog, chunk);
    return *SoloSequence(*rank->engine).Forward(tokens, 0, LogitRows::kAll, always);
  };
  const auto whole = all_rows(256);
  const auto chunked = all_rows(7);
  ASSERT_EQ(whole.size(), 40u * 96);
  ASSERT_EQ(chunked.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], chunked[i], 1e-4) << i;

  auto rank = Boot(spec, watchdog, 256);
  SoloSequence sequence(*rank->engine);
  std::vector<float> last;
  for (int i = 0; i < 40; ++i) {
    last = *sequence.Forward({&tokens[i], 1}, i, LogitRows::kLast, always);
  }
  for (size_t i = 0; i < 96; ++i) ASSERT_NEAR(last[i], whole[39 * 96 + i], 1e-4);
}

// 40 rows of what a layer computes with, float32, and two blocks of two layers.
TEST(ForwardEngineTest, SaysWhatItsStepsHaveTaken) {
  Watchdog watchdog([](const std::string&, milliseconds) {});
  const auto rank = Boot(SingleSpec(TinyFolder()), watchdog, 256);
  const uint64_t before = rank->engine->step_bytes();
  const std::vector<int32_t> tokens(40, 5);
  const auto always = [] { return true; };
  ASSERT_TRUE(SoloSequence(*rank->engine).Forward(tokens, 0, LogitRows::kLast, always).ok());
  const uint64_t row = 4 * (3 * 64 + 2 * 64 + 2 * 32 + 2 * 128);
  const uint64_t cache = 2 * 2 * 32 * (2 * 32) * 4;
  const uint64_t took = rank->engine->step_bytes();
  EXPECT_GE(took, 40 * row + cache);
  EXPECT_GE(took - before, 39 * row);
  EXPECT_LE(took, 2 * (40 * row + cache) + (8 << 20)) << "and what each thread keeps";
}

TEST(ForwardEngineTest, AJobEndsAtTheContextAndCanBeCancelled) {
  Watchdog watchdog([](const std::string&, milliseconds) {});
  auto spec = SingleSpec(TinyFolder());
  spec.set_context_length(20);
  const auto rank = Boot(spec, watchdog, 256);
  GenerationJob job;
  job.prompt = {1, 2, 3};
  job.limits = {.prompt_tokens = 3, .context_length = 20};
  const TextStream silent{[](int32_t) { return std::string("x"); }, [] { return std::string(); }};
  v1::GenerateChunk last;
  std::atomic<bool> cancelled = false;
  const auto keep_last = [&](const v1::GenerateChunk& chunk) { last = chunk; };
  ASSERT_TRUE(RunJob(job, *rank->engine, silent, cancelled, keep_last).ok());
  EXPECT_EQ(last.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(last.completion_tokens(), 17u);
  ASSERT_TRUE(RunJob(job, *rank->engine, silent, cancelled, [&](const v1::GenerateChunk& chunk) {
                last = chunk;
                cancelled = true;
              }).ok());
  EXPECT_EQ(last.finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(last.completion_tokens(), 1u);
}

TEST(RankBootTest, SaysWhatIsWrongWithASpec) {
  Watchdog watchdog([](const std::string&, milliseconds) {});
  const auto code = [&](v1::LaunchSpec spec) {
    BootOptions options;
    options.needs_text = false;
    return ReasonOf(BootRank(spec, watchdog, options).status()).code();
  };
  v1::LaunchSpec spec = SingleSpec(TinyFolder());
  spec.set_tp(2);
  EXPECT_EQ(code(spec), "CONFIG_INVALID");
  spec = SingleSpec(TinyFolder());
  spec.mutable_assignment()->set_layer_end(3);
  EXPECT_EQ(code(spec), "MODEL_CONFIG_INVALID");
  EXPECT_EQ(code(SingleSpec("/nonexistent")), "MODEL_CONFIG_INVALID");
  spec = SingleSpec(TinyFolder());
  spec.set_context_length(1);
  EXPECT_EQ(code(spec), "CONFIG_INVALID");
  EXPECT_EQ(code(v1::LaunchSpec()), "CONFIG_INVALID");
  spec = SingleSpec(TinyFolder());
  spec.set_kv_bits(5);
  EXPECT_EQ(code(spec), "CONFIG_INVALID");
}

TEST(RankBootTest, OnAGpuAPromptAloneGoesInChunksThatTheHeadroomHolds) {
  ModelConfig config;
  config.head_dim = 128;
  v1::MemoryNeed need;
  need.set_activation_bytes(64 << 20);
  need.set_headroom_bytes(uint64_t{2} << 30);
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kGpu, need, 1), 2048u);
  need.set_headroom_bytes(uint64_t{384} << 20);
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kGpu, need, 1), 1024u) << "four times as large";
  need.set_headroom_bytes(64 << 20);
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kGpu, need, 1), 0u);
  need.set_headroom_bytes(uint64_t{2} << 30);
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kCpu, need, 1), 0u);
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kMlxCpu, need, 1), 0u);
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kGpu, need, 2), 0u) << "stages work in turn";
  config.head_dim = 112;
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kGpu, need, 1), 0u) << "no kernel for it";
  config.head_dim = 128;
  config.latent.kv_rank = 512;
  EXPECT_EQ(AloneChunkTokens(config, EngineDevice::kGpu, need, 1), 0u);
}

TEST(RankBootTest, FourBitKeysAreForGpusAndRefusedByNameElsewhere) {
  v1::LaunchSpec spec;
  spec.mutable_assignment()->set_node_id("node-7");
  spec.mutable_assignment()->set_hostname("mini-2");
  for (const uint32_t bits : {0, 16, 8}) {
    spec.set_kv_bits(bits);
    EXPECT_TRUE(CheckKvBits(spec, true).ok());
    EXPECT_TRUE(CheckKvBits(spec, false).ok());
  }
  spec.set_kv_bits(4);
  EXPECT_TRUE(CheckKvBits(spec, true).ok());
  const v1::Reason reason = ReasonOf(CheckKvBits(spec, false));
  EXPECT_EQ(reason.code(), "KV_BITS_UNSUPPORTED");
  EXPECT_EQ(reason.node_id(), "node-7");
  EXPECT_THAT(reason.message(), ::testing::HasSubstr("mini-2 computes on its CPU"));
  EXPECT_THAT(reason.remedy(), ::testing::HasSubstr("--kv-bits 8"));
}

TEST(PromptTest, IsHeldAgainstVocabularyAndContext) {
  EXPECT_TRUE(CheckPrompt({1, 2}, 96, 3).ok());
  EXPECT_EQ(ReasonOf(CheckPrompt({1, 2, 3}, 96, 3)).code(), "PROMPT_TOO_LONG");
  EXPECT_EQ(ReasonOf(CheckPrompt({96}, 96, 3)).code(), "BAD_REQUEST");
  EXPECT_EQ(ReasonOf(CheckPrompt({-1}, 96, 3)).code(), "BAD_REQUEST");
  EXPECT_EQ(ReasonOf(CheckPrompt({}, 96, 3)).code(), "BAD_REQUEST");
}

TEST(SamplingDefaultsTest, FollowTheModelsOwnFile) {
  EXPECT_EQ(ParseSamplingDefaults("").temperature, 1.0);
  EXPECT_EQ(ParseSamplingDefaults("{}").temperature, 0.0);
  const auto sampled = ParseSamplingDefaults(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20})");
  EXPECT_EQ(sampled.temperature, 0.6);
  EXPECT_EQ(sampled.top_p, 0.9);
  EXPECT_EQ(sampled.top_k, 20u);
  EXPECT_EQ(ParseSamplingDefaults(R"({"do_sample": true, "top_p": -3})").top_p, 1.0);
}

}  // namespace
}  // namespace macrame::runtime::engine
