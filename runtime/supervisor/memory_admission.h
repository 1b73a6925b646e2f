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
  // What the node's GPU can keep resident for all processes together; zero: ranks have no GPU here.
  Bytes working_set{};
};

// A rank that was admitted before.
struct AdmittedRank {
  Bytes need;      // by its plan
  Bytes resident;  // what its process already holds of it
  Bytes wired{};   // what it keeps resident for the GPU, where there is one (proto/memory_need.h)
};

// OK when all needs together stay within `usable`, and what is not resident yet of them within
// `available`. Else RESOURCE_EXHAUSTED with MEMORY_SHORT and the figures.
absl::Status AdmitMemory(Bytes need, const std::vector<AdmittedRank>& admitted,
                         const NodeMemory& memory, const std::string& node_id);

// A rank that is to come, as people know it.
struct NewRank {
  std::string model;
  std::string hostname;  // of its node; may be empty
  std::string node_id;
  Bytes wired;
};

// OK when what all ranks keep resident for the GPU, the new one included, stays within the working
// set: each process may wire its own plan, and macOS panics when all of them together wire more. OK
// without a GPU. Else RESOURCE_EXHAUSTED with MEMORY_SHORT, which names node, model and bytes.
absl::Status AdmitWired(const NewRank& rank, const std::vector<AdmittedRank>& admitted,
                        const NodeMemory& memory);

}  // namespace macrame::runtime
