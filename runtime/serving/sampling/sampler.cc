#include "runtime/serving/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/kernels/logit_scan.h"
#include "runtime/serving/sampling/logit_row.h"

namespace macrame::runtime::engine {
namespace {

using kernels::kLogitBlock;
using Row = LogitRow;

// Sums are taken in another order than SampleInOrder takes them, of terms that are off by a few
// units in the last place. What lies nearer to a limit than this share of the whole, which is above
// that error for any vocabulary of less than a million tokens, is left to SampleInOrder.
constexpr double kSumMargin = 1e-9;
// e^-45 of the likeliest token's probability, times a vocabulary, is far below that margin.
constexpr double kNegligible = 45.0;
// Below it the reciprocal is not of use.
constexpr double kTemperatureMin = 1e-30;

// The first of those with the highest logit.
int32_t Best(const Row& row) {
  const auto& highest = row.highest_of_blocks;
  const auto block = static_cast<size_t>(
      std::find(highest.begin(), highest.end(), row.scan.highest) - highest.begin());
  const auto logits = row.Block(block);
  const auto at = std::find(logits.begin(), logits.end(), row.scan.highest) - logits.begin();
  return static_cast<int32_t>(block * kLogitBlock + static_cast<size_t>(at));
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

double SumOf(std::span<const Candidate> candidates) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += candidate.probability;
  return sum;
}

// The likeliest token's weight is 1, so there is at least one.
void KeepMinP(std::vector<Candidate>& candidates, double min_p) {
  std::erase_if(candidates, [&](const Candidate& c) { return c.probability < min_p; });
}

// What min-p leaves, and the draw among it, one after the other.
int32_t Draw(std::vector<Candidate>& candidates, const SamplingTraits& traits, uint64_t position) {
  KeepMinP(candidates, traits.min_p);
  double left = UniformAt(traits.seed, position) * SumOf(candidates);
  for (const Candidate& candidate : candidates) {
    left -= candidate.probability;
    if (left < 0.0) return candidate.token;
  }
  return candidates.back().token;
}

// The choice by its definition: every token a candidate, sums in their order. The ways below give
// the same token or none.
int32_t SampleInOrder(const Row& row, const SamplingTraits& traits, uint64_t position) {
  std::vector<Candidate> candidates;
  candidates.reserve(row.logits.size());
  for (size_t i = 0; i < row.logits.size(); ++i) {
    const float logit = row.logits[i];
    if (std::isnan(logit)) continue;
    candidates.push_back(
        {logit, static_cast<int32_t>(i), row.Probability(logit, traits.temperature)});
  }
  const bool limited = traits.top_k > 0 && traits.top_k < candidates.size();
  if (limited) {
    OrderFirst(candidates, traits.top_k);
    candidates.resize(traits.top_k);
  }
  if (traits.top_p < 1.0) KeepTopP(candidates, traits.top_p, limited);
  return Draw(candidates, traits, position);
}

int32_t SampleOfTopK(const Row& row, const SamplingTraits& traits, uint64_t position) {
  std::vector<Candidate> candidates = FindLikeliest(row, traits.top_k);
  for (Candidate& candidate : candidates) {
    candidate.probability = row.Probability(candidate.logit, traits.temperature);
  }
  if (traits.top_p < 1.0) KeepTopP(candidates, traits.top_p, true);
  return Draw(candidates, traits, position);
}

// min-p alone: only what is near it is looked at.
int32_t SampleAboveMinP(const Row& row, const SamplingTraits& traits, uint64_t position) {
  const double below = -std::log(traits.min_p) * traits.temperature;
  const double highest = row.scan.highest;
  const double slack = 1e-6 * (below + std::fabs(highest));  // above float's rounding
  std::vector<Candidate> candidates;
  FindAtLeast(row, static_cast<float>(highest - below - slack), candidates);
  for (Candidate& candidate : candidates) {
    candidate.probability = row.Probability(candidate.logit, traits.temperature);
  }
  return Draw(candidates, traits, position);
}

// The weights of the blocks, all relative to the likeliest token's.
std::vector<double> WeightsOfBlocks(const Row& row, double temperature) {
  std::vector<double> weights(row.highest_of_blocks.size(), 0.0);
  const double lowest = row.scan.highest - kNegligible * temperature;
  for (size_t block = 0; block < weights.size(); ++block) {
    if (row.highest_of_blocks[block] < lowest) continue;
    const auto logits = row.Block(block);
    weights[block] =
        kernels::SumOfExps(logits.data(), logits.size(), row.scan.highest, 1.0 / temperature);
  }
  return weights;
}

// Among all tokens. Nothing when it is too close to say.
std::optional<int32_t> DrawOfAll(const Row& row, const SamplingTraits& traits, uint64_t position) {
  const std::vector<double> weights = WeightsOfBlocks(row, traits.temperature);
  double total = 0.0;
  for (const double weight : weights) total += weight;
  const double target = UniformAt(traits.seed, position) * total;
  const double margin = kSumMargin * total;
  double sum = 0.0;
  for (size_t block = 0; block < weights.size(); ++block) {
    if (sum + weights[block] <= target) {
      sum += weights[block];
      continue;
    }
    const auto logits = row.Block(block);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double before = sum;
      sum += row.Probability(logits[i], traits.temperature);
      if (sum <= target) continue;
      if (target - before < margin || sum - target < margin) return std::nullopt;
      return static_cast<int32_t>(block * kLogitBlock + i);
    }
    return std::nullopt;
  }
  return std::nullopt;
}

constexpr uint16_t kSteps = 2048;
constexpr uint16_t kNoStep = 0xffff;  // of blocks that can't matter
// A row whose logits lie further apart is not flat.
constexpr double kFlatSpread = 24.0;
// Beyond so many candidates a row is flat.
constexpr size_t kCandidatesFew = 4096;

// For rows that are flat, where a good part of the vocabulary is looked at: memory that would else
// be asked of the system, page by page, for each token.
struct Scratch {
  std::vector<Candidate> left, front, back, likeliest;
  std::vector<uint16_t> steps;         // of each token, below the likeliest
  std::array<double, kSteps> weights;  // of all tokens on a step
};

// Puts those of `left` that are likelier than the pivot into `front`, the others into `back`; the
// weight of the front. Without branches: on a flat row half of them would be predicted wrongly.
double Divide(Scratch& scratch, const Candidate& pivot) {
  scratch.front.resize(scratch.left.size());
  scratch.back.resize(scratch.left.size());
  size_t front = 0, back = 0;
  double weight = 0.0;
  for (const Candidate& candidate : scratch.left) {
    const bool is_front = (candidate.logit > pivot.logit) |
                          ((candidate.logit == pivot.logit) & (candidate.token < pivot.token));
    scratch.front[front] = candidate;
    scratch.back[back] = candidate;
    front += is_front ? 1 : 0;
    back += is_front ? 0 : 1;
    weight += is_front ? candidate.probability : 0.0;
  }
  scratch.front.resize(front);
  scratch.back.resize(back);
  return weight;
}

// Moves the shortest run of likeliest candidates in `left` whose weight, with that `before` them,
// reaches `target` to `likeliest`, the least likely of them last, the others in any order. False
// when it is too close to say.
bool TakeLikeliest(Scratch& scratch, double target, double margin, double before_all = 0.0) {
  constexpr size_t kSorted = 32;
  std::vector<Candidate>& left = scratch.left;
  std::vector<Candidate>& likeliest = scratch.likeliest;
  likeliest.clear();
  double sum = before_all;
  while (left.size() > kSorted) {
    // A pivot between two others: neither part is empty.
    Candidate pivots[] = {left.front(), left[left.size() / 2], left.back()};
    std::sort(std::begin(pivots), std::end(pivots), Likelier);
    const double front = Divide(scratch, pivots[1]);
    if (sum + front >= target) {
      left.swap(scratch.front);
    } else {
      likeliest.insert(likeliest.end(), scratch.front.begin(), scratch.front.end());
      sum += front;
      left.swap(scratch.back);
    }
  }
  std::sort(left.begin(), left.end(), Likelier);
  for (const Candidate& candidate : left) {
    const double before = sum;
    sum += candidate.probability;
    const bool is_first = likeliest.empty() && before_all == 0.0;
    likeliest.push_back(candidate);
    if (sum >= target) return sum - target >= margin && (is_first || target - before >= margin);
  }
  return false;
}

void SetProbabilities(const Row& row, double temperature, std::vector<Candidate>& candidates) {
  constexpr size_t kAtOnce = 256;
  float logits[kAtOnce];
  double weights[kAtOnce];
  for (size_t begin = 0; begin < candidates.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, candidates.size() - begin);
    for (size_t i = 0; i < count; ++i) logits[i] = candidates[begin + i].logit;
    kernels::ExpsOf(logits, count, row.scan.highest, 1.0 / temperature, weights);
    for (size_t i = 0; i < count; ++i) candidates[begin + i].probability = weights[i];
  }
}

