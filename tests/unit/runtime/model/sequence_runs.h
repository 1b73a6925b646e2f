#pragma once

// Sequences of a model, in steps of any shape, by our CPU kernels or MLX's graph, and all
// positions' logits. Vocabularies are of 101 tokens.

#include <gtest/gtest.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {

using Logits = std::vector<float>;

template <typename Stack = CpuModel>
std::unique_ptr<Stack> Load(const Model& model, int begin, int end) {
  static NoRankSums alone;
  ShardPlace place{begin, end};
  place.embeds = begin == 0;
  place.has_head = end == model.config.layer_count;
  EXPECT_TRUE(CheckWeights(model.config, place, *model.files).ok());
  const EngineDevice device =
      std::is_same_v<Stack, Decoder> ? EngineDevice::kMlxCpu : EngineDevice::kCpu;
  WeightLoader loader(model.files, model.config, place, device, [](uint64_t) {});
  const LayerStackOptions options{.blocks_total = 16, .context_length = 256};
  return std::make_unique<Stack>(model.config, place, loader, alone, options);
}

// Positions [begin, end) of the sequence `seed`, which has its blocks from `first_block` on.
inline Segment Part(uint32_t slot, int begin, int end, int seed, int first_block,
                    int blocks_before) {
  Segment segment;
  segment.slot = slot;
  segment.begin = static_cast<uint32_t>(begin);
  for (int i = begin; i < end; ++i)
    segment.tokens.push_back((i * i * 7 + i * 13 + seed * 31) % 101);
  for (int i = blocks_before; i < BlocksFor(end); ++i)
    segment.new_blocks.push_back(first_block + i);
  return segment;
}

inline Logits Compute(const std::vector<LayerStack*>& stages, const ForwardStep& step) {
  std::vector<int32_t> tokens, rows;
  for (const Segment& segment : step.segments) {
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
  }
  for (size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<int32_t>(i));
  for (LayerStack* stage : stages) {
    const absl::Status begun = stage->Begin(step);
    EXPECT_TRUE(begun.ok()) << begun.ToString();
  }
  mx::array states = stages.front()->Embed(tokens);
  for (LayerStack* stage : stages) states = stage->Run(states, step);
  mx::array logits = mx::contiguous(stages.back()->Logits(states, rows));
  std::vector<mx::array> outputs{logits};
  for (const LayerStack* stage : stages) stage->AppendState(outputs);
  mx::eval(outputs);
  return {logits.data<float>(), logits.data<float>() + logits.size()};
}

// The sequence alone, cut at these positions.
inline Logits InParts(const std::vector<LayerStack*>& stages, const std::vector<int>& ends,
                      int seed) {
  Logits all;
  int begin = 0;
  for (const int end : ends) {
    const Logits part = Compute(stages, {{}, {Part(0, begin, end, seed, 0, BlocksFor(begin))}});
    all.insert(all.end(), part.begin(), part.end());
    begin = end;
  }
  return all;
}

inline Logits Rows(const Logits& logits, int begin, int end) {
  return {logits.begin() + begin * 101, logits.begin() + end * 101};
}

}  // namespace macrame::runtime::engine
