#pragma once

// The innermost loop of products with several vectors on processors with AMX: integer tiles of
// 16 vectors x 16 rows. Its results have the bits of the other loops, since a group's integer sum
// is exact. Other machines get functions that say no.

#include <cstddef>

#include "runtime/kernels/activations.h"

namespace macrame::runtime::kernels {

inline constexpr size_t kAmxVectors = 16;
inline constexpr size_t kAmxRows = 16;  // in a block, of which there are two

// Unpacked weights of two blocks of 16 rows: weights [column / 4][16][4], scales and biases
// [group][16]. Groups [first_group, first_group + groups) of `all_groups`. Bytes of weights are
// `offset` larger than the weights.
struct AmxPanel {
  const uint8_t* weights[2];
  const float* scales[2];
  const float* biases[2];
  size_t first_group;
  size_t groups;
  size_t all_groups;
  int offset;
};

// Whether the processor has AMX and the system grants it to this process: asked once.
bool AmxUsable();

// sums[vector][block][row] += the panel's products with vectors [m, m + count), count at most 16.
void MultiplyPanelAmx(const AmxPanel& panel, const QuantizedForm& form, size_t m, size_t count,
                      float* sums);

// Gives the tiles of this thread back, after its last panel of a product.
void ReleaseAmx();

}  // namespace macrame::runtime::kernels
