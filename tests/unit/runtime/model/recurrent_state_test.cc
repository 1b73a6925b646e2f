// What layers with a state keep: sequences side by side, snapshots, and steps that contradict them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/model/cpu/cpu_model.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/mlx/decoder.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kWords = 101;

std::vector<int32_t> Text(size_t count, int seed) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = (static_cast<int>(i * i) * 7 + static_cast<int>(i) * 13 + seed * 31) % kWords;
  }
  return tokens;
}

class RecurrentStateTest : public ::testing::TestWithParam<std::string> {
 protected:
  template <typename Stack>
  std::unique_ptr<Stack> Load(int threads = 1, int sequences_max = 3) {
    const ShardPlace place{0, model_.config.layer_count};
    EXPECT_TRUE(CheckWeights(model_.config, place, *model_.files).ok());
    WeightLoader loader(model_.files, model_.config, place, EngineDevice::kCpu, [](uint64_t) {});
    const LayerStackOptions options{.blocks_total = 16,
                                    .context_length = 256,
                                    .threads = threads,
                                    .sequences_max = sequences_max,
                                    .state_snapshots = 2};
    return std::make_unique<Stack>(model_.config, place, loader, alone_, options);
  }
  // Logits of all of the step's tokens.
  static std::vector<float> Run(LayerStack& stack, const ForwardStep& step) {
    const absl::Status good = stack.Begin(step);
    EXPECT_TRUE(good.ok()) << good.ToString();
    std::vector<int32_t> tokens;
    for (const Segment& segment : step.segments) {
      tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
    }
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<mx::array> out{stack.Logits(stack.Run(stack.Embed(tokens), step), rows)};
    stack.AppendState(out);
    mx::eval(out);
    return {out[0].data<float>(), out[0].data<float>() + out[0].size()};
  }
  static std::vector<float> Last(const std::vector<float>& logits, size_t rows) {
    return {logits.end() - static_cast<ptrdiff_t>(rows * kWords), logits.end()};
  }
  static std::string Refusal(LayerStack& stack, const ForwardStep& step) {
    const absl::Status status = stack.Begin(step);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    return std::string(status.message());
  }

  const Model model_{FamilyModel({GetParam(), 4})};
  NoRankSums alone_;
};

// Two sequences in one step, prompts in chunks of any length, more threads: the same bits.
TEST_P(RecurrentStateTest, BitsDoNotDependOnTheRestOfTheStep) {
  const auto first = Text(40, 1), second = Text(9, 2);
  const auto alone = Load<CpuModel>();
  const auto whole = Run(*alone, {{}, {{.slot = 0, .tokens = first, .new_blocks = {0, 1}}}});
  const auto other = Run(*alone, {{}, {{.slot = 1, .tokens = second, .new_blocks = {2}}}});
  const auto together = Load<CpuModel>(/*threads=*/3);
  std::vector<float> ours, theirs;
  size_t done = 0, theirs_done = 0;
  for (const size_t count : {17, 1, 2, 20}) {
    Segment own{.slot = 0, .begin = static_cast<uint32_t>(done)};
    own.tokens = {first.begin() + static_cast<ptrdiff_t>(done),
                  first.begin() + static_cast<ptrdiff_t>(done + count)};
    if (done == 0) own.new_blocks = {0};
    if (done == 20) own.new_blocks = {1};
    const size_t more = done == 0 ? 6 : 1;
    Segment guest{.slot = 1, .begin = static_cast<uint32_t>(theirs_done)};
    guest.tokens = {second.begin() + static_cast<ptrdiff_t>(theirs_done),
                    second.begin() + static_cast<ptrdiff_t>(theirs_done + more)};
    if (done == 0) guest.new_blocks = {2};
    const auto logits = Run(*together, {{}, {guest, own}});
    theirs.insert(theirs.end(), logits.begin(),
                  logits.begin() + static_cast<ptrdiff_t>(more * kWords));
    ours.insert(ours.end(), logits.begin() + static_cast<ptrdiff_t>(more * kWords), logits.end());
    done += count;
    theirs_done += more;
  }
  EXPECT_EQ(ours, whole);
  EXPECT_EQ(theirs, other);
}

template <typename Stack>
void ExpectSnapshotsGoOn(Stack& stack, const auto& run, double bound) {
  const auto prompt = Text(40, 1);
  const std::vector<int32_t> head(prompt.begin(), prompt.begin() + 32),
      tail(prompt.begin() + 32, prompt.end());
  run(stack, {{}, {{.slot = 0, .tokens = head, .new_blocks = {0}, .state_to = 1}}});
  const auto expected =
      run(stack, {{}, {{.slot = 0, .begin = 32, .tokens = tail, .new_blocks = {1}}}});
  // The slot goes; its place is taken by another sequence, then the prefix is taken up twice, the
  // second time while the snapshot is overwritten.
  run(stack, {{0}, {{.slot = 0, .tokens = Text(12, 3), .new_blocks = {2}}}});
  const Segment again{
      .slot = 5, .begin = 32, .tokens = tail, .new_blocks = {0, 3}, .state_from = 1};
  Segment last = again;
  last.slot = 6;
  last.new_blocks = {0, 4};
  last.state_to = 1;
  for (const Segment& segment : {again, last}) {
    const auto given = run(stack, {{}, {segment}});
    ASSERT_EQ(given.size(), expected.size());
    for (size_t i = 0; i < given.size(); ++i) ASSERT_NEAR(given[i], expected[i], bound) << i;
  }
  // It is behind token 40 now.
  const Segment stale{
      .slot = 5, .begin = 32, .tokens = tail, .new_blocks = {0, 3}, .state_from = 1};
  EXPECT_THAT(std::string(stack.Begin({{5}, {stale}}).message()),
              HasSubstr("begins at 32, its state stands at 40"));
}

