// Models whose layers keep a state, as MLX graphs on MLX's CPU device: against the CPU's kernels,
// however prompts are cut and whoever runs beside; and what their graphs consist of.

#include "runtime/model/mlx/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/model/mlx/recurrent_states.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/graph_nodes.h"
#include "tests/unit/runtime/model/sequence_runs.h"

namespace macrame::runtime::engine {
namespace {

constexpr int kStreams = 8;

class MlxRecurrentTest : public ::testing::TestWithParam<std::pair<const char*, int>> {
 protected:
  MlxRecurrentTest()
      : model_(FamilyModel({GetParam().first, GetParam().second})),
        decoder_(LoadAs<Decoder>(EngineDevice::kMlxCpu)) {
    mx::set_default_device(mx::Device::cpu);
  }

  template <typename Stack>
  std::unique_ptr<Stack> LoadAs(EngineDevice device) {
    static NoRankSums alone;
    const ShardPlace place{0, model_.config.layer_count};
    WeightLoader loader(model_.files, model_.config, place, device, [](uint64_t) {});
    const LayerStackOptions options{.blocks_total = 8 * kStreams,
                                    .context_length = 256,
                                    .sequences_max = kStreams,
                                    .state_snapshots = 2};
    return std::make_unique<Stack>(model_.config, place, loader, alone, options);
  }
  // The sequence `slot`'s positions, which has blocks of its own.
  static Segment Next(int slot, int begin, int end) {
    return Part(static_cast<uint32_t>(slot), begin, end, slot + 1, 8 * slot, BlocksFor(begin));
  }
  // The step's graph: logits of all its tokens, then what is kept.
  static std::vector<mx::array> Graph(LayerStack& stack, const ForwardStep& step) {
    const absl::Status begun = stack.Begin(step);
    EXPECT_TRUE(begun.ok()) << begun.ToString();
    std::vector<int32_t> tokens, rows;
    for (const Segment& segment : step.segments) {
      tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
    }
    for (size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<int32_t>(i));
    std::vector<mx::array> out{stack.Logits(stack.Run(stack.Embed(tokens), step), rows)};
    stack.AppendState(out);
    return out;
  }
  static Logits Run(LayerStack& stack, const ForwardStep& step) {
    std::vector<mx::array> out = Graph(stack, step);
    mx::eval(out);
    return {out[0].data<float>(), out[0].data<float>() + out[0].size()};
  }
  // The sequence by the CPU's kernels.
  Logits Expected(int slot, int end) {
    const auto stack = LoadAs<CpuModel>(EngineDevice::kCpu);
    return Run(*stack, {{}, {Next(slot, 0, end)}});
  }
  void ExpectNear(const Logits& ours, const Logits& expected) const {
    ASSERT_EQ(ours.size(), expected.size());
    float largest = 0;
    for (const float logit : expected) largest = std::max(largest, std::fabs(logit));
    // Kernels round what they multiply with packed weights, MLX does not.
    const double bound = GetParam().second == 0 ? 2e-5 : 1e-3;
    for (size_t i = 0; i < ours.size(); ++i) {
      ASSERT_NEAR(ours[i], expected[i], bound * largest) << "row " << i / 101;
    }
  }

