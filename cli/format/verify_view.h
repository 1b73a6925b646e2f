#pragma once

// What `clusterctl model verify` prints. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::cli {

// It is not as it should be, or was not looked at.
bool IsBad(const v1::ModelFile& file);
// The node was asked, and has no model of that name: no fault.
bool HasNoSuchModel(const v1::NodeModelFiles& node);

// One line on how far the nodes are: "reading on 3 nodes: 41 % of 812.0 GiB".
std::string VerifyProgressLine(const v1::ModelVerification& progress);

// A row for each node, below it each file that is not as it should be, and what to do. `status`:
// names of nodes.
std::string VerifyView(const v1::ModelVerification& verification, const v1::ClusterStatus& status,
                       int width, const Style& style);

}  // namespace macrame::cli
