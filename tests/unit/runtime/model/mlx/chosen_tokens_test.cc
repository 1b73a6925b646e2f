// Ids of tokens that are partly what the step before chose.

#include "runtime/model/mlx/chosen_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using ::testing::ElementsAreArray;

std::vector<int32_t> Values(mx::array ids) {
  ids = mx::contiguous(ids);
  ids.eval();
  return {ids.data<int32_t>(), ids.data<int32_t>() + ids.size()};
}

TEST(ChosenTokens, EachIsItsIdOrItsRow) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int rows = 1 + static_cast<int>(random() % 6);
    std::vector<int32_t> chosen, tokens, wanted;
    for (int i = 0; i < rows; ++i) chosen.push_back(static_cast<int32_t>(random() % 50000));
    for (size_t i = 0, count = 1 + random() % 9; i < count; ++i) {
      const auto row = static_cast<int32_t>(random() % static_cast<unsigned>(rows));
      const bool is_row = round % 3 > 0 && random() % 2 == 0;
      tokens.push_back(is_row ? TokenOfChosenRow(row) : static_cast<int32_t>(random() % 50000));
      wanted.push_back(is_row ? chosen[static_cast<size_t>(row)] : tokens.back());
    }
    const mx::array before(chosen.data(), {rows}, mx::int32);
    EXPECT_THAT(Values(TokensOf(tokens, before)), ElementsAreArray(wanted)) << round;
  }
}

TEST(ChosenTokens, AllRowsInOrderAreTheArrayItself) {
  const mx::array chosen({5, 6, 7}, mx::int32);
  const std::vector<int32_t> tokens = {TokenOfChosenRow(0), TokenOfChosenRow(1),
                                       TokenOfChosenRow(2)};
  EXPECT_EQ(TokensOf(tokens, chosen).id(), chosen.id()) << "nothing is made for it";
  EXPECT_NE(TokensOf(std::span(tokens).first(2), chosen).id(), chosen.id());
}

TEST(ChosenTokens, NothingIsEvaluated) {
  const mx::array chosen = mx::add(mx::array({1, 2}, mx::int32), mx::array({1, 1}, mx::int32));
  const std::vector<int32_t> tokens = {9, TokenOfChosenRow(1)};
  const mx::array ids = TokensOf(tokens, chosen);
  EXPECT_FALSE(chosen.is_available());
  EXPECT_THAT(Values(ids), ElementsAreArray({9, 3}));
}

}  // namespace
}  // namespace macrame::runtime::engine
