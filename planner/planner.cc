#include "planner/planner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/advice.h"
#include "planner/cable_advice.h"
#include "planner/constraints.h"
#include "planner/gang.h"
#include "planner/gang_search.h"
#include "planner/link_costs.h"
#include "planner/option_advice.h"
#include "planner/plan_choice.h"
#include "planner/prediction.h"
#include "planner/rdma_advice.h"
#include "planner/shape_refusal.h"
#include "proto/backends.h"
#include "proto/bytes.h"
#include "proto/reasons.h"
#include "proto/suggestions.h"

namespace macrame::planner {
namespace {

using MaybeReason = std::optional<v1::Reason>;

// Shapes that don't fit are explained up to so many ranks.
constexpr uint32_t kComparedRanksMax = 8;
constexpr uint32_t kSequencesMax = 4096;
// Of the speed, for which memory of a laptop is left to its user.
constexpr double kSparedLoss = 0.1;

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

// Users are served at once unless it is said that fewer are.
uint32_t SequencesOf(const v1::PlacementOptions& placement) {
  const uint32_t asked = placement.concurrent_sequences();
  return std::max(1u, asked > 0 ? asked : placement.users());
}

MaybeReason CheckOptions(const v1::PlanRequest& request) {
  const v1::PlacementOptions& placement = request.placement();
  const uint32_t own = request.model().context_length_max();
  if (own > 0 && placement.context_length() > own) {
    v1::Reason reason =
        MakeReason(reasons::kBadRequest,
                   absl::StrCat("a context of ", placement.context_length(), " was asked for; ",
                                request.model().name(), " was made for at most ", own));
    reason.set_remedy(absl::StrCat("ask for a context of ", own, " or less"));
    return reason;
  }
  if (placement.context_length() == 1) {
    return MakeReason(reasons::kBadRequest,
                      "a context of 1 was asked for; a prompt and an answer need at least 2");
  }
  if (SequencesOf(placement) > kSequencesMax) {
    return MakeReason(
        reasons::kBadRequest,
        absl::StrCat(SequencesOf(placement), " sequences at once were asked for; at most ",
                     kSequencesMax, " can be"));
  }
  if (placement.parallelism() != v1::PARALLELISM_AUTO &&
      placement.parallelism() != v1::PARALLELISM_TENSOR &&
      placement.parallelism() != v1::PARALLELISM_PIPELINE) {
    return MakeReason(reasons::kBadRequest, "the parallelism asked for is not known");
  }
  if (request.nodes_size() > kNodesMax) {
    return MakeReason(reasons::kBadRequest, absl::StrCat("a plan over ", request.nodes_size(),
                                                         " nodes; at most ", kNodesMax, " can be"));
  }
  return {};
}

v1::Reason NoSuchNode(const std::string& wanted, const v1::PlanRequest& request) {
  std::vector<std::string> known, hostnames;
  for (const v1::PlannerNode& node : request.nodes()) {
    known.push_back(NodeName(node));
    hostnames.push_back(node.hostname());
  }
  v1::Reason reason = MakeReason(reasons::kNodeNotFound,
                                 absl::StrCat("there is no node '", wanted, "'; known are ",
                                              NameList(known), DidYouMean(wanted, hostnames)));
  reason.set_remedy("name nodes by their id; 'clusterctl devices list' shows them");
  return reason;
}

// PlacementOptions that no cluster can meet, whatever joins it. `named`: nodes that are left of
// those named.
MaybeReason CheckOptionsAgree(const v1::PlacementOptions& placement, uint32_t named) {
  if (placement.node_ids().empty()) return {};
  if (named == 0) {
    v1::Reason reason = MakeReason(reasons::kBadRequest, "the nodes asked for are all excluded");
    reason.set_remedy("exclude fewer nodes, or ask for others");
    return reason;
  }
  if (placement.world_size() <= named) return {};
  v1::Reason reason =
      MakeReason(reasons::kBadRequest,
                 absl::StrCat(placement.world_size(), " ranks were asked for on ", named,
                              named == 1 ? " node" : " nodes", "; each needs one of its own"));
  reason.set_remedy("name as many nodes as ranks, or ask for fewer ranks");
  return reason;
}

// Each name in the options has to mean one node. Nodes that are gone are left out when recovering.
// `named` gets how many different nodes are meant, without those that are excluded as well.
MaybeReason CheckNamedNodes(const v1::PlanRequest& request, uint32_t* named) {
  std::set<std::string> ids;
  for (const std::string& wanted : request.placement().node_ids()) {
    std::vector<std::string> meant;
    std::string id;
    bool left_out = false;
    for (const v1::PlannerNode& node : request.nodes()) {
      if (!Means(wanted, node, request)) continue;
      id = node.node_id();
      left_out = PlacementLeavesOut(node, request);
      if (wanted == id) meant.clear();
      meant.push_back(NodeName(node));
      if (wanted == id) break;
    }
    if (meant.size() == 1 && !left_out) ids.insert(id);
    if (meant.size() == 1 || (meant.empty() && request.recovering())) continue;
    if (meant.empty()) return NoSuchNode(wanted, request);
    v1::Reason reason =
        MakeReason(reasons::kBadRequest,
                   absl::StrCat("'", wanted, "' means several nodes: ", NameList(meant)));
    reason.set_remedy("name nodes by their id; 'clusterctl devices list' shows them");
    return reason;
  }
  for (const std::string& wanted : request.placement().excluded_node_ids()) {
    const bool known =
        std::any_of(request.nodes().begin(), request.nodes().end(),
                    [&](const v1::PlannerNode& node) { return Names(wanted, node); });
    if (known || request.recovering() || wanted.empty()) continue;
    return NoSuchNode(wanted, request);
  }
  *named = static_cast<uint32_t>(ids.size());
  return request.recovering() ? MaybeReason() : CheckOptionsAgree(request.placement(), *named);
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
      candidates.push_back(CandidateOf(node));
      KeepToSplits(request.model(), candidates.back());
    }
  }
  return candidates;
}

