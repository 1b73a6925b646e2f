#pragma once

// Products with matrices of plain floats (bits == 0) and of packed ones (IsPackedFloats); matmul.h
// is the way in.

#include <vector>

#include "runtime/kernels/activations.h"
#include "runtime/kernels/matrix_view.h"
#include "runtime/kernels/thread_pool.h"

namespace macrame::runtime::kernels {

// As MultiplyTransposed; `panels` has an element for each worker.
void MultiplyDense(ThreadPool& pool, const MatrixView& matrix, const Activations& x, float* y,
                   std::vector<AlignedBuffer>& panels);

}  // namespace macrame::runtime::kernels
