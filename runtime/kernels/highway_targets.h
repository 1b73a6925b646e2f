#pragma once

// Which instruction sets the kernels are compiled for. Included before Highway's headers.

// AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and newer).
#define HWY_WANT_AVX3_DL
// The scalar target lacks what is used here, SSE4 adds compile time and no speed, and vectors of
// SVE, whose size isn't known when compiling, can't be kept in arrays: NEON is used instead.
#define HWY_DISABLED_TARGETS \
  (HWY_SCALAR | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Whether the instruction set that is being compiled has 512 bit VNNI: AVX3_DL and, in a newer
// Highway, those after it, whose numbers are lower.
#define MACRAME_HAS_WIDE_VNNI (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL)

// Loops over arrays of vectors, which stay in registers only if the compiler unrolls them.
#ifdef __clang__
#define MACRAME_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MACRAME_UNROLL _Pragma("GCC unroll 32")
#endif