// No node can take a rank: the one reason that all have, or how they differ.
v1::Reason NoCandidates(const std::vector<v1::Rejection>& rejections) {
  if (rejections.empty()) return MakeReason(reasons::kTooFewNodes, "the cluster has no nodes");
  std::vector<std::string> causes;
  std::set<std::string> codes, remedies;
  for (const v1::Rejection& rejection : rejections) {
    if (rejection.reason().code() == reasons::kNodeExcluded) continue;
    causes.push_back(rejection.reason().message());
    codes.insert(rejection.reason().code());
    remedies.insert(rejection.reason().remedy());
  }
  if (causes.empty()) {
    v1::Reason reason = MakeReason(reasons::kTooFewNodes, "all nodes are excluded");
    reason.set_remedy("exclude fewer nodes");
    return reason;
  }
  v1::Reason reason =
      MakeReason(codes.size() == 1 ? *codes.begin() : reasons::kTooFewNodes,
                 absl::StrCat("no node can take a rank: ", absl::StrJoin(causes, "; ")));
  if (codes.size() == 1 && remedies.size() == 1) reason.set_remedy(*remedies.begin());
  return reason;
}

v1::Assignment Assign(GangJudge& judge, const GangStage& stage, size_t index, uint32_t stage_number,
                      uint32_t first_slice) {
  const Candidate& candidate = judge.candidates()[stage.nodes[index]];
  const uint32_t tp = static_cast<uint32_t>(stage.nodes.size());
  const bool head = judge.HoldsHead(stage.nodes, index, stage.end);
  v1::Assignment assignment;
  assignment.set_rank(stage_number * tp + static_cast<uint32_t>(index));
  assignment.set_node_id(candidate.node->node_id());
  assignment.set_hostname(candidate.node->hostname());
  assignment.set_stage(stage_number);
  assignment.set_tp_rank(static_cast<uint32_t>(index));
  assignment.set_layer_begin(stage.begin);
  assignment.set_layer_end(stage.end);
  assignment.set_holds_embedding(stage.begin == 0);
  assignment.set_holds_head(head);
  *assignment.mutable_need() = judge.Need(stage.nodes[index], stage.SliceOf(index), stage.begin,
                                          stage.end, head, stage_number == 0 && index == 0);
  assignment.set_budget_bytes(candidate.budget_bytes);
  assignment.set_whole_experts(stage.whole_experts);
  const bool even = std::all_of(stage.widths.begin(), stage.widths.end(),
                                [&](uint32_t width) { return width == stage.widths[0]; });
  if (!even) {
    assignment.set_slice_begin(first_slice);
    assignment.set_slice_end(first_slice + stage.widths[index]);
    assignment.set_slice_count(stage.slice_count);
  }
  return assignment;
}

