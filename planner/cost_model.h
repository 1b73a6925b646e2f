#pragma once

// How long one step takes, from first principles. Generating a token is reading: every active byte
// of weights and every byte of KV cache passes once through the memory of the rank that holds it.
// Around that lies what each layer costs however small it is (starting kernels, choosing experts),
// and what the ranks tell each other (link_costs.h).
//
//   one stage:  slowest of its ranks (bytes / bandwidth, or operations / arithmetic when that is
//               longer; both, for several tokens on a CPU) + layers × overhead + 2 collectives a
//               layer when it has several ranks (where ranks hold whole experts: as the fullest is
//               expected, expert_skew.h)
//   a token:    sum of the stages + a hop between neighbours
//   many users: their sequences in as many micro-batches as there are stages, all stages at work:
//               micro-batches × (slowest stage + its hop)
//
// Pure. All times in microseconds, all sizes in bytes, all rates in bytes (or operations) a second.

#include <cstdint>
#include <span>
#include <vector>

#include "macrame/v1/model.pb.h"
#include "planner/expert_skew.h"
#include "planner/memory_model.h"

namespace macrame::planner {

// Constants of engine and machine. Each has a physical meaning; tests/bench/planner says what they
// were fitted to, and how far each published figure is from what they predict.
struct CostParameters {
  // Part of the memory's nominal bandwidth that a matrix-vector product reaches.
  double bandwidth_efficiency = 0.89;
  // The same of a GPU that reads keys and values, by head and as latent vectors: what decoding
  // loses in long contexts says how much.
  double kv_efficiency = 0.62;
  double latent_kv_efficiency = 0.3;
  // Part of a GPU's nominal arithmetic that a prefill reaches: in matrices that every token is
  // multiplied with, in those of chosen experts, and where queries meet keys.
  double dense_efficiency = 0.78;
  double expert_efficiency = 0.5;
  double attention_efficiency = 0.6;
  // Of a CPU's, in all of these (chip_table.h says of what).
  double cpu_efficiency = 0.89;
  // Part of a prefill's arithmetic that each rank of a tensor split does for itself, whatever its
  // slice: what is made of latent vectors, of indexers and routers.
  double undivided_part = 0.15;
  // Once a step: building the graph, sampling, handing the token back.
  double step_overhead_us = 300;
  // Starting a dense layer's kernels, norms, rotation: what a layer of no bytes would take.
  double layer_overhead_us = 60;
  // In addition in a layer of experts, which chooses, gathers and adds up as well.
  double expert_overhead_us = 140;
  // In addition where keys and values are unpacked from a latent vector.
  double latent_attention_overhead_us = 75;
  // In addition where a position carries several vectors from layer to layer, which are mixed
  // before and after each half of a layer.
  double streams_overhead_us = 225;
  // For each sequence beyond the first, which attends by itself: a part of what a layer takes but
  // for its experts.
  double sequence_part = 0.2;
  // Waiting for the slowest rank at each collective, its start included.
  double collective_wait_us = 8;
  // In addition over RDMA, for each KiB of a small message and each rank beyond two: a rank adds up
  // what the others sent one after the other. Seen in tokens of four nodes, not of two.
  double small_message_us = 1;
  // In addition at each collective over TCP that is not over Thunderbolt: through the operating
  // systems, the adapters and the switch, or on one machine through the scheduler. Not fitted: one
  // tensor split over Ethernet was published (about 780 us a collective), and two over Thunderbolt
  // (160 and 280 us, what the way there and back takes).
  double tcp_collective_us = 500;
  // Handing a token's state to the next stage, besides the link's own time: over TCP through the
  // operating system of both ends, and over RDMA.
  double tcp_hop_us = 4000;
  double rdma_hop_us = 100;
};

// What a rank computes with.
struct RankSpeed {
  ComputeKind kind = ComputeKind::kGpu;
  double bandwidth = 0;  // of its memory, nominal
  double flops = 0;      // nominal
  // Of the nominal bandwidth, relative to a chip of one die from M2 on.
  double bandwidth_reached = 1;
  // Of what layers cost besides bytes and operations, relative to an M3 Max or Ultra.
  double overhead = 1;
  // Part of the nominal arithmetic, relative to the efficiencies of CostParameters.
  double compute_reached = 1;
  // No table has the machine's chip, nor does it say how fast it is.
  bool is_assumed = false;
  bool operator==(const RankSpeed&) const = default;
};

struct StepLoad {
  uint32_t sequences = 1;
  uint32_t tokens_each = 1;  // 1: decode; more: a prefill chunk
  double positions = 0;      // of context that each token attends to, on average
  uint32_t kv_bits = 0;      // as in ServingLoad
};

inline constexpr double kMicrosecondsPerSecond = 1e6;

// Larger messages go in parts, at the links' own speed.
inline constexpr double kSmallMessageBytes = 32768;
// What CostParameters.small_message_us adds to a collective of `ranks` over RDMA.
double SmallMessageUs(double bytes, size_t ranks, const CostParameters& parameters);

// Bytes that one weight of `bits` takes in the files, its share of a scale and a bias of 16 bits
// for each `group` weights included; 16 bits and more are not quantised.
double BytesPerWeight(double bits, double group);
// The same of a model, by what its description says of its quantisation.
double BytesPerWeightOf(const v1::ModelDescription& model);

// Of `experts`, of which each token takes `active`, the share that `tokens` tokens read together:
// 1 - (1 - k/E)^B, choices taken as independent and even.
double ExpertShareRead(uint32_t experts, uint32_t active, double tokens);

// From so many choices of experts in a step on, a GPU sorts them by expert and reads each of its
// own once (runtime/model/mlx/experts.h). In smaller steps it multiplies as many as were chosen,
// whoever holds them: counted as if it read them too, since no GPU has been measured. The products
// of all choices are computed in both.
inline constexpr double kSortedChoices = 64;

struct RankTime {
  double weights_us = 0;
  double kv_us = 0;
  double total_us() const { return weights_us + kv_us; }
};

// What one forward step over `load` takes of each layer; answers in constant time.
class StepModel {
 public:
  // `model` must be valid and outlive this.
  StepModel(const v1::ModelDescription& model, const StepLoad& load,
            const CostParameters& parameters);

