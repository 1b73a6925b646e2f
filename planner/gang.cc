#include "planner/gang.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "planner/saturating.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kCollectivesPerLayer = 2;  // after attention and after the feed-forward
constexpr double kDoesNotFit = std::numeric_limits<double>::infinity();

}  // namespace

bool SameSpeed(const Candidate& a, const Candidate& b) {
  return a.kind == b.kind && a.speed == b.speed;
}

Backend BackendOf(const Gang& gang) {
  return gang.ranks() == 1 ? Backend::kSingle : gang.fabric.backend;
}

GangJudge::GangJudge(const v1::ModelDescription& model, const std::vector<Candidate>& candidates,
                     const LinkCosts& links, const ServingLoad& serving,
                     const CostParameters& parameters)
    : model_(model),
      candidates_(candidates),
      links_(links),
      serving_(serving),
      parameters_(parameters),
      positions_(std::min(serving.context_tokens, serving.predicted_positions > 0
                                                      ? serving.predicted_positions
                                                      : kPredictedPositions)) {}

const MemoryModel& GangJudge::MemoryOf(size_t node, Slice slice) {
  const bool cuts = CutsVocabulary(node);
  const auto key = std::tuple(slice.width, slice.of, slice.whole_experts, cuts);
  const auto found = memory_.find(key);
  if (found != memory_.end()) return found->second;
  return memory_.emplace(key, MemoryModel(model_, serving_, slice, cuts ? slice : Slice()))
      .first->second;
}

const StepModel& GangJudge::DecodeOf(uint32_t sequences) {
  const auto found = decodes_.find(sequences);
  if (found != decodes_.end()) return found->second;
  const StepLoad load{sequences, 1, positions_, serving_.kv_bits};
  return decodes_.emplace(sequences, StepModel(model_, load, parameters_)).first->second;
}

uint64_t GangJudge::NeedBytes(size_t node, Slice slice, uint32_t begin, uint32_t end, bool head,
                              bool entry) {
  const uint64_t need =
      MemoryOf(node, slice).NeedBytes(candidates_[node].kind, begin, end, begin == 0, head);
  if (!entry || serving_.draft_bytes == 0) return need;
  return candidates_[node].may_enter ? NeedWithDraft(serving_, need) : kBytesMax;
}

v1::MemoryNeed GangJudge::Need(size_t node, Slice slice, uint32_t begin, uint32_t end, bool head,
                               bool entry) {
  v1::MemoryNeed need =
      MemoryOf(node, slice).Need(candidates_[node].kind, begin, end, begin == 0, head);
  if (entry && serving_.draft_bytes > 0) AddDraft(serving_, &need);
  return need;
}

double GangJudge::Fill(size_t node, Slice slice, uint32_t begin, uint32_t end, bool head,
                       bool entry) {
  const uint64_t budget = candidates_[node].budget_bytes;
  if (budget == 0) return 2;
  return static_cast<double>(NeedBytes(node, slice, begin, end, head, entry)) /
         static_cast<double>(budget);
}

bool GangJudge::HoldsAll(const GangStage& stage) {
  for (size_t i = 0; i < stage.nodes.size(); ++i) {
    const uint64_t need =
        NeedBytes(stage.nodes[i], stage.SliceOf(i), stage.begin, stage.end,
                  HoldsHead(stage.nodes, i, stage.end), stage.begin == 0 && i == 0);
    if (need > candidates_[stage.nodes[i]].budget_bytes) return false;
  }
  return true;
}

// By the time that each takes for an expert, of the first's.
std::vector<ExpertHolder> GangJudge::HoldersOf(const GangStage& stage) const {
  const auto rate = [&](size_t index) {
    const RankSpeed& speed = candidates_[stage.nodes[index]].speed;
    return speed.bandwidth * speed.bandwidth_reached;
  };
  std::vector<ExpertHolder> holders;
  uint32_t first = 0;
  for (size_t i = 0; i < stage.nodes.size(); ++i) {
    holders.push_back({ExpertsHeld(model_, first, stage.SliceOf(i)), rate(0) / rate(i)});
    first += stage.widths[i];
  }
  return holders;
}

