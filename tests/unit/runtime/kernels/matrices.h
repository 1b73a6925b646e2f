#pragma once

// Matrices in every storage together with what they mean, and what a product with them should be.
// No test framework here: the NEON check is built for a machine that has none.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/kernels/matmul.h"

namespace macrame::runtime::kernels {

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed) {}
  uint32_t Next() {
    state_ = state_ * 1664525U + 1013904223U;
    return state_ >> 8;
  }
  // In [-1, 1].
  float Float() { return static_cast<float>(Next() % 2001) / 1000.0F - 1.0F; }

 private:
  uint32_t state_;
};

// Memory that ends where a page begins that can't be read: a read past it ends the test.
class GuardedBytes {
 public:
  explicit GuardedBytes(const std::vector<uint8_t>& bytes);
  ~GuardedBytes();
  GuardedBytes(GuardedBytes&& other) noexcept;
  GuardedBytes& operator=(GuardedBytes&&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* pages_ = nullptr;
  size_t size_ = 0;
  uint8_t* data_ = nullptr;
};

struct Storage {
  int bits;
  int group_size;
  Packing packing = Packing::kAffine;
};
constexpr Storage kMxfp4 = {4, 32, Packing::kMxfp4};
constexpr Storage kMxfp8 = {8, 32, Packing::kMxfp8};
constexpr Storage kNvfp4 = {4, 16, Packing::kNvfp4};

struct StoredMatrix {
  MatrixView view;
  std::vector<GuardedBytes> memory;
  std::vector<double> meaning;  // [rows][columns]
};

StoredMatrix MakeMatrix(size_t rows, size_t columns, int bits, int group_size, Scalar type,
                        uint32_t seed);
StoredMatrix MakeMxfp4Matrix(size_t rows, size_t columns, uint32_t seed);
StoredMatrix MakeMxfp8Matrix(size_t rows, size_t columns, uint32_t seed);
StoredMatrix MakeNvfp4Matrix(size_t rows, size_t columns, uint32_t seed);

// Of any storage; `type` is that of floats and of affine scales.
StoredMatrix Make(size_t rows, size_t columns, const Storage& storage, Scalar type, uint32_t seed);

// What an e4m3 byte stands for; 127 and 255 are no numbers.
double E4m3Meaning(uint8_t byte);

// Rows [begin, end) as a matrix of their own.
MatrixView RowsOf(const MatrixView& matrix, size_t begin, size_t end);

// `count` vectors whose numbers differ as a model's do: most small, some a hundred times that.
std::vector<float> MakeVectors(size_t count, size_t columns, uint32_t seed);

// The product by the kernels, x and y in guarded memory, y filled with NaN before.
std::vector<float> Multiply(ThreadPool& pool, const MatrixView& matrix, const float* x,
                            size_t count);

// The largest error of y over what it may be; at most 1 when right. Products are summed in float32,
// and with quantised weights each activation is off by up to half of a 32639th of its group's
// largest.
double WorstError(const StoredMatrix& matrix, const std::vector<float>& x, size_t count,
                  const std::vector<float>& y);

}  // namespace macrame::runtime::kernels
