// Steps of whole stacks of every family, on kernels and in MLX's graph: what a refused one leaves
// as it was, hidden states behind the final norm, and keys and values in blocks anywhere.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "runtime/model/mlx/kv_blocks.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/sequence_runs.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

const LayerStackOptions kOptions{.blocks_total = 16, .context_length = 256, .sequences_max = 2};

template <typename Stack>
std::unique_ptr<Stack> LoadAs(const Model& model) {
  static NoRankSums alone;
  const ShardPlace place{0, model.config.layer_count};
  WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
  return std::make_unique<Stack>(model.config, place, loader, alone, kOptions);
}

std::vector<float> FloatsOf(mx::array given) {
  given = mx::contiguous(mx::astype(given, mx::float32));
  given.eval();
  return {given.data<float>(), given.data<float>() + given.size()};
}

// The last position's logits.
Logits LastOf(LayerStack& stack, const Segment& segment) {
  const ForwardStep step{{}, {segment}};
  const absl::Status begun = stack.Begin(step);
  EXPECT_TRUE(begun.ok()) << begun;
  const mx::array states = stack.Run(stack.Embed(segment.tokens), step);
  const std::vector<int32_t> rows = {static_cast<int32_t>(segment.tokens.size()) - 1};
  return FloatsOf(stack.Logits(states, rows));
}

class StackStepsTest : public ::testing::TestWithParam<std::string> {
 protected:
  StackStepsTest()
      : model_(GetParam() == "deepseek_v41" ? ModelOfConfig(CompressedConfig())
                                            : FamilyModel({GetParam()})) {}

