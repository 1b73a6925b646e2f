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
  // A shape for each layer. Throws std::bad_alloc when the system refuses the addresses.
  CpuKvBlocks(int blocks_total, std::vector<kernels::KvShape> shapes);
  ~CpuKvBlocks();
  CpuKvBlocks(const CpuKvBlocks&) = delete;
  CpuKvBlocks& operator=(const CpuKvBlocks&) = delete;

  kernels::KvView Layer(int index) const;
  const std::vector<kernels::KvShape>& shapes() const { return shapes_; }
  // Of a block in all layers.
  size_t block_bytes() const;
  // A block in all layers, one after the other.
  void Read(int32_t block, std::span<std::byte> out) const;
  void Write(int32_t block, std::span<const std::byte> bytes) const;

 private:
  size_t LayerBytes(size_t layer) const;

  const std::vector<kernels::KvShape> shapes_;
  const size_t blocks_total_;
  std::vector<void*> layers_;
};

}  // namespace macrame::runtime::engine
