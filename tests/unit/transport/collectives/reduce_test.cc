#include "transport/collectives/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace macrame::transport {
namespace {

template <typename T>
T ReduceTwo(T a, T b, Element element, Reduction reduction = Reduction::kSum) {
  const void* parts[] = {&a, &b};
  T out{};
  Reduce(parts, &out, 1, element, reduction);
  return out;
}

TEST(Reduce, BfloatSumsAreMadeInFloatAndRoundedOnce) {
  // 1 + 2^-9 + 2^-9: rounding after each would lose both halves of the last bit.
  const uint16_t one = 0x3f80, small = 0x3b00;
  const void* parts[] = {&one, &small, &small};
  uint16_t out = 0;
  Reduce(parts, &out, 1, Element::kBfloat16, Reduction::kSum);
  EXPECT_EQ(std::bit_cast<float>(uint32_t{out} << 16), 1.0f);  // 1 + 2^-8, a tie: to even
  const void* four[] = {&one, &small, &small, &small};
  Reduce(four, &out, 1, Element::kBfloat16, Reduction::kSum);
  EXPECT_EQ(std::bit_cast<float>(uint32_t{out} << 16), 1.0f + 0x1p-7f);
}

TEST(Reduce, EveryHalfSurvivesBeingAddedToZero) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool is_nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    if (is_nan || bits == 0x8000) continue;  // -0 + 0 is 0
    EXPECT_EQ(ReduceTwo<uint16_t>(static_cast<uint16_t>(bits), 0, Element::kFloat16), bits);
  }
}

TEST(Reduce, HalvesOverflowToInfinityAndKeepNan) {
  EXPECT_EQ(ReduceTwo<uint16_t>(0x7bff, 0x7bff, Element::kFloat16), 0x7c00);  // 65504 + 65504
  EXPECT_EQ(ReduceTwo<uint16_t>(0x7e00, 0x3c00, Element::kFloat16) & 0x7c00, 0x7c00);
  EXPECT_NE(ReduceTwo<uint16_t>(0x7e00, 0x3c00, Element::kFloat16) & 0x3ff, 0);
}

TEST(Reduce, IntegersWrap) {
  EXPECT_EQ(ReduceTwo<int8_t>(127, 1, Element::kInt8), -128);
  EXPECT_EQ(ReduceTwo<uint64_t>(~uint64_t{0}, 2, Element::kUint64), 1u);
  EXPECT_EQ(ReduceTwo<int32_t>(-5, 3, Element::kInt32, Reduction::kMin), -5);
  EXPECT_EQ(ReduceTwo<int16_t>(-5, 3, Element::kInt16, Reduction::kMax), 3);
}

TEST(Reduce, NanWinsMaxAndMin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(ReduceTwo<float>(nan, 1, Element::kFloat32, Reduction::kMax)));
  EXPECT_TRUE(std::isnan(ReduceTwo<float>(1, nan, Element::kFloat32, Reduction::kMin)));
}

TEST(Reduce, TruthsAreOredAndAnded) {
  EXPECT_EQ(ReduceTwo<uint8_t>(1, 1, Element::kBool), 1);
  EXPECT_EQ(ReduceTwo<uint8_t>(0, 1, Element::kBool, Reduction::kMax), 1);
  EXPECT_EQ(ReduceTwo<uint8_t>(0, 1, Element::kBool, Reduction::kMin), 0);
}

TEST(Reduce, ComplexNumbersAreAddedPartByPart) {
  const float a[] = {1, 2}, b[] = {10, 20};
  const void* parts[] = {a, b};
  float out[2] = {};
  Reduce(parts, out, 1, Element::kComplex64, Reduction::kSum);
  EXPECT_EQ(out[0], 11);
  EXPECT_EQ(out[1], 22);
}

}  // namespace
}  // namespace macrame::transport
