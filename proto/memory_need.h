#pragma once

// Sums over a rank's planned memory (v1::MemoryNeed). Pure.

#include "macrame/v1/plan.pb.h"
#include "proto/bytes.h"

namespace macrame {

// What a rank on a GPU keeps resident for it: weights, KV cache, recurrent states, activations, and
// all that its draft model takes. The process itself and headroom are not in it. The largest number
// where the sum is beyond all numbers: a plan comes from another node.
Bytes WiredBytes(const v1::MemoryNeed& need);

}  // namespace macrame
