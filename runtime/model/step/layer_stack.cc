#include "runtime/model/step/layer_stack.h"

#include "proto/check.h"

namespace macrame::runtime::engine {

void LayerStack::ReadBlocks(std::span<const int32_t> blocks,
                            std::span<const std::span<std::byte>> out) const {
  for (size_t i = 0; i < blocks.size(); ++i) ReadBlock(blocks[i], out[i]);
}

void LayerStack::WriteBlocks(std::span<const int32_t> blocks,
                             std::span<const std::span<const std::byte>> bytes) {
  for (size_t i = 0; i < blocks.size(); ++i) WriteBlock(blocks[i], bytes[i]);
}

mlx::core::array LayerStack::EmbedChosen(std::span<const int32_t> tokens, const mlx::core::array&) {
  MACRAME_CHECK(false) << "these layers choose no tokens";
  return Embed(tokens);
}

mlx::core::array LayerStack::Choose(const mlx::core::array& logits, std::span<const RowChoice>) {
  MACRAME_CHECK(false) << "these layers choose no tokens";
  return logits;
}

mlx::core::array LayerStack::WholeLogits(const mlx::core::array& logits) {
  MACRAME_CHECK(false) << "these layers choose no tokens";
  return logits;
}

}  // namespace macrame::runtime::engine
