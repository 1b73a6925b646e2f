// Tokens that the graph chooses are those of SampleToken: on MLX's CPU device, whose whole numbers
// are those of any other device.

#include "runtime/model/mlx/row_chooser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/runtime/model/mlx/random_rows.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

constexpr int kVocabulary = 151'936;

std::vector<int32_t> Values(const mx::array& tokens) {
  mx::array plain = mx::contiguous(tokens);
  plain.eval();
  return {plain.data<int32_t>(), plain.data<int32_t>() + plain.size()};
}

std::vector<int32_t> Chosen(RowChooser& chooser, const std::vector<float>& logits,
                            const std::vector<RowChoice>& how) {
  const int rows = static_cast<int>(how.size());
  const mx::array tokens = chooser.Choose(
      mx::array(logits.begin(), {rows, static_cast<int>(logits.size()) / rows}, mx::float32), how);
  EXPECT_EQ(tokens.shape(), mx::Shape({rows}));
  EXPECT_EQ(tokens.dtype(), mx::int32);
  EXPECT_EQ(tokens.status(), mx::array::Status::unscheduled) << "nothing is evaluated";
  return Values(tokens);
}

void ExpectSampled(RowChooser& chooser, const std::vector<float>& logits,
                   const std::vector<RowChoice>& how) {
  const std::vector<int32_t> tokens = Chosen(chooser, logits, how);
  const size_t vocabulary = logits.size() / how.size();
  for (size_t row = 0; row < how.size(); ++row) {
    const std::span<const float> own(logits.data() + row * vocabulary, vocabulary);
    const RowChoice& one = how[row];
    ASSERT_EQ(tokens[row], *SampleToken(own, TraitsOf(one), one.position))
        << "row " << row << " of " << vocabulary << ": temperature " << one.temperature
        << ", top_k " << one.top_k << ", top_p " << one.top_p << ", min_p " << one.min_p
        << ", seed " << one.seed << ", position " << one.position;
  }
}

TEST(RowChooserTest, ChoosesTheTokensOfSampleToken) {
  RandomStep random(1);
  RowChooser chooser;
  for (size_t step = 0; step < 500; ++step) {
    const size_t vocabulary = random.Any<size_t>({1, 2, 63, 64, 65, 300, 1500, 5000});
    std::vector<float> logits;
    std::vector<RowChoice> how;
    for (size_t row = 0; row < 24; ++row) {
      random.AppendRow(vocabulary, logits);
      how.push_back(random.Choice(step));
    }
    ExpectSampled(chooser, logits, how);
    if (HasFatalFailure()) return;
  }
}

TEST(RowChooserTest, ChoosesTheTokensOfSampleTokenFromALargeVocabulary) {
  RandomStep random(2);
  RowChooser chooser;
  for (size_t step = 0; step < 15; ++step) {
    std::vector<float> logits;
    std::vector<RowChoice> how;
    for (size_t row = 0; row < 3; ++row) {
      random.AppendRow(kVocabulary, logits);
      how.push_back(random.Choice(step));
    }
    ExpectSampled(chooser, logits, how);
    if (HasFatalFailure()) return;
  }
}

// Ten thousand seeds of the settings that people use, from rows that don't change.
TEST(RowChooserTest, EverySeedGivesTheTokenOfSampleToken) {
  RandomStep random(3);
  RowChooser chooser;
  constexpr size_t kRows = 250, kTokens = 600;
  for (const RowChoice& settings :
       {RowChoice{.temperature = 0.8}, RowChoice{.temperature = 1.0, .min_p = 0.05},
        RowChoice{.temperature = 0.6, .top_k = 20, .top_p = 0.95},
        RowChoice{.temperature = 0.7, .top_p = 0.9}}) {
    std::vector<float> logits;
    for (size_t row = 0; row < kRows; ++row) random.AppendRow(kTokens, logits);
    for (uint64_t first = 0; first < 10'000; first += kRows) {
      std::vector<RowChoice> how(kRows, settings);
      for (size_t row = 0; row < kRows; ++row) {
        how[row].seed = first + row;
        how[row].position = row;
      }
      ExpectSampled(chooser, logits, how);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(RowChooserTest, FirstTokensOfRanksDecideWhereTopKIsSmall) {
  RandomStep random(4);
  RowChooser whole;
  std::vector<RowChooser> ranks(3);
  for (size_t step = 0; step < 100; ++step) {
    const int vocabulary = random.Any({90, 700, 5000, 16'000});
    const std::vector<int> begins = {0, vocabulary / 2, vocabulary - 40, vocabulary};
    std::vector<float> logits;
    std::vector<RowChoice> how;
    for (size_t row = 0; row < 8; ++row) {
      random.AppendRow(static_cast<size_t>(vocabulary), logits);
      how.push_back(random.Choice());
      how.back().top_k = random.Any({1u, 3u, 20u, 64u});
    }
    const mx::array rows(logits.begin(), {8, vocabulary}, mx::float32);
    const mx::array highest = mx::max(rows, -1, /*keepdims=*/true);
    std::vector<mx::array> places;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const mx::array part = mx::slice(rows, {0, begins[rank]}, {8, begins[rank + 1]});
      places.push_back(ranks[rank].FirstOfPart(part, highest, how, begins[rank]));
      ASSERT_EQ(places.back().shape(),
                mx::Shape({8, static_cast<int>(RowChooser::FirstThatDecide(how))}));
    }
    const std::vector<int32_t> tokens =
        Values(whole.ChooseAmong(mx::concatenate(places, 1), highest, how));
    for (size_t row = 0; row < how.size(); ++row) {
      const std::span<const float> own(logits.data() + row * static_cast<size_t>(vocabulary),
                                       static_cast<size_t>(vocabulary));
      ASSERT_EQ(tokens[row], *SampleToken(own, TraitsOf(how[row]), how[row].position))
          << "step " << step << ", row " << row << " of " << vocabulary;
    }
  }
  EXPECT_EQ(RowChooser::FirstThatDecide({}), 1u);
  const std::vector<RowChoice> all = {{}, {.temperature = 1.0, .top_p = 0.5}};
  EXPECT_EQ(RowChooser::FirstThatDecide(all), 0u);
}

TEST(RowChooserTest, ARowThatIsNotFiniteHasNoToken) {
  RowChooser chooser;
  const float nan = std::nanf("");
  const std::vector<float> logits{
      0, 1, 2, nan, 3, 1, kInfinity, 0, 2, -kInfinity, -kInfinity, -kInfinity, -kInfinity, 4, 1};
  for (const RowChoice& one :
       {RowChoice{}, RowChoice{.temperature = 1.0}, RowChoice{.temperature = 0.5, .top_k = 1},
        RowChoice{.temperature = 0.1, .top_p = 0.5}}) {
    const std::vector<int32_t> tokens = Chosen(chooser, logits, std::vector<RowChoice>(5, one));
    EXPECT_GE(tokens[0], 0);
    EXPECT_EQ(tokens[1], kNoToken) << "a NaN";
    EXPECT_EQ(tokens[2], kNoToken) << "no bound";
    EXPECT_EQ(tokens[3], kNoToken) << "none is finite";
    EXPECT_GE(tokens[4], 1) << "what is masked is not chosen";
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
