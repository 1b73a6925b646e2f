#pragma once

// The planner: which node holds which part of a model, and why not otherwise.
//
// Pure: the same request gives the same bytes back. Nothing here knows a clock, a file or a socket.
// A plan is a value with its reasons; every node and shape that was not taken is in `rejections`.
//
// Shapes: one rank; a pipeline of n stages (contiguous layer ranges); tensor parallel over n (every
// layer cut into slices, of unequal width where the engines can); stages that are tensor groups.
// Each rank has a node of its own. The best gang of every shape is found by gang_search.h, judged
// by gang.h's cost and memory models; plan_choice.h says which shape is taken:
//
// the best by the goal (latency, throughput, memory), but not more ranks than fewer would do within
// kWorthwhileGain. What was asked for goes first: `world_size` is met exactly, `node_ids` are the
// only nodes used, a parallelism that is not AUTO is spread over at least two nodes where there are
// two (over all of `node_ids` when they are named). A plan in force stays unless another is worth
// the move.
//
// `recovering` softens options whose nodes are gone: first fewer ranks than `world_size`, in the
// end the other way to divide; which is said in the reasons.
//
// A draft model is a part of what the entry rank holds, and its files have to be on that rank's
// node. Where it can't be, the plan fails; when recovering, the model is served without it.
//
// Ties between equal nodes go to the one that is named first in the request, so callers give nodes
// in a stable order (by node id).

#include "macrame/v1/plan.pb.h"

namespace macrame::planner {

// Bounds of what is looked at; a request above them fails with a reason.
inline constexpr int kNodesMax = 8192;
inline constexpr int kLayersMax = 1024;

// Never throws and never aborts on a bad request: a description that makes no sense (no layers,
// layer bytes missing) gives failure MODEL_CONFIG_INVALID, options that do not fit the model
// BAD_REQUEST.
v1::PlanResult PlanModel(const v1::PlanRequest& request);

// The context that a deployment gets: the one asked for, else the smaller of the model's own and
// kDefaultContextTokens.
inline constexpr uint32_t kDefaultContextTokens = 4096;
uint32_t EffectiveContext(const v1::ModelDescription& model, const v1::PlacementOptions& placement);

}  // namespace macrame::planner
