#pragma once

// A trace of a model's ranks in the format that Perfetto (ui.perfetto.dev) and chrome://tracing
// open: a process a rank, its steps with their parts inside, its collectives beside them, and the
// requests as asynchronous spans of rank 0. Pure.

#include <functional>
#include <string>

#include "cli/format/message_json.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// `name_of` gives a node's name for its id.
Json ChromeTrace(const v1::TraceModelResponse& trace,
                 const std::function<std::string(const std::string&)>& name_of);

}  // namespace macrame::cli
