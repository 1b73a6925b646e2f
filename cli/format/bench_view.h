#pragma once

// What `clusterctl bench` found. Pure.

#include <string>
#include <vector>

#include "cli/format/bench_statistics.h"
#include "cli/format/message_json.h"
#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// What was measured, on what.
struct BenchReport {
  std::string model;
  std::string client_version;
  v1::VersionResponse agent;
  v1::DeploymentStatus deployment;  // as it was when the first request was sent
  std::vector<v1::NodeStatus> nodes;
  uint32_t requests_per_user = 0;
  uint32_t shared_prefix_tokens = 0;
  std::vector<BenchRow> rows;
};

std::string BenchView(const BenchReport& report, int width, const Style& style);
Json BenchDocument(const BenchReport& report);

}  // namespace macrame::cli
