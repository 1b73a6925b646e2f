#pragma once

// Sums over a rank's planned memory (v1::MemoryNeed). Pure.

#include "macrame/v1/plan.pb.h"
#include "proto/bytes.h"

namespace macrame {

// What a rank on a GPU keeps resident for it: weights, KV cache, recurrent states, activations. The
// process itself, headroom and a draft model (which runs on the CPU) are not in it. The largest
// number where the sum is beyond all numbers: a plan comes from another node.
Bytes WiredBytes(const v1::MemoryNeed& need);

}  // namespace macrame
