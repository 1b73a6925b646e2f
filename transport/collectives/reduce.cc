#include "transport/collectives/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>

#include "proto/check.h"

namespace macrame::transport {
namespace {

// 16-bit floats as their bits.
struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

float ToFloat(Bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

Bfloat16 ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return {static_cast<uint16_t>(bits >> 16 | 0x40)};  // NaN
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

float ToFloat(Float16 value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  uint32_t rest = value.bits & 0x7fffu;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest >= 0x400) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
  // Subnormal: rest / 2^24.
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return sign == 0 ? magnitude : -magnitude;
}

Float16 ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return {static_cast<uint16_t>(sign | 0x7e00)};   // NaN
  if (rest >= 0x47800000) return {static_cast<uint16_t>(sign | 0x7c00)};  // 65536 and more
  if (rest < 0x38800000) {
    // Below the smallest normal number: the sum lines the bits up and rounds them to nearest even.
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000))};
  }
  const uint32_t rounded = rest + 0xfff + (rest >> 13 & 1) - (112u << 23);
  return {static_cast<uint16_t>(sign | std::min<uint32_t>(rounded >> 13, 0x7c00))};
}

template <typename T>
struct Plain {
  using Value = T;
  static T Load(T stored) { return stored; }
  static T Store(T value) { return value; }
};
template <typename T>
struct Half {
  using Value = float;
  static float Load(T stored) { return ToFloat(stored); }
  static T Store(float value) {
    if constexpr (std::is_same_v<T, Bfloat16>) return ToBfloat16(value);
    if constexpr (std::is_same_v<T, Float16>) return ToFloat16(value);
  }
};

struct Sum {
  template <typename V>
  static V Apply(V a, V b) {
    // Unsigned arithmetic wraps where signed overflow would be undefined.
    if constexpr (std::is_integral_v<V>) {
      using U = std::make_unsigned_t<V>;
      return static_cast<V>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  }
};
// A NaN wins, as in MLX.
struct Max {
  template <typename V>
  static V Apply(V a, V b) {
    if constexpr (std::is_floating_point_v<V>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
    }
    return a < b ? b : a;
  }
};
struct Min {
  template <typename V>
  static V Apply(V a, V b) {
    if constexpr (std::is_floating_point_v<V>) {
      if (std::isnan(a)) return a;
      if (std::isnan(b)) return b;
    }
    return b < a ? b : a;
  }
};

// A block at a time, so that sums stay in the first cache while all parts are added.
constexpr size_t kBlock = 1024;

template <typename T, template <typename> class Codec, typename Operation>
void Run(std::span<const void* const> parts, void* out, size_t count) {
  using Value = typename Codec<T>::Value;
  Value sums[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t length = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (size_t i = 0; i < length; ++i) sums[i] = Codec<T>::Load(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* part = static_cast<const T*>(parts[p]) + begin;
      for (size_t i = 0; i < length; ++i) {
        sums[i] = Operation::Apply(sums[i], static_cast<Value>(Codec<T>::Load(part[i])));
      }
    }
    T* target = static_cast<T*>(out) + begin;
    for (size_t i = 0; i < length; ++i) target[i] = Codec<T>::Store(sums[i]);
  }
}

template <typename T, template <typename> class Codec>
void RunAny(std::span<const void* const> parts, void* out, size_t count, Reduction reduction) {
  if (reduction == Reduction::kSum) return Run<T, Codec, Sum>(parts, out, count);
  if (reduction == Reduction::kMax) return Run<T, Codec, Max>(parts, out, count);
  return Run<T, Codec, Min>(parts, out, count);
}

void RunBool(std::span<const void* const> parts, void* out, size_t count, Reduction reduction) {
  if (reduction == Reduction::kMin) return Run<uint8_t, Plain, Min>(parts, out, count);
  Run<uint8_t, Plain, Max>(parts, out, count);
}

void RunComplex(std::span<const void* const> parts, void* out, size_t count, Reduction reduction) {
  // Two floats each.
  if (reduction == Reduction::kSum) return Run<float, Plain, Sum>(parts, out, 2 * count);
  if (out != parts[0]) std::memmove(out, parts[0], count * SizeOf(Element::kComplex64));
}

}  // namespace

size_t SizeOf(Element element) {
  switch (element) {
    case Element::kBool:
    case Element::kUint8:
    case Element::kInt8:
      return 1;
    case Element::kUint16:
    case Element::kInt16:
    case Element::kFloat16:
    case Element::kBfloat16:
      return 2;
    case Element::kUint32:
    case Element::kInt32:
    case Element::kFloat32:
      return 4;
    case Element::kUint64:
    case Element::kInt64:
    case Element::kFloat64:
    case Element::kComplex64:
      return 8;
  }
  return 0;
}

void Reduce(std::span<const void* const> parts, void* out, size_t count, Element element,
            Reduction reduction) {
  MACRAME_CHECK(!parts.empty()) << "nothing to reduce";
  switch (element) {
    case Element::kBool:
      return RunBool(parts, out, count, reduction);
    case Element::kUint8:
      return RunAny<uint8_t, Plain>(parts, out, count, reduction);
    case Element::kInt8:
      return RunAny<int8_t, Plain>(parts, out, count, reduction);
    case Element::kUint16:
      return RunAny<uint16_t, Plain>(parts, out, count, reduction);
    case Element::kInt16:
      return RunAny<int16_t, Plain>(parts, out, count, reduction);
    case Element::kUint32:
      return RunAny<uint32_t, Plain>(parts, out, count, reduction);
    case Element::kInt32:
      return RunAny<int32_t, Plain>(parts, out, count, reduction);
    case Element::kUint64:
      return RunAny<uint64_t, Plain>(parts, out, count, reduction);
    case Element::kInt64:
      return RunAny<int64_t, Plain>(parts, out, count, reduction);
    case Element::kFloat16:
      return RunAny<Float16, Half>(parts, out, count, reduction);
    case Element::kBfloat16:
      return RunAny<Bfloat16, Half>(parts, out, count, reduction);
    case Element::kFloat32:
      return RunAny<float, Plain>(parts, out, count, reduction);
    case Element::kFloat64:
      return RunAny<double, Plain>(parts, out, count, reduction);
    case Element::kComplex64:
      return RunComplex(parts, out, count, reduction);
  }
}

}  // namespace macrame::transport