v1::Plan MakePlan(const v1::PlanRequest& request, GangJudge& judge, const Gang& gang) {
  v1::Plan plan;
  plan.set_model_name(request.model().name());
  plan.set_parallelism(gang.tp() > 1 ? v1::PARALLELISM_TENSOR : v1::PARALLELISM_PIPELINE);
  plan.set_tp(gang.tp());
  plan.set_pp(gang.pp());
  plan.set_world_size(gang.ranks());
  plan.set_backend(NameOf(BackendOf(gang)));
  if (gang.fabric.is_rdma()) plan.set_backend_topology(NameOf(gang.fabric.topology));
  plan.set_context_length(judge.serving().context_tokens);
  plan.set_concurrent_sequences(judge.serving().sequences);
  plan.set_kv_bits(judge.serving().kv_bits);
  plan.set_engine(request.model().engine());
  plan.set_state_snapshots(StateSnapshots(request.model()));
  plan.set_snapshot_revision(request.snapshot_revision());
  if (request.has_draft_model()) {
    plan.mutable_draft_model()->set_name(request.draft_model().name());
    plan.mutable_draft_model()->set_path(request.draft_model().path());
    plan.mutable_draft_model()->set_fingerprint(request.draft_model().fingerprint());
  }
  uint32_t number = 0;
  for (const GangStage& stage : gang.stages) {
    uint32_t slice = 0;
    for (size_t i = 0; i < stage.nodes.size(); ++i) {
      *plan.add_assignments() = Assign(judge, stage, i, number, slice);
      slice += stage.widths[i];
    }
    ++number;
  }
  *plan.mutable_prediction() = Predict(judge, gang, request);
  return plan;
}

constexpr double kGigabyte = 1e9;

// Of which nodes the speed stands in no table.
MaybeReason WhatIsAssumed(const GangJudge& judge, const Gang& gang) {
  std::vector<std::string> names;
  for (const GangStage& stage : gang.stages) {
    for (const size_t node : stage.nodes) {
      const Candidate& candidate = judge.candidates()[node];
      if (!candidate.speed.is_assumed) continue;
      const std::string& chip = candidate.node->chip();
      names.push_back(absl::StrCat(NodeName(*candidate.node), " (",
                                   chip.empty() ? "no chip is named" : chip, ", ",
                                   std::lround(candidate.speed.bandwidth / kGigabyte), " GB/s)"));
    }
  }
  if (names.empty()) return {};
  v1::Reason reason =
      MakeReason(reasons::kPredicted,
                 absl::StrCat("the speed is a guess: memory bandwidth and arithmetic are assumed, ",
                              "for no table has them, on ", NameList(names)));
  reason.set_remedy(
      "in a description of a cluster, say that node's bandwidth_gb_s and tflops, or a chip as its "
      "maker calls it, such as \"NVIDIA GeForce RTX 4090\"");
  return reason;
}

// Also what the options did not ask for: `plan` answers "and why not otherwise".
std::vector<Shape> ShapesToExplain(const ShapeOptions& placement, uint32_t candidates) {
  std::vector<Shape> shapes;
  const auto add = [&](uint32_t ranks) {
    shapes.push_back({1, ranks});
    if (ranks > 1) shapes.push_back({ranks, 1});
  };
  if (placement.exact() > 0) add(placement.exact());
  for (uint32_t ranks = 1; ranks <= std::min(candidates, kComparedRanksMax); ++ranks) {
    if (ranks != placement.exact()) add(ranks);
  }
  // What was asked for first; its reason is the failure's when nothing fits.
  std::stable_sort(shapes.begin(), shapes.end(), [&](const Shape& a, const Shape& b) {
    return placement.Allows(a, 0) > placement.Allows(b, 0);
  });
  return shapes;
}

