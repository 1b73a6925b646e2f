#pragma once

// The instruction sets that kernels are compiled for, one by one.

#include <cstdint>
#include <vector>

#include "hwy/highway.h"

namespace macrame::runtime::kernels {

// From here on, this instruction set only, until the end of the scope.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnlyTarget() { hwy::SetSupportedTargetsForTest(0); }
};

// Those that this machine has. AVX3_DL is AVX3 where a kernel is not compiled for it.
inline std::vector<int64_t> Targets() {
  std::vector<int64_t> targets;
  const int64_t compiled = HWY_SSSE3 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL | HWY_NEON;
  for (int64_t left = hwy::SupportedTargets() & compiled; left != 0; left &= left - 1) {
    targets.push_back(left & -left);
  }
  return targets;
}

}  // namespace macrame::runtime::kernels
