#include "runtime/second_engine/engine_facts.h"

#include <nlohmann/json.hpp>

namespace macrame::runtime {
namespace {

using nlohmann::json;

// The ways to share a model out, a bit each.
int BitsOf(const v1::ServedSplits& splits) {
  return (splits.tensor() ? 1 : 0) | (splits.uneven_tensor() ? 2 : 0) |
         (splits.pipeline() ? 4 : 0) | (splits.tensor_in_pipeline() ? 8 : 0);
}

v1::ServedSplits SplitsOf(int bits) {
  v1::ServedSplits splits;
  splits.set_tensor((bits & 1) != 0);
  splits.set_uneven_tensor((bits & 2) != 0);
  splits.set_pipeline((bits & 4) != 0);
  splits.set_tensor_in_pipeline((bits & 8) != 0);
  return splits;
}

}  // namespace

std::string SecondEngineText(const SecondEngine& second) {
  json text = {{"why_not", second.why_not}};
  if (second.mlx_lm.has_value()) {
    text["python"] = second.mlx_lm->python;
    text["version"] = second.mlx_lm->version;
    text["device"] = second.mlx_lm->device;
    text["architectures"] = json::object();
    for (const auto& [name, splits] : second.mlx_lm->architectures) {
      text["architectures"][name] = BitsOf(splits);
    }
  }
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<SecondEngine> ParseSecondEngine(const std::string& text) {
  const json facts = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [&](const char* key) {
    return facts.contains(key) && facts[key].is_string();
  };
  if (!facts.is_object() || !is_text("why_not")) return std::nullopt;
  SecondEngine second;
  second.why_not = facts["why_not"].get<std::string>();
  if (!facts.contains("python")) return second;
  if (!is_text("python") || !is_text("version") || !is_text("device")) return std::nullopt;
  if (!facts.contains("architectures") || !facts["architectures"].is_object()) return std::nullopt;
  MlxLm mlx_lm;
  mlx_lm.python = facts["python"].get<std::string>();
  mlx_lm.version = facts["version"].get<std::string>();
  mlx_lm.device = facts["device"].get<std::string>();
  for (const auto& [name, bits] : facts["architectures"].items()) {
    if (!bits.is_number_integer()) return std::nullopt;
    mlx_lm.architectures[name] = SplitsOf(bits.get<int>());
  }
  second.mlx_lm = std::move(mlx_lm);
  return second;
}

}  // namespace macrame::runtime