std::vector<v1::Rejection> Rejections(const v1::PlanRequest& request, GangJudge& judge,
                                      const std::vector<GangOption>& options,
                                      const ShapeOptions& placement, const GangOption* chosen) {
  std::vector<v1::Rejection> rejections;
  std::vector<Shape> explained;
  for (const GangOption& option : options) {
    explained.push_back(ShapeOf(option.gang));
    if (&option == chosen) continue;
    v1::Prediction prediction = Predict(judge, option.gang, request);
    v1::Rejection rejection =
        Reject(ShapeName(ShapeOf(option.gang)),
               WhyNotChosen(judge, option, chosen, placement, prediction.tokens_per_second()));
    *rejection.mutable_prediction() = std::move(prediction);
    rejections.push_back(std::move(rejection));
  }
  const uint32_t candidates = static_cast<uint32_t>(judge.candidates().size());
  for (const Shape& shape : ShapesToExplain(placement, candidates)) {
    if (std::find(explained.begin(), explained.end(), shape) != explained.end()) continue;
    explained.push_back(shape);
    rejections.push_back(
        Reject(ShapeName(shape), WhyNotShape(judge, shape, request.placement().transport())));
  }
  return rejections;
}

// Why none of the requested shapes fits: memory when that was it for any of them, else the first's
// reason.
v1::Reason WhyNothingFits(const v1::PlanRequest& request, GangJudge& judge,
                          const ShapeOptions& placement) {
  MaybeReason first;
  MaybeReason memory;
  const uint32_t candidates = static_cast<uint32_t>(judge.candidates().size());
  for (const Shape& shape : ShapesToExplain(placement, candidates)) {
    bool asked = false;
    for (uint32_t level = 0; level < placement.levels(); ++level) {
      asked = asked || placement.Allows(shape, level);
    }
    if (!asked) continue;
    v1::Reason reason = WhyNotShape(judge, shape, request.placement().transport());
    // The last: over the most nodes. How much is short in all says more than one slice does.
    const bool says_more = shape.tp == 1 || !memory.has_value();
    if (reason.code() == reasons::kMemoryShort && says_more) memory = reason;
    if (!first.has_value()) first = std::move(reason);
  }
  if (!first.has_value()) return MakeReason(reasons::kTooFewNodes, "no node can take a rank");
  const std::string& transport = request.placement().transport();
  if (!memory.has_value()) {
    const std::string path = AdviseOnPaths(judge, placement, transport);
    if (first->code() == reasons::kTransportUnavailable && !path.empty()) {
      first->set_remedy(absl::StrCat(path, " would make it fit"));
    }
    return *first;
  }
  v1::Reason failure =
      MakeReason(reasons::kMemoryShort,
                 absl::StrCat(request.model().name(), " does not fit with a context of ",
                              judge.serving().context_tokens, ": ", memory->message(),
                              ". Nodes can give: ", BudgetList(judge.candidates())),
                 memory->node_id());
  const std::string advice = AdviseOnMemory(judge, placement, transport);
  if (!advice.empty()) failure.set_remedy(advice);
  return failure;
}

ServingLoad LoadOf(const v1::PlanRequest& request) {
  ServingLoad load;
  load.context_tokens = EffectiveContext(request.model(), request.placement());
  load.sequences = SequencesOf(request.placement());
  load.kv_bits = request.placement().kv_bits();
  load.strictness = request.placement().strictness();
  load.predicted_positions = request.placement().prompt_tokens();
  if (request.has_draft_model()) load.draft_bytes = DraftBytes(request.draft_model(), load);
  return load;
}

// Of equally good nodes the larger ones are taken first.
std::vector<Candidate> LargestFirst(std::vector<Candidate> candidates) {
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.budget_bytes > b.budget_bytes; });
  return candidates;
}

