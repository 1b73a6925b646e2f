#pragma once

// For processes that work on what others made and are there to be ended by it.

#include <cstdint>
#include <string_view>

namespace macrame::runtime::engine {

// From here on this process ends with kExitOutOfMemory, and a line on stderr that says what takes
// that much, once more than `memory_mib` of it are resident.
void BoundMemory(uint64_t memory_mib, std::string_view what);

}  // namespace macrame::runtime::engine
