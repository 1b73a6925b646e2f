#include "tests/unit/runtime/model/mlx/buffer_cache_model.h"

#include <algorithm>

namespace macrame::tests {

void BufferCacheModel::Drop(std::multimap<uint64_t, Freed::iterator>::iterator buffer) {
  cached_ -= buffer->first;
  freed_.erase(buffer->second);
  by_size_.erase(buffer);
}

void BufferCacheModel::Clear() {
  freed_.clear();
  by_size_.clear();
  cached_ = 0;
}

// The oldest go first; where nearly all must go, all do.
void BufferCacheModel::GiveBack(uint64_t bytes) {
  if (static_cast<double>(bytes) >= 0.9 * static_cast<double>(cached_)) return Clear();
  for (uint64_t given = 0; given < bytes && !freed_.empty();) {
    const uint64_t size = freed_.front();
    auto buffer = by_size_.lower_bound(size);
    while (buffer->second != freed_.begin()) ++buffer;
    Drop(buffer);
    given += size;
  }
}

uint64_t BufferCacheModel::Allocate(uint64_t bytes) {
  if (bytes > kPageBytes) bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const auto fit = by_size_.lower_bound(bytes);
  if (fit != by_size_.end() && fit->first < std::min(2 * bytes, bytes + 2 * kPageBytes)) {
    bytes = fit->first;
    Drop(fit);
  } else if (const uint64_t wanted = active_ + cached_ + bytes; wanted >= collect_limit_) {
    GiveBack(wanted - collect_limit_);
  }
  active_ += bytes;
  if (cached_ > cache_limit_) GiveBack(cached_ - cache_limit_);
  return bytes;
}

void BufferCacheModel::Free(uint64_t size) {
  active_ -= size;
  if (cached_ >= cache_limit_) return;
  cached_ += size;
  by_size_.emplace(size, freed_.insert(freed_.end(), size));
}

}  // namespace macrame::tests