// `candidates`: those that may be given ranks; `named_nodes`: how many the options name.
v1::PlanResult PlanOver(const v1::PlanRequest& request, std::vector<Candidate> candidates,
                        std::vector<v1::Rejection> rejections, uint32_t named_nodes) {
  const ServingLoad load = LoadOf(request);
  if (request.has_draft_model()) {
    for (Candidate& candidate : candidates) candidate.may_enter = candidate.node->has_draft_files();
  }
  candidates = LargestFirst(std::move(candidates));
  const ShapeOptions placement(request, static_cast<uint32_t>(candidates.size()), named_nodes);
  const LinkCosts links(request, candidates);
  GangJudge judge(request.model(), candidates, links, load, CostParameters());
  GangGoal wanted;
  wanted.optimize = request.placement().optimize();
  wanted.users = load.sequences;
  wanted.transport = request.placement().transport();
  wanted.exact_ranks = placement.exact();
  GangSearch search(judge, wanted);
  const PlanChoice choice = ChoosePlan(request, judge, search, placement);
  if (!request.brief()) {
    for (v1::Rejection& rejection :
         Rejections(request, judge, search.Options(), placement, choice.option)) {
      rejections.push_back(std::move(rejection));
    }
  }
  if (!choice.gang.has_value()) {
    v1::Reason reason = WhyNothingFits(request, judge, placement);
    return Failure(std::move(reason), std::move(rejections));
  }
  v1::PlanResult result;
  *result.mutable_plan() = MakePlan(request, judge, *choice.gang);
  for (const v1::Reason& reason : choice.reasons) *result.mutable_plan()->add_reasons() = reason;
  if (auto assumed = WhatIsAssumed(judge, *choice.gang); assumed.has_value()) {
    *result.mutable_plan()->add_reasons() = *std::move(assumed);
  }
  if (request.brief()) return result;
  if (auto air = AdviseOnWireless(request, judge, *choice.gang); air.has_value()) {
    *result.mutable_plan()->add_reasons() = *std::move(air);
  }
  if (auto rdma = WhyNoRdma(request, judge, *choice.gang); rdma.has_value()) {
    *result.mutable_plan()->add_reasons() = *std::move(rdma);
  }
  if (auto cable = AdviseOnCables(request, judge, *choice.gang, placement); cable.has_value()) {
    *result.mutable_plan()->add_reasons() = *std::move(cable);
  }
  for (const v1::Rejection& rejection : rejections) {
    *result.mutable_plan()->add_rejections() = rejection;
    *result.add_rejections() = rejection;
  }
  return result;
}

// A plan that wants its fullest node as empty as can be would lay most on a large machine without a
// GPU, many times slower. Those are left out where the GPUs alone hold the model, unless they were
// asked for or hold a part of it now.
bool LeavesProcessorsOut(const v1::PlanRequest& request, const std::vector<Candidate>& candidates) {
  if (request.placement().optimize() != v1::OPTIMIZE_MEMORY) return false;
  bool has_gpu = false, has_cpu = false;
  for (const Candidate& candidate : candidates) {
    (candidate.kind == ComputeKind::kGpu ? has_gpu : has_cpu) = true;
    if (candidate.kind == ComputeKind::kGpu) continue;
    for (const v1::Assignment& part : request.current().assignments()) {
      if (part.node_id() == candidate.node->node_id()) return false;
    }
  }
  return has_gpu && has_cpu && request.placement().node_ids().empty();
}

v1::PlanResult PlanWithoutProcessors(const v1::PlanRequest& request,
                                     const std::vector<Candidate>& candidates,
                                     std::vector<v1::Rejection> rejections, uint32_t named_nodes) {
  std::vector<Candidate> gpus;
  for (const Candidate& candidate : candidates) {
    if (candidate.kind == ComputeKind::kGpu) {
      gpus.push_back(candidate);
      continue;
    }
    rejections.push_back(
        Reject(absl::StrCat("node ", NodeName(*candidate.node)),
               MakeReason(reasons::kNotChosen,
                          absl::StrCat(NodeName(*candidate.node),
                                       " computes on its processors; the GPUs of the others hold "
                                       "the model without it"),
                          candidate.node->node_id())));
  }
  return PlanOver(request, std::move(gpus), std::move(rejections), named_nodes);
}

}  // namespace

uint32_t EffectiveContext(const v1::ModelDescription& model,
                          const v1::PlacementOptions& placement) {
  if (placement.context_length() > 0) return placement.context_length();
  if (model.context_length_max() == 0) return kDefaultContextTokens;
  return std::min(model.context_length_max(), kDefaultContextTokens);
}

