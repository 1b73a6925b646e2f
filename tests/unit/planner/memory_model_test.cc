#include "planner/memory_model.h"

#include <gtest/gtest.h>

#include "planner/saturating.h"
#include "proto/serving_limits.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

TEST(MemoryModel, WeightsAreWhatTheFilesSay) {
  v1::ModelDescription model = SmallModel();
  model.set_layer_bytes(2, 1'000'000);
  model.set_layer_divisible_bytes(2, 900'000);
  EXPECT_EQ(LayerWeightBytes(model, 2, {1, 1}), 1'000'000u);
  EXPECT_EQ(LayerWeightBytes(model, 2, {1, 2}), 100'000u + 450'000u);
  // One of 4 heads and two of 12 groups: 256 x 32 x 24 and 3 x 256 x 768 weights lie in the ratio
  // of 1 to 3.
  EXPECT_EQ(LayerWeightBytes(model, 2, {1, 7}), 100'000u + 225'000u / 4 + 675'000u / 6)
      << "a share is rounded up to whole heads and groups";
  const MemoryModel memory(model, {1024, 1});
  EXPECT_EQ(memory.Need(ComputeKind::kGpu, 1, 4, false, false).weights_bytes(), 1'900'000u);
}

TEST(MemoryModel, KeysAndValuesByHand) {
  // 2 x 4 heads x 32 x 2 bytes x 1024 positions.
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1024, 1}, ComputeKind::kGpu), 524'288u);
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 4}, {1024, 1}, ComputeKind::kGpu), 131'072u);
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1024, 3}, ComputeKind::kGpu), 3 * 524'288u);
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1024, 1}, ComputeKind::kCpu), 524'288u)
      << "a CPU keeps them in 16 bits as well";
  EXPECT_EQ(LayerKvBytes(SmallModel(), 0, {1, 1}, {1, 1}, ComputeKind::kGpu), 16'384u)
      << "a block has 32 positions";
  v1::ModelDescription exact = SmallModel();
  exact.set_dtype("float32");
  EXPECT_EQ(LayerKvBytes(exact, 0, {1, 1}, {1024, 1}, ComputeKind::kCpu), 2 * 524'288u);
  v1::ModelDescription narrow = SmallModel();
  narrow.set_head_dim(24);
  EXPECT_EQ(LayerKvBytes(narrow, 0, {1, 1}, {1024, 1}, ComputeKind::kCpu), 4u * 56 * 2 * 1024)
      << "CPU kernels pad a value to 32 numbers";
}

// Both are narrower than the widest buffer (all heads together), so that only rows of hidden states
// differ.
TEST(MemoryModel, ScratchGrowsWithTheHiddenStatesThatAStepHolds) {
  v1::ModelDescription model = SmallModel();
  model.set_head_dim(256);
  const ServingLoad load{1024, 1};
  const uint64_t rows = StepTokensMax(load);
  const auto scratch = [&](uint32_t hidden, ComputeKind kind) {
    model.set_hidden_size(hidden);
    return ActivationBytes(model, {}, load, kind, false);
  };
  // Four of them in a layer; on a CPU as many on their way from and to other ranks.
  EXPECT_EQ(scratch(512, ComputeKind::kGpu) - scratch(256, ComputeKind::kGpu), 4 * 256 * 2 * rows);
  EXPECT_EQ(scratch(512, ComputeKind::kCpu) - scratch(256, ComputeKind::kCpu), 8 * 256 * 4 * rows);
  // Four buffers of streams, in float32.
  for (const ComputeKind kind : {ComputeKind::kGpu, ComputeKind::kCpu}) {
    model.set_residual_streams(1);
    const uint64_t one = scratch(256, kind);
    model.set_residual_streams(4);
    EXPECT_EQ(scratch(256, kind) - one, 4 * 4 * 256 * 4 * rows);
  }
}

// An indexer's keys stay whole while keys and values are divided.
TEST(MemoryModel, IndexKeysAreKeptByEveryRankThatHasHeads) {
  v1::ModelDescription model = SmallModel();
  const auto bytes = [&](Slice slice) {
    return LayerKvBytes(model, 0, slice, {1024, 1}, ComputeKind::kGpu);
  };
  const uint64_t whole = bytes({}), quarter = bytes({1, 4});
  model.set_kv_index_width(32);
  EXPECT_EQ(bytes({}), whole + 32 * 2 * 1024);
  EXPECT_EQ(bytes({1, 4}), quarter + 32 * 2 * 1024);
}

// Layers that do not attend: a state for each sequence, and for each of those that are kept.
TEST(MemoryModel, StatesAreCountedForSequencesAndSnapshots) {
  v1::ModelDescription model = SmallModel();
  const uint32_t layers = model.layer_count();
  const auto need = [&](uint32_t sequences, uint32_t begin, uint32_t end) {
    return MemoryModel(model, {1024, sequences}, {1, 2})
        .Need(ComputeKind::kCpu, begin, end, false, false);
  };
  EXPECT_EQ(need(1, 0, layers).state_bytes(), 0u);
  EXPECT_EQ(StateSnapshots(model), 0u);
  const uint64_t full = need(1, 0, 1).kv_cache_bytes();
  model.set_fixed_state_bytes(1'000'000);
  model.add_attention_layers(1);
  EXPECT_EQ(StateSnapshots(model), kStateSnapshotsDefault);
  EXPECT_EQ(need(3, 0, 1).state_bytes(), (kAnsweredAtOnceMax + kStateSnapshotsDefault) * 500'000u)
      << "half of it, as of the heads";
  EXPECT_EQ(need(3, 0, 1).kv_cache_bytes(), 0u);
  EXPECT_EQ(need(1, 1, 2).state_bytes(), 0u);
  EXPECT_EQ(need(1, 1, 2).kv_cache_bytes(), full);
  const v1::MemoryNeed all = need(2, 0, layers);
  EXPECT_EQ(all.state_bytes(),
            (layers - 1) * (kAnsweredAtOnceMax + kStateSnapshotsDefault) * 500'000u);
  EXPECT_EQ(all.total_bytes(), all.weights_bytes() + all.kv_cache_bytes() + all.state_bytes() +
                                   all.activation_bytes() + all.runtime_bytes() +
                                   all.headroom_bytes());
}

// Gemma 4's smaller ones: the last layers read what two earlier ones keep, wherever they are.
TEST(MemoryModel, LayersThatReadOthersKeysKeepNone) {
  v1::ModelDescription model = SmallModel();
  const uint32_t layers = model.layer_count();
  const auto kv = [&](uint32_t begin, uint32_t end) {
    return MemoryModel(model, {1024, 1}).Need(ComputeKind::kCpu, begin, end, false, false);
  };
  const uint64_t one = kv(0, 1).kv_cache_bytes();
  EXPECT_EQ(FirstKvReader(model), layers) << "each keeps its own";
  for (uint32_t layer = 0; layer + 2 < layers; ++layer) model.add_attention_layers(layer);
  EXPECT_EQ(FirstKvReader(model), layers - 2);
  EXPECT_EQ(kv(0, layers - 2).kv_cache_bytes(), (layers - 2) * one);
  EXPECT_EQ(kv(layers - 1, layers).kv_cache_bytes(), kSharedKvKinds * one) << "copies";
  EXPECT_EQ(kv(0, layers).kv_cache_bytes(), (layers - 2 + kSharedKvKinds) * one);
  EXPECT_GT(kv(layers - 1, layers).total_bytes(),
            kv(layers - 1, layers).weights_bytes() + kSharedKvKinds * one);
  model.set_fixed_state_bytes(1000);
  EXPECT_EQ(FirstKvReader(model), layers) << "the others have a state of their own";
}

// Of Qwen3-Next's 16 key heads one of three ranks holds six, which is more than a third.
TEST(MemoryModel, AStateIsCutByWholeKeyHeads) {
  v1::ModelDescription model = SmallModel();
  model.set_fixed_state_bytes(1'600'000);
  model.add_attention_layers(1);
  const auto state = [&](Slice slice) {
    return MemoryModel(model, {1024, 1}, slice)
               .Need(ComputeKind::kCpu, 0, 1, false, false)
               .state_bytes() /
           (kAnsweredAtOnceMax + kStateSnapshotsDefault);
  };
  EXPECT_EQ(state({1, 1}), 1'600'000u);
  EXPECT_EQ(state({1, 3}), 600'000u);
  EXPECT_EQ(state({4, 12}), 600'000u);
  EXPECT_EQ(state({1, 4}), 400'000u);
  EXPECT_EQ(state({1, 12}), 200'000u);
}

TEST(MemoryModel, EightBitsHoldNearlyTwiceThePositions) {
  const auto bytes = [](uint32_t context, uint32_t sequences, uint32_t kv_bits, ComputeKind kind) {
    ServingLoad load{context, sequences};
    load.kv_bits = kv_bits;
    return LayerKvBytes(SmallModel(), 0, {1, 1}, load, kind);
  };
  // 4 heads x 2 x (32 integers and a scale of 2 bytes) x 1024 positions.
  EXPECT_EQ(bytes(1024, 1, 8, ComputeKind::kCpu), 4u * 2 * 34 * 1024);
  EXPECT_LE(bytes(1920, 1, 8, ComputeKind::kCpu), bytes(1024, 1, 0, ComputeKind::kCpu));
  EXPECT_LE(bytes(1024, 15, 8, ComputeKind::kCpu), bytes(1024, 8, 0, ComputeKind::kCpu));
  // 32 integers, a scale and a bias.
  EXPECT_EQ(bytes(1024, 1, 8, ComputeKind::kGpu), 4u * 2 * 36 * 1024);
  EXPECT_EQ(bytes(1024, 1, 4, ComputeKind::kGpu), 4u * 2 * 20 * 1024);
  EXPECT_EQ(bytes(1024, 1, 2, ComputeKind::kGpu), bytes(128, 1, 0, ComputeKind::kGpu))
      << "what a described engine adds is not known";
  v1::ModelDescription odd = SmallModel();
  odd.set_head_dim(80);
  EXPECT_EQ(KvPositionBytes(odd, {1, 1}, 8, ComputeKind::kCpu), 4 * 2 * (80 + 3 * 2));
  EXPECT_EQ(KvPositionBytes(odd, {1, 1}, 8, ComputeKind::kGpu), 4 * 2 * 2 * 80) << "no group fits";
  odd.set_head_dim(128);
  EXPECT_EQ(KvPositionBytes(odd, {1, 1}, 8, ComputeKind::kGpu), 4 * 2 * (128 + 2 * 4));
  v1::ModelDescription latent = SmallModel();
  latent.set_kv_latent_width(576);
  EXPECT_EQ(KvPositionBytes(latent, {1, 1}, 8, ComputeKind::kGpu), 576 + 9 * 4);
}

// A prompt's rows on a GPU attend to a layer's narrow keys and values unpacked.
TEST(MemoryModel, WhatAGpuUnpacksOfNarrowKeysIsCounted) {
  const auto bytes = [](uint32_t context, uint32_t kv_bits, ComputeKind kind) {
    ServingLoad load{context, 1};
    load.kv_bits = kv_bits;
    return ActivationBytes(SmallModel(), {1, 1}, load, kind, false);
  };
  EXPECT_EQ(bytes(8192, 8, ComputeKind::kGpu) - bytes(8192, 0, ComputeKind::kGpu),
            2u * 4 * 2 * (32 * 2 + 36) * 8192);
  EXPECT_EQ(bytes(8192, 8, ComputeKind::kCpu), bytes(8192, 0, ComputeKind::kCpu));
}

TEST(MemoryModel, ASlidingWindowBoundsTheCache) {
  v1::ModelDescription model = SmallModel();
  model.set_sliding_window(256);
  const uint64_t windowed = LayerKvBytes(model, 0, {1, 1}, {1024, 1}, ComputeKind::kGpu);
  EXPECT_EQ(windowed, 262'144u) << "the window and one chunk";
  EXPECT_EQ(LayerKvBytes(model, 0, {1, 1}, {100'000, 1}, ComputeKind::kGpu), windowed);
}

// float32 throughout, and no scores of every head, position and position attended to.
TEST(MemoryModel, WhatACpuComputesWithHardlyGrowsWithTheContext) {
  const v1::ModelDescription model = SmallModel();
  const auto bytes = [&](uint32_t context, bool logits) {
    return ActivationBytes(model, {1, 1}, {context, 1}, ComputeKind::kCpu, logits);
  };
  // 64 rows of 32 + 16 sums for each of 512 positions, 51 tiles of each of 4 heads: 2.5 MB.
  EXPECT_LE(bytes(4096, false) - bytes(3584, false), 3'000'000u);
  EXPECT_LE(bytes(1'000'000, false), bytes(4096, false) + kAttentionSumsBytesMax);
  EXPECT_EQ(bytes(1024, true) - bytes(1024, false), (16u * 2 * 4 + 16) * 2048)
      << "logits of 16 answers, and what is sampled from";
  EXPECT_EQ(StepTokensMax({4096, 1}), 256u + 16u);
  EXPECT_EQ(StepTokensMax({40, 2}), 128u) << "no more than there is room for";
}

TEST(MemoryModel, ATiedHeadCostsOnlyWhereTheEmbeddingIsNot) {
  const v1::ModelDescription model = SmallModel();
  EXPECT_EQ(HeadBytes(model, true), model.final_norm_bytes());
  EXPECT_EQ(HeadBytes(model, false), model.embedding_bytes() + model.final_norm_bytes());
}

TEST(MemoryModel, HeadsAndGroupsAreNotCut) {
  v1::ModelDescription model = SmallModel();
  EXPECT_EQ(CutOf(model, {1, 3}).kv_heads, 2u) << "of 4 one rank of three gets two";
  EXPECT_EQ(CutOf(model, {1, 3}).inner, 256u);
  EXPECT_EQ(CutOf(model, {1, 8}).kv_heads, 1u);
  EXPECT_EQ(CutOf(model, {1, 8}).inner, 128u) << "two groups of 12";
  EXPECT_EQ(LayerKvBytes(model, 0, {1, 3}, {1024, 1}, ComputeKind::kGpu), 524'288u / 2);
  model.mutable_quantization()->set_group_size(128);
  EXPECT_EQ(CutOf(model, {1, 4}).kv_heads, 2u) << "two heads of 2 x 32 columns fill a group";
  EXPECT_TRUE(CutOf(model, {1, 2}).even);
  EXPECT_FALSE(CutOf(model, {1, 4}).even);
}

TEST(MemoryModel, EmbeddingAndHeadAreCutByRows) {
  const v1::ModelDescription model = SmallModel();
  EXPECT_EQ(EmbeddingBytes(model, {1, 4}), model.embedding_bytes() / 4);
  EXPECT_EQ(HeadBytes(model, false, {1, 4}),
            model.embedding_bytes() / 4 + model.final_norm_bytes());
  const MemoryModel cut(model, {1024, 1}, {1, 2}, {1, 2}), whole(model, {1024, 1}, {1, 2});
  EXPECT_EQ(cut.Need(ComputeKind::kCpu, 0, 6, true, true).embedding_bytes(),
            whole.Need(ComputeKind::kCpu, 0, 6, true, true).embedding_bytes() / 2);
}

TEST(MemoryModel, TotalIsTheSumOfTheItems) {
  const MemoryModel memory(SmallModel(), {1024, 2}, {1, 2});
  const v1::MemoryNeed need = memory.Need(ComputeKind::kCpu, 0, 6, true, true);
  EXPECT_EQ(need.total_bytes(), need.weights_bytes() + need.embedding_bytes() + need.head_bytes() +
                                    need.kv_cache_bytes() + need.activation_bytes() +
                                    need.runtime_bytes() + need.headroom_bytes());
  EXPECT_GE(need.headroom_bytes(), kHeadroomBytesMin);
  EXPECT_EQ(need.runtime_bytes(), kRuntimeBytes);
}

TEST(MemoryModel, FiguresThatOverflowStayHuge) {
  v1::ModelDescription model = SmallModel();
  model.set_head_dim(0xffffff);
  model.set_kv_heads(0xffffff);
  const MemoryModel memory(model, {0xffffffff, 4096});
  EXPECT_EQ(memory.NeedBytes(ComputeKind::kCpu, 0, 6, true, true), kBytesMax);
}

}  // namespace
}  // namespace macrame::planner
