#pragma once

// The kinds of blocks that GGUF stores numbers in, and what each becomes: MLX's affine groups of
// 32, number = scale * q + bias, with q of 4, 6 or 8 bits and scale and bias in float16; or floats
// as they are. Pure.
//
//   Q4_0 Q4_1      4 bits, exact
//   Q8_0           8 bits, exact
//   Q5_0 Q5_1      6 bits, exact (q stays below 32; there are no kernels for 5)
//   Q4_K           4 bits: its groups of 32 stay, their scale and least number are rounded to
//   float16 Q5_K           6 bits, likewise Q6_K           8 bits: two of its groups of 16 share a
//   scale then, the nearest is computed anew Q2_K Q3_K      6 bits, likewise MXFP4          as
//   MLX's mode of that name, exact NVFP4          8 bits, as Q6_K IQ4_NL         8 bits, exact;
//   IQ4_XS the same but for the rounding of scales to float16 IQ3_XXS IQ3_S  6 and 4 bits, rounded
//   so too; IQ1_S 2 bits, likewise IQ2 IQ1_M      6 bits, as Q2_K TQ1_0 TQ2_0 Q1_0 Q2_0   2 bits,
//   exact F32 F16 BF16   exact
//
// Source of the blocks: ggml's ggml-common.h and ggml-quants.c (dequantize_row_*).

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace macrame::runtime::gguf {

inline constexpr uint32_t kGroupSize = 32;
inline constexpr uint32_t kBlockElementsMax = 256;

struct BlockForm {
  uint32_t type;  // GGUF's number of it
  std::string_view name;
  uint32_t elements;  // in a block
  uint32_t bytes;
  int bits;  // as stored after import; 0: as floats
  bool exact;
  bool mxfp4 = false;  // stored as MLX's mode of that name, not as affine groups
};

// Null for kinds that are not imported.
const BlockForm* FindBlockForm(uint32_t type);
// For messages: also of kinds that are not imported.
std::string BlockTypeName(uint32_t type);

// What conversion changed, over all that was converted.
struct ConversionError {
  double squared_error = 0;
  double squared = 0;     // of the numbers themselves
  bool infinite = false;  // a scale that is no finite float16: the file is broken

  double Relative() const;  // root mean square; 0 when nothing changed
  void Add(const ConversionError& other);
};

// Where a row of `columns` numbers goes: columns * bits / 8 bytes, and columns / 32 scales and
// biases in float16.
struct AffineRow {
  std::byte* weights;
  uint16_t* scales;
  uint16_t* biases;
};

// `blocks`: the row as it is stored, of a form with bits that is not MXFP4. `bits`: of a number as
// it will be stored, at least the form's; 0: as many.
void ConvertRow(const BlockForm& form, const std::byte* blocks, uint64_t columns,
                const AffineRow& out, ConversionError& error, int bits = 0);

// The same numbers as MLX has them: columns / 2 bytes, and columns / 32 scales of one byte.
void ConvertMxfp4Row(const std::byte* blocks, uint64_t columns, std::byte* weights,
                     std::byte* scales);

// One number of a form without bits.
float FloatAt(const BlockForm& form, const std::byte* data, uint64_t index);

}  // namespace macrame::runtime::gguf
