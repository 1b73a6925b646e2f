#include "runtime/model/split_proof.h"

#include <cmath>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mlx/mlx.h"
#include "proto/reasons.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/load_layer_stack.h"
#include "runtime/model/step/layer_stack.h"
#include "runtime/model/weights/fp8_weights.h"
#include "runtime/model/weights/weight_loader.h"

namespace macrame::runtime::engine {

namespace mx = mlx::core;

namespace {

// Whether a layer looks at compressed entries, makes and chooses them.
std::tuple<bool, bool, bool> EntriesOf(const ModelConfig& config, size_t layer) {
  if (!config.has_compression()) return {};
  const CompressTraits& traits = config.compress;
  return {traits.ratios[layer] > 0, traits.makes[layer], traits.chooses[layer]};
}

// The first layer of each kind.
std::vector<int> LayersToProve(const ModelConfig& config, const ShardPlace& place) {
  std::set<std::tuple<MixerKind, bool, bool, bool, bool, std::tuple<bool, bool, bool>>> seen;
  std::vector<int> layers;
  for (int layer = place.layer_begin; layer < place.layer_end; ++layer) {
    const auto index = static_cast<size_t>(layer);
    const bool mixed = index < config.has_experts.size() && config.has_experts[index];
    const bool windowed =
        index < config.sliding_windows.size() && config.sliding_windows[index] > 0;
    const bool reads = config.KvSourceOf(layer) != layer;
    const bool is_new = seen.emplace(config.MixerOf(layer), config.has_feed[index], mixed, windowed,
                                     reads, EntriesOf(config, index))
                            .second;
    if (is_new) layers.push_back(layer);
  }
  return layers;
}

// The same on every rank: numbers in [-1, 1) from a linear congruential generator (Knuth's MMIX).
std::vector<float> MadeUpStates(size_t count) {
  std::vector<float> states(count);
  uint64_t state = 1;
  for (float& value : states) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1.0);
  }
  return states;
}

// Of what goes into the place's first layer (carried.h).
int WidthInto(const ModelConfig& config, const ShardPlace& place) {
  return CarriedInto(config, place.layer_begin).width;
}

absl::StatusOr<std::vector<float>> RunLayer(const SplitProof& proof, const ModelConfig& config,
                                            const ShardPlace& place, RankSums& sums,
                                            const std::vector<float>& states) {
  const absl::Status good = CheckWeights(config, place, *proof.files);
  if (!good.ok()) return good;
  WeightLoader loader(proof.files, config, place, proof.device, [](uint64_t) {});
  LayerStackOptions options;
  options.blocks_total = 1;
  options.context_length = static_cast<int>(kBlockTokens);
  options.threads = proof.threads;
  const auto stack = LoadLayerStack(config, place, loader, sums, options);
  const ForwardStep step{
      .segments = {Segment{.tokens = std::vector<int32_t>(kSplitProofRows, 0), .new_blocks = {0}}}};
  const absl::Status begun = stack->Begin(step);
  if (!begun.ok()) return begun;
  const mx::array hidden =
      mx::astype(mx::array(states.begin(), {kSplitProofRows, WidthInto(config, place)}),
                 stack->activation_type());
  // What is handed on besides hidden states is what came, or has been summed over the ranks.
  const mx::array given = stack->Run(hidden, step);
  const int hidden_given = CarriedInto(config, place.layer_end).hidden;
  const mx::array states_given = mx::slice(given, {0, 0}, {kSplitProofRows, hidden_given});
  mx::array out = mx::contiguous(mx::astype(states_given, mx::float32));
  std::vector<mx::array> outputs{out};
  stack->AppendState(outputs);
  mx::eval(outputs);
  return std::vector<float>(out.data<float>(), out.data<float>() + out.size());
}

// Of each row, |split - whole| / |whole - states|; rows of `states` begin with hidden states.
std::vector<double> Differences(const std::vector<float>& split, const std::vector<float>& whole,
                                const std::vector<float>& states) {
  const size_t width = whole.size() / kSplitProofRows, stride = states.size() / kSplitProofRows;
  std::vector<double> differences;
  for (size_t row = 0; row < kSplitProofRows; ++row) {
    double difference = 0, added = 0;
    for (size_t i = 0; i < width; ++i) {
      const double ours = whole[row * width + i];
      difference += std::pow(double{split[row * width + i]} - ours, 2);
      added += std::pow(ours - double{states[row * stride + i]}, 2);
    }
    const double share = std::sqrt(difference / added);
    differences.push_back(difference == 0 ? 0 : share);
  }
  return differences;
}

