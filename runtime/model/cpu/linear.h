#pragma once

// Linear maps over CPU kernels, applied to plain float32 buffers. Maps that share their input share
// what is prepared of it: SetInput once, then Apply each.

#include <cstddef>
#include <optional>

#include "mlx/mlx.h"
#include "runtime/kernels/activations.h"
#include "runtime/kernels/matmul.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/weights/linear.h"

namespace macrame::runtime::engine {

// Memory that grows and never shrinks, on a cache line's boundary. What was in it is lost when it
// grows.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  ~FloatBuffer();
  FloatBuffer(const FloatBuffer&) = delete;
  FloatBuffer& operator=(const FloatBuffer&) = delete;

  float* Reserve(size_t count);
  float* data() const { return data_; }
  size_t bytes() const { return count_ * sizeof(float); }

 private:
  float* data_ = nullptr;
  size_t count_ = 0;
};

class CpuLinear {
 public:
  // The matrix must have been loaded for kernels.
  explicit CpuLinear(Linear matrix);

  size_t rows() const { return matrix_.view().rows; }
  size_t columns() const { return matrix_.view().columns; }
  const kernels::MatrixView& view() const { return matrix_.view(); }
  const float* bias() const { return bias_.has_value() ? bias_->data<float>() : nullptr; }

 private:
  Linear matrix_;  // keeps the memory of the view
  std::optional<mlx::core::array> bias_;
};

class CpuProducts {
 public:
  explicit CpuProducts(kernels::ThreadPool& pool) : pool_(pool) {}

  // `count` vectors without gaps, which must stay as they are until the last Apply.
  void SetInput(const float* x, size_t count, size_t columns) { input_.Set(x, count, columns); }
  // y [count, map.rows()] = the map of each vector, plus its bias.
  void Apply(const CpuLinear& map, float* y);
  size_t memory_bytes() const { return input_.memory_bytes() + scratch_.memory_bytes(); }

 private:
  kernels::ThreadPool& pool_;
  kernels::Activations input_;
  kernels::Scratch scratch_;
};

}  // namespace macrame::runtime::engine
