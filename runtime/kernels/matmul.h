#pragma once

// Matrix products for CPUs, over weights as they are stored: nothing is unpacked ahead of time.
//
// MLX's own quantised product is scalar on x86 and its float one goes through the reference BLAS;
// these are written once with Highway and pick AVX2, AVX-512 or NEON at run time. Sums are float32.
// All functions are pure, may run on any thread, and never allocate more than kScratchBytesMax.

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/matrix_view.h"

namespace macrame::runtime::kernels {

// Rows are unpacked so many at a time; a row longer than this many columns is done in pieces.
inline constexpr size_t kUnpackedRows = 8;
inline constexpr size_t kUnpackedColumnsMax = 4096;
inline constexpr size_t kScratchBytesMax = kUnpackedRows * kUnpackedColumnsMax * sizeof(float) + 64;

// y[m][r] = sum over c of x[m][c] * matrix[r][c], for `count` vectors x and rows [row_begin,
// row_end). x: count x matrix.columns, y: count x matrix.rows, both without gaps; other rows of y
// stay untouched.
void MultiplyTransposed(const MatrixView& matrix, const float* x, size_t count, float* y,
                        size_t row_begin, size_t row_end);

// out[i] = row rows[i] of the matrix, as float32. Every index must be below matrix.rows.
void GatherRows(const MatrixView& matrix, const int32_t* rows, size_t count, float* out);

// The instruction set in use, for logs: "AVX2", "AVX3_ZEN4", "NEON".
const char* InstructionSet();

}  // namespace macrame::runtime::kernels
