#pragma once

// What a stage of some layers costs is the same for all ranges of layers that are alike. Pure.

#include <cstdint>
#include <vector>

#include "macrame/v1/model.pb.h"

namespace macrame::planner {

// Ranges of layers that are alike in everything but their place have one key: how many layers of
// each kind they hold, and whether the first and the last are among them.
class RangeKeys {
 public:
  explicit RangeKeys(const v1::ModelDescription& model);
  uint64_t Of(uint32_t begin, uint32_t end) const;

 private:
  std::vector<uint32_t> kinds_;
  std::vector<uint64_t> before_;
  bool usable_ = false;
};

}  // namespace macrame::planner
