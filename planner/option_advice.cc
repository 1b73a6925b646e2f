#include "planner/option_advice.h"

#include "planner/advice.h"
#include "planner/constraints.h"
#include "planner/saturating.h"

namespace macrame::planner {
namespace {

struct Change {
  const char* words;
  bool (*applies)(const v1::PlacementOptions& placement);
  void (*make)(v1::PlacementOptions* placement);
};

using Options = v1::PlacementOptions;

constexpr Change kChanges[] = {
    {"leave out --transport",
     [](const Options& now) { return !now.transport().empty() && now.transport() != "auto"; },
     [](Options* then) { then->clear_transport(); }},
    {"leave out --nodes", [](const Options& now) { return !now.node_ids().empty(); },
     [](Options* then) { then->clear_node_ids(); }},
    {"leave out --exclude", [](const Options& now) { return !now.excluded_node_ids().empty(); },
     [](Options* then) { then->clear_excluded_node_ids(); }},
    {"leave out --ranks", [](const Options& now) { return now.world_size() > 0; },
     [](Options* then) { then->clear_world_size(); }},
    {"leave out --parallelism",
     [](const Options& now) { return now.parallelism() != v1::PARALLELISM_AUTO; },
     [](Options* then) { then->clear_parallelism(); }},
    {"leave out --kv-bits", [](const Options& now) { return now.kv_bits() > 0; },
     [](Options* then) { then->clear_kv_bits(); }},
    {"load it with --strictness tight, which leaves less for what estimates miss",
     [](const Options& now) { return now.strictness() != v1::STRICTNESS_TIGHT; },
     [](Options* then) { then->set_strictness(v1::STRICTNESS_TIGHT); }},
};

// No option helps a model that all nodes together could not hold without any.
bool MayFit(const v1::PlanRequest& request) {
  uint64_t given = 0;
  for (const v1::PlannerNode& node : request.nodes()) {
    given = SaturatingAdd(given, BudgetBytes(node));
  }
  return given >= ModelBytes(request.model());
}

}  // namespace

std::vector<std::string> OptionsInTheWay(const v1::PlanRequest& request, const PlanCall& plan) {
  std::vector<std::string> found;
  if (!MayFit(request)) return found;
  for (const Change& change : kChanges) {
    if (!change.applies(request.placement())) continue;
    v1::PlanRequest changed = request;
    changed.set_brief(true);
    change.make(changed.mutable_placement());
    if (plan(changed).has_plan()) found.emplace_back(change.words);
  }
  return found;
}

}  // namespace macrame::planner
