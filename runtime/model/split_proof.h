#pragma once

// Proof, before a gang serves, that the slices of a tensor split are the layers that they were cut
// from.
//
// The ranks of a stage run the same synthetic hidden states through one layer of each kind that the
// stage has (by mixer, feed-forward, experts and window): each its slices, added up as in any step;
// and the stage's first rank, alone, the whole layer as the files have it. Where a layer is
// computed from a copy of it whatever the device (of 8-bit floats, OpenAI's blocks and experts that
// are stored turned over), a mixture is proven with its first experts alone, as many as a token
// takes: they are all cut alike. Both change the hidden states alike but for rounding. A slice that
// is lost, computed twice or taken from the wrong place changes every row by about as much as the
// layer itself does.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "runtime/model/config/engine_device.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/step/rank_sums.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"

namespace macrame::runtime::engine {

// |difference| / |what the whole layer adds|, by Euclid's norm of a row. Partial sums travel in 16
// bits, which makes up to about 0.01 of it.
inline constexpr double kSplitProofTolerance = 0.05;

struct SplitProof {
  const ModelConfig& config;
  ShardPlace place;  // of this rank
  std::shared_ptr<const WeightFiles> files;
  EngineDevice device = EngineDevice::kCpu;
  int threads = 1;  // of CPU kernels
  // The most that a copied layer may take beside what is loaded; larger ones are not proven. Those
  // that a CPU computes as they are mapped take next to nothing.
  uint64_t layer_bytes_max = 0;
};

// Every rank of the stage calls it at the same time. SPLIT_DIFFERS on the stage's first rank when
// the slices are not the layer; the other ranks don't know.
absl::Status ProveSplit(const SplitProof& proof, RankSums& sums);

}  // namespace macrame::runtime::engine
