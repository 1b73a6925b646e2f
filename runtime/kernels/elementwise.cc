#include "runtime/kernels/elementwise.h"

#include <cmath>

#include "runtime/kernels/highway_float_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/elementwise.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, 16>;
constexpr size_t kLanes = hn::MaxLanes(F32());

#include "runtime/kernels/vector_exp.inc"

void RmsNormImpl(const float* x, const float* weight, float epsilon, size_t size, float* out) {
  const F32 d;
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  size_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + kLanes);
    const auto x2 = hn::LoadU(d, x + i + 2 * kLanes), x3 = hn::LoadU(d, x + i + 3 * kLanes);
    sum0 = hn::MulAdd(x0, x0, sum0), sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2), sum3 = hn::MulAdd(x3, x3, sum3);
  }
  const auto all = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
  float squares = hn::GetLane(hn::SumOfLanes(d, all));
  for (; i < size; ++i) squares += x[i] * x[i];
  const float scale = 1.0F / std::sqrt(squares / static_cast<float>(size) + epsilon);
  const auto scales = hn::Set(d, scale);
  for (i = 0; i + kLanes <= size; i += kLanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), scales);
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

void RotateHalves(float* x, size_t heads, size_t head_dim, const Rotation& rotation) {
  const F32 d;
  const size_t half = rotation.dims / 2;
  const float* cosines = rotation.cosines;
  const float* sines = rotation.sines;
  for (size_t head = 0; head < heads; ++head, x += head_dim) {
    size_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      const auto first = hn::LoadU(d, x + i), second = hn::LoadU(d, x + half + i);
      const auto cosine = hn::LoadU(d, cosines + i), sine = hn::LoadU(d, sines + i);
      hn::StoreU(hn::NegMulAdd(second, sine, hn::Mul(first, cosine)), d, x + i);
      hn::StoreU(hn::MulAdd(second, cosine, hn::Mul(first, sine)), d, x + half + i);
    }
    for (; i < half; ++i) {
      const float first = x[i], second = x[half + i];
      x[i] = first * cosines[i] - second * sines[i];
      x[half + i] = first * sines[i] + second * cosines[i];
    }
  }
}

void RotatePairs(float* x, size_t heads, size_t head_dim, const Rotation& rotation) {
  for (size_t head = 0; head < heads; ++head, x += head_dim) {
    for (size_t i = 0; i < rotation.dims / 2; ++i) {
      const float first = x[2 * i], second = x[2 * i + 1];
      x[2 * i] = first * rotation.cosines[i] - second * rotation.sines[i];
      x[2 * i + 1] = first * rotation.sines[i] + second * rotation.cosines[i];
    }
  }
}

void RotateImpl(float* x, size_t heads, size_t head_dim, const Rotation& rotation) {
  if (rotation.interleaved) return RotatePairs(x, heads, head_dim, rotation);
  RotateHalves(x, heads, head_dim, rotation);
}

HWY_INLINE hn::Vec<F32> SiluTimes(hn::Vec<F32> gate, hn::Vec<F32> up) {
  const auto one = hn::Set(F32(), 1.0F);
  return hn::Mul(hn::Div(gate, hn::Add(one, Exp(hn::Neg(gate)))), up);
}

// x * (1 + tanh(y)) / 2 is x * sigmoid(2 y), with y = sqrt(2 / pi) * (x + 0.044715 x^3).
HWY_INLINE hn::Vec<F32> GeluTimes(hn::Vec<F32> gate, hn::Vec<F32> up) {
  const F32 d;
  const auto one = hn::Set(d, 1.0F), twice = hn::Set(d, 1.5957691216057308F);
  const auto cubic = hn::Mul(hn::Mul(gate, gate), hn::Set(d, 0.044715F));
  const auto inside = hn::Mul(hn::Mul(gate, hn::Add(one, cubic)), twice);
  return hn::Mul(hn::Div(gate, hn::Add(one, Exp(hn::Neg(inside)))), up);
}

