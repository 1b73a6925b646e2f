#include "proto/model_aliases.h"

#include <array>

#include "absl/strings/match.h"

namespace macrame {
namespace {

constexpr std::array kAliases = {
    ModelAlias{"mistral-7b-instruct", "mlx-community/Mistral-7B-Instruct-v0.3-4bit"},
    ModelAlias{"mistral-7b", "mlx-community/Mistral-7B-Instruct-v0.3-4bit"},
    ModelAlias{"deepseek-v3.1-8bit", "mlx-community/DeepSeek-V3.1-8bit"},
    ModelAlias{"deepseek-v3.1-4bit", "mlx-community/DeepSeek-V3.1-4bit"},
    ModelAlias{"deepseek-v3.1", "mlx-community/DeepSeek-V3.1-4bit"},
    ModelAlias{"kimmi-k2-1t-moe", "mlx-community/Kimi-K2-Instruct-4bit"},
    ModelAlias{"kimi-k2-1t-moe", "mlx-community/Kimi-K2-Instruct-4bit"},
    ModelAlias{"kimi-k2", "mlx-community/Kimi-K2-Instruct-4bit"},
    ModelAlias{"kimmi-k2", "mlx-community/Kimi-K2-Instruct-4bit"},
    ModelAlias{"kimi-k2-thinking", "mlx-community/Kimi-K2-Thinking"},
    ModelAlias{"qwen-480b-coder", "mlx-community/Qwen3-Coder-480B-A35B-Instruct-4bit"},
    ModelAlias{"quen-480b-coder", "mlx-community/Qwen3-Coder-480B-A35B-Instruct-4bit"},
    ModelAlias{"qwen3-235b", "mlx-community/Qwen3-235B-A22B-8bit"},
    ModelAlias{"qwen2.5-coder", "Qwen/Qwen2.5-Coder-32B"},
    ModelAlias{"qwen-2.5-coder", "Qwen/Qwen2.5-Coder-32B"},
    ModelAlias{"llama-3.1-405b", "mlx-community/Meta-Llama-3.1-405B-4bit"},
    ModelAlias{"minimax-m2.5", "mlx-community/MiniMax-M2.5-6bit"},
};

}  // namespace

std::span<const ModelAlias> ModelAliases() { return kAliases; }

std::string_view HubIdOfAlias(std::string_view name) {
  for (const ModelAlias& known : kAliases) {
    if (absl::EqualsIgnoreCase(absl::string_view(name.data(), name.size()),
                               absl::string_view(known.name.data(), known.name.size()))) {
      return known.hub_id;
    }
  }
  return {};
}

}  // namespace macrame
