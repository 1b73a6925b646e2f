#pragma once

// What proofs of a loaded model have in common (split_proof.h, device_proof.h): one layer of each
// kind run alone over hidden states that are made up, and how far two results lie apart.
//
// A few rows may differ more than others: where two experts' scores are nearly equal, rounding
// chooses. So most rows have to agree, not all.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

inline constexpr int kProofRows = 16;
inline constexpr double kProofAgreeMin = 0.75;  // of them

// Where and how a layer is run.
struct ProofRun {
  const ModelConfig& config;
  ShardPlace place;  // of one layer (OneLayer)
  std::shared_ptr<const WeightFiles> files;
  EngineDevice device = EngineDevice::kCpu;
  int threads = 1;  // of CPU kernels
  int kv_bits = 0;  // LayerStackOptions'
};

// The first layer of each kind that `place` has, by mixer, feed-forward, experts and window.
std::vector<int> LayersToProve(const ModelConfig& config, const ShardPlace& place);
// Of `place` this layer alone, without embedding and head.
ShardPlace OneLayer(ShardPlace place, int layer);
// A mixture with its first experts alone, as many as a token takes: the same on every rank,
// whatever memory it has.
ModelConfig WithFewExperts(const ModelConfig& config);
// What a rank would hold of the layer, in bytes.
uint64_t BytesOf(const ProofRun& run);
// Whether the layer is computed from a copy of its weights on any device: of 8-bit floats, OpenAI's
// blocks and experts that are stored turned over.
bool IsTurnedOver(const ProofRun& run);

// Rows [kProofRows, width] that go into the layer (carried.h): the same on every rank.
std::vector<float> MadeUpStates(const ProofRun& run);
// What the layer makes of `states`, float32 [kProofRows, hidden_size]; `parts`: how many rows each
// step takes, kProofRows together.
absl::StatusOr<std::vector<float>> RunLayer(const ProofRun& run, RankSums& sums,
                                            const std::vector<float>& states,
                                            std::span<const int> parts);

// |ours - theirs| / (|theirs - states| + floor * |states|) of each row, by Euclid's norm.
std::vector<double> RowDifferences(const std::vector<float>& ours, const std::vector<float>& theirs,
                                   const std::vector<float>& states, double floor);
struct Agreement {
  int rows = 0;  // within the tolerance; what is not a number is not
  double largest = 0;
};
Agreement AgreementOf(std::span<const double> differences, double tolerance);

}  // namespace macrame::runtime::engine
