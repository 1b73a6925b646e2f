// 8-bit floats become bfloat16: every number, every part of a weight, every kind of scale.

#include "runtime/model/weights/fp8_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;

std::vector<float> Widened(const Fp8Scales& scales, const Fp8Part& part,
                           const std::vector<std::byte>& stored) {
  std::vector<uint16_t> halves(part.rows * part.columns);
  WidenFp8(scales, part, stored.data() + part.row * part.row_bytes,
           reinterpret_cast<std::byte*>(halves.data()));
  std::vector<float> out;
  for (const uint16_t half : halves) out.push_back(std::bit_cast<float>(uint32_t{half} << 16));
  return out;
}

std::vector<std::byte> Bytes(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Fp8WeightsTest, NumbersAreTheFormats) {
  const auto stored = Bytes({0x00, 0x38, 0x39, 0x7E, 0x01, 0x07, 0x08, 0xC0, 0x80, 0x7F});
  const Fp8Scales one{{1, stored.size()}, 1, {1.0F}};
  const auto numbers = Widened(one, {0, 1, stored.size(), 0, stored.size()}, stored);
  EXPECT_THAT(std::vector<float>(numbers.begin(), numbers.end() - 1),
              ElementsAre(0.0F, 1.0F, 1.125F, 448.0F, 0x1p-9F, 7 * 0x1p-9F, 0x1p-6F, -2.0F, -0.0F));
  EXPECT_TRUE(std::signbit(numbers[8]));
  EXPECT_TRUE(std::isnan(numbers[9]));
}

TEST(Fp8WeightsTest, ProductsAreRoundedToTheNearestEven) {
  const auto stored = Bytes({0x38, 0x38, 0x38});
  const Fp8Scales scales{{1, 1}, 3, {1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F, 1.0F + 0x1.8p-8F}};
  EXPECT_THAT(Widened(scales, {0, 1, 3, 0, 3}, stored),
              ElementsAre(1.0F, 1.0F + 0x1p-6F, 1.0F + 0x1p-7F));
}

TEST(Fp8WeightsTest, APartIsThatOfTheWhole) {
  constexpr size_t kRows = 7, kColumns = 11;
  std::vector<std::byte> stored;
  for (size_t i = 0; i < kRows * kColumns; ++i)
    stored.push_back(static_cast<std::byte>(i * 3 % 120));
  Fp8Scales scales{{3, 4}, 3, {}};
  for (int i = 0; i < 9; ++i) scales.numbers.push_back(0.5F + static_cast<float>(i));
  const auto whole = Widened(scales, {0, kRows, kColumns, 0, kColumns}, stored);
  for (size_t row = 0; row < kRows; ++row) {
    for (size_t column = 0; column < kColumns; ++column) {
      const Fp8Part part{row, kRows - row, kColumns, column, kColumns - column};
      const auto some = Widened(scales, part, stored);
      for (size_t i = 0; i < some.size(); ++i) {
        const size_t at = (row + i / part.columns) * kColumns + column + i % part.columns;
        ASSERT_EQ(some[i], whole[at]) << row << ", " << column;
      }
    }
  }
  // One number by hand: row 4, column 9 lies in the second row of blocks, the third across.
  const float product =
      Widened({{1, 1}, 1, {scales.numbers[5]}}, {0, 1, 1, 0, 1}, {stored[4 * kColumns + 9]})[0];
  EXPECT_EQ(whole[4 * kColumns + 9], product);
}

// Blocks that are worth a table of all numbers, and those that are not.
TEST(Fp8WeightsTest, LargeBlocksAreAsSmallOnes) {
  constexpr size_t kRows = 7, kColumns = 201;
  std::vector<std::byte> stored;
  for (size_t i = 0; i < kRows * kColumns; ++i) {
    stored.push_back(static_cast<std::byte>(i * 7 % 120));
  }
  Fp8Scales large{{3, 100}, 3, {}};
  for (int i = 0; i < 9; ++i) large.numbers.push_back(0.5F + static_cast<float>(i) * 0.3F);
  const auto whole = Widened(large, {0, kRows, kColumns, 3, kColumns - 3}, stored);
  for (size_t i = 0; i < whole.size(); ++i) {
    const size_t row = i / (kColumns - 3), column = 3 + i % (kColumns - 3);
    const float scale = large.numbers[row / 3 * 3 + column / 100];
    const auto alone =
        Widened({{1, 1}, 1, {scale}}, {0, 1, 1, 0, 1}, {stored[row * kColumns + column]});
    ASSERT_EQ(whole[i], alone[0]) << row << ", " << column;
  }
}

TEST(Fp8WeightsTest, AScalesShapeSaysWhatItIsFor) {
  ModelConfig config;
  config.fp8_block_rows = 128;
  config.fp8_block_columns = 64;
  StoredTensor weight, scale;
  weight.shape = {300, 200};
  const auto block = [&](std::vector<int64_t> shape) -> std::pair<size_t, size_t> {
    scale.shape = std::move(shape);
    const auto found = Fp8BlockOf(config, weight, scale);
    return found.has_value() ? std::pair(found->rows, found->columns) : std::pair<size_t, size_t>();
  };
  EXPECT_EQ(block({}), std::pair(size_t{300}, size_t{200}));
  EXPECT_EQ(block({1}), std::pair(size_t{300}, size_t{200}));
  EXPECT_EQ(block({300, 1}), std::pair(size_t{1}, size_t{200}));
  EXPECT_EQ(block({300}), std::pair(size_t{1}, size_t{200}));
  EXPECT_EQ(block({3, 4}), std::pair(size_t{128}, size_t{64}));
  for (const auto& other : {std::vector<int64_t>{4, 3}, {3}, {2, 4}, {1, 300}}) {
    EXPECT_EQ(block(other), (std::pair<size_t, size_t>()));
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
