#pragma once

// Fields of a config.json, read and checked: what the families' read functions are made of. A field
// that is null counts as missing. All throw ConfigError.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

inline constexpr int kLayersMax = 4096;
inline constexpr int kDimensionMax = 1 << 24;
inline constexpr int kExpertsMax = 4096;

// ParseModelConfig turns it into a status with `code` as its reason.
struct ConfigError {
  std::string code;
  std::string message;
  std::string remedy{};  // empty: the code's own
};

// MODEL_CONFIG_INVALID: the file contradicts itself or lacks something.
[[noreturn]] void Invalid(std::string message);
// MODEL_FORMAT_UNSUPPORTED: it is well-formed, but the engine has no such thing.
[[noreturn]] void Unsupported(std::string message);

// Null when it is missing.
const nlohmann::json* FindField(const nlohmann::json& config, const char* key);
// A whole number of [minimum, kDimensionMax].
int ReadInt(const nlohmann::json& config, const char* key, std::optional<int> fallback,
            int minimum = 1);
// Above zero.
double ReadNumber(const nlohmann::json& config, const char* key, std::optional<double> fallback);
// Zero or above.
double ReadNumberFromZero(const nlohmann::json& config, const char* key, double fallback);
bool ReadBool(const nlohmann::json& config, const char* key, bool fallback);
std::string ReadText(const nlohmann::json& config, const char* key, const std::string& fallback);
// By layer, of a list of as many true, false or whole numbers: those that are not zero. Unset when
// it is missing.
std::optional<std::vector<bool>> ReadFlags(const nlohmann::json& config, const char* key,
                                           int layers);

// As Gemma multiplies embeddings by it, whatever the model's type.
float RoundedToBfloat16(double value);

// The sizes that all families name alike, how norms are stabilised, the activation, the rotary
// form, and that embeddings are tied.
void ReadFrame(const nlohmann::json& config, ModelConfig& out);
// "hidden_act" or "hidden_activation": MODEL_FORMAT_UNSUPPORTED if it is none that the engine has.
Activation ReadActivation(const nlohmann::json& config, const char* fallback = "silu");
// "text_config" of a checkpoint that has other parts too, or the whole config where the text model
// was saved by itself (its "model_type" ends in "_text", or there are layers beside no
// "text_config"); missing fields are from `defaults`.
nlohmann::json TextConfig(const nlohmann::json& config,
                          const nlohmann::json& defaults = nlohmann::json::object());
// "sliding_window" for the layers that "layer_types" names, or else for those from `first` on.
void ReadSlidingWindows(const nlohmann::json& config, int first, ModelConfig& out);
// "sliding_window" for all layers but every `pattern`th.
void ReadPeriodicWindows(const nlohmann::json& config, int pattern, ModelConfig& out);
// EXAONE's windows, whose layers alone turn their heads: as "layer_types" says, or by
// "sliding_window_pattern", "LLLG" or 4: three local layers, a global one, over and over
// (exaone.cc).
void ReadExaoneWindows(const nlohmann::json& config, int pattern_unless_said, ModelConfig& out);
// MODEL_FORMAT_UNSUPPORTED unless it is missing or `only`: a router's choice that the engine has
// but one of.
void ExpectText(const nlohmann::json& config, const char* key, const std::string& only);
// "n_group" and "topk_group"; experts.count and .active must be there.
void ReadExpertGroups(const nlohmann::json& config, ExpertTraits& experts);
// Those that every token takes, "n_shared_experts" of experts.width each, without a gate.
void ReadSharedExperts(const nlohmann::json& config, ExpertTraits& experts);
// Mixtral's and MiniMax' sizes and names: "num_local_experts", each as wide as the layer's
// "intermediate_size", with w1, w3 and w2.
void ReadBlockSparseExperts(const nlohmann::json& config, ExpertTraits& experts);
// That the sizes of layers with a state fit each other; the keys are those that said them.
void CheckRecurrent(const char* value_heads, const char* key_heads, const char* taps,
                    const RecurrentTraits& traits);
// How many experts a token takes; out.experts.count must be there. Layers from `first` on have
// them.
void ReadActiveExperts(const nlohmann::json& config, ModelConfig& out, int first = 0);

}  // namespace macrame::runtime::engine
