#include "runtime/kernels/token_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "runtime/kernels/highway_float_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/token_weights.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

#ifndef MACRAME_TOKEN_WEIGHT_TABLES
#define MACRAME_TOKEN_WEIGHT_TABLES
namespace macrame::runtime::kernels {

// 2^-(fraction) is the product of two numbers: of the fraction's upper and of its lower 8 bits.
// 4 KiB in all, so that they stay in a core's nearest cache.
inline constexpr int kTableBits = 8;
struct WeightTables {
  std::array<int32_t, 1 << kTableBits> upper, lower;  // times 2^30

  WeightTables() : upper(), lower() {
    for (size_t i = 0; i < upper.size(); ++i) {
      const auto at = static_cast<double>(i);
      upper[i] = static_cast<int32_t>(std::lround(std::exp2(30.0 - at / 256.0)));
      lower[i] = static_cast<int32_t>(std::lround(std::exp2(30.0 - at / 65536.0)));
    }
  }
};
inline const WeightTables& Tables() {
  static const WeightTables tables;
  return tables;
}
// Bits that a product of both has too many.
inline constexpr int kProductShift = 60 - kFullWeightBits;

}  // namespace macrame::runtime::kernels
#endif  // MACRAME_TOKEN_WEIGHT_TABLES

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using U64 = hn::Repartition<uint64_t, F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

HWY_INLINE hn::Vec<I32> DistancesAt(const float* logits, hn::Vec<F32> highest, hn::Vec<F32> scale) {
  const F32 d;
  const auto below = hn::Mul(hn::Sub(highest, hn::LoadU(d, logits)), scale);
  return hn::ConvertTo(I32(), hn::Min(below, hn::Set(d, static_cast<float>(kFarthest))));
}

// Of the lanes with an even and an odd number.
struct Weights {
  hn::Vec<U64> even, odd;
};

HWY_INLINE Weights WeightsAt(hn::Vec<I32> distances, const WeightTables& tables,
                             hn::Mask<I32> kept) {
  const I32 d;
  const U64 d64;
  const auto byte = hn::Set(d, 0xff);
  const auto upper = hn::IfThenElseZero(
      kept, hn::GatherIndex(d, tables.upper.data(),
                            hn::And(hn::ShiftRight<kTableBits>(distances), byte)));
  const auto lower = hn::GatherIndex(d, tables.lower.data(), hn::And(distances, byte));
  const auto whole = hn::BitCast(
      d64, hn::Add(hn::ShiftRight<kDistanceBits>(distances), hn::Set(d, kProductShift)));
  const hn::RebindToUnsigned<I32> u32;
  const auto a = hn::BitCast(u32, upper), b = hn::BitCast(u32, lower);
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(u32, hn::ShiftRight<32>(hn::BitCast(d64, a))),
                               hn::BitCast(u32, hn::ShiftRight<32>(hn::BitCast(d64, b))));
  return {hn::Shr(even, hn::And(whole, hn::Set(d64, 0xffffffff))),
          hn::Shr(odd, hn::ShiftRight<32>(whole))};
}

void WeighLogitsImpl(const float* logits, size_t size, float highest, float scale,
                     uint32_t* distances, uint64_t* weights) {
  const I32 d;
  const U64 d64;
  const WeightTables& tables = Tables();
  const auto highests = hn::Set(F32(), highest), scales = hn::Set(F32(), scale);
  const auto all = hn::Eq(hn::Zero(d), hn::Zero(d));
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto at = DistancesAt(logits + i, highests, scales);
    const Weights of = WeightsAt(at, tables, all);
    hn::StoreU(at, d, reinterpret_cast<int32_t*>(distances + i));
    hn::StoreInterleaved2(of.even, of.odd, d64, weights + i);
  }
  for (; i < size; ++i) {
    distances[i] = DistanceOf(highest, logits[i], scale);
    weights[i] = WeightAt(distances[i]);
  }
}

uint64_t SumOfWeightsImpl(const float* logits, size_t size, float highest, float scale,
                          uint32_t farthest) {
  const U64 d64;
  const WeightTables& tables = Tables();
  const auto highests = hn::Set(F32(), highest), scales = hn::Set(F32(), scale);
  const auto beyond = hn::Set(I32(), static_cast<int32_t>(farthest) + 1);
  auto even = hn::Zero(d64), odd = hn::Zero(d64);
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const auto at = DistancesAt(logits + i, highests, scales);
    const Weights of = WeightsAt(at, tables, hn::Lt(at, beyond));
    even = hn::Add(even, of.even);
    odd = hn::Add(odd, of.odd);
  }
  uint64_t sum = hn::GetLane(hn::SumOfLanes(d64, hn::Add(even, odd)));
  for (; i < size; ++i) {
    const uint32_t distance = DistanceOf(highest, logits[i], scale);
    if (distance <= farthest) sum += WeightAt(distance);
  }
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {

HWY_EXPORT(WeighLogitsImpl);
HWY_EXPORT(SumOfWeightsImpl);

DrawNumbers NumbersOf(double temperature, double top_p, double min_p, uint64_t seed,
                      uint64_t position) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (temperature <= 0.0) return {static_cast<float>(kMost), 0, kWhole, 0};
  DrawNumbers numbers;
  const double halvings = 1.0 / (temperature * std::log(2.0));
  numbers.scale = static_cast<float>(std::min(kMost, halvings * (1 << kDistanceBits)));
  const double farthest = -std::log2(min_p) * (1 << kDistanceBits);  // infinite without min-p
  numbers.farthest = static_cast<uint32_t>(std::min(farthest, double{kFarthest}));
  // Not 0, so that a token is left.
  constexpr auto kAll = static_cast<double>(kWhole);
  numbers.top_p = static_cast<uint64_t>(std::clamp(std::round(top_p * kAll), 1.0, kAll));
  numbers.draw = DrawAt(seed, position);
  return numbers;
}

uint32_t DrawAt(uint64_t seed, uint64_t position) {
  // SplitMix64's finalizer (Steele, Lea, Flood 2014) over a counter that both numbers move.
  uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (position + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
  }
  return static_cast<uint32_t>(z >> 32);
}

uint32_t DistanceOf(float highest, float logit, float scale) {
  return static_cast<uint32_t>(std::min((highest - logit) * scale, static_cast<float>(kFarthest)));
}

uint64_t WeightAt(uint32_t distance) {
  const WeightTables& tables = Tables();
  const auto upper = static_cast<uint64_t>(tables.upper[(distance >> kTableBits) & 0xff]);
  const auto lower = static_cast<uint64_t>(tables.lower[distance & 0xff]);
  return (upper * lower) >> (kProductShift + (distance >> kDistanceBits));
}

void WeighLogits(const float* logits, size_t size, float highest, float scale, uint32_t* distances,
                 uint64_t* weights) {
  HWY_DYNAMIC_DISPATCH(WeighLogitsImpl)(logits, size, highest, scale, distances, weights);
}

uint64_t SumOfWeights(const float* logits, size_t size, float highest, float scale,
                      uint32_t farthest) {
  return HWY_DYNAMIC_DISPATCH(SumOfWeightsImpl)(logits, size, highest, scale, farthest);
}

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
