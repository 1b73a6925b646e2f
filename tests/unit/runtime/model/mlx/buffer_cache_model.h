#pragma once

// A model of how MLX keeps freed Metal buffers for reuse (its buffer cache and Metal allocator), by
// their sizes alone: 4,096 tokens of a large model take a second here and no GPU.

#include <cstdint>
#include <list>
#include <map>

namespace macrame::tests {

class BufferCacheModel {
 public:
  static constexpr uint64_t kPageBytes = 16 << 10;

  // All in bytes. `cache_limit`: freed buffers are kept until they are more. `collect_limit`: a new
  // buffer that would bring all of them to so much first gives back freed ones.
  BufferCacheModel(uint64_t cache_limit, uint64_t collect_limit)
      : cache_limit_(cache_limit), collect_limit_(collect_limit) {}

  void SetCacheLimit(uint64_t bytes) { cache_limit_ = bytes; }
  void SetCollectLimit(uint64_t bytes) { collect_limit_ = bytes; }

  // The size of the buffer that is given, which may be a larger one that was freed before.
  uint64_t Allocate(uint64_t bytes);
  // `size`: as Allocate returned it.
  void Free(uint64_t size);
  void Clear();

  uint64_t active_bytes() const { return active_; }
  uint64_t cached_bytes() const { return cached_; }

 private:
  using Freed = std::list<uint64_t>;  // sizes, oldest first
  void GiveBack(uint64_t bytes);
  void Drop(std::multimap<uint64_t, Freed::iterator>::iterator buffer);

  uint64_t cache_limit_, collect_limit_;
  uint64_t active_ = 0, cached_ = 0;
  Freed freed_;
  std::multimap<uint64_t, Freed::iterator> by_size_;
};

}  // namespace macrame::tests