  const Model model_;
  const std::unique_ptr<Decoder> decoder_;
};

TEST_P(MlxRecurrentTest, PromptsMayBeCutAnywhere) {
  const Logits expected = Expected(0, 200);
  for (const std::vector<int>& ends :
       {std::vector<int>{200}, {64, 128, 200}, {1, 2, 3, 100, 101, 199, 200}, {190, 200}}) {
    Logits given;
    int begin = 0;
    for (const int end : ends) {
      const Logits part = Run(*decoder_, {{}, {Next(0, begin, end)}});
      given.insert(given.end(), part.begin(), part.end());
      begin = end;
    }
    ExpectNear(given, expected);
    EXPECT_TRUE(decoder_->Begin({{0}, {}}).ok());
  }
}

// Eight sequences come one by one, decode together and leave one by one, with a prompt in between.
TEST_P(MlxRecurrentTest, StreamsJoinAndLeave) {
  std::vector<int> held(kStreams, 0);
  std::vector<Logits> given(kStreams);
  const auto run = [&](const std::vector<std::pair<int, int>>& counts,
                       const std::vector<uint32_t>& closed) {
    ForwardStep step{closed, {}};
    for (const auto& [slot, count] : counts) {
      int& at = held[static_cast<size_t>(slot)];
      step.segments.push_back(Next(slot, at, at + count));
      at += count;
    }
    const Logits logits = Run(*decoder_, step);
    int row = 0;
    for (const auto& [slot, count] : counts) {
      const Logits part = Rows(logits, row, row + count);
      Logits& all = given[static_cast<size_t>(slot)];
      all.insert(all.end(), part.begin(), part.end());
      row += count;
    }
  };
  std::vector<std::pair<int, int>> streams;
  for (int slot = 0; slot < kStreams; ++slot) {
    auto mixed = streams;
    mixed.insert(mixed.begin() + slot / 2, {slot, 3 + 5 * slot});  // a prompt between the others
    run(mixed, {});
    streams.push_back({slot, 1});
    run(streams, {});
  }
  run(streams, {});
  std::swap(streams[1], streams[6]);
  run(streams, {});
  run({streams[2], streams[5]}, {});
  while (streams.size() > 1) {
    const auto gone = static_cast<uint32_t>(streams[streams.size() / 2].first);
    streams.erase(streams.begin() + static_cast<ptrdiff_t>(streams.size() / 2));
    run(streams, {gone});
  }
  for (int slot = 0; slot < kStreams; ++slot) {
    SCOPED_TRACE(slot);
    ExpectNear(given[static_cast<size_t>(slot)], Expected(slot, held[static_cast<size_t>(slot)]));
  }
}

// Of a sequence that decodes beside others, whose arrays it shares.
TEST_P(MlxRecurrentTest, SnapshotsOfOneAmongOthers) {
  Run(*decoder_, {{}, {Next(0, 0, 31), Next(1, 0, 31), Next(2, 0, 31)}});
  Segment kept = Next(1, 31, 32);
  kept.state_to = 1;
  Run(*decoder_, {{}, {Next(0, 31, 32), kept, Next(2, 31, 32)}});
  Run(*decoder_, {{}, {Next(0, 32, 33), Next(1, 32, 33), Next(2, 32, 33)}});
  Segment again = Next(1, 32, 40);
  again.slot = 3;
  again.new_blocks = {8, 30};
  again.state_from = 1;
  const Logits expected = Expected(1, 40);
  ExpectNear(Run(*decoder_, {{1}, {again}}), Rows(expected, 32, 40));
}

// One layer by itself, as a GPU has it: elementwise functions are one primitive. Nothing is
// evaluated.
class MlxRecurrentLayerTest : public MlxRecurrentTest {
 protected:
  MlxRecurrentLayerTest() {
    int number = 0;
    while (!model_.config.IsRecurrent(number)) ++number;
    const ShardPlace place{0, model_.config.layer_count};
    WeightLoader loader(model_.files, model_.config, place, EngineDevice::kGpu, [](uint64_t) {});
    layer_.emplace(model_.config, place, *NeedsOfLayer(model_.config, place, number).recurrent,
                   loader);
    NodesOf({{1, 1}});  // what is made of the weights is made once
  }
  // Of runs of some sequences with some tokens each.
  size_t NodesOf(const std::vector<std::pair<int, int>>& counts) {
    std::vector<MlxRun> runs;
    int row = 0;
    for (const auto& [sequences, tokens] : counts) {
      const MlxState zero = layer_->ZeroState();
      runs.push_back(
          {row,
           sequences,
           tokens,
           {mx::repeat(zero.inputs, sequences, 0), mx::repeat(zero.matrices, sequences, 0)}});
      mx::eval({runs.back().state.inputs, runs.back().state.matrices});
      row += sequences * tokens;
    }
    mx::array x = mx::ones({row, model_.config.hidden_size});
    x.eval();
    std::vector<mx::array> out{layer_->Apply(x, runs)};
    for (const MlxRun& run : runs) {
      out.insert(out.end(), {run.state.inputs, run.state.matrices});
    }
    graphs_.push_back(out);
    return CountNodes(out, seen_).computing;
  }
  bool is_delta() const { return model_.config.recurrent.rule == RecurrenceRule::kGatedDelta; }

