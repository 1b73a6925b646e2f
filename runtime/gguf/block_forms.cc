#include "runtime/gguf/block_forms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/gguf/block_group.h"
#include "runtime/gguf/lattice_blocks.h"

namespace macrame::runtime::gguf {
namespace {

constexpr std::array kForms = {
    BlockForm{kF32, "F32", 1, 4, 0, true},
    BlockForm{kF16, "F16", 1, 2, 0, true},
    BlockForm{kBF16, "BF16", 1, 2, 0, true},
    BlockForm{kQ4_0, "Q4_0", 32, 18, 4, true},
    BlockForm{kQ4_1, "Q4_1", 32, 20, 4, true},
    BlockForm{kQ5_0, "Q5_0", 32, 22, 6, true},
    BlockForm{kQ5_1, "Q5_1", 32, 24, 6, true},
    BlockForm{kQ8_0, "Q8_0", 32, 34, 8, true},
    BlockForm{kQ2_K, "Q2_K", 256, 84, 6, false},
    BlockForm{kQ3_K, "Q3_K", 256, 110, 6, false},
    BlockForm{kQ4_K, "Q4_K", 256, 144, 4, false},
    BlockForm{kQ5_K, "Q5_K", 256, 176, 6, false},
    BlockForm{kQ6_K, "Q6_K", 256, 210, 8, false},
    BlockForm{kIq1S, "IQ1_S", 256, 50, 2, false},
    BlockForm{kIq1M, "IQ1_M", 256, 56, 6, false},
    BlockForm{kIq2Xxs, "IQ2_XXS", 256, 66, 6, false},
    BlockForm{kIq2Xs, "IQ2_XS", 256, 74, 6, false},
    BlockForm{kIq2S, "IQ2_S", 256, 82, 6, false},
    BlockForm{kIq3Xxs, "IQ3_XXS", 256, 98, 6, false},
    BlockForm{kIq3S, "IQ3_S", 256, 110, 4, false},
    BlockForm{kIq4Nl, "IQ4_NL", 32, 18, 8, true},
    BlockForm{kIq4Xs, "IQ4_XS", 256, 136, 8, false},
    BlockForm{kTq1_0, "TQ1_0", 256, 54, 2, true},
    BlockForm{kTq2_0, "TQ2_0", 256, 66, 2, true},
    BlockForm{kQ1_0, "Q1_0", 128, 18, 2, true},
    BlockForm{kQ2_0, "Q2_0", 64, 18, 2, true},
    BlockForm{kNvfp4, "NVFP4", 64, 36, 8, false},
    BlockForm{kMxfp4, "MXFP4", 32, 17, 4, true, true},
};

// Kinds that people have and that are refused by name.
struct OtherType {
  uint32_t type;
  std::string_view name;
};
constexpr std::array kOtherTypes = {
    OtherType{9, "Q8_1"}, OtherType{15, "Q8_K"}, OtherType{24, "I8"},  OtherType{25, "I16"},
    OtherType{26, "I32"}, OtherType{27, "I64"},  OtherType{28, "F64"},
};

void Nibbles(const std::byte* data, Group& group) {
  for (size_t i = 0; i < 16; ++i) {
    group.numbers[i] = ByteAt(data, i) & 15;
    group.numbers[i + 16] = ByteAt(data, i) >> 4;
  }
}

void AddFifthBits(const std::byte* data, Group& group) {
  uint32_t bits;
  std::memcpy(&bits, data, sizeof(bits));
  for (size_t i = 0; i < kGroupSize; ++i) {
    group.numbers[i] |= static_cast<uint8_t>(((bits >> i) & 1U) << 4);
  }
}

// Blocks of one group each.
Group PlainGroup(uint32_t type, const std::byte* block) {
  Group group{};
  group.scale = HalfAt(block);
  switch (type) {
    case kQ4_0:
      Nibbles(block + 2, group);
      group.bias = -8 * group.scale;
      break;
    case kQ4_1:
      Nibbles(block + 4, group);
      group.bias = HalfAt(block + 2);
      break;
    case kQ5_0:
      Nibbles(block + 6, group);
      AddFifthBits(block + 2, group);
      group.bias = -16 * group.scale;
      break;
    case kQ5_1:
      Nibbles(block + 8, group);
      AddFifthBits(block + 4, group);
      group.bias = HalfAt(block + 2);
      break;
    default:  // Q8_0: signed numbers
      for (size_t i = 0; i < kGroupSize; ++i) group.numbers[i] = ByteAt(block, 2 + i) ^ 0x80;
      group.bias = -128 * group.scale;
  }
  return group;
}

// Scale and least number of the eight groups of a Q4_K or Q5_K block: 6 bits each, of the later
// four the upper two bits lie above those of the earlier.
void SixBitPair(const std::byte* packed, size_t group, uint32_t& scale, uint32_t& least) {
  if (group < 4) {
    scale = ByteAt(packed, group) & 63U;
    least = ByteAt(packed, group + 4) & 63U;
    return;
  }
  scale = (ByteAt(packed, group + 4) & 15U) | ((ByteAt(packed, group - 4) >> 6U) << 4U);
  least = (ByteAt(packed, group + 4) >> 4U) | ((ByteAt(packed, group) >> 6U) << 4U);
}

// Group `index` of a Q4_K or Q5_K block, just as it is there.
Group KGroup(uint32_t type, const std::byte* block, size_t index) {
  const float scale = HalfAt(block), least = HalfAt(block + 2);
  uint32_t scale_steps = 0, least_steps = 0;
  SixBitPair(block + 4, index, scale_steps, least_steps);
  const std::byte* high = block + 16;  // of Q5_K
  const std::byte* low = block + (type == kQ5_K ? 48 : 16) + index / 2 * 32;
  Group group{};
  for (size_t i = 0; i < kGroupSize; ++i) {
    const uint8_t pair = ByteAt(low, i);
    group.numbers[i] = index % 2 == 0 ? pair & 15 : pair >> 4;
    if (type == kQ5_K) group.numbers[i] |= ((ByteAt(high, i) >> index) & 1) << 4;
  }
  group.scale = scale * static_cast<float>(scale_steps);
  group.bias = -least * static_cast<float>(least_steps);
  return group;
}

// Q2_K: groups of 16 with a scale and a least number of 4 bits each.
void Dequantize2(const std::byte* block, float* out) {
  const float scale = HalfAt(block + 80), least = HalfAt(block + 82);
  for (size_t i = 0; i < kBlockElementsMax; ++i) {
    const uint8_t steps = ByteAt(block, i / 16);
    const size_t half = i / 128, plane = i / 32 % 4;
    const uint32_t number = (ByteAt(block, 16 + half * 32 + i % 32) >> (2 * plane)) & 3U;
    out[i] = scale * static_cast<float>(steps & 15) * static_cast<float>(number) -
             least * static_cast<float>(steps >> 4);
  }
}

// The 16 scales of a Q3_K block, 6 bits each: four below, two in the last four bytes.
int Q3Scale(const std::byte* packed, size_t group) {
  const uint32_t low = (ByteAt(packed, group % 8) >> (group < 8 ? 0 : 4)) & 15U;
  const uint32_t high = (ByteAt(packed, 8 + group % 4) >> (2 * (group / 4))) & 3U;
  return static_cast<int>(low | (high << 4)) - 32;
}

void Dequantize3(const std::byte* block, float* out) {
  const float scale = HalfAt(block + 108);
  for (size_t i = 0; i < kBlockElementsMax; ++i) {
    const size_t half = i / 128, plane = i / 32 % 4;
    const int low = (ByteAt(block, 32 + half * 32 + i % 32) >> (2 * plane)) & 3;
    const int high = (ByteAt(block, i % 32) >> (i / 32)) & 1;
    out[i] = scale * static_cast<float>(Q3Scale(block + 96, i / 16)) *
             static_cast<float>(low - (high != 0 ? 0 : 4));
  }
}

void Dequantize6(const std::byte* block, float* out) {
  const float scale = HalfAt(block + 208);
  for (size_t i = 0; i < kBlockElementsMax; ++i) {
    const size_t half = i / 128, plane = i / 32 % 4;
    const uint8_t pair = ByteAt(block, half * 64 + plane % 2 * 32 + i % 32);
    const int low = plane < 2 ? pair & 15 : pair >> 4;
    const int high = (ByteAt(block, 128 + half * 32 + i % 32) >> (2 * plane)) & 3;
    const auto steps = static_cast<int8_t>(ByteAt(block, 192 + i / 16));
    out[i] = scale * static_cast<float>(steps) * static_cast<float>((low | (high << 4)) - 32);
  }
}

void PackNumbers(const Group& group, int bits, std::byte* out) {
  uint32_t held = 0;
  int held_bits = 0;
  for (const uint8_t number : group.numbers) {
    held |= uint32_t{number} << held_bits;
    for (held_bits += bits; held_bits >= 8; held_bits -= 8, held >>= 8) {
      *out++ = static_cast<std::byte>(held & 0xFFU);
    }
  }
}

// Rounds scale and bias; false when they are no finite float16.
bool RoundPair(Group& group, uint16_t& scale, uint16_t& bias) {
  scale = HalfFromFloat(group.scale);
  bias = HalfFromFloat(group.bias);
  group.scale = FloatFromHalf(scale);
  group.bias = FloatFromHalf(bias);
  return std::isfinite(group.scale) && std::isfinite(group.bias);
}

// The nearest group of `bits` to 32 numbers.
Group NearestGroup(const float* numbers, int bits) {
  const auto [least, most] = std::minmax_element(numbers, numbers + kGroupSize);
  const float steps = static_cast<float>((1 << bits) - 1);
  Group group{};
  group.bias = FloatFromHalf(HalfFromFloat(*least));
  group.scale = FloatFromHalf(HalfFromFloat((*most - group.bias) / steps));
  for (size_t i = 0; i < kGroupSize && group.scale > 0; ++i) {
    const float number = std::nearbyint((numbers[i] - group.bias) / group.scale);
    group.numbers[i] = static_cast<uint8_t>(std::clamp(number, 0.0F, steps));
  }
  return group;
}

void AddError(const Group& group, const float* numbers, ConversionError& error) {
  for (size_t i = 0; i < kGroupSize; ++i) {
    const float stored = group.scale * static_cast<float>(group.numbers[i]) + group.bias;
    const double difference = static_cast<double>(stored) - static_cast<double>(numbers[i]);
    error.squared_error += difference * difference;
    error.squared += static_cast<double>(numbers[i]) * static_cast<double>(numbers[i]);
  }
}

// The groups of one block, in turn.
class BlockGroups {
 public:
  BlockGroups(const BlockForm& form, const std::byte* block) : form_(form), block_(block) {
    has_numbers_ = DequantizeLattice(form.type, block, numbers_.data());
    if (has_numbers_) return;
    if (form.type == kQ2_K) Dequantize2(block, numbers_.data());
    if (form.type == kQ3_K) Dequantize3(block, numbers_.data());
    if (form.type == kQ6_K) Dequantize6(block, numbers_.data());
    has_numbers_ = form.type == kQ2_K || form.type == kQ3_K || form.type == kQ6_K;
  }