// Whether a layer is computed from a copy of its weights on any device. Ranks agree on it: one of a
// gang may have a GPU, and another none.
bool IsTurnedOver(const SplitProof& proof, const ShardPlace& place) {
  const LayerNeeds needs = NeedsOfLayer(proof.config, place, place.layer_begin);
  for (const LinearNeed* need : LinearsOf(needs, *proof.files)) {
    const StoredNames names = StoredNamesOf(*need, *proof.files);
    const StoredTensor* weight = proof.files->Find(names.weight);
    if (names.turned || names.blocks || (weight != nullptr && IsFp8(*weight))) return true;
  }
  return false;
}

// The same on every rank, whatever memory it has.
ModelConfig WithFewExperts(const ModelConfig& config) {
  ModelConfig few = config;
  ExpertTraits& experts = few.experts;
  if (experts.count == 0) return few;
  few.experts_stored = experts.count;
  experts.count = experts.active;
  experts.groups = experts.groups_active = 1;
  return few;
}

ShardPlace PlaceOf(ShardPlace place, int layer) {
  place.layer_begin = layer;
  place.layer_end = layer + 1;
  place.embeds = place.has_head = false;
  return place;
}

// What a rank would hold of it.
uint64_t BytesOf(const SplitProof& proof, const ModelConfig& config, const ShardPlace& place) {
  return WeightLoader(proof.files, config, place, proof.device, [](uint64_t) {}).BytesNeeded();
}

absl::Status Judge(const SplitProof& proof, int layer, const std::vector<double>& differences) {
  int agree = 0;
  double largest = 0;
  for (const double difference : differences) {
    // Not a number agrees with nothing.
    if (difference <= kSplitProofTolerance) ++agree;
    if (!(difference <= largest)) largest = difference;
  }
  if (agree >= kSplitProofRowsMin) return absl::OkStatus();
  return ReasonStatus(
      absl::StatusCode::kFailedPrecondition, reasons::kSplitDiffers,
      absl::StrFormat("the %d slices of layer %d of %s are not the layer that they were cut from: "
                      "of %d rows %d agree, the others differ by up to %.0f %%",
                      proof.place.tp, layer, proof.config.architecture, kSplitProofRows, agree,
                      100 * largest));
}

}  // namespace

absl::Status ProveSplit(const SplitProof& proof, RankSums& sums) {
  if (proof.place.tp < 2) return absl::OkStatus();
  const ModelConfig few = WithFewExperts(proof.config);
  absl::Status proven = absl::OkStatus();
  // To the end, whatever is found: the other ranks go on adding.
  for (const int layer : LayersToProve(proof.config, proof.place)) {
    const ShardPlace place = PlaceOf(proof.place, layer);
    const ShardPlace alone = PlaceOf(ShardPlace(), layer);
    // By all of its weights: of experts that are dealt out whole a rank may hold none.
    const bool is_copied = IsTurnedOver(proof, alone);
    const ModelConfig& config = is_copied ? few : proof.config;
    const auto width = static_cast<size_t>(WidthInto(config, place));
    const std::vector<float> states = MadeUpStates(kSplitProofRows * width);
    const auto split = RunLayer(proof, config, place, sums, states);
    if (!split.ok()) return split.status();
    if (proof.place.tp_rank != 0 || !proven.ok()) continue;
    const bool takes_memory = is_copied || UsesMlxGraph(proof.device);
    if (takes_memory && BytesOf(proof, config, alone) > proof.layer_bytes_max) continue;
    NoRankSums nobody;
    const auto whole = RunLayer(proof, config, alone, nobody, states);
    proven = whole.ok() ? Judge(proof, layer, Differences(*split, *whole, states)) : whole.status();
  }
  return proven;
}

}  // namespace macrame::runtime::engine