// Cuts to those whose surprise (the logarithm of 1 / probability) is nearest to what is expected of
// the candidates as a whole: the smallest set that holds `typical_p` of their probability.
void KeepTypical(const Row& row, const SamplingTraits& traits, std::vector<Candidate>& candidates) {
  struct Distance {
    double from_expected;
    uint32_t index;  // of candidates that stand at one distance, the first is the nearer
    bool operator<(const Distance& other) const {
      return from_expected != other.from_expected ? from_expected < other.from_expected
                                                  : index < other.index;
    }
  };
  // All relative to the likeliest token's: the same number would be added to every surprise.
  const auto surprise = [&](const Candidate& c) {
    return (row.scan.highest - c.logit) / traits.temperature;
  };
  const double total = SumOf(candidates);
  double expected = 0.0;
  for (const Candidate& c : candidates) expected += c.probability * surprise(c);
  expected /= total;
  std::vector<Distance> order;
  order.reserve(candidates.size());
  for (uint32_t i = 0; i < candidates.size(); ++i) {
    order.push_back({std::fabs(surprise(candidates[i]) - expected), i});
  }
  std::vector<Candidate> kept;
  size_t in_order = 0;
  double sum = 0.0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i >= in_order) {
      in_order = i == 0 ? std::min<size_t>(256, order.size()) : order.size();
      std::partial_sort(order.begin() + static_cast<int64_t>(i),
                        order.begin() + static_cast<int64_t>(in_order), order.end());
    }
    kept.push_back(candidates[order[i].index]);
    sum += kept.back().probability;
    if (sum >= traits.typical_p * total) break;
  }
  candidates.swap(kept);
}

