#include "proto/memory_need.h"

#include <algorithm>
#include <limits>

namespace macrame {

Bytes WiredBytes(const v1::MemoryNeed& need) {
  uint64_t sum = 0;
  for (const uint64_t part :
       {need.weights_bytes(), need.embedding_bytes(), need.head_bytes(), need.kv_cache_bytes(),
        need.state_bytes(), need.activation_bytes(), need.draft_bytes()}) {
    sum += std::min(part, std::numeric_limits<uint64_t>::max() - sum);
  }
  return Bytes(sum);
}

}  // namespace macrame
