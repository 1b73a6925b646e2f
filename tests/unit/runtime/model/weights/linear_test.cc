// Weights in MLX's modes with a byte for a scale: our kernels' numbers are MLX's own, but for the
// sign of a zero, and so is what both make of an input.

#include "runtime/model/weights/linear.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/kernels/matmul.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;
using Floats = std::vector<float>;

struct Mode {
  const char* name;
  QuantizationTraits traits;
  kernels::Packing packing;
};
const Mode kModes[] = {
    {"mxfp4", {4, 32, QuantizationMode::kMxfp4}, kernels::Packing::kMxfp4},
    {"mxfp8", {8, 32, QuantizationMode::kMxfp8}, kernels::Packing::kMxfp8},
    {"nvfp4", {4, 16, QuantizationMode::kNvfp4}, kernels::Packing::kNvfp4},
};

Floats FloatsOf(const mx::array& given) {
  mx::array plain = mx::contiguous(mx::astype(given, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

// A matrix [rows, columns] as MLX holds it, and as the kernels read it in place.
struct Quantised {
  Quantised(const Mode& mode, mx::array words, mx::array bytes)
      : weight(std::move(words)), scales(std::move(bytes)) {
    mx::eval(weight, scales);
    view.rows = static_cast<size_t>(weight.shape(0));
    view.columns = static_cast<size_t>(weight.shape(1) * 32 / mode.traits.bits);
    view.bits = mode.traits.bits;
    view.group_size = mode.traits.group_size;
    view.packing = mode.packing;
    view.weights = weight.data<uint32_t>();
    view.scales = scales.data<uint8_t>();
  }
  mx::array weight, scales;
  kernels::MatrixView view;
};

// As the converter makes it.
Quantised OfNumbers(const Mode& mode, int rows, int columns) {
  const mx::array w =
      mx::random::normal({rows, columns}, mx::float32, 0.0F, 0.3F, mx::random::key(3));
  const std::vector<mx::array> made =
      mx::quantize(w, mode.traits.group_size, mode.traits.bits, mode.name);
  EXPECT_EQ(made.size(), 2U) << "no biases";
  return {mode, made[0], made[1]};
}

// Each number with each scale that is one: a row for each scale.
Quantised OfBytes(const Mode& mode) {
  std::vector<uint8_t> weights, scales;
  const int columns = 512;
  for (int scale = 0; scale < 255; ++scale) {
    if (mode.packing == kernels::Packing::kNvfp4 && scale == 127) continue;
    for (int i = 0; i < columns * mode.traits.bits / 8; ++i) {
      weights.push_back(static_cast<uint8_t>(i));
      if (mode.traits.bits == 8 && (i & 127) == 127) weights.back() = 0;
    }
    scales.insert(scales.end(), static_cast<size_t>(columns / mode.traits.group_size),
                  static_cast<uint8_t>(scale));
  }
  const int words = columns * mode.traits.bits / 32;
  const auto rows = static_cast<int>(weights.size() / 4) / words;
  std::vector<uint32_t> packed(weights.size() / 4);
  std::memcpy(packed.data(), weights.data(), weights.size());
  return {mode, mx::array(packed.data(), {rows, words}, mx::uint32),
          mx::array(scales.data(), {rows, columns / mode.traits.group_size}, mx::uint8)};
}

Floats DequantizedByMlx(const Mode& mode, const Quantised& matrix) {
  return FloatsOf(mx::dequantize(matrix.weight, matrix.scales, std::nullopt, mode.traits.group_size,
                                 mode.traits.bits, mode.name,
                                 /*global_scale=*/std::nullopt, mx::float32));
}

TEST(LinearTest, KernelsReadTheNumbersThatMlxDoes) {
  mx::set_default_device(mx::Device::cpu);
  for (const Mode& mode : kModes) {
    for (const Quantised& matrix : {OfNumbers(mode, 37, 96), OfBytes(mode)}) {
      std::vector<int32_t> rows(matrix.view.rows);
      std::iota(rows.begin(), rows.end(), 0);
      Floats ours(matrix.view.rows * matrix.view.columns);
      kernels::GatherRows(matrix.view, rows.data(), rows.size(), ours.data());
      const Floats theirs = DequantizedByMlx(mode, matrix);
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i], theirs[i]) << mode.name << ", row " << i / matrix.view.columns;
      }
    }
  }
}

TEST(LinearTest, BothEnginesGiveTheSameRowsAndProducts) {
  mx::set_default_device(mx::Device::cpu);
  for (const Mode& mode : kModes) {
    const Quantised matrix = OfNumbers(mode, 70, 192);
    const auto owner = std::make_shared<int>();
    const Linear kernels(matrix.view, owner, std::nullopt);
    const Linear arrays(matrix.weight, matrix.scales, std::nullopt, mode.traits, std::nullopt);
    const Floats numbers = DequantizedByMlx(mode, matrix);
    EXPECT_EQ(FloatsOf(arrays.Floats()), numbers) << mode.name;
    const std::vector<int32_t> ids = {69, 0, 41};
    Floats picked;
    for (const int32_t id : ids) {
      picked.insert(picked.end(), numbers.begin() + id * 192, numbers.begin() + (id + 1) * 192);
    }
    for (const mx::Dtype type : {mx::float32, mx::bfloat16}) {
      EXPECT_EQ(FloatsOf(kernels.Rows(ids, type)), picked) << mode.name;
      EXPECT_EQ(FloatsOf(arrays.Rows(ids, type)), picked) << mode.name;
    }
    const mx::array x = mx::random::normal({3, 192}, mx::float32, 0.0F, 1.0F, mx::random::key(7));
    const Floats by_kernels = FloatsOf(kernels.Apply(x)), by_mlx = FloatsOf(arrays.Apply(x));
    const Floats input = FloatsOf(x);
    for (size_t i = 0; i < 3 * 70; ++i) {
      double exact = 0;
      for (size_t c = 0; c < 192; ++c) {
        exact += double{input[i / 70 * 192 + c]} * double{numbers[i % 70 * 192 + c]};
      }
      const double bound = mode.packing == kernels::Packing::kMxfp4 ? 1e-3 : 2e-5;
      ASSERT_NEAR(by_kernels[i], exact, bound) << mode.name;
      ASSERT_NEAR(by_mlx[i], exact, 2e-5) << mode.name;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
