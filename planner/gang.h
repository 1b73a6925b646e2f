#pragma once

// One way to run a model: which nodes, which layers and slices each, over which fabric; and what it
// would be like. Search and explanation share this; a plan is one of these written out.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "planner/constraints.h"
#include "planner/cost_model.h"
#include "planner/link_costs.h"
#include "planner/memory_model.h"

namespace macrame::planner {

// The ranks that compute layers [begin, end) together. The head is in the last stage: on each rank
// that of its part of the vocabulary, or whole on nodes[0] (GangJudge::HoldsHead).
struct GangStage {
  std::vector<size_t> nodes;     // indices of candidates, by tp_rank
  std::vector<uint32_t> widths;  // slices of each; sums up to slice_count
  uint32_t slice_count = 1;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool whole_experts = false;  // each holds whole ones; in all stages of a gang or in none
  Slice SliceOf(size_t index) const { return {widths[index], slice_count, whole_experts}; }
};

struct Gang {
  std::vector<GangStage> stages;
  Fabric fabric;
  uint32_t tp() const { return static_cast<uint32_t>(stages.front().nodes.size()); }
  bool whole_experts() const { return stages.front().whole_experts; }
  uint32_t pp() const { return static_cast<uint32_t>(stages.size()); }
  uint32_t ranks() const { return tp() * pp(); }
};

// What a gang's way to divide the model, and its backend, are called.
inline Shape ShapeOf(const Gang& gang) { return {gang.tp(), gang.pp()}; }
Backend BackendOf(const Gang& gang);  // kSingle for one rank

// Do two nodes take equally long for the same work?
bool SameSpeed(const Candidate& a, const Candidate& b);

struct StepTime {
  double weights_us = 0;
  double kv_us = 0;
  double overhead_us = 0;
  double communication_us = 0;
  double slowest_stage_us = 0;  // with the hop that leads to it
  double total_us() const { return weights_us + kv_us + overhead_us + communication_us; }
};

// Everything that judging gangs of one request takes. Owner: the planning call.
class GangJudge {
 public:
  // All must outlive this. `candidates` with the largest budgets first, where more than
  // kExactNodesMax (gang_search.h) are searched or a refusal is explained.
  GangJudge(const v1::ModelDescription& model, const std::vector<Candidate>& candidates,
            const LinkCosts& links, const ServingLoad& serving, const CostParameters& parameters);

  const std::vector<Candidate>& candidates() const { return candidates_; }
  const LinkCosts& links() const { return links_; }
  const v1::ModelDescription& model() const { return model_; }
  const ServingLoad& serving() const { return serving_; }
  const CostParameters& parameters() const { return parameters_; }

  // Engines that can give slices of unequal width (rankd) also cut embedding and head by rows.
  // With others every rank of the first stage has the whole embedding.
  bool CutsVocabulary(size_t node) const { return candidates_[node].traits.uneven_tensor(); }
  // Does that make its step shorter? What predictions for GPUs were fitted to had whole heads, and
  // gathering logits from GPUs has not been measured: there the head's time counts whole.
  bool SharesHeadTime(size_t node) const {
    return CutsVocabulary(node) && candidates_[node].kind == ComputeKind::kCpu;
  }
  // Of the ranks of a stage that ends with `end`: has the one on nodes[index] a head?
  bool HoldsHead(const std::vector<size_t>& nodes, size_t index, uint32_t end) const {
    return end == model_.layer_count() &&
           (index == 0 || CutsVocabulary(nodes[index]) || !model_.engine().empty());
  }

  // Bytes that the rank on a node needs. `entry`: it is rank 0, which runs a draft model as well;
  // kBytesMax on a node that can't.
  uint64_t NeedBytes(size_t node, Slice slice, uint32_t begin, uint32_t end, bool head,
                     bool entry = false);
  v1::MemoryNeed Need(size_t node, Slice slice, uint32_t begin, uint32_t end, bool head,
                      bool entry = false);
  // Need / budget; above 1: does not fit.
  double Fill(size_t node, Slice slice, uint32_t begin, uint32_t end, bool head,
              bool entry = false);

  // The widths that a stage's nodes get: the step as short as can be (or, with `even_fill`, the
  // fullest node as empty as can be) while each stays within its budget; equal widths only, unless
  // every node's engine can do otherwise. Nothing when no widths fit.
  std::optional<std::vector<uint32_t>> Widths(const std::vector<size_t>& nodes,
                                              uint32_t slice_count, uint32_t begin, uint32_t end,
                                              uint32_t sequences, bool even_fill,
                                              bool whole_experts = false);

  // One step of a load through all stages.
  StepTime Step(const Gang& gang, const StepModel& step);
  // One stage of it, without the hop that leads to it.
  StepTime StageStep(const GangStage& stage, const Fabric& fabric, const StepModel& step);
  double WorstFill(const Gang& gang);
  // Of the stage's fullest node, if the stage had these layers.
  double StageFill(const GangStage& stage, uint32_t begin, uint32_t end);

  // All `users` together, tokens a second: their sequences in as many micro-batches as there are
  // stages.
  double TokensPerSecond(const Gang& gang, uint32_t users);
  // From the end of the prompt's arrival to its first token, in microseconds.
  double FirstTokenUs(const Gang& gang, uint32_t prompt_tokens);

  // Of the experts that one token chooses, how many the rank with most of them is expected to hold,
  // in a stage whose ranks hold whole ones.
  double MostChosenExperts(const GangStage& stage) const;

  // Each of so many sequences generates its next token.
  const StepModel& DecodeOf(uint32_t sequences);

 private:
  bool HoldsAll(const GangStage& stage);
  // Widths for nodes that can have different ones.
  std::optional<std::vector<uint32_t>> DealtWidths(GangStage stage, uint32_t sequences,
                                                   bool even_fill);
  // Of a stage whose ranks hold whole experts.
  std::vector<ExpertHolder> HoldersOf(const GangStage& stage) const;
  ExpertSkew SkewOf(const GangStage& stage, const StepModel& step);
  const MemoryModel& MemoryOf(size_t node, Slice slice);
  // What cutting the vocabulary adds to a stage's collectives.
  double VocabularyUs(const GangStage& stage, const Fabric& fabric, const StepModel& step) const;
  // One rank's own work, with its part of the head where that shortens it.
  RankTime TimeOf(const StepModel& step, size_t node, uint32_t begin, uint32_t end, Slice slice,
                  ExpertSkew skew = {}) const;

  const v1::ModelDescription& model_;
  const std::vector<Candidate>& candidates_;
  const LinkCosts& links_;
  const ServingLoad serving_;
  const CostParameters parameters_;
  double positions_;  // of context that predictions are made at
  std::map<std::tuple<uint32_t, uint32_t, bool, bool>, MemoryModel> memory_;
  std::map<uint32_t, StepModel> decodes_;
  // By the tokens of a step, and what each rank holds and takes for one.
  std::map<std::pair<double, std::vector<std::pair<uint32_t, double>>>, ExpertSkew> skews_;
};

// Predictions are for a conversation of so many positions, or the context when that is shorter.
inline constexpr uint32_t kPredictedPositions = 1024;

}  // namespace macrame::planner
