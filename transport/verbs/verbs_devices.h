#pragma once

// This machine's verbs devices, each really opened: one that is listed but can't be opened or gives
// no protection domain carries its fault. Any thread; blocks for as long as the driver does.

#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// nullopt when they could not be listed; `library_missing` is set when there is no libibverbs (on
// a Mac always). Interfaces and GID types are read below `root` ("": the machine's own /sys).
std::optional<std::vector<v1::RdmaDevice>> ListVerbsDevices(const std::string& root,
                                                            bool* library_missing);

}  // namespace macrame::transport
