#pragma once

// The context of a deployment that names none. Agents send 9,000 to 20,000 tokens before any work,
// so it is as long as memory allows without taking it from others. Pure.

#include <functional>

#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// Of a node's free memory, a KV cache whose length nobody asked for takes at most this part.
inline constexpr uint64_t kDefaultContextShare = 4;

// `plain`: the plan of `request`, with the planner's default context. Instead of it a plan with a
// longer one, at most the model's own, on as many ranks, without ending anything else; `plain`
// where the request names a context or memory holds no longer one. `plan` is asked a few times.
v1::PlanResult PlanWithLongerContext(
    const v1::PlanRequest& request, v1::PlanResult plain,
    const std::function<v1::PlanResult(const v1::PlanRequest&)>& plan);

}  // namespace macrame::agentd
