#include "runtime/serving/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/kernels/logit_scan.h"
#include "runtime/kernels/token_weights.h"
#include "runtime/serving/sampling/logit_row.h"

namespace macrame::runtime::engine {
namespace {

using kernels::DrawNumbers;
using kernels::kFarthest;
using kernels::kLogitBlock;
using Row = LogitRow;

// A token's place among those of a row: by distance from the likeliest, then by id.
constexpr uint64_t PlaceOf(uint32_t distance, uint64_t token) {
  return uint64_t{distance} << 32 | token;
}
constexpr uint64_t LastPlaceAt(uint32_t distance) { return PlaceOf(distance, 0xffffffff); }

struct PlacedToken {
  uint64_t place;
  uint64_t weight;

  uint32_t distance() const { return static_cast<uint32_t>(place >> 32); }
  int32_t token() const { return static_cast<int32_t>(place & 0xffffffff); }
};

constexpr uint32_t kStepBits = 10;  // distances of one step
constexpr size_t kSteps = (kFarthest >> kStepBits) + 1;
// Beyond so many candidates a row is flat.
constexpr size_t kCandidatesFew = 4096;

// Memory that would else be asked of the system, page by page, for each token.
struct Scratch {
  std::vector<Candidate> found;
  std::vector<PlacedToken> tokens, left, front, back;
  std::vector<uint32_t> distances;       // of all tokens of a flat row
  std::array<uint64_t, kSteps> weights;  // of all tokens on a step
};

Scratch& OwnScratch() {
  thread_local Scratch scratch;
  return scratch;
}

uint64_t SumOf(std::span<const PlacedToken> tokens) {
  uint64_t sum = 0;
  for (const PlacedToken& token : tokens) sum += token.weight;
  return sum;
}

// The first of those with the highest logit.
int32_t Best(const Row& row) {
  const auto& highest = row.highest_of_blocks;
  const auto block = static_cast<size_t>(
      std::find(highest.begin(), highest.end(), row.scan.highest) - highest.begin());
  const auto logits = row.Block(block);
  const auto at = std::find(logits.begin(), logits.end(), row.scan.highest) - logits.begin();
  return static_cast<int32_t>(block * kLogitBlock + static_cast<size_t>(at));
}

// No logit at that distance or nearer is lower.
float LowestAt(const Row& row, float scale, uint32_t distance) {
  const double below = (distance + 1.0) / scale;
  const double slack = 1e-6 * (below + std::fabs(row.scan.highest));  // above float's rounding
  return static_cast<float>(row.scan.highest - below - slack);
}

// What was found, with its places and weights, in the same order.
void Place(const Row& row, float scale, std::span<const Candidate> found,
           std::vector<PlacedToken>& tokens) {
  float logits[kLogitBlock];
  uint32_t distances[kLogitBlock];
  uint64_t weights[kLogitBlock];
  tokens.resize(found.size());
  for (size_t begin = 0; begin < found.size(); begin += kLogitBlock) {
    const size_t count = std::min(kLogitBlock, found.size() - begin);
    for (size_t i = 0; i < count; ++i) logits[i] = found[begin + i].logit;
    kernels::WeighLogits(logits, count, row.scan.highest, scale, distances, weights);
    for (size_t i = 0; i < count; ++i) {
      const auto token = static_cast<uint64_t>(found[begin + i].token);
      tokens[begin + i] = {PlaceOf(distances[i], token), weights[i]};
    }
  }
}

// Puts those of `left` that stand before the pivot into `front`, the others into `back`; the
// weight of the front. Without branches: on a flat row half of them would be predicted wrongly.
uint64_t Divide(Scratch& scratch, uint64_t pivot) {
  scratch.front.resize(scratch.left.size());
  scratch.back.resize(scratch.left.size());
  size_t front = 0, back = 0;
  uint64_t weight = 0;
  for (const PlacedToken& token : scratch.left) {
    const bool is_front = token.place < pivot;
    scratch.front[front] = token;
    scratch.back[back] = token;
    front += is_front ? 1 : 0;
    back += is_front ? 0 : 1;
    weight += is_front ? token.weight : 0;
  }
  scratch.front.resize(front);
  scratch.back.resize(back);
  return weight;
}

// The first place up to which the weights of `left`, in the order of places, reach `target`.
// `left` is used up.
uint64_t PlaceThatReaches(Scratch& scratch, uint64_t target) {
  constexpr size_t kSorted = 32;
  std::vector<PlacedToken>& left = scratch.left;
  while (left.size() > kSorted) {
    // A pivot between two others: neither part is empty.
    uint64_t pivots[] = {left.front().place, left[left.size() / 2].place, left.back().place};
    std::sort(std::begin(pivots), std::end(pivots));
    const uint64_t front = Divide(scratch, pivots[1]);
    if (front >= target) {
      left.swap(scratch.front);
    } else {
      target -= front;
      left.swap(scratch.back);
    }
  }
  std::sort(left.begin(), left.end(),
            [](const PlacedToken& a, const PlacedToken& b) { return a.place < b.place; });
  for (const PlacedToken& token : left) {
    if (token.weight >= target) return token.place;
    target -= token.weight;
  }
  return left.back().place;
}

// Leaves of `tokens`, all of a row that can matter, what top-k, top-p and min-p leave. Their order
// stays.
void KeepOf(Scratch& scratch, uint32_t top_k, const DrawNumbers& numbers) {
  std::vector<PlacedToken>& tokens = scratch.tokens;
  const auto cut = [&](uint64_t last) {
    std::erase_if(tokens, [last](const PlacedToken& token) { return token.place > last; });
  };
  if (top_k > 0 && top_k < tokens.size()) {
    scratch.left = tokens;
    const auto at = scratch.left.begin() + top_k - 1;
    std::nth_element(scratch.left.begin(), at, scratch.left.end(),
                     [](const PlacedToken& a, const PlacedToken& b) { return a.place < b.place; });
    cut(at->place);
  }
  uint64_t last = LastPlaceAt(numbers.farthest);
  if (numbers.top_p < kernels::kWhole) {
    scratch.left = tokens;
    const uint64_t wanted = kernels::ShareOf(SumOf(tokens), numbers.top_p);
    last = std::min(last, PlaceThatReaches(scratch, wanted));
  }
  cut(last);
}

// Draws among all of `tokens`, which are ordered by id.
int32_t DrawAmong(std::span<const PlacedToken> tokens, const DrawNumbers& numbers) {
  uint64_t target = kernels::ShareOf(SumOf(tokens), numbers.draw);
  for (const PlacedToken& token : tokens) {
    if (token.weight > target) return token.token();
    target -= token.weight;
  }
  return tokens.back().token();  // never: the target is below the sum
}

// A block's tokens up to the place `last`, with their weights; 0 is that of the others.
struct WeighedBlock {
  uint32_t distances[kLogitBlock];
  uint64_t weights[kLogitBlock];

