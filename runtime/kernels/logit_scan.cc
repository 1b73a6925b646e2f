#include "runtime/kernels/logit_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/highway_float_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/logit_scan.cc"
#include "hwy/foreach_target.h"  // compiles this file once for each instruction set
#include "hwy/highway.h"
// After it, because it uses the instruction set's own functions.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace macrame::runtime::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, 16>;
using F64 = hn::CappedTag<double, 8>;
using Half = hn::Rebind<float, F64>;  // as many floats as F64 has doubles
constexpr size_t kFloats = hn::MaxLanes(F32());
constexpr size_t kDoubles = hn::MaxLanes(F64());
constexpr float kNone = -std::numeric_limits<float>::infinity();

LogitScan ScanLogitsImpl(const float* logits, size_t size, float* of_blocks) {
  const F32 d;
  const auto none = hn::Set(d, kNone);
  LogitScan scan{kNone, false};
  for (size_t begin = 0; begin < size; begin += kLogitBlock) {
    const size_t end = std::min(size, begin + kLogitBlock);
    auto highest0 = none, highest1 = none;
    auto nan = hn::IsNaN(none);
    size_t i = begin;
    for (; i + 2 * kFloats <= end; i += 2 * kFloats) {
      const auto x0 = hn::LoadU(d, logits + i), x1 = hn::LoadU(d, logits + i + kFloats);
      const auto nan0 = hn::IsNaN(x0), nan1 = hn::IsNaN(x1);
      nan = hn::Or(nan, hn::Or(nan0, nan1));
      highest0 = hn::Max(highest0, hn::IfThenElse(nan0, none, x0));
      highest1 = hn::Max(highest1, hn::IfThenElse(nan1, none, x1));
    }
    float highest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(highest0, highest1)));
    scan.has_nan = scan.has_nan || !hn::AllFalse(d, nan);
    for (; i < end; ++i) {
      scan.has_nan = scan.has_nan || std::isnan(logits[i]);
      if (logits[i] > highest) highest = logits[i];
    }
    *of_blocks++ = highest;
    scan.highest = std::max(scan.highest, highest);
  }
  return scan;
}

HWY_INLINE hn::Vec<F64> ExpsAt(const float* logits, hn::Vec<Half> highest, hn::Vec<F64> scale) {
  const auto below = hn::Sub(hn::LoadU(Half(), logits), highest);
  return hn::Exp(F64(), hn::Mul(hn::PromoteTo(F64(), below), scale));
}

double SumOfExpsImpl(const float* logits, size_t size, float highest, double scale) {
  const F64 d;
  const auto highests = hn::Set(Half(), highest);
  const auto scales = hn::Set(d, scale);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * kDoubles <= size; i += 2 * kDoubles) {
    sum0 = hn::Add(sum0, ExpsAt(logits + i, highests, scales));
    sum1 = hn::Add(sum1, ExpsAt(logits + i + kDoubles, highests, scales));
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < size; ++i) {
    if (!std::isnan(logits[i])) sum += std::exp((logits[i] - highest) * scale);
  }
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace macrame::runtime::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace macrame::runtime::kernels {

HWY_EXPORT(ScanLogitsImpl);
HWY_EXPORT(SumOfExpsImpl);

LogitScan ScanLogits(const float* logits, size_t size, float* of_blocks) {
  return HWY_DYNAMIC_DISPATCH(ScanLogitsImpl)(logits, size, of_blocks);
}

double SumOfExps(const float* logits, size_t size, float highest, double scale) {
  return HWY_DYNAMIC_DISPATCH(SumOfExpsImpl)(logits, size, highest, scale);
}

}  // namespace macrame::runtime::kernels
#endif  // HWY_ONCE
