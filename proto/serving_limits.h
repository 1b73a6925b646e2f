#pragma once

// What the agents plan with and the ranks do: limits that both sides must know.

#include <cstdint>

namespace macrame {

// Answers that one gang gives at the same time, memory allowing; further requests wait.
inline constexpr uint32_t kAnsweredAtOnceMax = 16;

// Bits of a number in the KV cache that a deployment may ask for. The default is 32 for a model in
// float32; the fewest are for ranks that compute on a GPU.
inline constexpr uint32_t kKvBitsDefault = 16;
inline constexpr uint32_t kKvBitsNarrow = 8;
inline constexpr uint32_t kKvBitsFewest = 4;
constexpr bool MayHaveKvBits(uint32_t bits) {
  return bits == kKvBitsDefault || bits == kKvBitsNarrow || bits == kKvBitsFewest;
}

// States of recurrent layers that a rank keeps for prompts with a known beginning, where the model
// has such layers: as many as a plan counts.
inline constexpr uint32_t kStateSnapshotsDefault = 8;

}  // namespace macrame
