// Our matrix products against plain loops, for every storage, awkward sizes and each instruction
// set of this machine.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "runtime/kernels/matmul.h"
#include "tests/unit/runtime/kernels/matrices.h"
#include "tests/unit/runtime/kernels/targets.h"

namespace macrame::runtime::kernels {
namespace {

class KernelsTest : public ::testing::TestWithParam<std::tuple<int64_t, Storage, Scalar>> {};

std::string NameOf(const ::testing::TestParamInfo<KernelsTest::ParamType>& info) {
  const auto [target, storage, type] = info.param;
  const char* types[] = {"Float32", "Bfloat16", "Float16"};
  if (storage.packing != Packing::kAffine) {
    const char* names[] = {"", "_Mxfp4", "_Mxfp8", "_Nvfp4"};
    return std::string(hwy::TargetName(target)) + names[static_cast<int>(storage.packing)];
  }
  return std::string(hwy::TargetName(target)) + "_Bits" + std::to_string(storage.bits) + "Group" +
         std::to_string(storage.group_size) + "_" + types[static_cast<int>(type)];
}

TEST_P(KernelsTest, ProductsMatchPlainLoops) {
  const auto [target, storage, type] = GetParam();
  const OnlyTarget only(target);
  ASSERT_EQ(std::string(InstructionSet()).rfind(hwy::TargetName(target), 0), 0U);
  ThreadPool pool(1);
  const size_t unit = storage.bits == 0 ? 1 : static_cast<size_t>(storage.group_size);
  for (const size_t rows : {1, 7, 33, 70}) {
    for (const size_t columns : {unit, 3 * unit, 13 * unit, (1024 / unit + 9) * unit}) {
      const StoredMatrix stored = Make(rows, columns, storage, type, 3);
      for (const size_t count : {1, 2, 5, 17}) {
        const std::vector<float> x = MakeVectors(count, columns, 99);
        EXPECT_LE(WorstError(stored, x, count, Multiply(pool, stored.view, x.data(), count)), 1.0)
            << rows << " x " << columns << ", " << count << " vectors";
      }
    }
  }
}

// The promise that batching rests on: a vector's result has the same bits alone, in any batch, on
// any number of threads, and in a matrix cut anywhere.
TEST_P(KernelsTest, BitsDependOnTheVectorAndTheRowAlone) {
  const auto [target, storage, type] = GetParam();
  const OnlyTarget only(target);
  ThreadPool one(1);
  ThreadPool three(3);
  Numbers numbers(static_cast<uint32_t>(17 + storage.bits));
  for (int round = 0; round < 4; ++round) {
    const size_t unit = storage.bits == 0 ? 1 : static_cast<size_t>(storage.group_size);
    const size_t rows = 1 + numbers.Next() % 130;
    const size_t columns = unit * (1 + numbers.Next() % (2200 / unit));
    const size_t count = 40;
    const StoredMatrix stored = Make(rows, columns, storage, type, static_cast<uint32_t>(round));
    const std::vector<float> x = MakeVectors(count, columns, 5);
    std::vector<float> alone;
    for (size_t m = 0; m < count; ++m) {
      const std::vector<float> y = Multiply(one, stored.view, x.data() + m * columns, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    const auto expect_same = [&](ThreadPool& pool, size_t first, size_t vectors, size_t begin,
                                 size_t end) {
      const std::vector<float> y =
          Multiply(pool, RowsOf(stored.view, begin, end), x.data() + first * columns, vectors);
      for (size_t m = 0; m < vectors; ++m) {
        ASSERT_EQ(
            std::memcmp(y.data() + m * (end - begin), alone.data() + (first + m) * rows + begin,
                        (end - begin) * sizeof(float)),
            0)
            << rows << " x " << columns << ": vector " << first + m << " of " << vectors << " from "
            << first << ", rows " << begin << " to " << end;
      }
    };
    for (const size_t vectors : {1, 2, 3, 4, 7, 16, 40}) {
      expect_same(one, numbers.Next() % (count - vectors + 1), vectors, 0, rows);
      expect_same(three, numbers.Next() % (count - vectors + 1), vectors, 0, rows);
      const size_t begin = numbers.Next() % rows;
      expect_same(one, 0, vectors, begin, begin + 1 + numbers.Next() % (rows - begin));
    }
  }
}

TEST_P(KernelsTest, RowsComeOutAsTheyMean) {
  const auto [target, storage, type] = GetParam();
  const OnlyTarget only(target);
  const StoredMatrix stored = Make(9, 384, storage, type, 4);
  const int32_t rows[] = {8, 0, 8};
  std::vector<float> out(3 * 384);
  GatherRows(stored.view, rows, 3, out.data());
  for (size_t i = 0; i < 3; ++i) {
    for (size_t c = 0; c < 384; ++c) {
      EXPECT_NEAR(out[i * 384 + c], stored.meaning[static_cast<size_t>(rows[i]) * 384 + c], 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KernelsTest,
    ::testing::Combine(::testing::ValuesIn(Targets()),
                       ::testing::Values(Storage{0, 0}, Storage{2, 32}, Storage{2, 128},
                                         Storage{3, 64}, Storage{5, 64}, Storage{4, 32},
                                         Storage{4, 64}, Storage{4, 128}, Storage{6, 32},
                                         Storage{6, 64}, Storage{6, 128}, Storage{8, 32},
                                         Storage{8, 64}, Storage{8, 128}),
                       ::testing::Values(Scalar::kFloat32, Scalar::kBfloat16, Scalar::kFloat16)),
    NameOf);

INSTANTIATE_TEST_SUITE_P(Microscaled, KernelsTest,
                         ::testing::Combine(::testing::ValuesIn(Targets()),
                                            ::testing::Values(kMxfp4, kMxfp8, kNvfp4),
                                            ::testing::Values(Scalar::kBfloat16)),
                         NameOf);

// Sums of weights and activations that are whole numbers are exact, whatever the group's scale.
TEST(Mxfp4Test, EveryNumberAndScaleIsExact) {
  constexpr size_t kColumns = 32;
  std::vector<uint8_t> weights(kColumns / 2);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<uint8_t>((2 * i) % 16 | ((2 * i + 1) % 16) << 4);
  }
  for (const int64_t target : Targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    ThreadPool pool(1);
    for (int exponent = 0; exponent < 250; ++exponent) {
      const auto scale = static_cast<uint8_t>(exponent);
      MatrixView view;
      view.rows = 1;
      view.columns = kColumns;
      view.bits = 4;
      view.group_size = 32;
      view.packing = Packing::kMxfp4;
      view.weights = weights.data();
      view.scales = &scale;
      constexpr double kNumbers[16] = {0, 0.5,  1,  1.5,  2,  3,  4,  6,
                                       0, -0.5, -1, -1.5, -2, -3, -4, -6};
      const int32_t row = 0;
      std::vector<float> unpacked(kColumns);
      GatherRows(view, &row, 1, unpacked.data());
      for (size_t c = 0; c < kColumns; ++c) {
        const auto exact = static_cast<float>(std::ldexp(kNumbers[c % 16], exponent - 127));
        ASSERT_EQ(unpacked[c], exact) << "scale " << exponent;
        // With one activation of 1 the product is the weight, but for how activations are kept.
        std::vector<float> x(kColumns, 0.0F);
        x[c] = 1.0F;
        const float y = Multiply(pool, view, x.data(), 1)[0];
        ASSERT_NEAR(y, exact, std::fabs(exact) * 1.2e-7F) << "scale " << exponent;
      }
    }
  }
}

TEST(Mxfp4Test, AScaleThatIsNoNumberIsNotHidden) {
  ThreadPool pool(1);
  for (const int64_t target : Targets()) {
    const OnlyTarget only(target);
    const StoredMatrix stored = MakeMxfp4Matrix(3, 96, 5);
    const_cast<uint8_t*>(static_cast<const uint8_t*>(stored.view.scales))[3 + 1] = 255;
    const std::vector<float> x = MakeVectors(2, 96, 6);
    const std::vector<float> y = Multiply(pool, stored.view, x.data(), 2);
    const int32_t row = 1;
    std::vector<float> unpacked(96);
    GatherRows(stored.view, &row, 1, unpacked.data());
    EXPECT_FALSE(std::isfinite(unpacked[40])) << hwy::TargetName(target);
    for (size_t m = 0; m < 2; ++m) {
      EXPECT_TRUE(std::isfinite(y[3 * m]) && std::isfinite(y[3 * m + 2]));
      EXPECT_FALSE(std::isfinite(y[3 * m + 1])) << hwy::TargetName(target);
    }
  }
}

// Bytes of weights of each value with each scale, unpacked and multiplied, on each instruction set.
// meaning(byte of weights, the byte's half, scale).
template <typename Meaning>
void ExpectExact(const Storage& storage, const Meaning& meaning) {
  constexpr size_t kColumns = 256;
  const auto bits = static_cast<size_t>(storage.bits), each = 8 / bits;
  std::vector<uint8_t> weights(kColumns * bits / 8);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<uint8_t>(3 * i);
  for (int scale = 0; scale < 255; ++scale) {
    const std::vector<uint8_t> scales(kColumns / static_cast<size_t>(storage.group_size),
                                      static_cast<uint8_t>(scale));
    MatrixView view;
    view.rows = 1;
    view.columns = kColumns;
    view.bits = storage.bits;
    view.group_size = storage.group_size;
    view.packing = storage.packing;
    view.weights = weights.data();
    view.scales = scales.data();
    const int32_t row = 0;
    std::vector<float> unpacked(kColumns);
    GatherRows(view, &row, 1, unpacked.data());
    double sum = 0.0;
    for (size_t c = 0; c < kColumns; ++c) {
      const float exact = meaning(weights[c / each], c % each, static_cast<uint8_t>(scale));
      sum += exact;
      if (std::isnan(exact)) {
        EXPECT_TRUE(std::isnan(unpacked[c])) << c << ", scale " << scale;
      } else {
        ASSERT_EQ(unpacked[c], exact) << c << ", scale " << scale;
      }
    }
    ThreadPool pool(1);
    const std::vector<float> ones(2 * kColumns, 1.0F);
    for (const float y : Multiply(pool, view, ones.data(), 2)) {
      // A number that is none is not hidden. Sums of so few bits are exact.
      ASSERT_EQ(std::isnan(y), std::isnan(sum)) << "scale " << scale;
      if (!std::isnan(sum)) {
        ASSERT_EQ(y, static_cast<float>(sum)) << "scale " << scale;
      }
    }
  }
}

TEST(PackedFloatsTest, EveryNumberAndScaleIsExact) {
  constexpr double kFp4[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const auto is_none = [](uint8_t byte) { return (byte & 0x7f) == 0x7f; };
  const float none = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t target : Targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const OnlyTarget only(target);
    ExpectExact(kMxfp8, [&](uint8_t byte, size_t, uint8_t scale) {
      return is_none(byte) ? none : static_cast<float>(std::ldexp(E4m3Meaning(byte), scale - 127));
    });
    ExpectExact(kNvfp4, [&](uint8_t byte, size_t half, uint8_t scale) {
      const double number = kFp4[half == 0 ? byte & 15 : byte >> 4];
      return is_none(scale) ? none : static_cast<float>(number * E4m3Meaning(scale));
    });
  }
}

// So long a row that not one fits into a panel, and one that almost does.
TEST(PackedFloatsTest, RowsOfAnyLengthGiveTheSameInABatch) {
  ThreadPool pool(2);
  for (const size_t columns : {16352, 16384, 16416, 40000}) {
    for (const Storage& storage : {kMxfp8, kNvfp4}) {
      const StoredMatrix stored = Make(11, columns, storage, Scalar::kFloat32, 4);
      const std::vector<float> x = MakeVectors(6, columns, 5);
      Activations activations;
      Scratch scratch;
      activations.Set(x.data(), 6, columns);
      std::vector<float> y(6 * 11);
      MultiplyTransposed(pool, stored.view, activations, y.data(), scratch);
      EXPECT_LE(WorstError(stored, x, 6, y), 1.0) << columns;
      EXPECT_LE(scratch.memory_bytes(), 2 * kPanelBytesMax) << "what plans count with";
      for (size_t m = 0; m < 6; ++m) {
        const std::vector<float> alone = Multiply(pool, stored.view, x.data() + m * columns, 1);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + static_cast<long>(m * 11)));
      }
    }
  }
}

TEST(ActivationsTest, MatricesOfDifferentStorageShareThem) {
  ThreadPool pool(2);
  const std::vector<float> x = MakeVectors(20, 256, 1);
  Activations activations;
  Scratch scratch;
  activations.Set(x.data(), 20, 256);
  for (int pass = 0; pass < 2; ++pass) {
    for (const Storage storage : {Storage{4, 64}, Storage{8, 64}, kMxfp4, kNvfp4, Storage{0, 0},
                                  Storage{4, 32}, Storage{3, 64}, Storage{6, 64}, Storage{5, 64}}) {
      const StoredMatrix stored = Make(40, 256, storage, Scalar::kBfloat16, 8);
      std::vector<float> y(20 * 40);
      MultiplyTransposed(pool, stored.view, activations, y.data(), scratch);
      EXPECT_LE(WorstError(stored, x, 20, y), 1.0) << storage.bits << " bits";
    }
  }
  const std::vector<float> other = MakeVectors(20, 256, 2);
  activations.Set(other.data(), 20, 256);
  const StoredMatrix stored = MakeMatrix(40, 256, 4, 64, Scalar::kBfloat16, 8);
  std::vector<float> y(20 * 40);
  MultiplyTransposed(pool, stored.view, activations, y.data(), scratch);
  EXPECT_LE(WorstError(stored, other, 20, y), 1.0) << "the vectors before these";
}

TEST(ActivationsTest, NumbersThatAreNoneAreNotHidden) {
  ThreadPool pool(1);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t target : Targets()) {
      const OnlyTarget only(target);
      std::vector<float> x = MakeVectors(2, 128, 3);
      x[128 + 77] = bad;
      const StoredMatrix stored = MakeMatrix(5, 128, 4, 64, Scalar::kFloat32, 9);
      const std::vector<float> y = Multiply(pool, stored.view, x.data(), 2);
      for (size_t row = 0; row < 5; ++row) {
        EXPECT_TRUE(std::isfinite(y[row]));
        EXPECT_FALSE(std::isfinite(y[5 + row])) << hwy::TargetName(target);
      }
    }
  }
}

TEST(ActivationsTest, ZerosAndTinyNumbersGiveZeros) {
  ThreadPool pool(1);
  const StoredMatrix stored = MakeMatrix(5, 128, 4, 64, Scalar::kFloat32, 9);
  for (const float value : {0.0F, 1e-38F}) {
    const std::vector<float> x(128, value);
    for (const float y : Multiply(pool, stored.view, x.data(), 1)) EXPECT_NEAR(y, 0.0F, 1e-28F);
  }
}

}  // namespace
}  // namespace macrame::runtime::kernels
