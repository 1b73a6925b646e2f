#include "runtime/model/cpu_kv_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

// Below this, huge pages would take more memory than they save time.
[[maybe_unused]] constexpr size_t kHugePagesFromBytes = size_t{64} << 20;

#ifdef MAP_NORESERVE
constexpr int kMapFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
constexpr int kMapFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif

}  // namespace

CpuKvBlocks::CpuKvBlocks(int layers, int blocks_total, const kernels::KvShape& shape)
    : shape_(shape),
      // A rank without key-value heads keeps nothing, but nothing can't be mapped.
      layer_bytes_(static_cast<size_t>(std::max(blocks_total, 1)) *
                   std::max<size_t>(1, kernels::BlockBytes(shape))) {
  layers_.reserve(static_cast<size_t>(layers));
  for (int layer = 0; layer < layers; ++layer) {
    void* memory = mmap(nullptr, layer_bytes_, PROT_READ | PROT_WRITE, kMapFlags, -1, 0);
    if (memory == MAP_FAILED) {
      for (void* mapped : layers_) munmap(mapped, layer_bytes_);
      throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    if (layer_bytes_ >= kHugePagesFromBytes) madvise(memory, layer_bytes_, MADV_HUGEPAGE);
#endif
    layers_.push_back(memory);
  }
}

CpuKvBlocks::~CpuKvBlocks() {
  for (void* memory : layers_) munmap(memory, layer_bytes_);
}

kernels::KvView CpuKvBlocks::Layer(int index) const {
  return {shape_, static_cast<std::byte*>(layers_[static_cast<size_t>(index)])};
}

void CpuKvBlocks::Read(int32_t block, std::span<std::byte> out) const {
  const size_t bytes = kernels::BlockBytes(shape_);
  MACRAME_CHECK(out.size() == bytes * layers_.size()) << out.size() << " bytes of a block";
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto* at =
        static_cast<const std::byte*>(layers_[layer]) + bytes * static_cast<size_t>(block);
    std::memcpy(out.data() + layer * bytes, at, bytes);
  }
}

void CpuKvBlocks::Write(int32_t block, std::span<const std::byte> from) const {
  const size_t bytes = kernels::BlockBytes(shape_);
  MACRAME_CHECK(from.size() == bytes * layers_.size()) << from.size() << " bytes of a block";
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    auto* at = static_cast<std::byte*>(layers_[layer]) + bytes * static_cast<size_t>(block);
    std::memcpy(at, from.data() + layer * bytes, bytes);
  }
}

}  // namespace macrame::runtime::engine
