#include "tests/unit/runtime/kernels/matrices.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace macrame::runtime::kernels {
namespace {

uint16_t ToBfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}

float FromBfloat16(uint16_t raw) {
  const uint32_t bits = uint32_t{raw} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Halves of the form k/64 are exact and have simple bits.
uint16_t ToHalf(float value) {
  if (value == 0.0F) return 0;
  int exponent;
  const float mantissa = std::frexp(std::fabs(value), &exponent);
  const auto fraction = static_cast<uint16_t>(std::lround((mantissa * 2.0F - 1.0F) * 1024.0F));
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 14) << 10) | fraction);
}

// Appends `value` and returns what is stored of it.
float PutScalar(std::vector<uint8_t>& out, Scalar type, float value) {
  if (type == Scalar::kFloat32) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), bytes, bytes + 4);
    return value;
  }
  uint16_t raw;
  if (type == Scalar::kBfloat16) {
    raw = ToBfloat16(value);
    value = FromBfloat16(raw);
  } else {
    value = std::round(value * 64.0F) / 64.0F;
    raw = ToHalf(value);
  }
  out.push_back(static_cast<uint8_t>(raw & 0xff));
  out.push_back(static_cast<uint8_t>(raw >> 8));
  return value;
}

constexpr double kFp4Sizes[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};

double Fp4Meaning(uint32_t number) { return (number < 8 ? 1.0 : -1.0) * kFp4Sizes[number & 7]; }

// A matrix of packed floats from its bytes.
void SetPacked(StoredMatrix& stored, size_t rows, size_t columns, const Storage& storage,
               const std::vector<uint8_t>& weights, const std::vector<uint8_t>& scales) {
  stored.memory.emplace_back(weights);
  stored.memory.emplace_back(scales);
  stored.view.rows = rows;
  stored.view.columns = columns;
  stored.view.bits = storage.bits;
  stored.view.group_size = storage.group_size;
  stored.view.packing = storage.packing;
  stored.view.weights = stored.memory[0].data();
  stored.view.scales = stored.memory[1].data();
}

}  // namespace

GuardedBytes::GuardedBytes(const std::vector<uint8_t>& bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (bytes.size() + page - 1) / page * page;
  size_ = used + page;
  void* pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) std::abort();
  pages_ = static_cast<uint8_t*>(pages);
  if (mprotect(pages_ + used, page, PROT_NONE) != 0) std::abort();
  data_ = pages_ + used - bytes.size();
  std::copy(bytes.begin(), bytes.end(), data_);
}

GuardedBytes::GuardedBytes(GuardedBytes&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), size_(other.size_), data_(other.data_) {}

GuardedBytes::~GuardedBytes() {
  if (pages_ != nullptr) munmap(pages_, size_);
}

StoredMatrix MakeMatrix(size_t rows, size_t columns, int bits, int group_size, Scalar type,
                        uint32_t seed) {
  Numbers numbers(seed);
  StoredMatrix stored;
  std::vector<uint8_t> weights, scales, biases;
  for (size_t row = 0; row < rows; ++row) {
    uint64_t pending = 0;
    int pending_bits = 0;
    float scale = 0.0F;
    float bias = 0.0F;
    for (size_t column = 0; column < columns; ++column) {
      if (bits == 0) {
        stored.meaning.push_back(double{PutScalar(weights, type, numbers.Float())});
        continue;
      }
      if (column % static_cast<size_t>(group_size) == 0) {
        scale = PutScalar(scales, type, numbers.Float() / 8.0F);
        bias = PutScalar(biases, type, numbers.Float());
      }
      const uint32_t number = numbers.Next() & ((1U << bits) - 1);
      pending |= uint64_t{number} << pending_bits;
      for (pending_bits += bits; pending_bits >= 8; pending_bits -= 8, pending >>= 8) {
        weights.push_back(static_cast<uint8_t>(pending & 0xff));
      }
      stored.meaning.push_back(double{scale} * number + double{bias});
    }
  }
  stored.memory.emplace_back(weights);
  stored.memory.emplace_back(scales);
  stored.memory.emplace_back(biases);
  stored.view = {rows,
                 columns,
                 bits,
                 group_size,
                 type,
                 stored.memory[0].data(),
                 stored.memory[1].data(),
                 stored.memory[2].data(),
                 Packing::kAffine};
  return stored;
}

StoredMatrix MakeMxfp4Matrix(size_t rows, size_t columns, uint32_t seed) {
  Numbers numbers(seed);
  StoredMatrix stored;
  std::vector<uint8_t> weights, scales;
  double scale = 0.0;
  for (size_t i = 0; i < rows * columns; ++i) {
    if (i % 32 == 0) {
      scales.push_back(static_cast<uint8_t>(116 + numbers.Next() % 12));
      scale = std::ldexp(1.0, scales.back() - 127);
    }
    const uint32_t number = numbers.Next() & 15;
    if (i % 2 == 0) weights.push_back(0);
    weights.back() = static_cast<uint8_t>(weights.back() | number << i % 2 * 4);
    stored.meaning.push_back(scale * Fp4Meaning(number));
  }
  SetPacked(stored, rows, columns, kMxfp4, weights, scales);
  return stored;
}