  // One rank's own work for layers [begin, end) of its slice. `skew`: of whole experts, how much
  // more than its share it has to do.
  RankTime TimeOf(const RankSpeed& rank, uint32_t begin, uint32_t end, Slice slice,
                  ExpertSkew skew = {}) const;
  // Of ranks that hold whole experts and take so long for each.
  ExpertSkew SkewOf(std::span<const ExpertHolder> holders) const;
  // The slice's rows of the head, once for each sequence.
  double HeadUs(const RankSpeed& rank, Slice slice) const;
  double Tokens() const { return 1.0 * load_.sequences * load_.tokens_each; }
  // What the layers cost a rank however fast its memory is.
  double OverheadUs(const RankSpeed& rank, uint32_t begin, uint32_t end) const;
  // What ranks tell each other at a collective or a hop: the hidden vector of each token; at a hop
  // of a model whose positions carry more than that all of it, in float32.
  double MessageBytes() const;
  double HopBytes() const;
  // The same where embeddings are summed over the ranks; and one row of logits for each sequence.
  double EmbeddingMessageBytes() const;
  double LogitsMessageBytes() const;

 private:
  // Of a rank with whole experts: bytes it reads and weights it multiplies a token with.
  struct Parts {
    double read = 0;
    double multiplied = 0;
    double experts = 0;  // of these, routed experts'
  };
  Parts WholeExperts(const RankSpeed& rank, uint32_t begin, uint32_t end, Slice slice,
                     ExpertSkew skew) const;
  double ArithmeticUs(const RankSpeed& rank, double operations, double gpu_efficiency) const;
  // What a rank reads and computes in one go.
  double WorkUs(const RankSpeed& rank, double read_us, double arithmetic_us) const;
  double ReadUs(const RankSpeed& rank, double bytes) const;
  double ReadKvUs(const RankSpeed& rank, double bytes) const;

  const v1::ModelDescription* model_;
  const StepLoad load_;
  const CostParameters parameters_;
  double bytes_per_weight_;
  // [i]: of layers [0, i).
  std::vector<double> whole_before_;      // bytes that every rank of a tensor split reads
  std::vector<double> divisible_before_;  // bytes that the slices share
  std::vector<double> attention_before_;  // of these, attention's
  std::vector<double> experts_before_;    // likewise routed experts'
  std::vector<double> positions_before_;  // positions of context that are read
  std::vector<double> fixed_before_;      // bytes of fixed states
  std::vector<double> weights_before_;    // weights that a token is multiplied with
  std::vector<double> chosen_before_;     // of these, routed experts'
  std::vector<double> overhead_before_;
};

}  // namespace macrame::planner