// With typical-p: what the others leave is looked at as a whole. Of all tokens, those that are less
// than e^-kNegligible times as likely as the likeliest are no candidates.
int32_t SampleTypical(const Row& row, const SamplingTraits& traits, uint64_t position) {
  const double lowest = row.scan.highest - kNegligible * traits.temperature;
  std::vector<Candidate> candidates;
  FindAtLeast(row, static_cast<float>(lowest), candidates);
  const bool limited = traits.top_k > 0 && traits.top_k < candidates.size();
  if (limited) {
    OrderFirst(candidates, traits.top_k);
    candidates.resize(traits.top_k);
  }
  SetProbabilities(row, traits.temperature, candidates);
  if (traits.top_p < 1.0) KeepTopP(candidates, traits.top_p, limited);
  KeepMinP(candidates, traits.min_p);
  KeepTypical(row, traits, candidates);
  return Draw(candidates, traits, position);
}

// Of a flat row: each token's step, and the weight of each step. The sum of the weights.
double WeighSteps(const Row& row, double temperature, Scratch& scratch) {
  const double lowest = row.scan.highest - kNegligible * temperature;
  const double spread = std::min(kNegligible * temperature, kFlatSpread);
  const auto per_unit = static_cast<float>(kSteps / spread);
  scratch.steps.resize(row.logits.size());
  scratch.weights.fill(0.0);
  double weights[kLogitBlock];
  for (size_t block = 0; block < row.highest_of_blocks.size(); ++block) {
    const auto logits = row.Block(block);
    uint16_t* steps = scratch.steps.data() + block * kLogitBlock;
    if (row.highest_of_blocks[block] < lowest) {
      std::fill_n(steps, logits.size(), kNoStep);
      continue;
    }
    kernels::StepsBelow(logits.data(), logits.size(), row.scan.highest, per_unit, kSteps - 1,
                        steps);
    kernels::ExpsOf(logits.data(), logits.size(), row.scan.highest, 1.0 / temperature, weights);
    for (size_t i = 0; i < logits.size(); ++i) scratch.weights[steps[i]] += weights[i];
  }
  return std::accumulate(scratch.weights.begin(), scratch.weights.end(), 0.0);
}

// The first step up to which the weights reach `target`; *before: the weight above it.
size_t StepAt(const Scratch& scratch, double target, double* before) {
  size_t step = 0;
  for (*before = 0.0; step + 1 < kSteps; ++step) {
    if (*before + scratch.weights[step] >= target) break;
    *before += scratch.weights[step];
  }
  return step;
}

// The tokens on a step to `left`.
void FindOnStep(const Row& row, double temperature, size_t step, Scratch& scratch) {
  constexpr size_t kAtOnce = 1024;
  size_t tokens[kAtOnce];
  scratch.left.clear();
  for (size_t begin = 0; begin < scratch.steps.size(); begin += kAtOnce) {
    const size_t end = std::min(scratch.steps.size(), begin + kAtOnce);
    size_t count = 0;
    for (size_t i = begin; i < end; ++i) {
      tokens[count] = i;
      count += scratch.steps[i] == step ? 1 : 0;
    }
    for (size_t i = 0; i < count; ++i) {
      scratch.left.push_back({row.logits[tokens[i]], static_cast<int32_t>(tokens[i])});
    }
  }
  SetProbabilities(row, temperature, scratch.left);
}