namespace {

double MeritOf(const v1::PlanRequest& request, const v1::PlanResult& result) {
  const v1::Prediction& prediction = result.plan().prediction();
  return request.placement().optimize() == v1::OPTIMIZE_THROUGHPUT
             ? prediction.users_tokens_per_second()
             : prediction.tokens_per_second();
}

bool IsWhereItRuns(const v1::PlanRequest& request, const v1::PlanResult& result) {
  const auto& now = request.current().assignments();
  const auto& then = result.plan().assignments();
  return !now.empty() && std::equal(now.begin(), now.end(), then.begin(), then.end(),
                                    [](const v1::Assignment& a, const v1::Assignment& b) {
                                      return a.node_id() == b.node_id();
                                    });
}

// Laptops are filled for need, not for speed: a plan that leaves some of their memory to their
// users is taken where it loses less than kSparedLoss.
v1::PlanResult PlanSparingLaptops(const v1::PlanRequest& request,
                                  const std::vector<Candidate>& candidates,
                                  const std::vector<v1::Rejection>& rejections,
                                  uint32_t named_nodes) {
  v1::PlanResult full = PlanOver(request, candidates, rejections, named_nodes);
  std::vector<Candidate> spared = candidates;
  std::set<std::string> filled;  // laptops of which the plan takes more
  for (Candidate& candidate : spared) {
    if (!candidate.node->is_portable()) continue;
    candidate.budget_bytes = FullEnoughBytes(*candidate.node, candidate.budget_bytes);
    for (const v1::Assignment& part : full.plan().assignments()) {
      if (part.node_id() != candidate.node->node_id()) continue;
      if (part.need().total_bytes() > candidate.budget_bytes)
        filled.insert(NodeName(*candidate.node));
    }
  }
  if (filled.empty() || IsWhereItRuns(request, full)) return full;
  v1::PlanResult sparing = PlanOver(request, std::move(spared), rejections, named_nodes);
  if (!sparing.has_plan()) return full;
  const double loss = 1 - MeritOf(request, sparing) / MeritOf(request, full);
  if (loss > kSparedLoss) return full;
  *sparing.mutable_plan()->add_reasons() = MakeReason(
      reasons::kChosen,
      absl::StrCat("some memory stays for the user of ", NameList({filled.begin(), filled.end()}),
                   loss > 0 ? absl::StrFormat(", which costs %.0f %% of the speed", 100 * loss)
                            : std::string()));
  return sparing;
}

v1::PlanResult PlanOnAll(const v1::PlanRequest& request, const std::vector<Candidate>& candidates,
                         const std::vector<v1::Rejection>& rejections, uint32_t named_nodes) {
  const bool has_laptop =
      std::any_of(candidates.begin(), candidates.end(),
                  [](const Candidate& candidate) { return candidate.node->is_portable(); });
  if (has_laptop) return PlanSparingLaptops(request, candidates, rejections, named_nodes);
  return PlanOver(request, candidates, rejections, named_nodes);
}

v1::PlanResult PlanAsAsked(const v1::PlanRequest& request) {
  if (auto invalid = ValidateModel(request.model()); invalid.has_value()) {
    return Failure(*std::move(invalid));
  }
  if (auto bad = CheckOptions(request); bad.has_value()) return Failure(*std::move(bad));
  uint32_t named_nodes = 0;
  if (auto bad = CheckNamedNodes(request, &named_nodes); bad.has_value()) {
    return Failure(*std::move(bad));
  }
  std::vector<v1::Rejection> rejections;
  std::vector<Candidate> candidates = FindCandidates(request, &rejections);
  if (candidates.empty()) {
    v1::Reason reason = NoCandidates(rejections);
    return Failure(std::move(reason), std::move(rejections));
  }
  if (LeavesProcessorsOut(request, candidates)) {
    // What was asked for goes first, with them if need be; then less without them.
    v1::PlanRequest as_asked = request;
    as_asked.set_recovering(false);
    v1::PlanResult result = PlanWithoutProcessors(as_asked, candidates, rejections, named_nodes);
    if (result.has_plan()) return result;
    if (request.recovering()) {
      result = PlanOnAll(as_asked, candidates, rejections, named_nodes);
      if (result.has_plan()) return result;
      result = PlanWithoutProcessors(request, candidates, rejections, named_nodes);
      if (result.has_plan()) return result;
    }
  }
  return PlanOnAll(request, candidates, rejections, named_nodes);
}

// The cable with which there would be RDMA enough.
std::string PathForRdma(const v1::PlanRequest& request) {
  uint32_t named_nodes = 0;
  std::vector<v1::Rejection> rejections;
  if (CheckNamedNodes(request, &named_nodes).has_value()) return "";
  const std::vector<Candidate> candidates = LargestFirst(FindCandidates(request, &rejections));
  const ShapeOptions placement(request, static_cast<uint32_t>(candidates.size()), named_nodes);
  const LinkCosts links(request, candidates);
  GangJudge judge(request.model(), candidates, links, LoadOf(request), CostParameters());
  return AdviseOnPaths(judge, placement, request.placement().transport());
}

// What was asked for that is in the way, tried one by one: a transport that is not to be had is a
// failure of its own, whatever memory lacks without it.
v1::PlanResult PlanWithRemedies(const v1::PlanRequest& request) {
  v1::PlanResult result = PlanAsAsked(request);
  const std::string code = result.failure().code();
  if (result.has_plan() || code == reasons::kBadRequest || code == reasons::kModelConfigInvalid)
    return result;
  if (AsksForRdma(request.placement().transport()) && code != reasons::kEngineLimit) {
    v1::PlanRequest without = request;
    without.set_brief(true);
    without.mutable_placement()->clear_transport();
    const v1::PlanResult other = PlanAsAsked(without);
    if (other.has_plan()) {
      *result.mutable_failure() = RdmaRefusal(request, other.plan(), PathForRdma(request));
      return result;
    }
  }
  if (request.brief()) return result;
  std::vector<std::string> ways = OptionsInTheWay(request, PlanAsAsked);
  std::string& remedy = *result.mutable_failure()->mutable_remedy();
  std::erase_if(ways,
                [&](const std::string& way) { return remedy.find(way) != std::string::npos; });
  if (ways.empty()) return result;
  const bool is_of_this = remedy != FindReasonCode(code)->remedy;
  remedy =
      absl::StrCat(is_of_this ? absl::StrCat(remedy, "; or ") : "", absl::StrJoin(ways, "; or "));
  return result;
}

// Why there is no plan with the draft model, where there is one without.
v1::Reason WhyNoDraft(const v1::PlanRequest& request, const v1::Plan& without, v1::Reason failure) {
  const std::string& draft = request.draft_model().name();
  const v1::Assignment& entry = without.assignments(0);
  for (const v1::PlannerNode& node : request.nodes()) {
    if (node.node_id() != entry.node_id()) continue;
    if (node.has_draft_files()) continue;
    v1::Reason reason = MakeReason(
        reasons::kModelNotOnNode,
        absl::StrCat(NodeName(node), ", where the requests of ", request.model().name(),
                     " come in (rank 0), does not have the files of its draft model ", draft),
        node.node_id());
    reason.set_remedy(absl::StrCat("copy the folder of ", draft,
                                   " to that node, into one of its model folders, or load ",
                                   request.model().name(), " without --draft-model"));
    return reason;
  }
  failure.set_message(absl::StrCat(failure.message(), " (with the draft model ", draft,
                                   "; without it there is a plan)"));
  return failure;
}

}  // namespace

v1::PlanResult PlanModel(const v1::PlanRequest& request) {
  if (!request.has_draft_model()) return PlanWithRemedies(request);
  if (auto invalid = ValidateModel(request.draft_model()); invalid.has_value()) {
    return Failure(*std::move(invalid));
  }
  v1::PlanResult result = PlanWithRemedies(request);
  if (result.has_plan()) return result;
  v1::PlanRequest alone = request;
  alone.clear_draft_model();
  v1::PlanResult without = PlanAsAsked(alone);
  if (!without.has_plan()) return result;
  const v1::Reason why = WhyNoDraft(request, without.plan(), result.failure());
  // Answers without drafts are better than none.
  if (request.recovering()) {
    *without.mutable_plan()->add_reasons() = why;
    return without;
  }
  *result.mutable_failure() = why;
  return result;
}

}  // namespace macrame::planner