  std::optional<MlxRecurrent> layer_;
  std::unordered_set<std::uintptr_t> seen_;
  std::vector<std::vector<mx::array>> graphs_;  // kept, so that no address comes again
};

TEST_P(MlxRecurrentLayerTest, StreamsTogetherHaveThePrimitivesOfOne) {
  const size_t one = NodesOf({{1, 1}});
  EXPECT_EQ(NodesOf({{kStreams, 1}}), one);
  EXPECT_EQ(NodesOf({{kStreams, 3}}), NodesOf({{1, 3}}));
  // Of which a norm is six or seven here and one on a GPU: two of the delta rule, one of a space.
  EXPECT_LE(one, is_delta() ? 23u : 17u);
}

TEST_P(MlxRecurrentLayerTest, PromptsHaveFewMorePrimitivesThanShortOnes) {
  const size_t few = NodesOf({{1, 16}}), many = NodesOf({{1, 256}});
  EXPECT_EQ(many, few + (is_delta() ? 2 * 3 + 3 * 3 + 2 : 0)) << "levels of an inverse, and blocks";
  EXPECT_LE(many, is_delta() ? 64u : 29u);
  EXPECT_LE(NodesOf({{1, 256}, {kStreams, 1}}), many + NodesOf({{kStreams, 1}}) + 1);
}

// Sequences that run together again find their states as they left them.
TEST_P(MlxRecurrentLayerTest, StatesOfTheSameStreamsAreNotCopied) {
  const std::vector<const MlxRecurrent*> layers{&*layer_};
  SlotStates slots(3, 1);
  MlxStates states(3, 1);
  const auto begin = [&](const ForwardStep& step) {
    ASSERT_TRUE(slots.Check(step).ok());
    states.Close(step, slots);
    slots.Apply(step);
    states.Begin(step, slots, layers);
  };
  const auto end = [&] {
    std::vector<std::uintptr_t> left;
    for (MlxRun& run : states.Runs(0)) {
      run.state.matrices = mx::add(run.state.matrices, mx::array(1.0F));
      left.push_back(run.state.matrices.id());
    }
    states.End(slots);
    return left;
  };
  begin({{}, {Next(0, 0, 4), Next(1, 0, 4), Next(2, 0, 4)}});
  ASSERT_EQ(states.Runs(0).size(), 1u);
  EXPECT_EQ(states.Runs(0)[0].sequences, 3);
  const auto left = end();
  begin({{}, {Next(0, 4, 5), Next(1, 4, 5), Next(2, 4, 5)}});
  EXPECT_EQ(states.Runs(0)[0].state.matrices.id(), left[0]);
  end();
  begin({{1}, {Next(0, 5, 6), Next(2, 5, 7)}});
  ASSERT_EQ(states.Runs(0).size(), 2u) << "tokens differ";
  EXPECT_EQ(states.Runs(0)[1].row, 1);
  EXPECT_EQ(states.Runs(0)[1].state.matrices.shape(0), 1);
  end();
  std::vector<mx::array> kept;
  states.Append(kept);
  EXPECT_EQ(kept.size(), 4u) << "of two sequences, nothing of the one that has gone";
  mx::eval(kept);
  for (size_t i = 1; i < kept.size(); i += 2) EXPECT_EQ(mx::max(kept[i]).item<float>(), 3.0F);
}

std::string NameOf(const ::testing::TestParamInfo<std::pair<const char*, int>>& info) {
  std::string name = info.param.first + std::string(info.param.second == 0 ? "" : "Quantised");
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
const auto kFamilies = ::testing::Values(
    std::pair{"qwen3_next", 0}, std::pair{"qwen3_next", 4}, std::pair{"qwen3_5", 0},
    std::pair{"qwen3_5", 4}, std::pair{"nemotron_h", 0}, std::pair{"nemotron_h experts", 4});
INSTANTIATE_TEST_SUITE_P(Families, MlxRecurrentTest, kFamilies, NameOf);
INSTANTIATE_TEST_SUITE_P(Families, MlxRecurrentLayerTest, kFamilies, NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