// top-p of all tokens of a flat row, where only two steps are looked at token by token: that on
// which top-p ends, and that of the token. Nothing when it is too close to say.
std::optional<int32_t> DrawOfFlatTopP(const Row& row, const SamplingTraits& traits,
                                      uint64_t position, Scratch& scratch) {
  const double total = WeighSteps(row, traits.temperature, scratch);
  const double wanted = traits.top_p * total;
  double before = 0.0;
  const size_t last = StepAt(scratch, wanted, &before);
  FindOnStep(row, traits.temperature, last, scratch);
  if (!TakeLikeliest(scratch, wanted, kSumMargin * total, before)) return std::nullopt;
  const double left = before + SumOf(scratch.likeliest);
  const double target = UniformAt(traits.seed, position) * left;
  const size_t step = std::min(StepAt(scratch, target, &before), last);
  if (step == last) {
    scratch.left.swap(scratch.likeliest);
  } else {
    FindOnStep(row, traits.temperature, step, scratch);
  }
  if (!TakeLikeliest(scratch, target, kSumMargin * left, before)) return std::nullopt;
  return scratch.likeliest.back().token;
}

// top-p of all tokens, without ordering them. Nothing when it is too close to say.
std::optional<int32_t> DrawOfTopP(const Row& row, const SamplingTraits& traits, uint64_t position) {
  thread_local Scratch scratch;
  const double temperature = traits.temperature;
  const size_t most = traits.min_p > 0.0 ? row.logits.size() : kCandidatesFew;
  double total = 0.0, wanted = 0.0, margin = 0.0;
  for (const double depth : {4.0, 12.0, kNegligible}) {
    const double lowest = row.scan.highest - depth * temperature;
    if (!FindAtLeast(row, static_cast<float>(lowest), scratch.left, most)) {
      return DrawOfFlatTopP(row, traits, position, scratch);
    }
    if (total == 0.0) {
      const std::vector<double> weights = WeightsOfBlocks(row, temperature);
      total = std::accumulate(weights.begin(), weights.end(), 0.0);
      wanted = traits.top_p * total;
      margin = kSumMargin * total;
    }
    SetProbabilities(row, temperature, scratch.left);
    if (SumOf(scratch.left) >= wanted + margin) break;
  }
  if (!TakeLikeliest(scratch, wanted, margin)) return std::nullopt;
  bool is_near = false;
  std::erase_if(scratch.likeliest, [&](const Candidate& c) {
    is_near = is_near || std::fabs(c.probability - traits.min_p) < kSumMargin * traits.min_p;
    return c.probability < traits.min_p;
  });
  if (is_near) return std::nullopt;
  scratch.left.swap(scratch.likeliest);
  const double left = SumOf(scratch.left);
  const double target = UniformAt(traits.seed, position) * left;
  if (!TakeLikeliest(scratch, target, kSumMargin * left)) return std::nullopt;
  return scratch.likeliest.back().token;
}

}  // namespace

absl::Status CheckSampling(const SamplingTraits& traits) {
  const auto bad = [](const char* name, double value, const char* range) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                        absl::StrCat(name, " is ", value, ", not in ", range));
  };
  if (!(traits.temperature >= 0.0 && traits.temperature <= 100.0)) {
    return bad("temperature", traits.temperature, "[0, 100]");
  }
  if (!(traits.top_p > 0.0 && traits.top_p <= 1.0)) return bad("top_p", traits.top_p, "(0, 1]");
  if (!(traits.min_p >= 0.0 && traits.min_p <= 1.0)) return bad("min_p", traits.min_p, "[0, 1]");
  if (!(traits.typical_p > 0.0 && traits.typical_p <= 1.0)) {
    return bad("typical_p", traits.typical_p, "(0, 1]");
  }
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
  const Row row = ScanRow(logits);
  if (logits.empty() || !std::isfinite(row.scan.highest)) {
    return absl::InternalError("the model's output is not finite");
  }
  if (traits.temperature <= 0.0) return Best(row);
  if (traits.typical_p < 1.0 && traits.temperature >= kTemperatureMin) {
    return SampleTypical(row, traits, position);
  }
  if (row.scan.has_nan || traits.temperature < kTemperatureMin) {
    return SampleInOrder(row, traits, position);
  }
  if (traits.top_k > 0 && traits.top_k < logits.size()) return SampleOfTopK(row, traits, position);
  if (traits.top_p >= 1.0 && traits.min_p > 0.0) return SampleAboveMinP(row, traits, position);
  const auto token =
      traits.top_p < 1.0 ? DrawOfTopP(row, traits, position) : DrawOfAll(row, traits, position);
  return token.has_value() ? *token : SampleInOrder(row, traits, position);
}

}  // namespace macrame::runtime::engine
