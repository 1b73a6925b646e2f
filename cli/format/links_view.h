#pragma once

// Links as people read them: `links`, `links bench`, `stats`. Pure: message and width in, text out.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/link.pb.h"

namespace macrame::cli {

// Round trips of small messages over TCP that are suspicious above this, microseconds.
inline constexpr double kTcpSuspiciousUs = 300;

// Paths between all pairs, then each link with its verdict, then what all nodes can run together.
// `node_id` empty: all; else the links of that node. `detail`: each node's ports, and the
// firmware of those that told it, as well.
std::string LinksText(const v1::LinksView& view, const std::string& node_id, bool detail, int width,
                      const Style& style);

// One measurement, one line; names by node id.
std::string MeasurementLine(const v1::LinkMeasurement& measured, const v1::LinksView& view);

// Round trips idle and under load, bytes and failures of each measured pair.
std::string NetworkStatsText(const v1::LinksView& view, int width, const Style& style);

// "mini-1"; the start of the id when the name is not known.
std::string NameIn(const v1::LinksView& view, const std::string& node_id);

}  // namespace macrame::cli