  WeighedBlock(const Row& row, float scale, size_t block, uint64_t last) {
    const auto logits = row.Block(block);
    kernels::WeighLogits(logits.data(), logits.size(), row.scan.highest, scale, distances, weights);
    for (size_t i = 0; i < logits.size(); ++i) {
      if (PlaceOf(distances[i], block * kLogitBlock + i) > last) weights[i] = 0;
    }
  }
};

uint64_t SumOfBlock(const Row& row, float scale, size_t block, uint64_t last) {
  const auto farthest = static_cast<uint32_t>(last >> 32);
  const float highest = row.scan.highest;
  const uint32_t nearest = kernels::DistanceOf(highest, row.highest_of_blocks[block], scale);
  if (nearest > farthest || nearest == kFarthest) return 0;
  const auto logits = row.Block(block);
  const uint64_t begin = block * kLogitBlock, last_token = last & 0xffffffff;
  if (begin + logits.size() - 1 <= last_token) {
    return kernels::SumOfWeights(logits.data(), logits.size(), highest, scale, farthest);
  }
  if (begin > last_token) {
    if (nearest == farthest) return 0;
    return kernels::SumOfWeights(logits.data(), logits.size(), highest, scale, farthest - 1);
  }
  const WeighedBlock weighed(row, scale, block, last);
  return std::accumulate(weighed.weights, weighed.weights + logits.size(), uint64_t{0});
}

// Draws among all tokens of a row up to the place `last`.
int32_t DrawUpTo(const Row& row, const DrawNumbers& numbers, uint64_t last) {
  std::vector<uint64_t> sums(row.highest_of_blocks.size());
  for (size_t block = 0; block < sums.size(); ++block) {
    sums[block] = SumOfBlock(row, numbers.scale, block, last);
  }
  uint64_t target =
      kernels::ShareOf(std::accumulate(sums.begin(), sums.end(), uint64_t{0}), numbers.draw);
  size_t block = 0;
  while (target >= sums[block]) target -= sums[block++];
  const WeighedBlock weighed(row, numbers.scale, block, last);
  size_t at = 0;
  while (target >= weighed.weights[at]) target -= weighed.weights[at++];
  return static_cast<int32_t>(block * kLogitBlock + at);
}

// Of a flat row, where only the tokens of one step are looked at one by one: that on which top-p
// ends. The last place that top-p leaves.
uint64_t LastOfFlatTopP(const Row& row, const DrawNumbers& numbers, Scratch& scratch) {
  scratch.distances.resize(row.logits.size());
  scratch.weights.fill(0);
  uint64_t weights[kLogitBlock];
  for (size_t block = 0; block < row.highest_of_blocks.size(); ++block) {
    const auto logits = row.Block(block);
    uint32_t* distances = scratch.distances.data() + block * kLogitBlock;
    kernels::WeighLogits(logits.data(), logits.size(), row.scan.highest, numbers.scale, distances,
                         weights);
    for (size_t i = 0; i < logits.size(); ++i) {
      scratch.weights[distances[i] >> kStepBits] += weights[i];
    }
  }
  const uint64_t total =
      std::accumulate(scratch.weights.begin(), scratch.weights.end(), uint64_t{0});
  uint64_t wanted = kernels::ShareOf(total, numbers.top_p);
  size_t step = 0;
  while (scratch.weights[step] < wanted) wanted -= scratch.weights[step++];
  scratch.left.clear();
  for (size_t i = 0; i < scratch.distances.size(); ++i) {
    const uint32_t distance = scratch.distances[i];
    if (distance >> kStepBits != step) continue;
    scratch.left.push_back({PlaceOf(distance, i), kernels::WeightAt(distance)});
  }
  return PlaceThatReaches(scratch, wanted);
}

// top-p, perhaps with min-p behind it, of all tokens, without ordering them.
int32_t DrawOfTopP(const Row& row, const DrawNumbers& numbers, Scratch& scratch) {
  uint64_t wanted = 0;
  // 4 and 12 below the likeliest's logarithm, and all.
  for (const uint32_t depth :
       {6u << kernels::kDistanceBits, 17u << kernels::kDistanceBits, kFarthest}) {
    const float lowest = LowestAt(row, numbers.scale, depth);
    if (!FindAtLeast(row, lowest, scratch.found, kCandidatesFew)) break;
    if (wanted == 0) {
      uint64_t total = 0;
      for (size_t block = 0; block < row.highest_of_blocks.size(); ++block) {
        total += SumOfBlock(row, numbers.scale, block, LastPlaceAt(kFarthest));
      }
      wanted = kernels::ShareOf(total, numbers.top_p);
    }
    Place(row, numbers.scale, scratch.found, scratch.tokens);
    // What is farther was found by the slack alone, and not all of it.
    std::erase_if(scratch.tokens, [&](const PlacedToken& t) { return t.distance() > depth; });
    if (SumOf(scratch.tokens) < wanted) continue;
    scratch.left = scratch.tokens;
    const uint64_t last =
        std::min(PlaceThatReaches(scratch, wanted), LastPlaceAt(numbers.farthest));
    std::erase_if(scratch.tokens, [&](const PlacedToken& t) { return t.place > last; });
    return DrawAmong(scratch.tokens, numbers);
  }
  const uint64_t last = LastOfFlatTopP(row, numbers, scratch);
  return DrawUpTo(row, numbers, std::min(last, LastPlaceAt(numbers.farthest)));
}

int32_t DrawOfTopK(const Row& row, uint32_t top_k, const DrawNumbers& numbers, Scratch& scratch) {
  const float reached = LogitOfAtLeast(row, top_k);
  const uint32_t distance = kernels::DistanceOf(row.scan.highest, reached, numbers.scale);
  // Others are as far away, with a lower logit.
  FindAtLeast(row, std::min(reached, LowestAt(row, numbers.scale, distance)), scratch.found);
  Place(row, numbers.scale, scratch.found, scratch.tokens);
  KeepOf(scratch, top_k, numbers);
  return DrawAmong(scratch.tokens, numbers);
}

// Cuts to those whose surprise (the logarithm of 1 / probability) is nearest to what is expected of
// the tokens as a whole: the smallest set that holds `typical_p` of their probability. Surprise
// counts from the likeliest token's, in steps of distance: the same is added to every token's.
void KeepTypical(double typical_p, std::vector<PlacedToken>& tokens) {
  struct Nearness {
    double from_expected;
    uint32_t index;  // of tokens that are as near, the first is the nearer
    bool operator<(const Nearness& other) const {
      return from_expected != other.from_expected ? from_expected < other.from_expected
                                                  : index < other.index;
    }
  };
  const auto total = static_cast<double>(SumOf(tokens));
  double expected = 0.0;
  for (const PlacedToken& token : tokens) {
    expected += static_cast<double>(token.weight) / total * token.distance();
  }
  std::vector<Nearness> order;
  order.reserve(tokens.size());
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    order.push_back({std::fabs(tokens[i].distance() - expected), i});
  }
  size_t kept = 0, in_order = 0;
  double sum = 0.0;
  while (kept < order.size() && sum < typical_p * total) {
    if (kept >= in_order) {
      in_order = kept == 0 ? std::min<size_t>(256, order.size()) : order.size();
      std::partial_sort(order.begin() + static_cast<int64_t>(kept),
                        order.begin() + static_cast<int64_t>(in_order), order.end());
    }
    sum += static_cast<double>(tokens[order[kept++].index].weight);
  }
  order.resize(kept);
  std::sort(order.begin(), order.end(),
            [](const Nearness& a, const Nearness& b) { return a.index < b.index; });
  for (size_t i = 0; i < kept; ++i) tokens[i] = tokens[order[i].index];
  tokens.resize(kept);
}

// With typical-p: what the others leave is looked at as a whole.
int32_t DrawTypical(const Row& row, const SamplingTraits& traits, const DrawNumbers& numbers,
                    Scratch& scratch) {
  FindAtLeast(row, LowestAt(row, numbers.scale, kFarthest - 1), scratch.found);
  Place(row, numbers.scale, scratch.found, scratch.tokens);
  KeepOf(scratch, traits.top_k, numbers);
  KeepTypical(traits.typical_p, scratch.tokens);
  return DrawAmong(scratch.tokens, numbers);
}

int32_t Draw(const Row& row, const SamplingTraits& traits, uint64_t position) {
  Scratch& scratch = OwnScratch();
  const DrawNumbers numbers =
      kernels::NumbersOf(traits.temperature, traits.top_p, traits.min_p, traits.seed, position);
  if (traits.typical_p < 1.0) return DrawTypical(row, traits, numbers, scratch);
  if (traits.top_k > 0 && traits.top_k < row.logits.size()) {
    return DrawOfTopK(row, traits.top_k, numbers, scratch);
  }
  if (numbers.top_p < kernels::kWhole) return DrawOfTopP(row, numbers, scratch);
  return DrawUpTo(row, numbers, LastPlaceAt(numbers.farthest));
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

absl::StatusOr<int32_t> SampleToken(std::span<const float> logits, const SamplingTraits& traits,
                                    uint64_t position) {
  const Row row = ScanRow(logits);
  if (logits.empty() || !std::isfinite(row.scan.highest)) {
    return absl::InternalError("the model's output is not finite");
  }
  if (traits.temperature <= 0.0) return Best(row);
  if (!row.scan.has_nan) return Draw(row, traits, position);
  std::vector<float> numbers(logits.begin(), logits.end());
  for (float& logit : numbers) {
    if (std::isnan(logit)) logit = -std::numeric_limits<float>::infinity();
  }
  return Draw(ScanRow(numbers), traits, position);
}

}  // namespace macrame::runtime::engine
