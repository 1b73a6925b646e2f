#include "planner/planner.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/advice.h"
#include "planner/constraints.h"
#include "planner/memory_model.h"
#include "planner/shape_fitter.h"
#include "proto/bytes.h"
#include "proto/reasons.h"

namespace macrame::planner {
namespace {

using MaybeReason = std::optional<v1::Reason>;

// Shapes beyond the chosen one are looked at up to this many ranks, to say how they compare.
constexpr uint32_t kComparedRanksMax = 8;
constexpr uint32_t kSequencesMax = 4096;

v1::PlanResult Failure(v1::Reason reason, std::vector<v1::Rejection> rejections = {}) {
  v1::PlanResult result;
  *result.mutable_failure() = std::move(reason);
  for (v1::Rejection& rejection : rejections) *result.add_rejections() = std::move(rejection);
  return result;
}

v1::Rejection Reject(std::string subject, v1::Reason reason) {
  v1::Rejection rejection;
  rejection.set_subject(std::move(subject));
  *rejection.mutable_reason() = std::move(reason);
  return rejection;
}

MaybeReason CheckWishes(const v1::PlanRequest& request) {
  const v1::Wishes& wishes = request.wishes();
  const uint32_t own = request.model().context_length_max();
  if (own > 0 && wishes.context_length() > own) {
    v1::Reason reason = MakeReason(
        "BAD_REQUEST", absl::StrCat("a context of ", wishes.context_length(), " was asked for; ",
                                    request.model().name(), " was made for at most ", own));
    reason.set_remedy(absl::StrCat("ask for a context of ", own, " or less"));
    return reason;
  }
  if (wishes.concurrent_sequences() > kSequencesMax) {
    return MakeReason("BAD_REQUEST", absl::StrCat(wishes.concurrent_sequences(),
                                                  " sequences at once were asked for; at most ",
                                                  kSequencesMax, " can be"));
  }
  if (wishes.parallelism() != v1::PARALLELISM_AUTO &&
      wishes.parallelism() != v1::PARALLELISM_TENSOR &&
      wishes.parallelism() != v1::PARALLELISM_PIPELINE) {
    return MakeReason("BAD_REQUEST", "the parallelism asked for is not known");
  }
  if (request.nodes_size() > kNodesMax) {
    return MakeReason("BAD_REQUEST", absl::StrCat("a plan over ", request.nodes_size(),
                                                  " nodes; at most ", kNodesMax, " can be"));
  }
  return {};
}

// Each name in the wishes has to mean one node. Nodes that are gone are left out when recovering.
// `named` gets how many different nodes are meant.
MaybeReason CheckNamedNodes(const v1::PlanRequest& request, uint32_t* named) {
  std::set<std::string> ids;
  for (const std::string& wish : request.wishes().node_ids()) {
    std::vector<std::string> meant;
    std::string id;
    for (const v1::PlannerNode& node : request.nodes()) {
      if (!Names(wish, node)) continue;
      id = node.node_id();
      if (wish == id) meant.clear();
      meant.push_back(NodeName(node));
      if (wish == id) break;
    }
    if (meant.size() == 1) ids.insert(id);
    if (meant.size() == 1 || (meant.empty() && request.recovering())) continue;
    v1::Reason reason;
    if (meant.empty()) {
      std::vector<std::string> known;
      for (const v1::PlannerNode& node : request.nodes()) known.push_back(NodeName(node));
      reason = MakeReason("BAD_REQUEST", absl::StrCat("there is no node '", wish, "'; known are ",
                                                      absl::StrJoin(known, ", ")));
    } else {
      reason = MakeReason(
          "BAD_REQUEST",
          absl::StrCat("'", wish, "' means several nodes: ", absl::StrJoin(meant, ", ")));
    }
    reason.set_remedy("name nodes by their id; 'clusterctl devices list' shows them");
    return reason;
  }
  *named = static_cast<uint32_t>(ids.size());
  return {};
}

std::vector<Candidate> FindCandidates(const v1::PlanRequest& request,
                                      std::vector<v1::Rejection>* rejections) {
  std::vector<Candidate> candidates;
  for (const v1::PlannerNode& node : request.nodes()) {
    MaybeReason refusal;
    for (const NodeConstraint& constraint : NodeConstraints()) {
      refusal = constraint.refuse(node, request);
      if (refusal.has_value()) break;
    }
    if (refusal.has_value()) {
      rejections->push_back(Reject(absl::StrCat("node ", NodeName(node)), *std::move(refusal)));
    } else {
      candidates.push_back({&node, BudgetBytes(node), ComputeKindOf(node)});
    }
  }
  return candidates;
}

// No node can take a rank: the one reason that all have, or how they differ.
v1::Reason NoCandidates(const std::vector<v1::Rejection>& rejections) {
  if (rejections.empty()) return MakeReason("TOO_FEW_NODES", "the cluster has no nodes");
  std::vector<std::string> causes;
  bool same = true;
  for (const v1::Rejection& rejection : rejections) {
    if (rejection.reason().code() == "NODE_EXCLUDED") continue;
    causes.push_back(rejection.reason().message());
    same = same && rejection.reason().code() == rejections.front().reason().code();
  }
  if (causes.empty()) return MakeReason("TOO_FEW_NODES", "the nodes asked for are all excluded");
  const std::string code = same ? rejections.front().reason().code() : "TOO_FEW_NODES";
  return MakeReason(code, absl::StrCat("no node can take a rank: ", absl::StrJoin(causes, "; ")));
}

double WorstFill(const ShapeFitter::Assignments& assignments) {
  double worst = 0;
  for (const v1::Assignment& assignment : assignments) {
    worst = std::max(worst, static_cast<double>(assignment.need().total_bytes()) /
                                static_cast<double>(assignment.budget_bytes()));
  }
  return worst;
}

std::string WhyThisSize(const v1::PlanRequest& request, const Shape& shape, uint32_t candidates,
                        uint32_t named_nodes) {
  const v1::Wishes& wishes = request.wishes();
  if (wishes.world_size() == shape.ranks) return absl::StrCat(shape.ranks, " ranks were asked for");
  if (request.recovering() && wishes.world_size() > 0) {
    return absl::StrCat(wishes.world_size(), " ranks were asked for; ", candidates,
                        " nodes are left, so ", shape.ranks, " serve");
  }
  if (wishes.parallelism() != v1::PARALLELISM_AUTO && named_nodes == shape.ranks) {
    return absl::StrCat("all ", named_nodes, " nodes that were named hold a part");
  }
  if (shape.ranks == 1) {
    return candidates > 1 ? "it fits on one node, and more nodes would add a hop to every token"
                          : "one node can be used, and it fits there";
  }
  return absl::StrCat(shape.ranks, " is the fewest ranks that fit");
}

std::string WhyThisWay(const v1::PlanRequest& request, const Shape& shape, bool rdma) {
  const bool tensor = shape.parallelism == v1::PARALLELISM_TENSOR;
  if (request.wishes().parallelism() == shape.parallelism) {
    return absl::StrCat(tensor ? "tensor" : "pipeline", " parallel was asked for");
  }
  if (rdma && tensor) return "tensor parallel, because every link offers RDMA";
  if (!rdma && !tensor) {
    return "pipeline, because two collectives a layer over TCP cost more than one hop a stage";
  }
  return absl::StrCat(tensor ? "tensor" : "pipeline",
                      " parallel, because the other way does not fit");
}

struct Choice {
  Shape shape;
  ShapeFitter::Assignments assignments;
};

v1::Plan MakePlan(const v1::PlanRequest& request, const ServingLoad& load, Choice choice,
                  uint32_t candidates, uint32_t named_nodes, bool rdma) {
  v1::Plan plan;
  const bool tensor = choice.shape.parallelism == v1::PARALLELISM_TENSOR;
  plan.set_model_name(request.model().name());
  plan.set_parallelism(choice.shape.parallelism);
  plan.set_tp(tensor ? choice.shape.ranks : 1);
  plan.set_pp(tensor ? 1 : choice.shape.ranks);
  plan.set_world_size(choice.shape.ranks);
  plan.set_backend(choice.shape.ranks == 1 ? "single" : "ring");
  plan.set_context_length(load.context_tokens);
  plan.set_concurrent_sequences(load.sequences);
  plan.set_snapshot_revision(request.snapshot_revision());
  *plan.add_reasons() =
      MakeReason("CHOSEN", WhyThisSize(request, choice.shape, candidates, named_nodes));
  if (choice.shape.ranks > 1) {
    *plan.add_reasons() = MakeReason("CHOSEN", WhyThisWay(request, choice.shape, rdma));
  }
  *plan.add_reasons() =
      MakeReason("CHOSEN", absl::StrFormat("the fullest node uses %.0f %% of what it can give",
                                           100 * WorstFill(choice.assignments)));
  for (v1::Assignment& assignment : choice.assignments) {
    *plan.add_assignments() = std::move(assignment);
  }
  return plan;
}

// Also what the wishes did not ask for: `plan` answers "and why not otherwise".
std::vector<Shape> WithOtherShapes(std::vector<Shape> shapes, uint32_t candidates) {
  for (uint32_t ranks = 1; ranks <= std::min(candidates, kComparedRanksMax); ++ranks) {
    shapes.push_back({v1::PARALLELISM_PIPELINE, ranks});
    if (ranks > 1) shapes.push_back({v1::PARALLELISM_TENSOR, ranks});
  }
  return shapes;
}

v1::Reason WhyNotChosen(const ShapeFitter::Assignments& assignments, const Shape& chosen,
                        bool wished) {
  return MakeReason("NOT_CHOSEN",
                    absl::StrFormat("would fit, filling its fullest node to %.0f %%; %s %s",
                                    100 * WorstFill(assignments), ShapeName(chosen),
                                    wished ? "was preferred" : "is what was asked for"));
}

// Tries the shapes in order; the first that fits is the choice, the others become rejections.
std::optional<Choice> Choose(ShapeFitter* fitter, const std::vector<Shape>& wished,
                             std::vector<v1::Rejection>* rejections) {
  std::optional<Choice> choice;
  std::vector<Shape> tried;
  const auto all = WithOtherShapes(wished, static_cast<uint32_t>(fitter->candidates().size()));
  for (size_t i = 0; i < all.size(); ++i) {
    const Shape& shape = all[i];
    const bool is_wished = i < wished.size();
    if (std::find(tried.begin(), tried.end(), shape) != tried.end()) continue;
    // Comparing is worth a little time, not much.
    if (choice.has_value() && shape.ranks > kComparedRanksMax) continue;
    tried.push_back(shape);
    auto fit = fitter->Fit(shape);
    if (auto* reason = std::get_if<v1::Reason>(&fit)) {
      rejections->push_back(Reject(ShapeName(shape), std::move(*reason)));
    } else if (!choice.has_value() && is_wished) {
      choice = Choice{shape, std::move(std::get<ShapeFitter::Assignments>(fit))};
    } else if (choice.has_value()) {
      rejections->push_back(
          Reject(ShapeName(shape),
                 WhyNotChosen(std::get<ShapeFitter::Assignments>(fit), choice->shape, is_wished)));
    } else {
      v1::Reason reason = MakeReason("NOT_CHOSEN", "would fit, but is not what was asked for");
      rejections->push_back(Reject(ShapeName(shape), std::move(reason)));
    }
  }
  return choice;
}

// Why none of the wished shapes fits: memory when that was it for any of them, else the first's
// reason.
v1::Reason WhyNothingFits(const v1::PlanRequest& request, const ServingLoad& load,
                          ShapeFitter* fitter, const std::vector<Shape>& wished) {
  MaybeReason first;
  MaybeReason memory;
  for (const Shape& shape : wished) {
    auto fit = fitter->Fit(shape);
    const v1::Reason& reason = std::get<v1::Reason>(fit);
    if (!first.has_value()) first = reason;
    if (reason.code() == "MEMORY_SHORT") memory = reason;  // the last: over the most nodes
  }
  if (!memory.has_value()) return *first;
  const auto& candidates = fitter->candidates();
  v1::Reason failure = MakeReason(
      "MEMORY_SHORT",
      absl::StrCat(request.model().name(), " does not fit with a context of ", load.context_tokens,
                   ": ", memory->message(), ". Nodes can give: ", BudgetList(candidates)),
      memory->node_id());
  const std::string advice = AdviseOnMemory(request.model(), load, candidates, wished);
  if (!advice.empty()) failure.set_remedy(advice);
  return failure;
}

}  // namespace

uint32_t EffectiveContext(const v1::ModelDescription& model, const v1::Wishes& wishes) {
  if (wishes.context_length() > 0) return wishes.context_length();
  if (model.context_length_max() == 0) return kDefaultContextTokens;
  return std::min(model.context_length_max(), kDefaultContextTokens);
}

v1::PlanResult PlanModel(const v1::PlanRequest& request) {
  if (auto invalid = ValidateModel(request.model()); invalid.has_value()) {
    return Failure(*std::move(invalid));
  }
  if (auto bad = CheckWishes(request); bad.has_value()) return Failure(*std::move(bad));
  uint32_t named_nodes = 0;
  if (auto bad = CheckNamedNodes(request, &named_nodes); bad.has_value()) {
    return Failure(*std::move(bad));
  }
  std::vector<v1::Rejection> rejections;
  const std::vector<Candidate> candidates = FindCandidates(request, &rejections);
  if (candidates.empty()) {
    v1::Reason reason = NoCandidates(rejections);
    return Failure(std::move(reason), std::move(rejections));
  }
  const ServingLoad load{EffectiveContext(request.model(), request.wishes()),
                         std::max(1u, request.wishes().concurrent_sequences())};
  const bool rdma = AllLinksHaveRdma(request, candidates);
  const uint32_t count = static_cast<uint32_t>(candidates.size());
  const auto wished = ShapesByPreference(request, count, named_nodes, rdma);
  ShapeFitter fitter(request.model(), load, candidates);
  auto choice = Choose(&fitter, wished, &rejections);
  if (!choice.has_value()) {
    v1::Reason reason = WhyNothingFits(request, load, &fitter, wished);
    return Failure(std::move(reason), std::move(rejections));
  }
  v1::PlanResult result;
  *result.mutable_plan() = MakePlan(request, load, *std::move(choice), count, named_nodes, rdma);
  for (const v1::Rejection& rejection : rejections) {
    *result.mutable_plan()->add_rejections() = rejection;
    *result.add_rejections() = rejection;
  }
  return result;
}

}  // namespace macrame::planner
