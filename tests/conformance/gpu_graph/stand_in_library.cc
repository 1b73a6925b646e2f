// The stand-in GPU for a Python process: loaded by ctypes before mlx.core is imported, so that both
// have the same libmlx. Main thread.

#include <cstdio>
#include <exception>
#include <string>

#include "tests/conformance/gpu_graph/stand_in_gpu.h"

extern "C" {

// Whether this process has the GPU now; else a sentence is on standard error.
__attribute__((visibility("default"))) bool stand_in_begin() {
  try {
    macrame::gpu_graph::BeginStandInGpu();
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stand-in GPU: %s\n", error.what());
    return false;
  }
}

__attribute__((visibility("default"))) void stand_in_reset() { macrame::gpu_graph::ResetWork(); }

// The work since the last reset as JSON; valid until the next call.
__attribute__((visibility("default"))) const char* stand_in_work() {
  static std::string text;
  const macrame::gpu_graph::DeviceWork& work = macrame::gpu_graph::WorkSoFar();
  text = "{\"operations\": " + std::to_string(work.work()) +
         ", \"views\": " + std::to_string(work.all() - work.work()) +
         ", \"scatters\": " + std::to_string(work.scatters()) +
         ", \"host_arrays\": " + std::to_string(work.host_arrays) +
         ", \"host_bytes\": " + std::to_string(work.host_bytes) +
         ", \"expert_products\": " + std::to_string(work.expert_products) +
         ", \"sorted_expert_products\": " + std::to_string(work.sorted_expert_products) + "}";
  return text.c_str();
}

}  // extern "C"
