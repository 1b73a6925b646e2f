#include "planner/cost_model.h"

#include <algorithm>
#include <cmath>

namespace macrame::planner {
namespace {

constexpr double kMicrosecondsPerSecond = 1e6;
constexpr double kCollectivesPerLayer = 2;  // after attention and after the feed-forward

double ReadUs(double bytes, double bandwidth, const CostParameters& parameters) {
  if (bytes <= 0) return 0;
  return bytes / (bandwidth * parameters.bandwidth_efficiency) * kMicrosecondsPerSecond;
}

double LayerOverheadUs(const ModelWork& work, const CostParameters& parameters) {
  return parameters.layer_overhead_us +
         (work.attention == AttentionKind::kLatent ? parameters.latent_attention_overhead_us : 0);
}

double KvBytes(const ModelWork& work, const StepLoad& load) {
  return work.kv_bytes_per_position * load.positions * load.sequences;
}

}  // namespace

double StepWeightBytes(const ModelWork& work, uint32_t sequences) {
  if (work.experts == 0) return work.shared_weight_bytes + work.expert_weight_bytes;
  const double chosen = static_cast<double>(work.experts_active) / work.experts;
  const double read = 1 - std::pow(1 - std::min(chosen, 1.0), sequences);
  return work.shared_weight_bytes + work.expert_weight_bytes * read;
}

StepTime TensorStep(const ModelWork& work, const std::vector<RankWork>& ranks, const StepLoad& load,
                    double collective_us, const CostParameters& parameters) {
  StepTime time;
  const double weights = StepWeightBytes(work, load.sequences);
  double slowest = -1;
  for (const RankWork& rank : ranks) {
    const double read = ReadUs(weights * rank.weight_share, rank.bandwidth, parameters);
    const double kv = ReadUs(KvBytes(work, load) * rank.weight_share, rank.bandwidth, parameters);
    if (read + kv <= slowest) continue;
    slowest = read + kv;
    time.weights_us = read;
    time.kv_us = kv;
  }
  time.overhead_us = work.layers * LayerOverheadUs(work, parameters);
  if (ranks.size() > 1) {
    time.communication_us = kCollectivesPerLayer * work.layers * collective_us;
  }
  return time;
}

StepTime PipelineStep(const ModelWork& work, const std::vector<RankWork>& ranks,
                      const StepLoad& load, double hop_us, const CostParameters& parameters) {
  StepTime time;
  const double weights = StepWeightBytes(work, load.sequences);
  for (const RankWork& rank : ranks) {
    time.weights_us += ReadUs(weights * rank.weight_share, rank.bandwidth, parameters);
    const double layers_share =
        work.layers == 0 ? 0 : rank.layers / static_cast<double>(work.layers);
    time.kv_us += ReadUs(KvBytes(work, load) * layers_share, rank.bandwidth, parameters);
    time.overhead_us += rank.layers * LayerOverheadUs(work, parameters);
  }
  if (ranks.size() > 1) time.communication_us = static_cast<double>(ranks.size() - 1) * hop_us;
  return time;
}

double TokensPerSecond(const StepTime& step, const StepLoad& load) {
  const double total = step.total_us();
  return total <= 0 ? 0 : load.sequences * kMicrosecondsPerSecond / total;
}

}  // namespace macrame::planner
