#pragma once

// Element-wise reduction of equally long arrays. Pure.

#include <cstddef>
#include <span>

#include "transport/collectives/group.h"

namespace macrame::transport {

// out[i] = parts[0][i] ∘ parts[1][i] ∘ …, in this order. `out` may be one of the parts. At least
// one part. 16-bit floats: in float32, rounded once to nearest even. Booleans: sum and max are or,
// min is and. Complex numbers: sum only; max and min give the first part.
void Reduce(std::span<const void* const> parts, void* out, size_t count, Element element,
            Reduction reduction);

}  // namespace macrame::transport
