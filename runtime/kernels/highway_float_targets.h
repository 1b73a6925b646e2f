#pragma once

// Which instruction sets kernels over floats are compiled for. Included before Highway's headers.
//
// SVE's vectors, whose size isn't known when compiling, can't be kept in arrays; AVX3_DL has
// nothing that is used there.
#define HWY_DISABLED_TARGETS \
  (HWY_SCALAR | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
