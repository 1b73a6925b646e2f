#pragma once

// How long one token takes, from first principles. Generating a token is reading: every active byte
// of weights and every byte of KV cache passes once through the memory of the rank that holds it.
// Around that lies what each layer costs however small it is (starting kernels, choosing experts),
// and what the ranks tell each other.
//
//   tensor parallel:    bytes of the slowest rank / bandwidth + layers × overhead
//                       + 2 collectives a layer
//   pipeline parallel:  for one sequence the stages work one after the other:
//                       sum over stages (bytes / bandwidth + layers × overhead) + (stages - 1) hops
//
// Pure. All times in microseconds, all sizes in bytes, all rates in bytes a second.

#include <cstdint>
#include <vector>

namespace macrame::planner {

enum class AttentionKind {
  kGrouped,  // queries share keys and values in groups (all of rankd's architectures)
  kLatent,   // keys and values unpacked from a compressed vector at each step (DeepSeek, Kimi)
};

// What one forward step of a model takes, over all of its layers.
struct ModelWork {
  uint32_t layers = 0;
  AttentionKind attention = AttentionKind::kGrouped;
  double shared_weight_bytes = 0;  // read for every token: attention, shared experts, head
  double expert_weight_bytes = 0;  // of all routed experts together; 0: a dense model
  uint32_t experts = 0;
  uint32_t experts_active = 0;       // for each token
  double kv_bytes_per_position = 0;  // all layers
  uint32_t hidden_size = 0;
};

// Bytes that a step over `sequences` tokens reads: experts that several tokens chose are read once.
// Choices are taken as independent and even: of E experts, k a token, a step over B tokens reads
// E × (1 - (1 - k/E)^B) of them.
double StepWeightBytes(const ModelWork& work, uint32_t sequences);

// Constants of engine and machine. Each has a physical meaning; the values were fitted, with least
// relative squares, on the published speeds in tests/bench/planner/published.yaml (all of them of
// mixtures of experts); tests/bench/planner/calibration prints the errors, also with each figure
// left out of the fit.
struct CostParameters {
  // Part of the memory's nominal bandwidth that a matrix-vector product reaches.
  double bandwidth_efficiency = 0.938;
  // Starting a layer's kernels, norms, choosing experts: what a layer of no bytes would take.
  double layer_overhead_us = 220.4;
  // In addition where keys and values are unpacked from a latent vector.
  double latent_attention_overhead_us = 135.4;
  // One all-reduce of a token's hidden vector over RDMA, waiting for the slowest rank included.
  double rdma_collective_us = 18.6;
  // One hop of a pipeline between two machines over TCP, as llama.cpp's RPC shows it.
  double tcp_hop_us = 5600;
};

// One rank of a plan.
struct RankWork {
  double bandwidth = 0;     // of its memory, nominal
  double weight_share = 0;  // of the step's weight bytes, 0 to 1
  uint32_t layers = 0;      // that it computes (all of them in a tensor split)
};

struct StepTime {
  double weights_us = 0;
  double kv_us = 0;
  double overhead_us = 0;
  double communication_us = 0;
  double total_us() const { return weights_us + kv_us + overhead_us + communication_us; }
};

struct StepLoad {
  uint32_t sequences = 1;
  double positions = 0;  // of context that each sequence reads
};

// One decode step, every layer cut over all `ranks`. One rank: no collectives. `collective_us` is
// that of the links in question: measured, or CostParameters' typical one.
StepTime TensorStep(const ModelWork& work, const std::vector<RankWork>& ranks, const StepLoad& load,
                    double collective_us, const CostParameters& parameters = {});

// One decode step through all stages, in the order of `ranks`.
StepTime PipelineStep(const ModelWork& work, const std::vector<RankWork>& ranks,
                      const StepLoad& load, double hop_us, const CostParameters& parameters = {});

// Tokens a second of all sequences together.
double TokensPerSecond(const StepTime& step, const StepLoad& load);

}  // namespace macrame::planner
