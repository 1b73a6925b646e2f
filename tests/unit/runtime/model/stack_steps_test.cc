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
  const EngineDevice device =
      std::is_same_v<Stack, Decoder> ? EngineDevice::kMlxCpu : EngineDevice::kCpu;
  WeightLoader loader(model.files, model.config, place, device, [](uint64_t) {});
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

  // Which blocks a sequence has changes no bit.
  template <typename Stack>
  void ExpectBlocksMayBeAnywhere() {
    const auto ordered = LoadAs<Stack>(model_), scattered = LoadAs<Stack>(model_);
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

  const Model model_;
};

TEST_P(StackStepsTest, RefusedStepsLeaveNothing) {
  ExpectRefusedStepsLeaveNothing<CpuModel>();
  ExpectRefusedStepsLeaveNothing<Decoder>();
}

TEST_P(StackStepsTest, ASlotThatIsNotOpenMayBeClosed) {
  const auto expect = [&]<typename Stack>() {
    const auto stack = LoadAs<Stack>(model_);
    EXPECT_TRUE(stack->Begin({{0, 1}, {}}).ok());
    EXPECT_TRUE(stack->Begin({{1}, {Part(0, 0, 20, 1, 0, 0)}}).ok());
  };
  expect.template operator()<CpuModel>();
  expect.template operator()<Decoder>();
}

TEST_P(StackStepsTest, HiddenStatesAreThoseBeforeTheHead) {
  ExpectHiddenIsBeforeTheHead<CpuModel>();
  ExpectHiddenIsBeforeTheHead<Decoder>();
}

TEST_P(StackStepsTest, BlocksMayBeAnywhere) {
  ExpectBlocksMayBeAnywhere<CpuModel>();
  ExpectBlocksMayBeAnywhere<Decoder>();
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

}  // namespace
}  // namespace macrame::runtime::engine
