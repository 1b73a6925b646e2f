#pragma once

// Numbers rounded to what 8-bit and 4-bit floats with a scale for each block can hold, and kept as
// float32: models that were trained with such keys round theirs so (DeepSeek-V4.1). Pure; any
// thread. Numbers whose count is no multiple of a block's size stay as they are.

#include <cstddef>

namespace macrame::runtime::kernels {

// e4m3: sign, four bits of exponent, three of mantissa; what is larger than 448 becomes that. Ties
// go to the even mantissa.
float RoundToE4m3(float x);

// 8-bit floats (e4m3) whose scale is the least power of two that holds the block's largest number.
inline constexpr size_t kFp8Block = 32;
void RoundToFp8(float* x, size_t size);

// 4-bit floats (e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6), ties to the even one. The scale of a block is
// the least power of two that holds its largest number, or that number's sixth as e4m3.
enum class Fp4Scale { kPowerOfTwo, kE4m3 };
void RoundToFp4(float* x, size_t size, size_t block, Fp4Scale scale);

}  // namespace macrame::runtime::kernels
