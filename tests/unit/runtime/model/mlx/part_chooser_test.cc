// Ranks that each have a part of the vocabulary choose the tokens of SampleToken, all the same
// ones: threads that meet where ranks exchange.

#include "runtime/model/mlx/part_chooser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/unit/runtime/model/mlx/random_rows.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

// Parts of a vocabulary, some of them empty.
std::vector<Range> PartsOf(int vocabulary, size_t ranks, RandomStep& random) {
  std::vector<int> cuts{0, vocabulary};
  while (cuts.size() < ranks + 1) {
    cuts.push_back(static_cast<int>(random.Pick(static_cast<size_t>(vocabulary) + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> parts;
  for (size_t i = 0; i < ranks; ++i) parts.push_back({cuts[i], cuts[i + 1]});
  return parts;
}

// What `work` gives on each rank, of its part.
template <typename Work>
void OnEachRank(const std::vector<Range>& parts, const mx::array& rows, const Work& work) {
  Meeting meeting(parts.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    threads.emplace_back([&, rank] {
      MeetingSums sums(meeting, rank);
      PartChooser chooser(parts, static_cast<int>(rank), sums);
      const Range& own = parts[rank];
      work(rank, chooser, mx::slice(rows, {0, own.begin}, {rows.shape(0), own.end}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(PartChooserTest, AllRanksChooseTheTokensOfSampleToken) {
  mx::set_default_device(mx::Device::cpu);
  RandomStep random(11);
  for (size_t step = 0; step < 60; ++step) {
    const int vocabulary = random.Any({1, 5, 64, 300, 3000});
    const std::vector<Range> parts = PartsOf(vocabulary, random.Any<size_t>({2, 3, 5}), random);
    constexpr int kRows = 6;
    std::vector<float> logits;
    std::vector<RowChoice> how;
    for (int row = 0; row < kRows; ++row) {
      random.AppendRow(static_cast<size_t>(vocabulary), logits);
      how.push_back(random.Choice(step));
      if (step % 3 == 0) how.back().temperature = 0;
    }
    mx::array rows(logits.begin(), {kRows, vocabulary}, mx::float32);
    rows.eval();
    std::vector<std::vector<int32_t>> chosen(parts.size());
    std::vector<std::vector<float>> whole(parts.size());
    OnEachRank(parts, rows, [&](size_t rank, PartChooser& chooser, const mx::array& part) {
      mx::array tokens = mx::contiguous(chooser.Choose(part, how));
      tokens.eval();
      chosen[rank].assign(tokens.data<int32_t>(), tokens.data<int32_t>() + tokens.size());
      mx::array all = mx::contiguous(chooser.Whole(part));
      all.eval();
      whole[rank].assign(all.data<float>(), all.data<float>() + all.size());
    });
    std::vector<int32_t> expected;
    for (size_t row = 0; row < how.size(); ++row) {
      const std::span<const float> own(logits.data() + row * static_cast<size_t>(vocabulary),
                                       static_cast<size_t>(vocabulary));
      expected.push_back(*SampleToken(own, TraitsOf(how[row]), how[row].position));
    }
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      ASSERT_EQ(chosen[rank], expected) << "step " << step << ", rank " << rank;
      ASSERT_EQ(whole[rank], logits) << "step " << step << ", rank " << rank;
    }
  }
}

TEST(PartChooserTest, ARowThatIsNotFiniteInOnePartHasNoTokenOnAnyRank) {
  mx::set_default_device(mx::Device::cpu);
  const float nan = std::nanf("");
  const std::vector<float> logits{0, 1, 2, nan, 3, 1, kInfinity, 0, 2, 1, 5, 2};
  mx::array rows(logits.begin(), {4, 3}, mx::float32);
  rows.eval();
  for (const RowChoice& one : {RowChoice{}, RowChoice{.temperature = 0.5, .top_k = 1},
                               RowChoice{.temperature = 0.1, .top_p = 0.5}}) {
    const std::vector<RowChoice> how(4, one);
    OnEachRank({{0, 1}, {1, 1}, {1, 3}}, rows,
               [&](size_t rank, PartChooser& chooser, const mx::array& part) {
                 mx::array tokens = mx::contiguous(chooser.Choose(part, how));
                 tokens.eval();
                 const std::vector<int32_t> got(tokens.data<int32_t>(),
                                                tokens.data<int32_t>() + tokens.size());
                 EXPECT_GE(got[0], 0) << rank;
                 EXPECT_EQ(got[1], kNoToken) << "a NaN, rank " << rank;
                 EXPECT_EQ(got[2], kNoToken) << "no bound, rank " << rank;
                 EXPECT_GE(got[3], 0) << rank;
               });
  }
}

// A rank alone exchanges nothing.
TEST(PartChooserTest, OnePartIsTheWhole) {
  mx::set_default_device(mx::Device::cpu);
  NoRankSums alone;
  PartChooser chooser({{0, 3}}, 0, alone);
  const mx::array rows({0.0F, 2.0F, 1.0F}, {1, 3}, mx::float32);
  mx::array token = chooser.Choose(rows, std::vector<RowChoice>(1));
  token.eval();
  EXPECT_EQ(token.data<int32_t>()[0], 1);
  EXPECT_EQ(chooser.Whole(rows).id(), rows.id());
}

}  // namespace
}  // namespace macrame::runtime::engine