TEST_P(RecurrentStateTest, SnapshotsGiveTheBitsOfTheSequenceThatMadeThem) {
  ExpectSnapshotsGoOn(*Load<CpuModel>(), Run, 0.0);
  ExpectSnapshotsGoOn(*Load<Decoder>(), Run, 0.0);
}

TEST_P(RecurrentStateTest, ContradictionsAreRefusedAndChangeNothing) {
  const auto stack = Load<CpuModel>(/*threads=*/1, /*sequences_max=*/1);
  const auto prompt = Text(8, 1);
  Run(*stack, {{}, {{.slot = 0, .tokens = prompt, .new_blocks = {0}}}});
  const std::vector<int32_t> next{5};
  EXPECT_THAT(Refusal(*stack, {{}, {{.slot = 0, .begin = 7, .tokens = next}}}),
              HasSubstr("slot 0 begins at 7, its state stands at 8"));
  EXPECT_THAT(Refusal(*stack, {{}, {{.slot = 0, .begin = 8, .tokens = next, .state_to = 2}}}),
              HasSubstr("names snapshot 2 of 2"));
  EXPECT_THAT(Refusal(*stack, {{}, {{.slot = 0, .begin = 8, .tokens = next, .state_from = 0}}}),
              HasSubstr("takes a state once more"));
  EXPECT_THAT(Refusal(*stack, {{}, {{.slot = 1, .tokens = next, .new_blocks = {1}}}}),
              HasSubstr("2 sequences; there are states for 1"));
  EXPECT_THAT(
      Refusal(*stack,
              {{0}, {{.slot = 1, .begin = 8, .tokens = next, .new_blocks = {0}, .state_from = 0}}}),
      HasSubstr("its state stands at nowhere"));
  const auto after = Run(*stack, {{}, {{.slot = 0, .begin = 8, .tokens = next}}});
  const auto fresh = Load<CpuModel>();
  auto whole = prompt;
  whole.push_back(5);
  EXPECT_EQ(after, Last(Run(*fresh, {{}, {{.slot = 0, .tokens = whole, .new_blocks = {0}}}}), 1));
}

// What a plan counts is what is there: for the sequences that are open and the snapshots kept.
TEST_P(RecurrentStateTest, StatesTakeWhatTheCutSays) {
  const ShardPlace place{0, model_.config.layer_count};
  const uint64_t each = RecurrentCutOf(model_.config, place.slices()).floats() * sizeof(float) *
                        static_cast<uint64_t>(RecurrentLayersOf(model_.config, place));
  const auto stack = Load<CpuModel>();
  const auto run = [&](const Segment& segment) {
    Run(*stack, {{}, {segment}});
    return stack->buffer_bytes();
  };
  const uint64_t one = run({.slot = 0, .tokens = Text(32, 1), .new_blocks = {0}});
  const uint64_t two = run({.slot = 1, .tokens = Text(4, 2), .new_blocks = {1}});
  EXPECT_EQ(two - one, each);
  EXPECT_EQ(run({.slot = 1, .begin = 4, .tokens = Text(4, 2), .state_to = 0}) - two, each);
  // Only layers that attend have KV blocks.
  const uint64_t block = stack->block_bytes();
  EXPECT_EQ(block, kernels::BlockBytes({static_cast<size_t>(model_.config.kv_heads),
                                        static_cast<size_t>(model_.config.head_dim),
                                        kernels::KvType::kFloat32}));
}

// The files as they were published: a convolution's weights the other way round, and norms less
// one.
std::map<std::string, std::string> Published(std::map<std::string, std::string> files) {
  std::string& bytes = files["model.safetensors"];
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  auto header = nlohmann::json::parse(bytes.substr(sizeof(size), size));
  std::string data = bytes.substr(sizeof(size) + size);
  const auto ends_with = [](const std::string& name, std::string_view end) {
    return name.size() >= end.size() &&
           name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  for (auto& [name, tensor] : header.items()) {
    if (ends_with(name, "conv1d.weight")) std::swap(tensor["shape"][1], tensor["shape"][2]);
    if (!ends_with(name, "norm.weight") || ends_with(name, "linear_attn.norm.weight")) continue;
    for (size_t at = tensor["data_offsets"][0]; at < tensor["data_offsets"][1]; at += 4) {
      float number = 0;
      std::memcpy(&number, data.data() + at, sizeof(number));
      number -= 1.0F;
      std::memcpy(data.data() + at, &number, sizeof(number));
    }
  }
  const std::string text = header.dump();
  size = text.size();
  bytes.assign(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes += text + data;
  return files;
}

TEST_P(RecurrentStateTest, PublishedFilesMeanTheSame) {
  const auto logits_of = [&](const std::map<std::string, std::string>& files) {
    const Model model(files);
    return RunRank<CpuModel>(model, PlacesOf({1}, model.config.layer_count)[0], alone_);
  };
  if (!model_.config.published_norm_adds_one) GTEST_SKIP() << "both are the same";
  const auto files = FamilyModel({GetParam()});
  const auto ours = logits_of(files), published = logits_of(Published(files));
  float largest = 0;
  for (const float logit : ours) largest = std::max(largest, std::fabs(logit));
  for (size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(published[i], ours[i], 1e-5 * largest) << i;
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentStateTest,
                         ::testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe", "nemotron_h"));

}  // namespace
}  // namespace macrame::runtime::engine
