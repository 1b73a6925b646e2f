#pragma once

// What macOS's `sample` prints of a running process, searched for the calls that tell why a rank
// stands still. Pure: any bytes in, nothing is thrown, and what comes out is bounded.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace macrame::runtime {

inline constexpr size_t kStackSampleBytesMax = size_t{256} << 10;  // the rest is not read
inline constexpr size_t kTellingCallsMax = 6;

// The call by which MLX waits for the GPU in its fast way.
inline constexpr char kFenceWait[] = "Fence::wait";

// Calls of the call graph in which MLX waits for the GPU, or which are RDMA's (ibv_*, and tbt_* of
// Thunderbolt), each once, in that order: "mlx::core::Fence::wait(…) (in libmlx.dylib)".
std::vector<std::string> TellingCalls(std::string_view sample);

}  // namespace macrame::runtime
