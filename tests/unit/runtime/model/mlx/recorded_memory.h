#pragma once

// MLX's memory calls, written down.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/model/mlx/device_memory.h"

namespace macrame::runtime::engine {

class RecordedMemory : public DeviceMemory {
 public:
  explicit RecordedMemory(std::optional<uint64_t> working_set = std::nullopt)
      : working_set_(working_set) {}

  std::optional<uint64_t> WorkingSetBytes() override { return working_set_; }
  void SetWiredLimit(uint64_t bytes) override { calls.push_back(absl::StrCat("wired ", bytes)); }
  void SetMemoryLimit(uint64_t bytes) override { calls.push_back(absl::StrCat("memory ", bytes)); }
  void SetCacheLimit(uint64_t bytes) override { calls.push_back(absl::StrCat("cache ", bytes)); }
  void ClearCache() override { calls.emplace_back("clear"); }
  uint64_t HeldBytes() override { return held; }

  std::vector<std::string> calls;
  uint64_t held = 0;

 private:
  const std::optional<uint64_t> working_set_;
};

}  // namespace macrame::runtime::engine
