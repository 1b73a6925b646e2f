#include "runtime/model/config/rope.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace macrame::runtime::engine {
namespace {

double DivisorOf(const RopeTraits& rope, size_t pair) {
  return std::pow(rope.theta, 2.0 * static_cast<double>(pair) / rope.dims);
}

// Long wavelengths are stretched by the factor, short ones not, smoothly between.
double Llama3Divisor(const RopeTraits& rope, double divisor) {
  const double long_wave = rope.original_context / rope.low_freq_factor;
  const double short_wave = rope.original_context / rope.high_freq_factor;
  const double wavelength = 2.0 * M_PI * divisor;
  if (wavelength > long_wave) return divisor * rope.factor;
  if (wavelength <= short_wave) return divisor;
  const double smooth = (rope.original_context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return divisor / ((1.0 - smooth) / rope.factor + smooth);
}

// The pairs between which yarn goes over from not stretching to stretching.
struct YarnRange {
  double begin, end;
};

YarnRange YarnRangeOf(const RopeTraits& rope) {
  // The dimension that turns so often within the original context.
  const auto dimension = [&](double turns) {
    return rope.dims * std::log(rope.original_context / (turns * 2.0 * M_PI)) /
           (2.0 * std::log(rope.theta));
  };
  double begin = dimension(rope.beta_fast), end = dimension(rope.beta_slow);
  if (rope.truncate) begin = std::floor(begin), end = std::ceil(end);
  begin = std::max(begin, 0.0);
  end = std::min(end, rope.dims - 1.0);
  if (begin == end) end += 0.001;
  return {begin, end};
}

double YarnDivisor(const RopeTraits& rope, const YarnRange& range, size_t pair) {
  const double divisor = DivisorOf(rope, pair);
  const double stretched =
      std::clamp((static_cast<double>(pair) - range.begin) / (range.end - range.begin), 0.0, 1.0);
  return 1.0 / (stretched / (rope.factor * divisor) + (1.0 - stretched) / divisor);
}

double YarnMagnitudeOf(const RopeTraits& rope) {
  return rope.attention_factor.value_or(YarnMagnitude(rope.factor, rope.mscale) /
                                        YarnMagnitude(rope.factor, rope.mscale_all_dim));
}

double LongropeMagnitudeOf(const RopeTraits& rope) {
  const double factor = static_cast<double>(rope.context_length_max) / rope.original_context;
  if (factor <= 1.0) return rope.attention_factor.value_or(1.0);
  return rope.attention_factor.value_or(
      std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(rope.original_context))));
}

// As MLX counts them from theta: in float32.
std::vector<float> PlainFrequencies(double theta, size_t half) {
  std::vector<float> frequencies;
  const float step = std::log(static_cast<float>(theta)) / static_cast<float>(half);
  for (size_t i = 0; i < half; ++i) {
    frequencies.push_back(std::exp(-static_cast<float>(i) * step));
  }
  return frequencies;
}

// theta, stretched for a context beyond the model's own.
double DynamicTheta(const RopeTraits& rope, int context_length) {
  if (rope.dims <= 2 || context_length <= rope.context_length_max) return rope.theta;
  const double beyond = rope.factor * context_length / rope.context_length_max;
  return rope.theta *
         std::pow(beyond - (rope.factor - 1.0), static_cast<double>(rope.dims) / (rope.dims - 2));
}

}  // namespace

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

std::string RopeLayoutOf(const RopeTraits& rope, const std::optional<RopeTraits>& local,
                         int context_length) {
  const bool follows = rope.FollowsContext() || (local.has_value() && local->FollowsContext());
  return follows ? absl::StrCat(", rope for ", context_length) : "";
}

RopeTable MakeRopeTable(const RopeTraits& rope, int context_length) {
  const auto half = static_cast<size_t>(rope.dims / 2);
  RopeTable table;
  if (rope.scaling == RopeScalingKind::kNone || rope.scaling == RopeScalingKind::kLinear) {
    table.frequencies = PlainFrequencies(rope.theta, half);
    if (rope.scaling == RopeScalingKind::kLinear) {
      table.position_scale = static_cast<float>(1.0 / rope.factor);
    }
    return table;
  }
  const YarnRange range =
      rope.scaling == RopeScalingKind::kYarn ? YarnRangeOf(rope) : YarnRange{0.0, 1.0};
  const bool beyond = context_length > rope.original_context;
  RopeTraits stretched = rope;
  stretched.theta = DynamicTheta(rope, context_length);
  for (size_t i = 0; i < half; ++i) {
    double divisor = DivisorOf(rope, i);
    if (rope.scaling == RopeScalingKind::kDynamic) divisor = DivisorOf(stretched, i);
    if (rope.scaling == RopeScalingKind::kLlama3) divisor = Llama3Divisor(rope, divisor);
    if (rope.scaling == RopeScalingKind::kYarn) divisor = YarnDivisor(rope, range, i);
    if (rope.scaling == RopeScalingKind::kLongrope) {
      divisor *= (beyond ? rope.long_factors : rope.short_factors)[i];
    }
    if (rope.scaling == RopeScalingKind::kProportional) {
      const bool turns = i < static_cast<size_t>(rope.turned / 2);
      divisor = turns ? divisor * rope.factor : std::numeric_limits<double>::infinity();
    }
    table.divisors.push_back(static_cast<float>(divisor));
    table.frequencies.push_back(1.0F / table.divisors.back());
  }
  if (rope.scaling == RopeScalingKind::kYarn) {
    table.magnitude = static_cast<float>(YarnMagnitudeOf(rope));
  } else if (rope.scaling == RopeScalingKind::kLongrope) {
    table.magnitude = static_cast<float>(LongropeMagnitudeOf(rope));
  }
  return table;
}

}  // namespace macrame::runtime::engine
