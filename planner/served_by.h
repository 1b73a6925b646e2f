#pragma once

// Which engine serves a model, and in which ways it may be shared out. Pure.

#include <string>

#include "macrame/v1/common.pb.h"
#include "macrame/v1/model.pb.h"

namespace macrame::planner {

// The name of the second engine in ModelDescription.engine and among a node's engines.
inline constexpr char kMlxLmEngine[] = "mlx-lm";

// In which ways the model's engine can share it out; rankd's own engine: all of them.
v1::ServedSplits SplitsOf(const v1::ModelDescription& model);
// "one node alone, tensor splits of equal slices, pipelines".
std::string SplitsText(const v1::ServedSplits& splits);
// With the code ENGINE: "served by Macrame's own engine (llama): one node alone, …". Of a model
// that some engine serves: whether one does, is not asked here.
v1::Reason ServedBy(const v1::ModelDescription& model);

}  // namespace macrame::planner
