#pragma once

// `rankd --describe FOLDER`: what a model's folder holds, by a process that ends when the folder
// asks for too much. Agents and clusterctl look at models that others made through it.

#include <cstdint>
#include <string>

namespace macrame::runtime::engine {

// What looking at one folder may take, unless told otherwise. Beyond, the process ends with
// kExitOutOfMemory and a line that says so. Who starts it bounds the time.
inline constexpr uint64_t kDescribeMibMax = 1024;

struct DescribeOptions {
  std::string folder;
  std::string python;         // asked where rankd does not know the architecture
  std::string second_engine;  // instead: what is known of it (second_engine/engine_facts.h)
  uint64_t memory_mib = kDescribeMibMax;
};

// Writes a macrame.v1.ModelFolderAnswer to stdout. The exit code.
int RunDescribeCommand(const DescribeOptions& options);

}  // namespace macrame::runtime::engine
