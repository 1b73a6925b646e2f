#include "runtime/serving/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

struct Candidate {
  float logit;
  int32_t token;
  double probability = 0.0;
};

bool Likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// The likeliest `count` come first, in order.
void OrderFirst(std::vector<Candidate>& candidates, size_t count) {
  count = std::min(count, candidates.size());
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<int64_t>(count),
                    candidates.end(), Likelier);
}

// Cuts to the smallest ordered prefix that holds `top_p` of the whole probability.
void KeepTopP(std::vector<Candidate>& candidates, double top_p, bool ordered) {
  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.probability;
  // Mostly a few dozen suffice: order more only while they don't.
  size_t in_order = ordered ? candidates.size() : 0;
  double sum = 0.0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i >= in_order) {
      in_order = std::max<size_t>(64, in_order * 4);
      OrderFirst(candidates, in_order);
    }
    sum += candidates[i].probability;
    if (sum >= top_p * total) {
      candidates.resize(i + 1);
      return;
    }
  }
}

}  // namespace

absl::Status CheckSampling(const SamplingTraits& traits) {
  const auto bad = [](const char* name, double value, const char* range) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                        absl::StrCat(name, " is ", value, ", not in ", range));
  };
  if (!(traits.temperature >= 0.0 && traits.temperature <= 100.0)) {
    return bad("temperature", traits.temperature, "[0, 100]");
  }
  if (!(traits.top_p > 0.0 && traits.top_p <= 1.0)) return bad("top_p", traits.top_p, "(0, 1]");
  if (!(traits.min_p >= 0.0 && traits.min_p <= 1.0)) return bad("min_p", traits.min_p, "[0, 1]");
  return absl::OkStatus();
}

double UniformAt(uint64_t seed, uint64_t position) {
  // SplitMix64's finalizer (Steele, Lea, Flood 2014) over a counter that both numbers move.
  uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (position + 1);
  for (int round = 0; round < 2; ++round) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    z ^= z >> 31;
  }
  return static_cast<double>(z >> 11) * 0x1.0p-53;
}

absl::StatusOr<int32_t> SampleToken(std::span<const float> logits, const SamplingTraits& traits,
                                    uint64_t position) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
  }
  if (best < 0 || !std::isfinite(logits[static_cast<size_t>(best)])) {
    return absl::InternalError("the model's output is not finite");
  }
  if (traits.temperature <= 0.0) return best;

  const float highest = logits[static_cast<size_t>(best)];
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    candidates.push_back(
        {logits[i], static_cast<int32_t>(i), std::exp((logits[i] - highest) / traits.temperature)});
  }
  const bool limited = traits.top_k > 0 && traits.top_k < candidates.size();
  if (limited) {
    OrderFirst(candidates, traits.top_k);
    candidates.resize(traits.top_k);
  }
  if (traits.top_p < 1.0) KeepTopP(candidates, traits.top_p, limited);
  // The likeliest token's weight is 1.
  std::erase_if(candidates, [&](const Candidate& c) { return c.probability < traits.min_p; });

  double total = 0.0;
  for (const Candidate& candidate : candidates) total += candidate.probability;
  double left = UniformAt(traits.seed, position) * total;
  for (const Candidate& candidate : candidates) {
    left -= candidate.probability;
    if (left < 0.0) return candidate.token;
  }
  return candidates.empty() ? best : candidates.back().token;
}

}  // namespace macrame::runtime::engine
