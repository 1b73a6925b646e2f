#pragma once

// What an honest node may say of its incarnation.

#include <cstdint>

namespace macrame::discovery {

// A node counts its starts from 1. One that claims more than this lies or is broken, and is not
// listened to: whoever believed it would take all that its peers say of it for old.
inline constexpr uint64_t kIncarnationMax = uint64_t{1} << 48;

}  // namespace macrame::discovery
