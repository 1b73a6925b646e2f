#include "runtime/kernels/narrow_weights.h"

namespace macrame::runtime::kernels {
namespace {

// Eight numbers lie in kBits bytes, and come to lie in kWide.
template <int kBits, int kWide>
void WidenEights(const uint8_t* from, size_t eights, uint8_t* to) {
  constexpr uint64_t kMask = (1U << kBits) - 1;
  for (size_t i = 0; i < eights; ++i, from += kBits, to += kWide) {
    uint64_t narrow = 0;
    for (int byte = 0; byte < kBits; ++byte) narrow |= uint64_t{from[byte]} << (8 * byte);
    uint64_t wide = 0;
    for (int number = 0; number < 8; ++number) {
      wide |= (narrow >> (kBits * number) & kMask) << (kWide * number);
    }
    for (int byte = 0; byte < kWide; ++byte) to[byte] = static_cast<uint8_t>(wide >> (8 * byte));
  }
}

}  // namespace

void WidenWeights(const MatrixView& matrix, size_t begin, size_t end, uint8_t* out) {
  const auto* from = static_cast<const uint8_t*>(matrix.weights) + begin * WeightRowBytes(matrix);
  const size_t eights = (end - begin) * matrix.columns / 8;
  switch (matrix.bits) {
    case 2:
      return WidenEights<2, 4>(from, eights, out);
    case 3:
      return WidenEights<3, 4>(from, eights, out);
    default:
      return WidenEights<5, 8>(from, eights, out);
  }
}

}  // namespace macrame::runtime::kernels
