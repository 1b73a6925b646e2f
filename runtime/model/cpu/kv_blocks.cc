#include "runtime/model/cpu/kv_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

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

CpuKvBlocks::CpuKvBlocks(int blocks_total, std::vector<kernels::KvShape> shapes)
    : shapes_(std::move(shapes)), blocks_total_(static_cast<size_t>(std::max(blocks_total, 1))) {
  layers_.reserve(shapes_.size());
  for (size_t layer = 0; layer < shapes_.size(); ++layer) {
    const size_t bytes = LayerBytes(layer);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kMapFlags, -1, 0);
    if (memory == MAP_FAILED) {
      for (size_t i = 0; i < layers_.size(); ++i) munmap(layers_[i], LayerBytes(i));
      throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    if (bytes >= kHugePagesFromBytes) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    layers_.push_back(memory);
  }
}

CpuKvBlocks::~CpuKvBlocks() {
  for (size_t i = 0; i < layers_.size(); ++i) munmap(layers_[i], LayerBytes(i));
}

// A rank without key-value heads keeps nothing, but nothing can't be mapped.
size_t CpuKvBlocks::LayerBytes(size_t layer) const {
  return blocks_total_ * std::max<size_t>(1, kernels::BlockBytes(shapes_[layer]));
}

size_t CpuKvBlocks::block_bytes() const {
  size_t bytes = 0;
  for (const kernels::KvShape& shape : shapes_) bytes += kernels::BlockBytes(shape);
  return bytes;
}

kernels::KvView CpuKvBlocks::Layer(int index) const {
  const auto layer = static_cast<size_t>(index);
  return {shapes_[layer], static_cast<std::byte*>(layers_[layer])};
}

void CpuKvBlocks::Read(int32_t block, std::span<std::byte> out) const {
  MACRAME_CHECK(out.size() == block_bytes()) << out.size() << " bytes of a block";
  std::byte* to = out.data();
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const size_t bytes = kernels::BlockBytes(shapes_[layer]);
    const auto* at =
        static_cast<const std::byte*>(layers_[layer]) + bytes * static_cast<size_t>(block);
    std::memcpy(to, at, bytes);
    to += bytes;
  }
}

void CpuKvBlocks::Write(int32_t block, std::span<const std::byte> from) const {
  MACRAME_CHECK(from.size() == block_bytes()) << from.size() << " bytes of a block";
  const std::byte* source = from.data();
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    const size_t bytes = kernels::BlockBytes(shapes_[layer]);
    auto* at = static_cast<std::byte*>(layers_[layer]) + bytes * static_cast<size_t>(block);
    std::memcpy(at, source, bytes);
    source += bytes;
  }
}

}  // namespace macrame::runtime::engine