ExpertSkew GangJudge::SkewOf(const GangStage& stage, const StepModel& step) {
  if (!stage.whole_experts) return {};
  const std::vector<ExpertHolder> holders = HoldersOf(stage);
  std::pair<double, std::vector<std::pair<uint32_t, double>>> key{step.Tokens(), {}};
  for (const ExpertHolder& holder : holders) key.second.emplace_back(holder.experts, holder.us);
  const auto found = skews_.find(key);
  if (found != skews_.end()) return found->second;
  return skews_.emplace(std::move(key), step.SkewOf(holders)).first->second;
}

double GangJudge::MostChosenExperts(const GangStage& stage) const {
  std::vector<ExpertHolder> holders = HoldersOf(stage);
  for (ExpertHolder& holder : holders) holder.us = 1;
  return SlowestHolder(holders, model_.experts_active());
}

std::optional<std::vector<uint32_t>> GangJudge::Widths(const std::vector<size_t>& nodes,
                                                       uint32_t slice_count, uint32_t begin,
                                                       uint32_t end, uint32_t sequences,
                                                       bool even_fill, bool whole_experts) {
  const size_t count = nodes.size();
  if (slice_count < count) return {};
  bool uneven = true;
  bool alike = true;
  for (const size_t node : nodes) {
    uneven = uneven && candidates_[node].traits.uneven_tensor();
    alike = alike && SameSpeed(candidates_[node], candidates_[nodes[0]]);
  }
  GangStage stage{nodes, {}, slice_count, begin, end, whole_experts};
  stage.widths.assign(count, slice_count / static_cast<uint32_t>(count));
  if (slice_count % count == 0 && (alike || !uneven) && !even_fill) {
    if (HoldsAll(stage)) return stage.widths;
  }
  if (!uneven) {
    if (slice_count % count != 0 || !HoldsAll(stage)) return {};
    return stage.widths;
  }
  return DealtWidths(std::move(stage), sequences, even_fill);
}

// Slice by slice to the node that is the least burdened by it.
std::optional<std::vector<uint32_t>> GangJudge::DealtWidths(GangStage stage, uint32_t sequences,
                                                            bool even_fill) {
  const size_t count = stage.nodes.size();
  const StepModel& step = DecodeOf(sequences);
  std::vector<uint32_t>& widths = stage.widths;
  widths.assign(count, 1);
  if (!HoldsAll(stage)) return {};
  // With one slice more; kDoesNotFit where it would not.
  const auto burden_of = [&](size_t i) {
    if (widths[i] == stage.slice_count) return kDoesNotFit;
    const Slice slice{widths[i] + 1, stage.slice_count, stage.whole_experts};
    const double fill = Fill(stage.nodes[i], slice, stage.begin, stage.end,
                             HoldsHead(stage.nodes, i, stage.end), stage.begin == 0 && i == 0);
    if (fill > 1) return kDoesNotFit;
    return even_fill ? fill
                     : TimeOf(step, stage.nodes[i], stage.begin, stage.end, slice).total_us();
  };
  std::vector<double> burdens(count);
  for (size_t i = 0; i < count; ++i) burdens[i] = burden_of(i);
  for (uint32_t given = static_cast<uint32_t>(count); given < stage.slice_count; ++given) {
    const auto least = std::min_element(burdens.begin(), burdens.end());
    if (*least == kDoesNotFit) return {};
    const size_t index = static_cast<size_t>(least - burdens.begin());
    ++widths[index];
    *least = burden_of(index);
  }
  return widths;
}

RankTime GangJudge::TimeOf(const StepModel& step, size_t node, uint32_t begin, uint32_t end,
                           Slice slice, ExpertSkew skew) const {
  RankTime time = step.TimeOf(candidates_[node].speed, begin, end, slice, skew);
  if (end != model_.layer_count() || !SharesHeadTime(node)) return time;
  time.weights_us += step.HeadUs(candidates_[node].speed, slice);
  return time;
}

// Embeddings are summed and logits gathered, both in float32.
double GangJudge::VocabularyUs(const GangStage& stage, const Fabric& fabric,
                               const StepModel& step) const {
  double us = 0;
  if (stage.begin == 0) {
    us += links_.CollectiveUs(fabric, stage.nodes, step.EmbeddingMessageBytes(), parameters_);
  }
  if (stage.end == model_.layer_count()) {
    us += links_.CollectiveUs(fabric, stage.nodes, step.LogitsMessageBytes(), parameters_);
  }
  return us;
}

