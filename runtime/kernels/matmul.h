#pragma once

// Matrix products for CPUs, over weights as they are stored: nothing is unpacked ahead of time.
// Those of 2, 3 and 5 bits are widened a few rows at a time at each product (narrow_weights.h).
//
// Written with Highway and chosen at run time: AVX-512 with VNNI (and AMX where the system grants
// it), AVX-512, AVX2, SSSE3, NEON with or without dot products.
//
// The bits of y[m][r] depend on x[m], on row r and on the instruction set alone: not on the number
// of threads, nor on which or how many other vectors are multiplied with it, nor on where the rows
// of a matrix are cut. So a token gets the same logits alone, in a batch and in a prompt's chunk.
// Quantised: exact integer sums in each group (activations.h), then float32 from the first group to
// the last. Floats, also packed ones (kMxfp8, kNvfp4), whose meaning is exact in float32: one
// float32 sum in each lane, added up at the end.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/activations.h"
#include "runtime/kernels/matrix_view.h"
#include "runtime/kernels/thread_pool.h"

namespace macrame::runtime::kernels {

// What products need beside their result, kept from one to the next. At most kPanelBytesMax for
// each thread of the pool; for matrices of plain floats, 32 bytes for each column; for narrow
// weights as many again, and 128 for each vector.
struct Scratch {
  std::vector<AlignedBuffer> panels;  // of each worker
  // Likewise: some rows of narrow weights, widened, and what they give.
  std::vector<AlignedBuffer> widened, given;

  size_t memory_bytes() const {
    size_t bytes = 0;
    for (const auto* buffers : {&panels, &widened, &given}) {
      for (const AlignedBuffer& buffer : *buffers) bytes += buffer.bytes();
    }
    return bytes;
  }
};
inline constexpr size_t kPanelBytesMax = 64 * 1024;

// y[m][r] = sum over c of x[m][c] * matrix[r][c]; y is x.count() x matrix.rows without gaps.
void MultiplyTransposed(ThreadPool& pool, const MatrixView& matrix, Activations& x, float* y,
                        Scratch& scratch);

// out[i] = row rows[i] of the matrix, as float32. Every index must be below matrix.rows.
void GatherRows(const MatrixView& matrix, const int32_t* rows, size_t count, float* out);

// The instruction set in use, for logs: "AVX2", "AVX3_DL with AMX", "NEON".
const char* InstructionSet();

}  // namespace macrame::runtime::kernels
