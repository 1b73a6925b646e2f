#pragma once

// What one more cable would be worth: between which two nodes RDMA is missing that would make the
// model much faster than it will be.

#include <optional>

#include "macrame/v1/plan.pb.h"
#include "planner/constraints.h"
#include "planner/gang.h"

namespace macrame::planner {

// A cable is worth being said when it makes the model faster by this part.
inline constexpr double kWorthACable = 0.15;

// Could RDMA over a Thunderbolt cable that is not there yet work on this node? When its chip is
// known to have Thunderbolt 5, or a chip that is not known does it with another node already; when
// its engine knows JACCL; and when fewer cables are in it than a mesh takes of a node. How many
// sockets it has is not known.
bool CouldTakeCable(const Candidate& candidate, size_t node, const LinkCosts& links);

// PREDICTED: "RDMA over a Thunderbolt 5 cable between studio-1 and studio-2 would give 25.1
// tokens/s (tensor parallel over 2) instead of 15.5". Of all pairs that are tried the one that
// helps most; nothing when none is worth it, or the options rule it out. `taken`: the gang of the
// plan.
std::optional<v1::Reason> AdviseOnCables(const v1::PlanRequest& request, GangJudge& judge,
                                         const Gang& taken, const ShapeOptions& placement);

// PREDICTED: "it goes over Wi-Fi (or a VPN) between air-1 and air-2, whose speed varies; over a
// wire of 1 Gb/s it would give 11.0 tokens/s instead of 10.2". Nothing when it doesn't.
std::optional<v1::Reason> AdviseOnWireless(const v1::PlanRequest& request, GangJudge& judge,
                                           const Gang& taken);

}  // namespace macrame::planner
