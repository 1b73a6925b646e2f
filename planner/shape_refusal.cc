#include "planner/shape_refusal.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/saturating.h"
#include "proto/bytes.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

v1::Reason OneRankShort(GangJudge& judge) {
  const Candidate& largest = judge.candidates().front();
  const uint64_t need = judge.NeedBytes(0, {}, 0, judge.model().layer_count(), true);
  return MakeReason(
      "MEMORY_SHORT",
      absl::StrCat("one rank needs ", FormatBytes(Bytes(need)),
                   "; the most that a node can give is ", FormatBytes(Bytes(largest.budget_bytes)),
                   " on ", NodeName(*largest.node)),
      largest.node->node_id());
}

v1::Reason StagesShort(GangJudge& judge, uint32_t nodes) {
  const std::vector<Candidate>& candidates = judge.candidates();
  uint64_t given = 0;
  for (uint32_t i = 0; i < nodes; ++i) given = SaturatingAdd(given, candidates[i].budget_bytes);
  const uint64_t whole = judge.NeedBytes(0, {}, 0, judge.model().layer_count(), true);
  // Each further rank brings a process of its own.
  const uint64_t needed = SaturatingAdd(whole, (nodes - 1) * kRuntimeBytes);
  if (needed > given) {
    return MakeReason(
        "MEMORY_SHORT",
        absl::StrCat("about ", FormatBytes(Bytes(needed)), " are needed; the ", nodes,
                     " largest nodes can give ", FormatBytes(Bytes(given)), " together, ",
                     FormatBytes(Bytes(needed - given)), " too little"));
  }
  return MakeReason("MEMORY_SHORT", absl::StrCat("the ", nodes, " largest nodes can give ",
                                                 FormatBytes(Bytes(given)),
                                                 " together, but no division into whole ",
                                                 "layers keeps each of them within its own"));
}

// The smallest part that the smallest of the largest `tp` nodes could be given.
v1::Reason SlicesShort(GangJudge& judge, uint32_t tp) {
  const std::vector<Candidate>& candidates = judge.candidates();
  const uint32_t layers = judge.model().layer_count();
  bool uneven = true;
  for (const Candidate& candidate : candidates) {
    uneven = uneven && candidate.traits.uneven_tensor();
  }
  const uint32_t slices = SliceCount(judge.model());
  const Slice equal{1, tp};
  for (uint32_t i = 0; i < tp; ++i) {
    const uint64_t need = judge.NeedBytes(i, equal, 0, layers, i == 0);
    if (need <= candidates[i].budget_bytes) continue;
    std::string text = absl::StrCat("each of ", tp, " equal slices needs ",
                                    FormatBytes(Bytes(need)), "; ", NodeName(*candidates[i].node),
                                    " can give ", FormatBytes(Bytes(candidates[i].budget_bytes)));
    if (uneven && slices > tp) {
      absl::StrAppend(&text, ", and no uneven division into ", slices, "ths fits either");
    } else if (!uneven) {
      absl::StrAppend(&text, ", and the engine cuts layers into equal slices only");
    }
    return MakeReason("MEMORY_SHORT", text, candidates[i].node->node_id());
  }
  return MakeReason("MEMORY_SHORT", absl::StrCat("no ", tp, " nodes that reach each other can ",
                                                 "each hold their slice of every layer"));
}

}  // namespace

v1::Reason WhyNotShape(GangJudge& judge, const Shape& shape, const std::string& transport) {
  for (const ShapeConstraint& constraint : ShapeConstraints()) {
    auto refusal = constraint.refuse(shape, judge.model(), judge.candidates());
    if (refusal.has_value()) return *std::move(refusal);
  }
  if (shape.ranks() == 1) return OneRankShort(judge);
  v1::Reason memory = shape.tp > 1 && shape.pp == 1 ? SlicesShort(judge, shape.tp)
                                                    : StagesShort(judge, shape.ranks());
  if (transport == "jaccl" || transport == "verbs" || transport == "rdma") {
    return MakeReason("TRANSPORT_UNAVAILABLE",
                      absl::StrCat("no ", shape.ranks(), " nodes with cables for ", transport,
                                   " between them hold it; over TCP ", memory.message()));
  }
  return memory;
}

}  // namespace macrame::planner
