#include "planner/shape_fitter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/saturating.h"
#include "proto/bytes.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

std::vector<Candidate> LargestFirst(std::vector<Candidate> candidates) {
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.budget_bytes > b.budget_bytes; });
  return candidates;
}

std::vector<StageNode> StageNodes(const std::vector<Candidate>& candidates) {
  std::vector<StageNode> nodes;
  for (const Candidate& candidate : candidates) {
    nodes.push_back({candidate.budget_bytes, candidate.kind});
  }
  return nodes;
}

}  // namespace

ShapeFitter::ShapeFitter(const v1::ModelDescription& model, const ServingLoad& load,
                         std::vector<Candidate> candidates)
    : model_(model),
      load_(load),
      candidates_(LargestFirst(std::move(candidates))),
      whole_(model, load, 1),
      partition_(whole_, StageNodes(candidates_)) {}

std::variant<ShapeFitter::Assignments, v1::Reason> ShapeFitter::Fit(const Shape& shape) {
  for (const ShapeConstraint& constraint : ShapeConstraints()) {
    auto refusal = constraint.refuse(shape, model_, static_cast<uint32_t>(candidates_.size()));
    if (refusal.has_value()) return *std::move(refusal);
  }
  if (shape.ranks > 1 && shape.parallelism == v1::PARALLELISM_TENSOR) {
    return FitTensor(shape.ranks);
  }
  return FitPipeline(shape.ranks);
}

v1::Assignment ShapeFitter::Assign(const MemoryModel& memory, const Candidate& candidate,
                                   uint32_t rank, uint32_t begin, uint32_t end, bool embedding,
                                   bool head) const {
  v1::Assignment assignment;
  assignment.set_rank(rank);
  assignment.set_node_id(candidate.node->node_id());
  assignment.set_hostname(candidate.node->hostname());
  assignment.set_layer_begin(begin);
  assignment.set_layer_end(end);
  assignment.set_holds_embedding(embedding);
  assignment.set_holds_head(head);
  *assignment.mutable_need() = memory.Need(candidate.kind, begin, end, embedding, head);
  assignment.set_budget_bytes(candidate.budget_bytes);
  return assignment;
}

std::variant<ShapeFitter::Assignments, v1::Reason> ShapeFitter::FitPipeline(uint32_t stages) {
  const auto ranges = partition_.Split(stages);
  if (!ranges.has_value()) return PipelineShort(stages);
  Assignments assignments;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    const StageRange& range = (*ranges)[stage];
    assignments.push_back(Assign(whole_, candidates_[range.node], stage, range.begin, range.end,
                                 stage == 0, stage + 1 == stages));
    assignments.back().set_stage(stage);
  }
  return assignments;
}

v1::Reason ShapeFitter::PipelineShort(uint32_t stages) const {
  const Candidate& largest = candidates_.front();
  const uint64_t whole = whole_.NeedBytes(largest.kind, 0, model_.layer_count(), true, true);
  if (stages == 1) {
    return MakeReason("MEMORY_SHORT",
                      absl::StrCat("one rank needs ", FormatBytes(Bytes(whole)), "; the most that ",
                                   "a node can give is ", FormatBytes(Bytes(largest.budget_bytes)),
                                   " on ", NodeName(*largest.node)),
                      largest.node->node_id());
  }
  uint64_t given = 0;
  for (uint32_t i = 0; i < stages; ++i) {
    given = SaturatingAdd(given, candidates_[i].budget_bytes);
  }
  // Each further rank brings a process of its own.
  const uint64_t needed = SaturatingAdd(whole, (stages - 1) * kRuntimeBytes);
  if (needed > given) {
    return MakeReason(
        "MEMORY_SHORT",
        absl::StrCat("about ", FormatBytes(Bytes(needed)), " are needed; the ", stages,
                     " largest nodes can give ", FormatBytes(Bytes(given)), " together"));
  }
  return MakeReason("MEMORY_SHORT", absl::StrCat("the ", stages, " largest nodes can give ",
                                                 FormatBytes(Bytes(given)),
                                                 " together, but no division into whole ",
                                                 "layers keeps each of them within its own"));
}

// Every rank holds the embedding; the first one the head as well, for it alone computes logits.
std::variant<ShapeFitter::Assignments, v1::Reason> ShapeFitter::FitTensor(uint32_t degree) {
  const MemoryModel memory(model_, load_, degree);
  const uint32_t layers = model_.layer_count();
  const auto need = [&](const Candidate& candidate, bool head) {
    return memory.NeedBytes(candidate.kind, 0, layers, true, head);
  };
  const auto holds_head = [&](const Candidate& candidate) {
    return need(candidate, true) <= candidate.budget_bytes;
  };
  const auto first = std::find_if(candidates_.begin(), candidates_.end(), holds_head);
  Assignments assignments;
  const Candidate* short_one = first == candidates_.end() ? &candidates_.front() : nullptr;
  if (first != candidates_.end()) {
    assignments.push_back(Assign(memory, *first, 0, 0, layers, true, true));
  }
  for (auto it = candidates_.begin(); it != candidates_.end(); ++it) {
    if (assignments.empty() || assignments.size() == degree) break;
    if (it == first) continue;
    if (need(*it, false) > it->budget_bytes) {
      if (short_one == nullptr) short_one = &*it;
      continue;
    }
    const uint32_t rank = static_cast<uint32_t>(assignments.size());
    assignments.push_back(Assign(memory, *it, rank, 0, layers, true, false));
    assignments.back().set_tp_rank(rank);
  }
  if (assignments.size() == degree) return assignments;
  return MakeReason("MEMORY_SHORT",
                    absl::StrCat("each of ", degree, " equal slices needs ",
                                 FormatBytes(Bytes(need(*short_one, assignments.empty()))), "; ",
                                 NodeName(*short_one->node), " can give ",
                                 FormatBytes(Bytes(short_one->budget_bytes))),
                    short_one->node->node_id());
}

}  // namespace macrame::planner
