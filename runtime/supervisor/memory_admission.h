#pragma once

// May a rank of this need come to this node now? Pure arithmetic.

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/bytes.h"

namespace macrame::runtime {

// The node's memory as the inventory and load have it, at the moment of an admission.
struct NodeMemory {
  Bytes usable;     // the most that models may take here in all
  Bytes available;  // free now; zero: not known
};

// A rank that was admitted before.
struct AdmittedRank {
  Bytes need;      // by its plan
  Bytes resident;  // what its process already holds of it
};

// OK when all needs together stay within `usable`, and what is not resident yet of them within
// `available`. Else RESOURCE_EXHAUSTED with MEMORY_SHORT and the figures.
absl::Status AdmitMemory(Bytes need, const std::vector<AdmittedRank>& admitted,
                         const NodeMemory& memory, const std::string& node_id);

}  // namespace macrame::runtime
