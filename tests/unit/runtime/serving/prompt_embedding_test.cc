// What becomes of the hidden states of a prompt.

#include "runtime/serving/prompt_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace macrame::runtime::engine {
namespace {

constexpr size_t kWidth = 24, kRows = 50;

std::vector<float> RandomRows() {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  std::vector<float> rows(kRows * kWidth);
  for (float& number : rows) number = normal(random);
  return rows;
}

std::vector<float> Pooled(const EmbeddingPlan& plan, const std::vector<float>& rows, size_t chunk) {
  PoolingSum sum(plan);
  for (size_t row = 0; row < kRows; row += chunk) {
    const size_t count = std::min(chunk, kRows - row);
    sum.Add(static_cast<uint32_t>(row), std::span(rows).subspan(row * kWidth, count * kWidth),
            kWidth);
  }
  return *sum.Finish();
}

double LengthOf(const std::vector<float>& embedding) {
  double squares = 0;
  for (const float number : embedding) squares += double{number} * number;
  return std::sqrt(squares);
}

TEST(PoolingSumTest, IsTheSameHoweverAPromptWasCut) {
  const std::vector<float> rows = RandomRows();
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kFirst}) {
    const std::vector<float> whole = Pooled({pooling, 0}, rows, kRows);
    ASSERT_EQ(whole.size(), kWidth);
    EXPECT_NEAR(LengthOf(whole), 1.0, 1e-6);
    for (const size_t chunk : {1, 7, 32}) EXPECT_EQ(Pooled({pooling, 0}, rows, chunk), whole);
  }
}

TEST(PoolingSumTest, TakesTheMeanTheLastOrTheFirst) {
  const std::vector<float> rows = RandomRows();
  const auto direction = [&](const std::vector<size_t>& taken) {
    std::vector<double> sum(kWidth, 0.0);
    double squares = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      for (const size_t row : taken) sum[i] += rows[row * kWidth + i];
      squares += sum[i] * sum[i];
    }
    std::vector<float> unit(kWidth);
    for (size_t i = 0; i < kWidth; ++i) unit[i] = static_cast<float>(sum[i] / std::sqrt(squares));
    return unit;
  };
  std::vector<size_t> all(kRows);
  for (size_t row = 0; row < kRows; ++row) all[row] = row;
  EXPECT_EQ(Pooled({Pooling::kMean, 0}, rows, 16), direction(all));
  EXPECT_EQ(Pooled({Pooling::kLast, 0}, rows, 16), direction({kRows - 1}));
  EXPECT_EQ(Pooled({Pooling::kFirst, 0}, rows, 16), direction({0}));
}

TEST(PoolingSumTest, FewerDimensionsAreTheFirstOnesOfLengthOne) {
  const std::vector<float> rows = RandomRows();
  const std::vector<float> whole = Pooled({Pooling::kMean, 0}, rows, 16);
  const std::vector<float> cut = Pooled({Pooling::kMean, 8}, rows, 16);
  ASSERT_EQ(cut.size(), 8u);
  EXPECT_NEAR(LengthOf(cut), 1.0, 1e-6);
  const double scale = double{cut[0]} / whole[0];
  EXPECT_GT(scale, 1.0);
  for (size_t i = 0; i < cut.size(); ++i) EXPECT_NEAR(cut[i], scale * whole[i], 1e-6);
}

TEST(PoolingSumTest, APromptThatBeginsAnewCountsOnce) {
  const std::vector<float> rows = RandomRows();
  PoolingSum sum({Pooling::kMean, 0});
  sum.Add(0, std::span(rows).first(20 * kWidth), kWidth);
  sum.Add(0, std::span(rows).first(30 * kWidth), kWidth);
  sum.Add(30, std::span(rows).subspan(30 * kWidth), kWidth);
  EXPECT_EQ(*sum.Finish(), Pooled({Pooling::kMean, 0}, rows, kRows));
}

TEST(PoolingSumTest, WhatHasNoDirectionIsAnError) {
  PoolingSum broken({Pooling::kLast, 0});
  const float bad[] = {1.0F, std::numeric_limits<float>::quiet_NaN()};
  broken.Add(0, bad, 2);
  EXPECT_FALSE(broken.Finish().ok());
  PoolingSum empty({Pooling::kLast, 0});
  const float zero[] = {0.0F, 0.0F};
  empty.Add(0, zero, 2);
  EXPECT_FALSE(empty.Finish().ok());
}

}  // namespace
}  // namespace macrame::runtime::engine