  template <typename Stack>
  void ExpectRefusedStepsLeaveNothing() {
    const auto undisturbed = LoadAs<Stack>(model_), disturbed = LoadAs<Stack>(model_);
    const std::function<void(ForwardStep&)> faults[] = {
        [](ForwardStep& step) { step.segments[0].tokens.back() = 101; },
        [](ForwardStep& step) { step.segments[0].tokens.clear(); },
        [](ForwardStep& step) { step.segments[0].new_blocks[0] = 16; },
        [](ForwardStep& step) { step.segments[0].new_blocks.clear(); },
        [](ForwardStep& step) { step.segments[0].begin = 4'000'000'000; },
        [](ForwardStep& step) { step.segments.push_back(step.segments[0]); },
        [](ForwardStep& step) { step.closed_slots = {0}; },
        // Another sequence before a bad one.
        [](ForwardStep& step) {
          step.segments.insert(step.segments.begin(), Part(1, 0, 40, 3, 8, 0));
          step.segments[1].tokens[0] = -1;
        },
        [](ForwardStep& step) { step.segments[0].tokens.resize(300, 1); },
    };
    for (const int end : {30, 70, 101}) {
      const int begin = end == 30 ? 0 : end == 70 ? 30 : 70;
      const Segment good = Part(0, begin, end, 1, 0, BlocksFor(begin));
      for (const auto& fault : faults) {
        ForwardStep step{{}, {good}};
        if (begin == 0 && &fault == &faults[6]) continue;  // there is nothing to close
        fault(step);
        EXPECT_TRUE(absl::IsInternal(disturbed->Begin(step))) << &fault - faults;
      }
      EXPECT_EQ(LastOf(*disturbed, good), LastOf(*undisturbed, good)) << "up to " << end;
    }
  }

  // Hidden states are of the row asked for, normed: the head gives their logits.
  template <typename Stack>
  void ExpectHiddenIsBeforeTheHead() {
    const auto stack = LoadAs<Stack>(model_);
    const Segment segment = Part(0, 0, 20, 1, 0, 0);
    const ForwardStep step{{}, {segment}};
    ASSERT_TRUE(stack->Begin(step).ok());
    const mx::array states = stack->Run(stack->Embed(segment.tokens), step);
    const std::vector<int32_t> rows = {19, 0, 7};
    const Logits hidden = FloatsOf(stack->Hidden(states, rows));
    const Logits logits = FloatsOf(stack->Logits(states, rows));
    const ModelConfig& config = model_.config;
    const auto width = static_cast<size_t>(config.hidden_size);
    ASSERT_EQ(hidden.size(), rows.size() * width);
    const std::string head = config.tied_embeddings ? "model.embed_tokens" : "lm_head";
    const StoredTensor& stored = *model_.files->Find(head + ".weight");
    Logits weight(stored.bytes / 4);
    std::memcpy(weight.data(), stored.data, stored.bytes);
    for (size_t i = 0; i < logits.size(); ++i) {
      const float* row = hidden.data() + i / 101 * width;
      double sum = 0;
      for (size_t j = 0; j < width; ++j) sum += double{row[j]} * weight[i % 101 * width + j];
      sum *= config.logit_scale;
      if (config.logit_cap > 0) sum = config.logit_cap * std::tanh(sum / config.logit_cap);
      ASSERT_NEAR(logits[i], sum, 1e-4 * (1 + std::fabs(sum))) << i;
    }
    EXPECT_EQ(FloatsOf(stack->Hidden(states, std::vector<int32_t>{0})),
              Logits(hidden.begin() + static_cast<ptrdiff_t>(width),
                     hidden.begin() + static_cast<ptrdiff_t>(2 * width)));
  }

  const Model model_;
};

TEST_P(StackStepsTest, RefusedStepsLeaveNothing) {
  ExpectRefusedStepsLeaveNothing<CpuModel>();
  if (!model_.config.has_streams()) ExpectRefusedStepsLeaveNothing<Decoder>();
}

TEST_P(StackStepsTest, HiddenStatesAreThoseBeforeTheHead) {
  ExpectHiddenIsBeforeTheHead<CpuModel>();
  if (!model_.config.has_streams()) ExpectHiddenIsBeforeTheHead<Decoder>();
}

// Which blocks a sequence has changes no bit.
TEST_P(StackStepsTest, BlocksMayBeAnywhere) {
  const auto ordered = LoadAs<CpuModel>(model_), scattered = LoadAs<CpuModel>(model_);
  const std::vector<int32_t> places = {15, 3, 9, 0};
  int begin = 0;
  for (const int end : {33, 64, 101}) {
    const Segment segment = Part(0, begin, end, 1, 0, BlocksFor(begin));
    Segment moved = segment;
    for (int32_t& block : moved.new_blocks) block = places[static_cast<size_t>(block)];
    EXPECT_EQ(LastOf(*scattered, moved), LastOf(*ordered, segment)) << end;
    begin = end;
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, StackStepsTest,
                         ::testing::Values("olmo2", "gemma3", "gemma4", "qwen3_next", "nemotron_h",
                                           "minimax_m3_vl", "granite", "minicpm", "deepseek_v41"),
                         NameOf);

// Keys and values of random sequences in a pool, against lists of them.
class MlxPoolTest : public ::testing::Test {
 protected:
  static constexpr int kBlocks = 12, kHeads = 2, kWidth = 4, kLayers = 2;
  MlxPoolTest() { mx::set_default_device(mx::Device::cpu); }

  using Position = std::vector<float>;  // of all heads
  struct Sequence {
    std::vector<int32_t> table;
    std::vector<Position> positions;
  };

  std::vector<Position> Fresh(int count) {
    std::vector<Position> fresh(static_cast<size_t>(count), Position(kHeads * kWidth));
    for (Position& position : fresh) {
      for (float& number : position) number = next_ += 1.0F;
    }
    return fresh;
  }
  // [1, heads, count, width]
  static mx::array ArrayOf(const std::vector<Position>& positions, float offset) {
    const int count = static_cast<int>(positions.size());
    std::vector<float> numbers;
    for (int head = 0; head < kHeads; ++head) {
      for (const Position& position : positions) {
        for (int i = 0; i < kWidth; ++i) {
          numbers.push_back(offset + position[static_cast<size_t>(head * kWidth + i)]);
        }
      }
    }
    return mx::array(numbers.data(), {1, kHeads, count, kWidth});
  }

  std::mt19937 random_{4};
  float next_ = 0;
};

TEST_F(MlxPoolTest, EachSequenceSeesItsOwnPositions) {
  MlxKvBlocks blocks(kLayers, kBlocks);
  std::vector<Sequence> sequences = {{{7, 2, 11, 4}, {}}, {{0, 9, 5}, {}}, {{1, 3, 10, 6, 8}, {}}};
  const auto pick = [&](int lowest, int highest) {
    return std::uniform_int_distribution<int>(lowest, highest)(random_);
  };
  for (int step = 0; step < 60; ++step) {
    Sequence& own = sequences[static_cast<size_t>(pick(0, 2))];
    const int held = static_cast<int>(own.positions.size());
    const int begin = held - pick(0, std::min(held, 6));  // over drafts that were wrong
    const int room = static_cast<int>(own.table.size()) * 32 - begin;
    if (room == 0) {
      own.positions.clear();
      continue;
    }
    const std::vector<Position> fresh = Fresh(pick(1, std::min(room, 40)));
    own.positions.resize(static_cast<size_t>(begin));
    own.positions.insert(own.positions.end(), fresh.begin(), fresh.end());
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto of_layer = static_cast<float>(layer) * 0.25F;
      const auto seen = blocks.Append(layer, own.table, begin, ArrayOf(fresh, of_layer),
                                      ArrayOf(fresh, of_layer + 0.5F));
      ASSERT_EQ(FloatsOf(seen.keys), FloatsOf(ArrayOf(own.positions, of_layer))) << step;
      ASSERT_EQ(FloatsOf(seen.values), FloatsOf(ArrayOf(own.positions, of_layer + 0.5F))) << step;
    }
  }
}

// Of a latent cache: keys alone, with an indexer's beside them of a width of their own.
TEST_F(MlxPoolTest, KeysAloneAndAnIndexersBesideThem) {
  MlxKvBlocks blocks(1, kBlocks);
  const std::vector<int32_t> table = {5, 1};
  const mx::array index = mx::reshape(mx::arange(0.0, 40.0, 1.0, mx::float32), {1, 1, 40, 1});
  const std::vector<Position> keys = Fresh(40);
  EXPECT_EQ(FloatsOf(blocks.AppendKeys(0, table, 0, ArrayOf(keys, 0))), FloatsOf(ArrayOf(keys, 0)));
  EXPECT_EQ(FloatsOf(blocks.AppendIndex(0, table, 0, index)), FloatsOf(index));
  EXPECT_EQ(blocks.block_bytes(), (kHeads * kWidth + 1) * 32 * sizeof(float));
  std::vector<mx::array> pools;
  blocks.AppendPools(pools);
  EXPECT_EQ(pools.size(), 2u);
  std::vector<std::byte> bytes(blocks.block_bytes());
  blocks.Read(5, bytes);
  blocks.Write(8, bytes);
  const std::vector<int32_t> moved = {8, 1};
  const mx::array one = mx::zeros({1, 1, 1, 1}, mx::float32);
  std::vector<float> expected = FloatsOf(index);
  expected.push_back(0.0F);
  EXPECT_EQ(FloatsOf(blocks.AppendIndex(0, moved, 40, one)), expected);
}

}  // namespace
}  // namespace macrame::runtime::engine
