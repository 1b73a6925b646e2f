#pragma once

// GGUF's kinds of blocks whose numbers are no multiples of one step: entries of codebooks (IQ1,
// IQ2, IQ3), steps that grow (IQ4), 4-bit floats (NVFP4), and those of one to three values (TQ,
// Q1_0, Q2_0). Pure.
//
// Where all numbers of a group of 32 share a scale and are whole multiples of it that few bits can
// count, the group is stored so: nothing but the rounding of the scale to float16 is lost.
//
// Source of the layouts: ggml's ggml-common.h and ggml-quants.c (dequantize_row_*).

#include <cstddef>

#include "runtime/gguf/block_group.h"

namespace macrame::runtime::gguf {

// Whether LatticeGroup has this kind's groups; of the others, DequantizeLattice has the numbers.
bool IsLatticeGroup(uint32_t type);
// Group `index` of a block.
Group LatticeGroup(uint32_t type, const std::byte* block, size_t index);

// False for kinds that it does not have. `out` takes the numbers of the whole block.
bool DequantizeLattice(uint32_t type, const std::byte* block, float* out);

}  // namespace macrame::runtime::gguf
