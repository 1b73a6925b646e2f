#include "runtime/gguf/lattice_blocks.h"

#include <array>
#include <bit>
#include <cmath>

#include "runtime/gguf/lattice_grids.h"

namespace macrame::runtime::gguf {
namespace {

constexpr size_t kBlock = kBlockElementsMax;
constexpr size_t kRun = 8;  // numbers that share eight signs

constexpr std::array<int, 3> kValues2 = {8, 25, 43};
constexpr std::array<int, 8> kValues3 = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<int, 16> kValues4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// 4-bit floats, doubled.
constexpr std::array<int, 16> kFloats4 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint32_t LongAt(const std::byte* data) {
  uint32_t value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

// Seven signs are stored; the number of all eight is even.
uint32_t Signs(uint32_t seven) {
  return seven | (static_cast<uint32_t>(std::popcount(seven) & 1) << 7);
}

int Signed(int value, uint32_t signs, size_t index) {
  return ((signs >> index) & 1U) != 0 ? -value : value;
}

int Grid2At(uint16_t entry, size_t index) { return kValues2[(entry >> (2 * index)) & 3U]; }
// -1, 0, 1.
int Grid1At(uint16_t entry, size_t index) {
  return static_cast<int>((entry >> (2 * index)) & 3U) - 1;
}

void DequantizeIq2Xxs(const std::byte* block, float* out) {
  const float scale = HalfAt(block);
  for (size_t group = 0; group < kBlock / kGroupSize; ++group) {
    const std::byte* part = block + 2 + group * 8;
    const uint32_t packed = LongAt(part + 4);
    const float step = scale * (0.5F + static_cast<float>(packed >> 28)) * 0.25F;
    for (size_t run = 0; run < 4; ++run) {
      const uint16_t entry = kGrid2Xxs[ByteAt(part, run)];
      const uint32_t signs = Signs((packed >> (7 * run)) & 127U);
      for (size_t i = 0; i < kRun; ++i) {
        *out++ = step * static_cast<float>(Signed(Grid2At(entry, i), signs, i));
      }
    }
  }
}

// Two scales of 4 bits in a group, for its first and its second half.
float HalfGroupStep(float scale, uint8_t pair, size_t run) {
  const int steps = run < 2 ? pair & 15 : pair >> 4;
  return scale * (0.5F + static_cast<float>(steps)) * 0.25F;
}

void DequantizeIq2Xs(const std::byte* block, float* out) {
  const float scale = HalfAt(block);
  for (size_t group = 0; group < kBlock / kGroupSize; ++group) {
    for (size_t run = 0; run < 4; ++run) {
      const uint16_t word = WordAt(block + 2 + (group * 4 + run) * 2);
      const float step = HalfGroupStep(scale, ByteAt(block, 66 + group), run);
      const uint32_t signs = Signs(word >> 9U);
      for (size_t i = 0; i < kRun; ++i) {
        *out++ = step * static_cast<float>(Signed(Grid2At(kGrid2Xs[word & 511U], i), signs, i));
      }
    }
  }
}

void DequantizeIq2S(const std::byte* block, float* out) {
  const float scale = HalfAt(block);
  for (size_t group = 0; group < kBlock / kGroupSize; ++group) {
    const uint32_t high = ByteAt(block, 66 + group);
    for (size_t run = 0; run < 4; ++run) {
      const size_t at = group * 4 + run;
      const uint32_t index = ByteAt(block, 2 + at) | (((high >> (2 * run)) & 3U) << 8);
      const float step = HalfGroupStep(scale, ByteAt(block, 74 + group), run);
      const uint32_t signs = ByteAt(block, 34 + at);
      for (size_t i = 0; i < kRun; ++i) {
        *out++ = step * static_cast<float>(Signed(Grid2At(kGrid2S[index], i), signs, i));
      }
    }
  }
}

void DequantizeIq1M(const std::byte* block, float* out) {
  std::array<uint16_t, 4> packed{};
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = WordAt(block + 48 + 2 * i);
  const auto half = static_cast<uint16_t>((packed[0] >> 12) | ((packed[1] >> 8) & 0xF0) |
                                          ((packed[2] >> 4) & 0xF00) | (packed[3] & 0xF000));
  const float scale = FloatFromHalf(half);
  for (size_t run = 0; run < kBlock / kRun; ++run) {
    const uint32_t high = ByteAt(block, 32 + run / 2) >> (run % 2 == 0 ? 0 : 4);
    const uint32_t index = ByteAt(block, run) | ((high & 7U) << 8);
    const uint32_t steps = (packed[run / 8] >> (3 * (run / 2 % 4))) & 7U;
    const float step = scale * static_cast<float>(2 * steps + 1);
    const float shift = (high & 8U) != 0 ? -0.125F : 0.125F;
    for (size_t i = 0; i < kRun; ++i) {
      *out++ = step * (static_cast<float>(Grid1At(kGrid1S[index], i)) + shift);
    }
  }
}

void DequantizeNvfp4(const std::byte* block, float* out) {
  constexpr size_t kPart = 16;
  for (size_t part = 0; part < 4; ++part) {
    const uint8_t stored = ByteAt(block, part);
    const int exponent = (stored >> 3) & 15, fraction = stored & 7;
    float scale = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                : std::ldexp(1.0F + static_cast<float>(fraction) / 8, exponent - 7);
    if (stored == 0x7F) scale = 0;
    for (size_t i = 0; i < kPart; ++i) {
      const uint8_t pair = ByteAt(block, 4 + part * 8 + i % 8);
      const int code = i < 8 ? pair & 15 : pair >> 4;
      *out++ = 0.5F * scale * static_cast<float>(kFloats4[static_cast<size_t>(code)]);
    }
  }
}

// 2 * step * (number + lowest) for each of the group's values, which lie two apart.
Group Iq3Group(const std::byte* block, size_t index, bool is_xxs) {
  Group group{};
  const std::byte* entries = block + 2 + index * 8;
  if (is_xxs) {
    const uint32_t packed = LongAt(block + 66 + index * 4);
    const float step = HalfAt(block) * (0.5F + static_cast<float>(packed >> 28)) * 0.5F;
    group.scale = 2 * step;
    group.bias = -64 * step;
    for (size_t i = 0; i < kGroupSize; ++i) {
      const int value = kValues3[(kGrid3Xxs[ByteAt(entries, i / 4)] >> (3 * (i % 4))) & 7U];
      const uint32_t signs = Signs((packed >> (7 * (i / kRun))) & 127U);
      group.numbers[i] = static_cast<uint8_t>(Signed(value, signs, i % kRun) / 2 + 32);
    }
    return group;
  }
  const int steps = (ByteAt(block, 106 + index / 2) >> (4 * (index % 2))) & 15;
  const float step = HalfAt(block) * static_cast<float>(1 + 2 * steps);
  group.scale = 2 * step;
  group.bias = -15 * step;
  const uint32_t high = ByteAt(block, 66 + index);
  for (size_t i = 0; i < kGroupSize; ++i) {
    const uint32_t entry = ByteAt(entries, i / 4) | (((high >> (i / 4)) & 1U) << 8);
    const int value = 2 * static_cast<int>((kGrid3S[entry] >> (3 * (i % 4))) & 7U) + 1;
    const uint32_t signs = ByteAt(block, 74 + index * 4 + i / kRun);
    group.numbers[i] = static_cast<uint8_t>((Signed(value, signs, i % kRun) + 15) / 2);
  }
  return group;
}

Group Iq1Group(const std::byte* block, size_t index) {
  const uint32_t high = WordAt(block + 34 + 2 * index);
  const float step = HalfAt(block) * static_cast<float>(2 * ((high >> 12) & 7U) + 1);
  Group group{};
  group.scale = step;
  group.bias = step * ((high & 0x8000U) != 0 ? -1.125F : -0.875F);
  for (size_t i = 0; i < kGroupSize; ++i) {
    const size_t run = i / kRun;
    const uint32_t entry = ByteAt(block, 2 + index * 4 + run) | (((high >> (3 * run)) & 7U) << 8);
    group.numbers[i] = static_cast<uint8_t>(Grid1At(kGrid1S[entry], i % kRun) + 1);
  }
  return group;
}

Group Iq4Group(uint32_t type, const std::byte* block, size_t index) {
  float step = HalfAt(block);
  const std::byte* pairs = block + 2;
  if (type == kIq4Xs) {
    const int low = (ByteAt(block, 4 + index / 2) >> (4 * (index % 2))) & 15;
    const int high = (WordAt(block + 2) >> (2 * index)) & 3;
    step *= static_cast<float>((low | (high << 4)) - 32);
    pairs = block + 8 + 16 * index;
  }
  Group group{};
  group.scale = step;
  group.bias = -128 * step;
  for (size_t i = 0; i < 16; ++i) {
    const uint8_t pair = ByteAt(pairs, i);
    group.numbers[i] = static_cast<uint8_t>(kValues4[pair & 15U] + 128);
    group.numbers[i + 16] = static_cast<uint8_t>(kValues4[pair >> 4U] + 128);
  }
  return group;
}

// Five digits of three in a byte, as a fraction of 256.
uint8_t Digit(uint8_t packed, size_t place) {
  constexpr std::array<uint32_t, 5> kPowers = {1, 3, 9, 27, 81};
  const auto shifted = static_cast<uint8_t>(packed * kPowers[place]);
  return static_cast<uint8_t>((shifted * 3U) >> 8);
}

// 0, 1 or 2.
uint8_t Tq1Number(const std::byte* block, size_t at) {
  if (at < 160) return Digit(ByteAt(block, at % 32), at / 32);
  if (at < 240) return Digit(ByteAt(block, 32 + at % 16), (at - 160) / 16);
  return Digit(ByteAt(block, 48 + at % 4), (at - 240) / 4);
}

Group TernaryGroup(uint32_t type, const std::byte* block, size_t index) {
  Group group{};
  const size_t scale_at = type == kTq1_0 ? 52 : type == kTq2_0 ? 64 : 0;
  group.scale = HalfAt(block + scale_at);
  group.bias = -group.scale;
  for (size_t i = 0; i < kGroupSize; ++i) {
    const size_t at = index * kGroupSize + i;
    uint8_t& number = group.numbers[i];
    if (type == kTq1_0) number = Tq1Number(block, at);
    if (type == kTq2_0) number = (ByteAt(block, at / 128 * 32 + at % 32) >> (at / 32 % 4 * 2)) & 3;
    if (type == kQ1_0) number = ((ByteAt(block, 2 + at / 8) >> (at % 8)) & 1) * 2;
    if (type == kQ2_0) number = (ByteAt(block, 2 + at / 4) >> (at % 4 * 2)) & 3;
  }
  return group;
}

}  // namespace

bool IsLatticeGroup(uint32_t type) {
  return type == kIq4Nl || type == kIq4Xs || type == kIq3Xxs || type == kIq3S || type == kIq1S ||
         type == kTq1_0 || type == kTq2_0 || type == kQ1_0 || type == kQ2_0;
}

Group LatticeGroup(uint32_t type, const std::byte* block, size_t index) {
  switch (type) {
    case kIq4Nl:
    case kIq4Xs:
      return Iq4Group(type, block, index);
    case kIq3Xxs:
    case kIq3S:
      return Iq3Group(block, index, type == kIq3Xxs);
    case kIq1S:
      return Iq1Group(block, index);
    default:
      return TernaryGroup(type, block, index);
  }
}

bool DequantizeLattice(uint32_t type, const std::byte* block, float* out) {
  if (type == kIq2Xxs) return DequantizeIq2Xxs(block, out), true;
  if (type == kIq2Xs) return DequantizeIq2Xs(block, out), true;
  if (type == kIq2S) return DequantizeIq2S(block, out), true;
  if (type == kIq1M) return DequantizeIq1M(block, out), true;
  if (type == kNvfp4) return DequantizeNvfp4(block, out), true;
  return false;
}

}  // namespace macrame::runtime::gguf