  // `numbers` are those of the file.
  Group At(size_t index, std::array<float, kGroupSize>& numbers) const {
    if (has_numbers_) {
      std::copy_n(numbers_.begin() + index * kGroupSize, kGroupSize, numbers.begin());
      return NearestGroup(numbers.data(), form_.bits);
    }
    const Group group = IsLatticeGroup(form_.type)     ? LatticeGroup(form_.type, block_, index)
                        : form_.elements == kGroupSize ? PlainGroup(form_.type, block_)
                                                       : KGroup(form_.type, block_, index);
    for (size_t i = 0; i < kGroupSize; ++i) {
      numbers[i] = group.scale * static_cast<float>(group.numbers[i]) + group.bias;
    }
    return group;
  }

 private:
  const BlockForm& form_;
  const std::byte* block_;
  bool has_numbers_ = false;
  std::array<float, kBlockElementsMax> numbers_;
};

}  // namespace

const BlockForm* FindBlockForm(uint32_t type) {
  const auto found = std::find_if(kForms.begin(), kForms.end(),
                                  [&](const BlockForm& form) { return form.type == type; });
  return found == kForms.end() ? nullptr : &*found;
}

std::string BlockTypeName(uint32_t type) {
  if (const BlockForm* form = FindBlockForm(type); form != nullptr) return std::string(form->name);
  for (const OtherType& other : kOtherTypes) {
    if (other.type == type) return std::string(other.name);
  }
  return absl::StrCat("kind ", type);
}

double ConversionError::Relative() const {
  return squared > 0 ? std::sqrt(squared_error / squared) : 0;
}

void ConversionError::Add(const ConversionError& other) {
  squared_error += other.squared_error;
  squared += other.squared;
  infinite = infinite || other.infinite;
}

void ConvertRow(const BlockForm& form, const std::byte* blocks, uint64_t columns,
                const AffineRow& out, ConversionError& error, int bits) {
  if (bits == 0) bits = form.bits;
  const size_t groups_in_block = form.elements / kGroupSize;
  const size_t group_bytes = kGroupSize * static_cast<size_t>(bits) / 8;
  std::array<float, kGroupSize> numbers;
  size_t at = 0;
  for (uint64_t block = 0; block < columns / form.elements; ++block) {
    const BlockGroups groups(form, blocks + block * form.bytes);
    for (size_t i = 0; i < groups_in_block; ++i, ++at) {
      Group group = groups.At(i, numbers);
      if (!RoundPair(group, out.scales[at], out.biases[at])) error.infinite = true;
      PackNumbers(group, bits, out.weights + at * group_bytes);
      AddError(group, numbers.data(), error);
    }
  }
}

void ConvertMxfp4Row(const std::byte* blocks, uint64_t columns, std::byte* weights,
                     std::byte* scales) {
  for (uint64_t block = 0; block < columns / kGroupSize; ++block) {
    const std::byte* from = blocks + block * 17;
    scales[block] = from[0];
    for (size_t i = 0; i < 16; ++i) {
      const size_t first = 2 * i, second = first + 1;
      const auto code = [&](size_t at) {
        const uint8_t pair = ByteAt(from, 1 + at % 16);
        return static_cast<uint8_t>(at < 16 ? pair & 15 : pair >> 4);
      };
      weights[block * 16 + i] = static_cast<std::byte>(code(first) | (code(second) << 4));
    }
  }
}

float FloatAt(const BlockForm& form, const std::byte* data, uint64_t index) {
  if (form.type == kF32) {
    float value;
    std::memcpy(&value, data + index * 4, sizeof(value));
    return value;
  }
  uint16_t value;
  std::memcpy(&value, data + index * 2, sizeof(value));
  return form.type == kF16 ? FloatFromHalf(value) : FloatFromBfloat16(value);
}

}  // namespace macrame::runtime::gguf
