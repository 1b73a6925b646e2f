#pragma once

// Keys and values of all sequences of a rank for the CPU kernels (kernels/kv_view.h): one stretch
// of memory a layer, for all blocks. The system gives the pages of a block when it is first
// written, so what is used follows the highest block in use. Engine thread only.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/kv_view.h"

namespace macrame::runtime::engine {

class CpuKvBlocks {
 public:
  // Throws std::bad_alloc when the system refuses the addresses.
  CpuKvBlocks(int layers, int blocks_total, const kernels::KvShape& shape);
  ~CpuKvBlocks();
  CpuKvBlocks(const CpuKvBlocks&) = delete;
  CpuKvBlocks& operator=(const CpuKvBlocks&) = delete;

  kernels::KvView Layer(int index) const;
  const kernels::KvShape& shape() const { return shape_; }
  // A block in all layers, one after the other.
  void Read(int32_t block, std::span<std::byte> out) const;
  void Write(int32_t block, std::span<const std::byte> bytes) const;

 private:
  const kernels::KvShape shape_;
  const size_t layer_bytes_;
  std::vector<void*> layers_;
};

}  // namespace macrame::runtime::engine
