#include "runtime/model/step/layer_stack.h"

#include "proto/check.h"

namespace macrame::runtime::engine {

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
