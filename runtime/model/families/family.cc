#include "runtime/model/families/family.h"
#include "runtime/model/families/config_file.h"

#include <array>

namespace macrame::runtime::engine {
namespace {

constexpr Family kFamilies[] = {
    {"llama", ReadLlamaLayers},
    {"mistral", ReadMistral},
    {"qwen2", ReadQwen2},
    {"qwen3", ReadQwen3},
    {"qwen2_moe", ReadQwen2Moe},
    {"qwen3_moe", ReadQwen3Moe},
    {"qwen3_next", ReadQwen3Next},
    {"qwen3_5", ReadQwen35},
    {"qwen3_5_moe", ReadQwen35},
    {"nemotron_h", ReadNemotronH},
    {"mixtral", ReadMixtral},
    {"ministral3", ReadMinistral3},
    {"mistral3", ReadMistral3},
    {"phi3", ReadPhi3},
    {"gemma3_text", ReadGemma3Text},
    {"gemma3", ReadGemma3},
    {"gemma4_text", ReadGemma4Text},
    {"gemma4", ReadGemma4},
    {"gemma4_unified", ReadGemma4},  // without towers
    {"glm4", ReadGlm4},
    {"glm4_moe", ReadGlm4Moe},
    {"minimax", ReadMiniMax},
    {"minimax_m2", ReadMiniMax},
    {"minimax_m3_vl", ReadMiniMaxM3},
    {"olmo2", ReadOlmo2},
    {"olmoe", ReadOlmoe},
    {"granite", ReadGranite},
    {"smollm3", ReadSmolLm3},
    {"seed_oss", ReadSeedOss},
    {"ernie4_5", ReadErnie},
    {"gpt_oss", ReadGptOss},
    {"deepseek_v2", ReadDeepseekV2},
    {"deepseek_v3", ReadDeepseekV3},
    {"kimi_k2", ReadDeepseekV3},
    {"deepseek_v32", ReadSparse},
    {"glm_moe_dsa", ReadSparse},
    {"deepseek_v41", ReadDeepseekV41},
    {"kimi_k25", ReadKimiK25},
    {"glm4_moe_lite", ReadGlm4MoeLite},
    {"exaone4", ReadExaone4},
    {"mimo", ReadQwen2},
    {"olmo3", ReadOlmo3},
    {"dots1", ReadDots1},
    {"solar_open", ReadSolarOpen},
    {"exaone_moe", ReadExaoneMoe},
    {"qwen3_vl", ReadQwen3Vl},
    {"qwen3_vl_moe", ReadQwen3VlMoe},
    {"kimi_vl", ReadKimiK25},
    {"youtu_llm", ReadYoutu},
    {"internlm3", ReadInternLm3},
    {"helium", ReadHelium},
    {"minicpm", ReadMiniCpm},
};

// Other names of families: what is written when the text model alone is saved, and names that
// mlx-lm's table maps to the same code.
struct OtherName {
  std::string_view model_type;
  std::string_view family;
};
constexpr OtherName kOtherNames[] = {
    {"qwen3_5_text", "qwen3_5"},
    {"qwen3_5_moe_text", "qwen3_5_moe"},
    {"qwen3_vl_text", "qwen3_vl"},
    {"qwen3_vl_moe_text", "qwen3_vl_moe"},
    {"deepseek_v41_text", "deepseek_v41"},
    {"gemma4_unified_text", "gemma4_text"},
    {"minimax_m3_vl_text", "minimax_m3_vl"},
    {"minimax_m3", "minimax_m3_vl"},
    {"iquestcoder", "llama"},
    {"xverse", "llama"},
    {"joyai_llm_flash", "deepseek_v3"},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family* FindFamily(std::string_view model_type) {
  for (const OtherName& other : kOtherNames) {
    if (other.model_type == model_type) model_type = other.family;
  }
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::span<const std::string_view> KnownFamilies() {
  static const auto names = [] {
    std::array<std::string_view, std::size(kFamilies)> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = kFamilies[i].model_type;
    return all;
  }();
  return names;
}

}  // namespace macrame::runtime::engine