StoredMatrix MakeMxfp8Matrix(size_t rows, size_t columns, uint32_t seed) {
  Numbers numbers(seed);
  StoredMatrix stored;
  std::vector<uint8_t> weights, scales;
  for (size_t i = 0; i < rows * columns; ++i) {
    if (i % 32 == 0) scales.push_back(static_cast<uint8_t>(116 + numbers.Next() % 12));
    const auto byte = static_cast<uint8_t>(numbers.Next() & 0xff);
    weights.push_back((byte & 0x7f) == 0x7f ? uint8_t{0} : byte);
    stored.meaning.push_back(std::ldexp(E4m3Meaning(weights.back()), scales.back() - 127));
  }
  SetPacked(stored, rows, columns, kMxfp8, weights, scales);
  return stored;
}

StoredMatrix MakeNvfp4Matrix(size_t rows, size_t columns, uint32_t seed) {
  Numbers numbers(seed);
  StoredMatrix stored;
  std::vector<uint8_t> weights, scales;
  for (size_t i = 0; i < rows * columns; ++i) {
    if (i % 16 == 0) scales.push_back(static_cast<uint8_t>(numbers.Next() % 0x40));
    const uint32_t number = numbers.Next() & 15;
    if (i % 2 == 0) weights.push_back(0);
    weights.back() = static_cast<uint8_t>(weights.back() | number << i % 2 * 4);
    stored.meaning.push_back(E4m3Meaning(scales.back()) * Fp4Meaning(number));
  }
  SetPacked(stored, rows, columns, kNvfp4, weights, scales);
  return stored;
}

StoredMatrix Make(size_t rows, size_t columns, const Storage& storage, Scalar type, uint32_t seed) {
  switch (storage.packing) {
    case Packing::kAffine:
      return MakeMatrix(rows, columns, storage.bits, storage.group_size, type, seed);
    case Packing::kMxfp4:
      return MakeMxfp4Matrix(rows, columns, seed);
    case Packing::kMxfp8:
      return MakeMxfp8Matrix(rows, columns, seed);
    case Packing::kNvfp4:
      return MakeNvfp4Matrix(rows, columns, seed);
  }
  std::abort();
}

double E4m3Meaning(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return byte >= 128 ? -size : size;
}

MatrixView RowsOf(const MatrixView& matrix, size_t begin, size_t end) {
  MatrixView part = matrix;
  part.rows = end - begin;
  part.weights = static_cast<const uint8_t*>(matrix.weights) + begin * WeightRowBytes(matrix);
  if (matrix.bits != 0) {
    const size_t scale_bytes = ScaleRowBytes(matrix);
    part.scales = static_cast<const uint8_t*>(matrix.scales) + begin * scale_bytes;
    if (matrix.biases != nullptr) {
      part.biases = static_cast<const uint8_t*>(matrix.biases) + begin * scale_bytes;
    }
  }
  return part;
}

std::vector<float> MakeVectors(size_t count, size_t columns, uint32_t seed) {
  Numbers numbers(seed);
  std::vector<float> x(count * columns);
  for (float& value : x) {
    value = numbers.Float();
    if (numbers.Next() % 200 == 0) value *= 100.0F;
  }
  return x;
}

std::vector<float> Multiply(ThreadPool& pool, const MatrixView& matrix, const float* x,
                            size_t count) {
  std::vector<uint8_t> x_bytes(count * matrix.columns * sizeof(float));
  std::memcpy(x_bytes.data(), x, x_bytes.size());
  const GuardedBytes guarded_x(x_bytes);
  const float nothing = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> y(count * matrix.rows, nothing);
  std::vector<uint8_t> y_bytes(y.size() * sizeof(float));
  std::memcpy(y_bytes.data(), y.data(), y_bytes.size());
  const GuardedBytes guarded_y(y_bytes);
  Activations activations;
  Scratch scratch;
  activations.Set(reinterpret_cast<const float*>(guarded_x.data()), count, matrix.columns);
  MultiplyTransposed(pool, matrix, activations, reinterpret_cast<float*>(guarded_y.data()),
                     scratch);
  std::memcpy(y.data(), guarded_y.data(), y_bytes.size());
  return y;
}

double WorstError(const StoredMatrix& matrix, const std::vector<float>& x, size_t count,
                  const std::vector<float>& y) {
  const size_t columns = matrix.view.columns;
  const bool whole = matrix.view.bits != 0 && !IsPackedFloats(matrix.view);
  const size_t group = whole ? static_cast<size_t>(matrix.view.group_size) : 1;
  double worst = 0.0;
  for (size_t m = 0; m < count; ++m) {
    const float* vector = x.data() + m * columns;
    std::vector<double> step(columns, 0.0);  // half of what q counts in
    for (size_t c = 0; c < columns && whole; c += group) {
      double largest = 0.0;
      for (size_t i = 0; i < group; ++i) {
        largest = std::max(largest, std::fabs(double{vector[c + i]}));
      }
      std::fill_n(step.begin() + static_cast<std::ptrdiff_t>(c), group, largest / 32639.0 / 2.0);
    }
    for (size_t row = 0; row < matrix.view.rows; ++row) {
      const double* meaning = matrix.meaning.data() + row * columns;
      double sum = 0.0;
      double may_be = 1e-6;
      for (size_t c = 0; c < columns; ++c) {
        sum += meaning[c] * double{vector[c]};
        may_be += std::fabs(meaning[c]) * (step[c] * 1.001 + std::fabs(double{vector[c]}) * 2e-6);
      }
      const double error = std::fabs(sum - double{y[m * matrix.view.rows + row]}) / may_be;
      if (!(error <= worst)) worst = error;  // also a NaN
      if (std::isnan(worst)) return std::numeric_limits<double>::infinity();
    }
  }
  return worst;
}

}  // namespace macrame::runtime::kernels
