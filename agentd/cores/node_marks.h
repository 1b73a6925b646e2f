#pragma once

// What an order to label or to dedicate a node changes. Pure.

#include <string>

#include "absl/status/statusor.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::agentd {

inline constexpr size_t kLabelBytesMax = 63;    // of a key, of a value
inline constexpr size_t kTenantBytesMax = 100;  // as of a key of the HTTP API
inline constexpr int kLabelsMax = 32;           // of a node

struct MarksChange {
  std::string value;  // a v1::NodeMarks, to be written; empty: the key is removed
  v1::MarkNodeResponse response;
};

// `present`: null when nothing is said of the node. INVALID_ARGUMENT with BAD_REQUEST: a key or a
// value is too long or has other characters than letters, digits, '.', '_', '-' (keys: and '/'), a
// tenant is no line of text, or the node would have too many labels.
absl::StatusOr<MarksChange> DecideMarks(const v1::MarkNodeRequest& request,
                                        const v1::NodeMarks* present);

}  // namespace macrame::agentd
