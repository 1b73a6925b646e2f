#include "runtime/kernels/recurrence.h"

#include "runtime/kernels/highway_float_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/recurrence.cc"
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

// Rows of a head's matrix that go through the tokens together: they stay in the nearest cache, and
// their sums don't wait for each other.
constexpr size_t kRows = 4;

// sums[i] = row i times x.
template <size_t kCount>
HWY_INLINE void RowsTimes(const float* rows, const float* x, size_t size, float* sums) {
  const F32 d;
  hn::Vec<F32> all[kCount];
  for (auto& sum : all) sum = hn::Zero(d);
  size_t at = 0;
  for (; at + kLanes <= size; at += kLanes) {
    const auto numbers = hn::LoadU(d, x + at);
    for (size_t i = 0; i < kCount; ++i) {
      all[i] = hn::MulAdd(hn::LoadU(d, rows + i * size + at), numbers, all[i]);
    }
  }
  for (size_t i = 0; i < kCount; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(d, all[i]));
  for (; at < size; ++at) {
    for (size_t i = 0; i < kCount; ++i) sums[i] += rows[i * size + at] * x[at];
  }
}

// Row i becomes fade * row + parts[i] * key; sums[i] = that times query.
template <size_t kCount>
HWY_INLINE void Learn(float* rows, float fade, const float* parts, const float* key,
                      const float* query, size_t size, float* sums) {
  const F32 d;
  hn::Vec<F32> all[kCount];
  for (auto& sum : all) sum = hn::Zero(d);
  const auto fades = hn::Set(d, fade);
  size_t at = 0;
  for (; at + kLanes <= size; at += kLanes) {
    const auto k = hn::LoadU(d, key + at), q = hn::LoadU(d, query + at);
    for (size_t i = 0; i < kCount; ++i) {
      float* row = rows + i * size + at;
      const auto kept = hn::Mul(hn::LoadU(d, row), fades);
      const auto learnt = hn::MulAdd(hn::Set(d, parts[i]), k, kept);
      hn::StoreU(learnt, d, row);
      all[i] = hn::MulAdd(learnt, q, all[i]);
    }
  }
  for (size_t i = 0; i < kCount; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(d, all[i]));
  for (; at < size; ++at) {
    for (size_t i = 0; i < kCount; ++i) {
      float& number = rows[i * size + at];
      number = number * fade + parts[i] * key[at];
      sums[i] += number * query[at];
    }
  }
}

template <size_t kCount, bool kDelta>
HWY_INLINE void RunRows(const HeadRun& run, size_t first) {
  float* rows = run.matrix + first * run.key_dim;
  for (size_t token = 0; token < run.tokens; ++token) {
    const float* key = run.keys + token * run.key_stride;
    const float* query = run.queries + token * run.key_stride;
    const float* value = run.values + token * run.value_stride + first;
    const float fade = run.fades[token * run.gate_stride];
    const float share = run.shares[token * run.gate_stride];
    float known[kCount] = {}, parts[kCount];
    if (kDelta) RowsTimes<kCount>(rows, key, run.key_dim, known);
    for (size_t i = 0; i < kCount; ++i) parts[i] = (value[i] - fade * known[i]) * share;
    Learn<kCount>(rows, fade, parts, key, query, run.key_dim,
                  run.out + token * run.out_stride + first);
  }
}

template <bool kDelta>
HWY_INLINE void RunAllRows(const HeadRun& run) {
  size_t row = 0;
  for (; row + kRows <= run.value_dim; row += kRows) RunRows<kRows, kDelta>(run, row);
  for (; row < run.value_dim; ++row) RunRows<1, kDelta>(run, row);
}

void GatedDeltaImpl(const HeadRun& run) { RunAllRows<true>(run); }

void StateSpaceImpl(const HeadRun& run) { RunAllRows<false>(run); }

void ConvolveSiluImpl(const float* const* inputs, const float* weights, const float* bias,
                      size_t taps, size_t channels, float* out) {
  const F32 d;
  const auto one = hn::Set(d, 1.0F);
  const auto silu = [&](auto x) HWY_ATTR { return hn::Div(x, hn::Add(one, Exp(hn::Neg(x)))); };
  size_t at = 0;
  for (; at + kLanes <= channels; at += kLanes) {
    auto sum = bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + at);
    for (size_t j = 0; j < taps; ++j) {
      const auto weight = hn::LoadU(d, weights + j * channels + at);
      sum = hn::MulAdd(weight, hn::LoadU(d, inputs[j] + at), sum);
    }
    hn::StoreU(silu(sum), d, out + at);
  }
  for (; at < channels; ++at) {
    auto sum = hn::Set(d, bias == nullptr ? 0.0F : bias[at]);
    for (size_t j = 0; j < taps; ++j) {
      sum = hn::MulAdd(hn::Set(d, weights[j * channels + at]), hn::Set(d, inputs[j][at]), sum);
    }
    out[at] = hn::GetLane(silu(sum));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {

HWY_EXPORT(GatedDeltaImpl);
HWY_EXPORT(StateSpaceImpl);
HWY_EXPORT(ConvolveSiluImpl);

void GatedDelta(const HeadRun& run) { HWY_DYNAMIC_DISPATCH(GatedDeltaImpl)(run); }

void StateSpace(const HeadRun& run) { HWY_DYNAMIC_DISPATCH(StateSpaceImpl)(run); }

void ConvolveSilu(const float* const* inputs, const float* weights, const float* bias, size_t taps,
                  size_t channels, float* out) {
  HWY_DYNAMIC_DISPATCH(ConvolveSiluImpl)(inputs, weights, bias, taps, channels, out);
}

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
