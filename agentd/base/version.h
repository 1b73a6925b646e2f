#pragma once

// What this agent says that it is. The build hands both in.

namespace macrame::agentd {

#ifndef MACRAME_VERSION
#define MACRAME_VERSION "0.0.0"
#endif
#ifndef MACRAME_MLX_VERSION
#define MACRAME_MLX_VERSION "unknown"
#endif

inline constexpr char kAgentVersion[] = MACRAME_VERSION;
inline constexpr char kMlxVersion[] = MACRAME_MLX_VERSION;

}  // namespace macrame::agentd
