#include "runtime/model/layer_proof.h"

#include <cmath>
#include <set>
#include <tuple>

#include "mlx/mlx.h"
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

// What MLX computes meanwhile, it computes on the run's device.
class OnDevice {
 public:
  explicit OnDevice(EngineDevice device) {
    mx::set_default_device(device == EngineDevice::kGpu ? mx::Device::gpu : mx::Device::cpu);
  }
  ~OnDevice() { mx::set_default_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const mx::Device before_ = mx::default_device();
};

}  // namespace

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

ShardPlace OneLayer(ShardPlace place, int layer) {
  place.layer_begin = layer;
  place.layer_end = layer + 1;
  place.embeds = place.has_head = false;
  return place;
}

ModelConfig WithFewExperts(const ModelConfig& config) {
  ModelConfig few = config;
  ExpertTraits& experts = few.experts;
  if (experts.count == 0) return few;
  few.experts_stored = experts.count;
  experts.count = experts.active;
  experts.groups = experts.groups_active = 1;
  return few;
}

uint64_t BytesOf(const ProofRun& run) {
  return WeightLoader(run.files, run.config, run.place, run.device, [](uint64_t) {}).BytesNeeded();
}

bool IsTurnedOver(const ProofRun& run) {
  const LayerNeeds needs = NeedsOfLayer(run.config, run.place, run.place.layer_begin);
  for (const LinearNeed* need : LinearsOf(needs, *run.files)) {
    const StoredNames names = StoredNamesOf(*need, *run.files);
    const StoredTensor* weight = run.files->Find(names.weight);
    if (names.turned || names.blocks || (weight != nullptr && IsFp8(*weight))) return true;
  }
  return false;
}

namespace {

// The first `count` numbers, then -1.
void WriteList(const CarriedRow::Part& part, int count, float* row) {
  for (int i = 0; i < part.size; ++i) {
    row[part.begin + i] = i < count ? static_cast<float>(i) : -1.0F;
  }
}

// Which entries are looked at: all that a row sees.
void WriteEntryLists(const ProofRun& run, std::vector<float>& states) {
  const CarriedRow carried = CarriedInto(run.config, run.place.layer_begin);
  const CompressTraits& traits = run.config.compress;
  if (carried.chosen.size == 0 && carried.candidates.size == 0) return;
  const int ratio = traits.ratios[static_cast<size_t>(run.place.layer_begin)];
  for (int position = 0; position < kProofRows; ++position) {
    float* row = states.data() + static_cast<ptrdiff_t>(position) * carried.width;
    const int seen = ratio == 0 ? 0 : (position + 1) / ratio;
    WriteList(carried.chosen, seen, row);
    if (carried.candidates.size == 0) continue;
    WriteList(carried.candidates, (seen + traits.candidate_block - 1) / traits.candidate_block,
              row);
  }
}

}  // namespace

// Numbers in [-1, 1) from a linear congruential generator (Knuth's MMIX).
std::vector<float> MadeUpStates(const ProofRun& run) {
  const int width = CarriedInto(run.config, run.place.layer_begin).width;
  std::vector<float> states(kProofRows * static_cast<size_t>(width));
  uint64_t state = 1;
  for (float& value : states) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    value = static_cast<float>(static_cast<double>(state >> 40) / (1 << 23) - 1.0);
  }
  WriteEntryLists(run, states);
  return states;
}

absl::StatusOr<std::vector<float>> RunLayer(const ProofRun& run, RankSums& sums,
                                            const std::vector<float>& states,
                                            std::span<const int> parts) {
  const OnDevice scope(run.device);
  const absl::Status good = CheckWeights(run.config, run.place, *run.files);
  if (!good.ok()) return good;
  WeightLoader loader(run.files, run.config, run.place, run.device, [](uint64_t) {});
  LayerStackOptions options;
  options.blocks_total = 1;
  options.context_length = static_cast<int>(kBlockTokens);
  options.threads = run.threads;
  options.kv_bits = run.kv_bits;
  const auto stack = LoadLayerStack(run.config, run.place, loader, sums, options);
  const CarriedRow carried = CarriedInto(run.config, run.place.layer_begin);
  const int width = carried.width;
  const mx::Dtype type = carried.as_float32 ? mx::float32 : stack->activation_type();
  const int hidden_given = CarriedInto(run.config, run.place.layer_end).hidden;
  std::vector<float> given;
  int begin = 0;
  for (const int rows : parts) {
    Segment segment{.begin = static_cast<uint32_t>(begin),
                    .tokens = std::vector<int32_t>(static_cast<size_t>(rows), 0)};
    if (begin == 0) segment.new_blocks = {0};
    const ForwardStep step{.segments = {std::move(segment)}};
    const absl::Status begun = stack->Begin(step);
    if (!begun.ok()) return begun;
    const float* from = states.data() + static_cast<ptrdiff_t>(begin) * width;
    const mx::array hidden = mx::astype(mx::array(from, {rows, width}, mx::float32), type);
    // What is handed on besides hidden states is what came, or has been summed over the ranks.
    const mx::array out = mx::contiguous(
        mx::astype(mx::slice(stack->Run(hidden, step), {0, 0}, {rows, hidden_given}), mx::float32));
    std::vector<mx::array> outputs{out};
    stack->AppendState(outputs);
    mx::eval(outputs);
    given.insert(given.end(), out.data<float>(), out.data<float>() + out.size());
    begin += rows;
  }
  return given;
}

std::vector<double> RowDifferences(const std::vector<float>& ours, const std::vector<float>& theirs,
                                   const std::vector<float>& states, double floor) {
  const size_t width = theirs.size() / kProofRows, stride = states.size() / kProofRows;
  std::vector<double> differences;
  for (size_t row = 0; row < kProofRows; ++row) {
    double apart = 0, added = 0, given = 0;
    for (size_t i = 0; i < width; ++i) {
      const double reference = theirs[row * width + i], state = states[row * stride + i];
      apart += std::pow(double{ours[row * width + i]} - reference, 2);
      added += std::pow(reference - state, 2);
      given += std::pow(state, 2);
    }
    const double share = std::sqrt(apart) / (std::sqrt(added) + floor * std::sqrt(given));
    differences.push_back(apart == 0 ? 0 : share);
  }
  return differences;
}

Agreement AgreementOf(std::span<const double> differences, double tolerance) {
  Agreement agreement;
  for (const double difference : differences) {
    if (difference <= tolerance) ++agreement.rows;
    if (!(difference <= agreement.largest)) agreement.largest = difference;
  }
  return agreement;
}

}  // namespace macrame::runtime::engine
