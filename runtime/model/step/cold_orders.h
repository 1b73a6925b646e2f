#pragma once

// What rank 0 orders of the cold tier, in which KV blocks stand on disk (serving/cold/). Pure
// values. Orders are carried out where they stand among the steps: what is stored is as the steps
// before, and the fills of the same orders, have left it; what is filled is there for those behind.

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/model/step/forward_step.h"

namespace macrame::runtime::engine {

using BlockId = int32_t;
using BlockTokens = std::array<int32_t, kBlockTokens>;
using BlockName = std::array<uint8_t, 32>;

// A block by what it holds: its tokens behind its parent's. `depth`: how many blocks before it.
struct ColdBlock {
  BlockName parent{};
  BlockTokens tokens{};
  uint32_t depth = 0;
  bool operator==(const ColdBlock&) const = default;
};

struct ColdStore {
  BlockId block = -1;
  ColdBlock content;
  bool operator==(const ColdStore&) const = default;
};

// A run of blocks, each behind the one before, to be read into memory beside the KV cache. Each
// rank reports how many it has.
struct ColdLoad {
  uint64_t id = 0;
  BlockName parent{};
  uint32_t depth = 0;
  std::vector<int32_t> tokens{};  // whole blocks
  bool operator==(const ColdLoad&) const = default;
};

// The first blocks of a load that every rank has are copied to these; none: it is given up.
struct ColdFill {
  uint64_t id = 0;
  std::vector<int32_t> blocks{};
  bool operator==(const ColdFill&) const = default;
};

// Carried out in this order.
struct ColdOrders {
  std::vector<ColdFill> fills{};
  std::vector<ColdStore> stores{};
  std::vector<BlockName> drops{};    // one rank can't use it: no use to the others
  std::vector<BlockName> touches{};  // were used, in the order of a conversation
  std::vector<ColdLoad> loads{};
  bool empty() const {
    return stores.empty() && fills.empty() && drops.empty() && touches.empty() && loads.empty();
  }
  bool operator==(const ColdOrders&) const = default;
};

}  // namespace macrame::runtime::engine
