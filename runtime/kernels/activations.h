#pragma once

// The vectors that weight matrices are multiplied by, in the forms that the kernels read.
//
// Products with quantised weights are integer dot products: each group of activations becomes
// s * q with q a 16 bit integer (s = the group's largest / 32639), which is exact enough for
// logits, where 8 bits are not. Where a machine multiplies bytes fastest, q is two of them,
// 256 * q1 + q2. A group's integer sum is exact in int32 in both forms, so a product's bits
// depend on neither.
//
// Each form is made once, when the first matrix asks for it: the matrices that share an input
// (q, k, v; gate, up) share it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/kernels/matrix_view.h"
#include "runtime/kernels/thread_pool.h"

namespace macrame::runtime::kernels {

// Memory that grows and never shrinks, on a cache line's boundary.
class AlignedBuffer {
 public:
  // At least `bytes`; what was there is lost if it has to grow.
  uint8_t* Reserve(size_t bytes);
  uint8_t* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  std::unique_ptr<uint8_t[], Free> data_;
  size_t bytes_ = 0;
};

// All vectors in one integer form.
struct QuantizedForm {
  int bits = 0;  // of the weights it is for: their order of columns in memory decides ours
  size_t group_size = 0;
  size_t stride = 0;  // bytes from one vector to the next in a plane
  // Bytes: the plane of q1 and that of q2. 16 bit integers: `low` alone.
  const int8_t* high = nullptr;
  const int8_t* low = nullptr;
  const float* scales = nullptr;          // [count][groups]: s
  const float* sums = nullptr;            // [count][groups]: s times the sum of the group's q
  const int32_t* integer_sums = nullptr;  // [count][groups]: the sum of the group's q
};

class Activations {
 public:
  // `count` vectors of `columns` without gaps. `x` must stay as it is until the last product.
  void Set(const float* x, size_t count, size_t columns);

  const float* x() const { return x_; }
  size_t count() const { return count_; }
  size_t columns() const { return columns_; }

  // The form for a matrix with bits != 0; made now if it isn't there.
  const QuantizedForm& FormFor(ThreadPool& pool, const MatrixView& matrix);
  // What the forms take.
  size_t memory_bytes() const;

 private:
  struct Slot {
    QuantizedForm form;
    bool valid = false;
    AlignedBuffer memory;
  };

  const float* x_ = nullptr;
  size_t count_ = 0;
  size_t columns_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace macrame::runtime::kernels
