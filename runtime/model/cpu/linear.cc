#include "runtime/model/cpu/linear.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "proto/check.h"
#include "runtime/kernels/elementwise.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

FloatBuffer::~FloatBuffer() { std::free(data_); }

float* FloatBuffer::Reserve(size_t count) {
  if (count <= count_) return data_;
  constexpr size_t kLineBytes = 64;
  const size_t bytes = (count * sizeof(float) + kLineBytes - 1) / kLineBytes * kLineBytes;
  std::free(data_);
  count_ = 0;
  data_ = static_cast<float*>(std::aligned_alloc(kLineBytes, bytes));
  if (data_ == nullptr) throw std::bad_alloc();
  count_ = count;
  return data_;
}

CpuLinear::CpuLinear(Linear matrix) : matrix_(std::move(matrix)) {
  MACRAME_CHECK(matrix_.view().weights != nullptr) << "weights that no CPU kernel can read";
  if (!matrix_.bias().has_value()) return;
  bias_ = mx::contiguous(mx::astype(*matrix_.bias(), mx::float32));
  bias_->eval();
}

void CpuProducts::Apply(const CpuLinear& map, float* y) {
  MACRAME_CHECK(map.columns() == input_.columns()) << map.columns() << ", " << input_.columns();
  if (map.columns() > 0) {
    kernels::MultiplyTransposed(pool_, map.view(), input_, y, scratch_);
  } else {
    std::fill_n(y, input_.count() * map.rows(), 0.0F);
  }
  if (map.bias() == nullptr) return;
  for (size_t i = 0; i < input_.count(); ++i) {
    kernels::AddTo(map.bias(), map.rows(), y + i * map.rows());
  }
}

}  // namespace macrame::runtime::engine
