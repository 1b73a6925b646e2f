#include "runtime/kernels/packed_floats.h"

#include <cstddef>

namespace macrame::runtime::kernels {
namespace {

template <typename Meaning>
constexpr ScaleTable TableOf(Meaning meaning) {
  ScaleTable table{};
  for (size_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = meaning(static_cast<uint8_t>(byte));
  }
  return table;
}

}  // namespace

constexpr ScaleTable kE4m3Scales = TableOf(FromE4m3);
constexpr ScaleTable kE8m0Scales = TableOf(FromE8m0);

}  // namespace macrame::runtime::kernels
