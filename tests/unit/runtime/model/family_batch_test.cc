// Every family: a token's bits are the same whatever else a step runs, however its prompt was cut,
// and behind a prefix that another sequence computed.

#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

class FamilyBatchTest : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<int32_t> Tokens(int first, int count) {
    std::vector<int32_t> ids;
    for (int i = first; i < first + count; ++i) ids.push_back(i * i * 7 % 101);
    return ids;
  }
};

// Logits of all rows of a step.
std::vector<float> RunStep(CpuModel& stack, const ForwardStep& step) {
  EXPECT_TRUE(stack.Begin(step).ok());
  std::vector<int32_t> ids, rows;
  for (const Segment& segment : step.segments) {
    ids.insert(ids.end(), segment.tokens.begin(), segment.tokens.end());
  }
  for (size_t row = 0; row < ids.size(); ++row) rows.push_back(static_cast<int32_t>(row));
  const mx::array logits = stack.Logits(stack.Run(stack.Embed(ids), step), rows);
  return {logits.data<float>(), logits.data<float>() + logits.size()};
}

TEST_P(FamilyBatchTest, BitsDoNotDependOnWhatElseRuns) {
  const Model model(FamilyModel({GetParam(), 4}));
  if (model.config.has_state()) GTEST_SKIP() << "recurrent_state_test has those";
  NoRankSums alone;
  const ShardPlace place = PlacesOf({1}, model.config.layer_count)[0];
  WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
  CpuModel stack(model.config, place, loader, alone,
                 {.blocks_total = 8, .context_length = 128, .threads = 2});
  const std::vector<int32_t> all = Tokens(0, 40), others = Tokens(50, 9);
  const auto part = [&](int begin, int end) {
    return std::vector<int32_t>(all.begin() + begin, all.begin() + end);
  };
  const auto whole =
      RunStep(stack, {{}, {Segment{.slot = 0, .tokens = all, .new_blocks = {0, 1}}}});
  const size_t vocabulary = whole.size() / all.size();
  const auto expect_rows = [&](const std::vector<float>& logits, size_t row, size_t position,
                               size_t count) {
    ASSERT_GE(logits.size(), (row + count) * vocabulary);
    for (size_t i = 0; i < count * vocabulary; ++i) {
      ASSERT_EQ(logits[row * vocabulary + i], whole[position * vocabulary + i])
          << "position " << position + i / vocabulary;
    }
  };
  // In chunks, beside another sequence before and behind it.
  const auto chunk =
      RunStep(stack, {{},
                      {Segment{.slot = 1, .tokens = others, .new_blocks = {2}},
                       Segment{.slot = 2, .tokens = part(0, 27), .new_blocks = {3}}}});
  expect_rows(chunk, others.size(), 0, 27);
  const Segment next{.slot = 1, .begin = 9, .tokens = {5}};
  const auto rest = RunStep(
      stack,
      {{}, {Segment{.slot = 2, .begin = 27, .tokens = part(27, 40), .new_blocks = {4}}, next}});
  expect_rows(rest, 0, 27, 13);
  // Behind the first sequence's block.
  const auto cached = RunStep(
      stack,
      {{0, 2}, {Segment{.slot = 3, .begin = 32, .tokens = part(32, 40), .new_blocks = {0, 5}}}});
  expect_rows(cached, 0, 32, 8);
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyBatchTest, ::testing::ValuesIn(FamilyNames()), NameOf);

}  // namespace
}  // namespace macrame::runtime::engine