StepTime GangJudge::StageStep(const GangStage& stage, const Fabric& fabric, const StepModel& step) {
  StepTime time;
  RankTime slowest;
  const ExpertSkew skew = SkewOf(stage, step);
  for (size_t i = 0; i < stage.nodes.size(); ++i) {
    const RankTime rank =
        TimeOf(step, stage.nodes[i], stage.begin, stage.end, stage.SliceOf(i), skew);
    if (i == 0 || rank.total_us() > slowest.total_us()) slowest = rank;
    time.overhead_us = std::max(time.overhead_us, step.OverheadUs(candidates_[stage.nodes[i]].speed,
                                                                  stage.begin, stage.end));
  }
  time.weights_us = slowest.weights_us;
  time.kv_us = slowest.kv_us;
  if (stage.end == model_.layer_count()) {
    time.overhead_us += parameters_.step_overhead_us;
    // A whole head: the other ranks wait for it.
    if (!SharesHeadTime(stage.nodes[0])) {
      time.weights_us += step.HeadUs(candidates_[stage.nodes[0]].speed, {});
    }
  }
  time.communication_us =
      kCollectivesPerLayer * (stage.end - stage.begin) *
      links_.CollectiveUs(fabric, stage.nodes, step.MessageBytes(), parameters_);
  if (SharesHeadTime(stage.nodes[0])) {
    time.communication_us += VocabularyUs(stage, fabric, step);
  }
  time.slowest_stage_us = time.total_us();
  return time;
}

StepTime GangJudge::Step(const Gang& gang, const StepModel& step) {
  StepTime sum;
  for (size_t i = 0; i < gang.stages.size(); ++i) {
    const StepTime stage = StageStep(gang.stages[i], gang.fabric, step);
    const double hop = i == 0 ? 0
                              : links_.HopUs(gang.fabric, gang.stages[i - 1].nodes,
                                             gang.stages[i].nodes, step.HopBytes(), parameters_);
    sum.weights_us += stage.weights_us;
    sum.kv_us += stage.kv_us;
    sum.overhead_us += stage.overhead_us;
    sum.communication_us += stage.communication_us + hop;
    sum.slowest_stage_us = std::max(sum.slowest_stage_us, stage.total_us() + hop);
  }
  return sum;
}

double GangJudge::StageFill(const GangStage& stage, uint32_t begin, uint32_t end) {
  double worst = 0;
  for (size_t i = 0; i < stage.nodes.size(); ++i) {
    worst = std::max(worst, Fill(stage.nodes[i], stage.SliceOf(i), begin, end,
                                 HoldsHead(stage.nodes, i, end), begin == 0 && i == 0));
  }
  return worst;
}

double GangJudge::WorstFill(const Gang& gang) {
  double worst = 0;
  for (const GangStage& stage : gang.stages) {
    worst = std::max(worst, StageFill(stage, stage.begin, stage.end));
  }
  return worst;
}

double GangJudge::TokensPerSecond(const Gang& gang, uint32_t users) {
  const uint32_t batches = std::min(gang.pp(), users);
  const uint32_t sequences = (users + batches - 1) / batches;
  const StepTime step = Step(gang, DecodeOf(sequences));
  const double round = std::max(step.total_us(), batches * step.slowest_stage_us);
  return users * kMicrosecondsPerSecond / round;
}

double GangJudge::FirstTokenUs(const Gang& gang, uint32_t prompt_tokens) {
  const uint32_t chunk = std::max(1u, std::min(kPrefillChunkTokens, prompt_tokens));
  const double chunks = static_cast<double>(prompt_tokens) / chunk;
  // A position attends to all before it: half of the prompt on average.
  const StepModel step(model_, {1, chunk, prompt_tokens / 2.0, serving_.kv_bits}, parameters_);
  const StepTime time = Step(gang, step);
  // Chunks follow each other through the stages.
  return time.total_us() + std::max(0.0, chunks - 1) * time.slowest_stage_us;
}

}  // namespace macrame::planner
