#pragma once

// Whether the links that a gang serves over are gone for certain. Pure.

#include <optional>

#include "macrame/v1/link.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

// Of a gang over verbs, why no link works any more between two of its ranks that exchange directly;
// nothing while one does, or while one may: only what a probe saw for certain counts, for a gang
// that works is not ended on a guess. Gangs over other backends are never broken by this: a Mac's
// commands don't prove what they say of a port in use.
std::optional<v1::Reason> WhyBroken(const v1::Plan& plan, const v1::ClusterLinks& links);

}  // namespace macrame::agentd
