#pragma once

#include <cstdint>

namespace macrame::transport {

// Raises this process's limit of open descriptors to what the system allows, at most
// kDescriptorsWanted:
// launchd starts programs with 256, shells with 1024. Returns the limit in force. What it starts
// inherits it.
uint64_t RaiseDescriptorLimit();

inline constexpr uint64_t kDescriptorsWanted = 16'384;

}  // namespace macrame::transport
