#include "planner/shape_refusal.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/saturating.h"
#include "proto/backends.h"
#include "proto/bytes.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

// Of the whole model on one node, with its draft model where it can run one.
uint64_t WholeBytes(GangJudge& judge, size_t node) {
  return judge.NeedBytes(node, {}, 0, judge.model().layer_count(), true,
                         judge.candidates()[node].may_enter);
}

v1::Reason OneRankShort(GangJudge& judge) {
  const std::vector<Candidate>& all = judge.candidates();
  const auto entry =
      std::find_if(all.begin(), all.end(), [](const Candidate& c) { return c.may_enter; });
  const size_t node = entry == all.end() ? 0 : static_cast<size_t>(entry - all.begin());
  const Candidate& largest = all[node];
  const uint64_t need = WholeBytes(judge, node);
  return MakeReason(
      reasons::kMemoryShort,
      absl::StrCat("one rank needs ", FormatBytes(Bytes(need)),
                   "; the most that a node can give is ", FormatBytes(Bytes(largest.budget_bytes)),
                   " on ", NodeName(*largest.node)),
      largest.node->node_id());
}

uint64_t GivenBytes(const GangJudge& judge, const std::vector<size_t>& nodes) {
  uint64_t given = 0;
  for (const size_t node : nodes) {
    given = SaturatingAdd(given, judge.candidates()[node].budget_bytes);
  }
  return given;
}

// So many nodes that all reach each other over TCP, with the most memory; nothing: there are not so
// many.
std::vector<size_t> LargestTogether(const GangJudge& judge, size_t count) {
  std::vector<size_t> best;
  for (const std::vector<size_t>& group : judge.links().TcpGroups()) {
    if (group.size() < count) continue;
    std::vector<size_t> nodes(group.begin(), group.begin() + static_cast<ptrdiff_t>(count));
    if (best.empty() || GivenBytes(judge, nodes) > GivenBytes(judge, best)) best = std::move(nodes);
  }
  return best;
}

// "2 largest nodes", or "2 largest nodes that reach each other" when larger ones don't.
std::string LargestName(const std::vector<size_t>& nodes) {
  const bool all = nodes.back() + 1 == nodes.size();  // ascending
  return absl::StrCat(nodes.size(), " largest nodes", all ? "" : " that all reach each other");
}

v1::Reason NotTogether(const GangJudge& judge, uint32_t count) {
  const std::vector<Candidate>& candidates = judge.candidates();
  std::string text = absl::StrCat("no ", count, " nodes all reach each other");
  for (size_t other = 1; other < candidates.size(); ++other) {
    if (judge.links().HasTcp(0, other)) continue;
    const bool one_way = judge.links().IsOneWay(0, other);
    absl::StrAppend(
        &text, one_way ? "; only one way there is a path between " : "; there is no path between ",
        NodeName(*candidates[0].node), " and ", NodeName(*candidates[other].node));
    break;
  }
  v1::Reason reason = MakeReason(reasons::kTransportUnavailable, text);
  reason.set_remedy(IsDescribed(*candidates[0].node)
                        ? "join them in the description: by 'links', or all by 'lan'"
                        : "'clusterctl doctor' says why nodes don't reach each other");
  return reason;
}

v1::Reason StagesShort(GangJudge& judge, const std::vector<size_t>& nodes) {
  const uint64_t given = GivenBytes(judge, nodes);
  const uint64_t whole = WholeBytes(judge, nodes[0]);
  // Each further rank brings a process of its own.
  const uint64_t needed = SaturatingAdd(whole, (nodes.size() - 1) * kRuntimeBytes);
  const std::string can_give = absl::StrCat("the ", LargestName(nodes), " can give ",
                                            FormatBytes(Bytes(given)), " together, ");
  if (needed > given) {
    return MakeReason(reasons::kMemoryShort,
                      absl::StrCat("about ", FormatBytes(Bytes(needed)), " are needed; ", can_give,
                                   FormatBytes(Bytes(needed - given)), " too little"));
  }
  return MakeReason(reasons::kMemoryShort,
                    absl::StrCat(can_give, "but no division into whole ",
                                 "layers keeps each of them within its own"));
}

// The smallest part that the smallest of the nodes could be given.
v1::Reason SlicesShort(GangJudge& judge, const std::vector<size_t>& nodes) {
  const std::vector<Candidate>& candidates = judge.candidates();
  const uint32_t layers = judge.model().layer_count();
  const uint32_t tp = static_cast<uint32_t>(nodes.size());
  const bool uneven = std::all_of(nodes.begin(), nodes.end(), [&](size_t node) {
    return candidates[node].traits.uneven_tensor();
  });
  const uint32_t slices = SlicesOver(judge.model(), candidates, nodes);
  for (uint32_t i = 0; i < tp; ++i) {
    const Candidate& candidate = candidates[nodes[i]];
    const uint64_t need =
        judge.NeedBytes(nodes[i], {1, tp}, 0, layers, judge.HoldsHead(nodes, i, layers),
                        i == 0 && candidate.may_enter);
    if (need <= candidate.budget_bytes) continue;
    std::string text = absl::StrCat("each of ", tp, " equal slices needs ",
                                    FormatBytes(Bytes(need)), "; ", NodeName(*candidate.node),
                                    " can give ", FormatBytes(Bytes(candidate.budget_bytes)));
    if (uneven && slices > tp) {
      absl::StrAppend(&text, ", and no uneven division into ", slices, "ths fits either");
    } else if (!uneven) {
      absl::StrAppend(&text, ", and the engine cuts layers into equal slices only");
    }
    return MakeReason(reasons::kMemoryShort, text, candidate.node->node_id());
  }
  return MakeReason(reasons::kMemoryShort,
                    absl::StrCat("no ", tp, " nodes that reach each other can ",
                                 "each hold their slice of every layer"));
}

}  // namespace

v1::Reason WhyNotShape(GangJudge& judge, const Shape& shape, const std::string& transport) {
  // Whatever the shape, and whatever the cables.
  const std::string& engine = judge.model().engine();
  if (BackendNamed(transport) == Backend::kVerbs && !engine.empty() && shape.ranks() > 1) {
    v1::Reason reason =
        MakeReason(reasons::kEngineLimit,
                   absl::StrCat("ranks of ", engine, " have no verbs between them: its groups ",
                                "are MLX's, over jaccl or the ring"));
    reason.set_remedy("leave out --transport, or ask for --transport ring");
    return reason;
  }
  for (const ShapeConstraint& constraint : ShapeConstraints()) {
    auto refusal = constraint.refuse(shape, judge.model(), judge.candidates());
    if (refusal.has_value()) return *std::move(refusal);
  }
  if (shape.ranks() == 1) return OneRankShort(judge);
  if (AsksForRdma(transport)) {
    v1::Reason reason = MakeReason(reasons::kTransportUnavailable,
                                   absl::StrCat("no ", shape.ranks(), " nodes with cables ", "for ",
                                                transport, " between them hold it"));
    if (IsDescribed(*judge.candidates().front().node)) {
      reason.set_remedy("ask for another transport, or leave --transport out");
    }
    return reason;
  }
  const std::vector<size_t> nodes = LargestTogether(judge, shape.ranks());
  if (nodes.empty()) return NotTogether(judge, shape.ranks());
  return shape.tp > 1 && shape.pp == 1 ? SlicesShort(judge, nodes) : StagesShort(judge, nodes);
}

}  // namespace macrame::planner
