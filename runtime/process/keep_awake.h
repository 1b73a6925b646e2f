#pragma once

// Keeps this machine from sleeping for as long as this process runs. Any thread.

#include <string>

#include "absl/status/status.h"

namespace macrame::runtime::engine {

// Part of every macOS (caffeinate(8)).
inline constexpr char kCaffeinate[] = "/usr/bin/caffeinate";

// Starts `program`, which is caffeinate or takes its options, with -s and -w: it waits for the end
// of this process, however that comes, and ends itself, so nobody has to stop it. -s counts on
// mains power alone: a Mac on its battery goes on sleeping as its owner set it. It inherits no
// descriptor and is in this process's group. An error when it can't be started.
absl::Status KeepAwakeWhileRunning(const std::string& program);

}  // namespace macrame::runtime::engine
