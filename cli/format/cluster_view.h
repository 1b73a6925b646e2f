#pragma once

// The cluster as people read it: `devices list` and `status`. Pure: message and width in, text out.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

inline constexpr char kAllHealthyLine[] = "All nodes healthy";

// One line a node: name, state, address, memory, GPU, chip, system, transport; then unknown nodes.
std::string DevicesView(const v1::ClusterStatus& status, int width, const Style& style);

// Cluster, health, nodes, models with their ranks, problems with what to do about them.
// A line begins with kAllHealthyLine exactly when status.healthy(); what is listed then are notes.
std::string StatusView(const v1::ClusterStatus& status, int width, const Style& style);

// "alive", "suspect", "dead", "left", "draining", "drained", "cordoned".
std::string NodeStateWord(const v1::NodeStatus& node);
// The line on health alone.
std::string HealthLine(const v1::ClusterStatus& status, const Style& style);
// Problems, or notes of a healthy cluster, with what to do; "" without any.
std::string ProblemsView(const v1::ClusterStatus& status, const Style& style);
// `cluster health`: the line on health and the list of problems or notes.
std::string HealthView(const v1::ClusterStatus& status, const Style& style);

// It answers, or has been silent for a moment only: it holds its ranks, and may take some.
bool IsUp(const v1::NodeStatus& node);
// "tenant acme, rack=a"; empty: none.
std::string MarksText(const v1::NodeMarks& marks);
// The hostname of a node, or the start of its id when it has none; "?" without either.
std::string NodeName(const v1::ClusterStatus& status, const std::string& node_id);

}  // namespace macrame::cli
