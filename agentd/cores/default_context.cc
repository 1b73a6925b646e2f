#include "agentd/cores/default_context.h"

#include <algorithm>
#include <map>
#include <string>

namespace macrame::agentd {
namespace {

// Whether the KV caches of the plan, made for `context` positions instead, fit beside the rest.
bool Fits(const v1::PlanRequest& request, const v1::Plan& plan, uint32_t context) {
  std::map<std::string, uint64_t> free;
  for (const v1::PlannerNode& node : request.nodes()) {
    const uint64_t held = node.memory_reserved_bytes();
    const uint64_t most = std::min(node.memory_available_bytes(), node.memory_usable_bytes());
    free[node.node_id()] = most - std::min(most, held);
  }
  const double longer = static_cast<double>(context) / std::max(1u, plan.context_length());
  return std::all_of(
      plan.assignments().begin(), plan.assignments().end(), [&](const v1::Assignment& one) {
        const double cache = static_cast<double>(one.need().kv_cache_bytes()) * longer;
        const double others =
            static_cast<double>(one.need().total_bytes() - one.need().kv_cache_bytes());
        const auto room = static_cast<double>(free[one.node_id()]);
        return cache * kDefaultContextShare <= room && others + cache <= room;
      });
}

}  // namespace

v1::PlanResult PlanWithLongerContext(
    const v1::PlanRequest& request, v1::PlanResult plain,
    const std::function<v1::PlanResult(const v1::PlanRequest&)>& plan) {
  if (request.placement().context_length() > 0 || !plain.has_plan() || plain.evicted_size() > 0) {
    return plain;
  }
  const uint32_t shortest = plain.plan().context_length();
  for (uint32_t context = request.model().context_length_max(); context > shortest; context /= 2) {
    if (!Fits(request, plain.plan(), context)) continue;
    v1::PlanRequest longer = request;
    longer.mutable_placement()->set_context_length(context);
    v1::PlanResult result = plan(longer);
    if (result.has_plan() && result.evicted_size() == 0 &&
        result.plan().world_size() == plain.plan().world_size()) {
      return result;
    }
  }
  return plain;
}

}  // namespace macrame::agentd
