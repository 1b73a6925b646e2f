#include "runtime/gguf/block_forms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "runtime/gguf/float16.h"

namespace macrame::runtime::gguf {
namespace {

constexpr uint32_t kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11,
                   kQ4_K = 12, kQ5_K = 13, kQ6_K = 14;

void PutHalf(std::vector<std::byte>& block, size_t at, float value) {
  const uint16_t half = HalfFromFloat(value);
  std::memcpy(block.data() + at, &half, sizeof(half));
}

struct Converted {
  std::vector<float> numbers;  // scale * q + bias, of what was written
  ConversionError error;
};

// The row's numbers as the kernels would read what ConvertRow wrote.
Converted Convert(uint32_t type, const std::vector<std::byte>& blocks) {
  const BlockForm& form = *FindBlockForm(type);
  const size_t columns = blocks.size() / form.bytes * form.elements;
  std::vector<std::byte> weights(columns * static_cast<size_t>(form.bits) / 8);
  std::vector<uint16_t> scales(columns / 32), biases(columns / 32);
  Converted out;
  ConvertRow(form, blocks.data(), columns, {weights.data(), scales.data(), biases.data()},
             out.error);
  for (size_t i = 0; i < columns; ++i) {
    const size_t bit = i * static_cast<size_t>(form.bits);
    uint32_t word = static_cast<uint32_t>(weights[bit / 8]);
    if (bit / 8 + 1 < weights.size()) word |= static_cast<uint32_t>(weights[bit / 8 + 1]) << 8;
    const uint32_t number = (word >> (bit % 8)) & ((1U << form.bits) - 1);
    out.numbers.push_back(FloatFromHalf(scales[i / 32]) * static_cast<float>(number) +
                          FloatFromHalf(biases[i / 32]));
  }
  return out;
}

TEST(Float16, EveryHalfComesBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = FloatFromHalf(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FloatFromHalf(HalfFromFloat(value))));
    } else {
      EXPECT_EQ(HalfFromFloat(value), half) << value;
    }
  }
  EXPECT_EQ(FloatFromHalf(HalfFromFloat(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(FloatFromHalf(HalfFromFloat(65520.0F))));
  EXPECT_EQ(FloatFromHalf(HalfFromFloat(1.0F + 1.0F / 2048)), 1.0F) << "a tie goes to even";
  EXPECT_EQ(FloatFromHalf(HalfFromFloat(1.0F + 3.0F / 2048)), 1.0F + 4.0F / 2048);
  EXPECT_EQ(HalfFromFloat(std::ldexp(1.0F, -26)), 0);
}

TEST(BlockForms, PlainBlocksAreExact) {
  std::vector<std::byte> q4_0(18), q4_1(20), q5_0(22), q5_1(24), q8_0(34);
  for (auto* block : {&q4_0, &q4_1, &q5_0, &q5_1, &q8_0}) PutHalf(*block, 0, 0.375F);
  PutHalf(q4_1, 2, -1.25F);
  PutHalf(q5_1, 2, -1.25F);
  const uint32_t fifth = 0x80000001;  // of the first number and the last
  std::memcpy(q5_0.data() + 2, &fifth, 4);
  std::memcpy(q5_1.data() + 4, &fifth, 4);
  for (size_t i = 0; i < 16; ++i) {
    const auto pair = static_cast<std::byte>((i % 16) | ((15 - i) << 4));
    q4_0[2 + i] = q4_1[4 + i] = q5_0[6 + i] = q5_1[8 + i] = pair;
  }
  for (size_t i = 0; i < 32; ++i) q8_0[2 + i] = static_cast<std::byte>(i * 8 - 128);
  for (size_t i = 0; i < 32; ++i) {
    const float low = i < 16 ? static_cast<float>(i) : static_cast<float>(31 - i);
    const float five = low + (i == 0 || i == 31 ? 16.0F : 0.0F);
    EXPECT_EQ(Convert(kQ4_0, q4_0).numbers[i], 0.375F * (low - 8));
    EXPECT_EQ(Convert(kQ4_1, q4_1).numbers[i], 0.375F * low - 1.25F);
    EXPECT_EQ(Convert(kQ5_0, q5_0).numbers[i], 0.375F * (five - 16));
    EXPECT_EQ(Convert(kQ5_1, q5_1).numbers[i], 0.375F * five - 1.25F);
    EXPECT_EQ(Convert(kQ8_0, q8_0).numbers[i], 0.375F * (static_cast<float>(i) * 8 - 128));
  }
  EXPECT_EQ(Convert(kQ5_1, q5_1).error.Relative(), 0);
}

// 256 numbers whose blocks are laid out by hand, one feature at a time.
TEST(BlockForms, Q4KAndQ5KKeepTheirGroups) {
  std::vector<std::byte> q4(144), q5(176);
  for (auto* block : {&q4, &q5}) {
    PutHalf(*block, 0, 0.5F);
    PutHalf(*block, 2, 0.25F);
    auto* packed = block->data() + 4;
    // Groups 0 to 3: scale 1 + g, least 2 + g. Groups 4 to 7: scale 32 + g, least 16 + g.
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t late = g + 4, scale = 32 + late, least = 16 + late;
      packed[g] = static_cast<std::byte>((1 + g) | ((scale >> 4) << 6));
      packed[g + 4] = static_cast<std::byte>((2 + g) | ((least >> 4) << 6));
      packed[g + 8] = static_cast<std::byte>((scale & 15) | ((least & 15) << 4));
    }
  }
  for (size_t i = 0; i < 128; ++i) {
    q4[16 + i] = q5[48 + i] = static_cast<std::byte>((i % 16) | ((15 - i % 16) << 4));
  }
  for (size_t i = 0; i < 32; ++i) q5[16 + i] = static_cast<std::byte>(i < 16 ? 0xFF : 0x00);
  const Converted four = Convert(kQ4_K, q4), five = Convert(kQ5_K, q5);
  for (size_t i = 0; i < 256; ++i) {
    const size_t g = i / 32;
    const float scale = 0.5F * static_cast<float>(g < 4 ? 1 + g : 32 + g);
    const float least = 0.25F * static_cast<float>(g < 4 ? 2 + g : 16 + g);
    const float low = static_cast<float>(g % 2 == 0 ? i % 16 : 15 - i % 16);
    EXPECT_EQ(four.numbers[i], scale * low - least) << i;
    EXPECT_EQ(five.numbers[i], scale * (low + (i % 32 < 16 ? 16.0F : 0.0F)) - least) << i;
  }
  EXPECT_EQ(four.error.Relative(), 0) << "these scales are exact in float16";
}

