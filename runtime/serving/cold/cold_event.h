#pragma once

// What a rank's cold worker has to tell. Pure values.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/step/cold_orders.h"

namespace macrame::runtime::engine {

struct ColdEvent {
  enum class Kind : uint8_t {
    kListed,   // `names` are on disk; once, at the start
    kStored,   // names[0] is on disk
    kRefused,  // names[0] could not be written, or there was no place in the queue
    kRemoved,  // `names` are no longer on disk
    kLoaded,   // of load `id`, the first `blocks` are in memory
    kOff,      // this rank has no cold tier: `text` says why
  };
  Kind kind = Kind::kListed;
  uint32_t rank = 0;
  std::vector<BlockName> names{};
  uint64_t id = 0;
  uint32_t blocks = 0;
  std::string text{};
};

}  // namespace macrame::runtime::engine