// NaN stays NaN: the bound is Min's first argument.
HWY_INLINE hn::Vec<F32> ClampedSwigluOf(hn::Vec<F32> gate, hn::Vec<F32> up, float alpha,
                                        float limit) {
  const F32 d;
  const auto one = hn::Set(d, 1.0F), most = hn::Set(d, limit);
  const auto g = hn::Min(most, gate);
  const auto u = hn::Max(hn::Neg(most), hn::Min(most, up));
  const auto gated = hn::Div(g, hn::Add(one, Exp(hn::Mul(hn::Set(d, -alpha), g))));
  return hn::Mul(gated, hn::Add(u, one));
}

// out = times(gate, up), lane by lane.
template <typename Times>
HWY_INLINE void Gate(const float* gate, const float* up, size_t size, float* out,
                     const Times& times) {
  const F32 d;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    hn::StoreU(times(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
  }
  if (i == size) return;
  HWY_ALIGN float rest[3 * kLanes] = {};
  for (size_t j = i; j < size; ++j) rest[j - i] = gate[j], rest[kLanes + j - i] = up[j];
  hn::Store(times(hn::Load(d, rest), hn::Load(d, rest + kLanes)), d, rest + 2 * kLanes);
  for (size_t j = i; j < size; ++j) out[j] = rest[2 * kLanes + j - i];
}

void SiluMultiplyImpl(const float* gate, const float* up, size_t size, float* out) {
  Gate(gate, up, size, out, [](auto x, auto y) HWY_ATTR { return SiluTimes(x, y); });
}

void GeluMultiplyImpl(const float* gate, const float* up, size_t size, float* out) {
  Gate(gate, up, size, out, [](auto x, auto y) HWY_ATTR { return GeluTimes(x, y); });
}

void ClampedSwigluImpl(const float* gate, const float* up, float alpha, float limit, size_t size,
                       float* out) {
  Gate(gate, up, size, out,
       [=](auto x, auto y) HWY_ATTR { return ClampedSwigluOf(x, y, alpha, limit); });
}

void SquaredReluImpl(float* x, size_t size) {
  Gate(x, x, size, x, [](auto own, auto) HWY_ATTR {
    const auto above = hn::Max(hn::Zero(F32()), own);
    return hn::Mul(above, above);
  });
}

void SigmoidMultiplyImpl(const float* gate, size_t size, float* x) {
  Gate(gate, x, size, x, [](auto own, auto value) HWY_ATTR {
    return hn::Div(value, hn::Add(hn::Set(F32(), 1.0F), Exp(hn::Neg(own))));
  });
}

void AddToImpl(const float* x, size_t size, float* to) {
  const F32 d;
  size_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, x + i)), d, to + i);
  }
  for (; i < size; ++i) to[i] += x[i];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {

HWY_EXPORT(RmsNormImpl);
HWY_EXPORT(RotateImpl);
HWY_EXPORT(SiluMultiplyImpl);
HWY_EXPORT(GeluMultiplyImpl);
HWY_EXPORT(ClampedSwigluImpl);
HWY_EXPORT(SquaredReluImpl);
HWY_EXPORT(SigmoidMultiplyImpl);
HWY_EXPORT(AddToImpl);

void RmsNorm(const float* x, const float* weight, float epsilon, size_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(RmsNormImpl)(x, weight, epsilon, size, out);
}

void Rotate(float* x, size_t heads, size_t head_dim, const Rotation& rotation) {
  HWY_DYNAMIC_DISPATCH(RotateImpl)(x, heads, head_dim, rotation);
}

void SiluMultiply(const float* gate, const float* up, size_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(SiluMultiplyImpl)(gate, up, size, out);
}

void GeluMultiply(const float* gate, const float* up, size_t size, float* out) {
  HWY_DYNAMIC_DISPATCH(GeluMultiplyImpl)(gate, up, size, out);
}

void ClampedSwiglu(const float* gate, const float* up, float alpha, float limit, size_t size,
                   float* out) {
  HWY_DYNAMIC_DISPATCH(ClampedSwigluImpl)(gate, up, alpha, limit, size, out);
}

void SquaredRelu(float* x, size_t size) { HWY_DYNAMIC_DISPATCH(SquaredReluImpl)(x, size); }

void SigmoidMultiply(const float* gate, size_t size, float* x) {
  HWY_DYNAMIC_DISPATCH(SigmoidMultiplyImpl)(gate, size, x);
}

void AddTo(const float* x, size_t size, float* to) { HWY_DYNAMIC_DISPATCH(AddToImpl)(x, size, to); }

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