TEST(BlockForms, GroupsOf16AreFoundAnew) {
  std::vector<std::byte> q2(84), q3(110), q6(210);
  PutHalf(q2, 80, 0.5F);
  PutHalf(q2, 82, 0.25F);
  PutHalf(q3, 108, 0.5F);
  PutHalf(q6, 208, 0.5F);
  for (size_t g = 0; g < 16; ++g) q2[g] = static_cast<std::byte>((g % 4 + 1) | ((g / 4) << 4));
  for (size_t i = 0; i < 64; ++i) q2[16 + i] = q3[32 + i] = std::byte{0b11100100};
  for (size_t i = 0; i < 32; ++i) q3[i] = std::byte{0x0F};  // the upper half of Q3_K is lowered
  // Scales of Q3_K: all 33, which is 1 after 32 is taken away: low bits 1, high bits 2.
  for (size_t i = 0; i < 8; ++i) q3[96 + i] = std::byte{0x11};
  for (size_t i = 0; i < 4; ++i) q3[104 + i] = std::byte{0b10101010};
  for (size_t i = 0; i < 128; ++i) q6[i] = std::byte{0x52};
  for (size_t i = 0; i < 64; ++i) q6[128 + i] = std::byte{0b11100100};
  for (size_t g = 0; g < 16; ++g) q6[192 + g] = static_cast<std::byte>(g % 2 == 0 ? 2 : -1);
  const Converted two = Convert(kQ2_K, q2), three = Convert(kQ3_K, q3), six = Convert(kQ6_K, q6);
  for (size_t i = 0; i < 256; ++i) {
    const size_t group = i / 16, plane = i / 32 % 4;
    const auto pair = static_cast<float>(plane);
    const float in_two =
        0.5F * static_cast<float>(group % 4 + 1) * pair - 0.25F * static_cast<float>(group / 4);
    EXPECT_NEAR(two.numbers[i], in_two, 0.06) << i;
    EXPECT_NEAR(three.numbers[i], 0.5F * (pair - (i < 128 ? 0 : 4)), 0.02) << i;
    const float number = (plane < 2 ? 2.0F : 5.0F) + 16.0F * pair - 32.0F;
    EXPECT_NEAR(six.numbers[i], 0.5F * (group % 2 == 0 ? 2 : -1) * number, 0.13) << i;
  }
  EXPECT_GT(six.error.Relative(), 0);
  EXPECT_LT(six.error.Relative(), 0.005);
}

TEST(BlockForms, RandomKBlocksStayNear) {
  std::mt19937 random(3);
  for (const uint32_t type : {kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K}) {
    const BlockForm& form = *FindBlockForm(type);
    std::vector<std::byte> blocks(form.bytes * 16);
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    for (size_t block = 0; block < 16; ++block) {
      const size_t scale = type == kQ2_K ? 80 : type == kQ3_K ? 108 : type == kQ6_K ? 208 : 0;
      PutHalf(blocks, block * form.bytes + scale, 0.01F);
      if (type != kQ3_K && type != kQ6_K) PutHalf(blocks, block * form.bytes + scale + 2, 0.003F);
    }
    const Converted row = Convert(type, blocks);
    EXPECT_GT(row.error.Relative(), 0) << form.name;
    EXPECT_LT(row.error.Relative(), form.bits == 6 && type != kQ5_K ? 0.03 : 0.006) << form.name;
    EXPECT_FALSE(row.error.infinite);
  }
}

TEST(BlockForms, AScaleThatIsNoNumberIsFound) {
  std::vector<std::byte> block(34);
  PutHalf(block, 0, 1000.0F);
  EXPECT_TRUE(Convert(kQ8_0, block).error.infinite) << "128 times that is beyond float16";
  PutHalf(block, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(Convert(kQ8_0, block).error.infinite);
}

TEST(BlockForms, OtherKindsHaveNames) {
  EXPECT_EQ(FindBlockForm(15), nullptr);
  EXPECT_EQ(BlockTypeName(15), "Q8_K");
  EXPECT_EQ(BlockTypeName(20), "IQ4_NL");
  EXPECT_EQ(BlockTypeName(14), "Q6_K");
  EXPECT_EQ(BlockTypeName(999), "kind 999");
}

}  // namespace
}  // namespace macrame::runtime::gguf
