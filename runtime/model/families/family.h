#pragma once

// The families of models that the engine serves: for each "model_type" the function that turns its
// config.json into traits (model_config.h). A family is one file of this folder and a row of the
// table in family.cc; everything behind the traits is shared.
//
// A read function throws ConfigError (config_fields.h). It fills what differs from ModelConfig's
// defaults; what holds for all (quantisation, that sizes fit each other) is read and checked in
// model_config.cc.

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string_view>

#include "runtime/model/config/model_config.h"

namespace macrame::runtime::engine {

using ReadFamily = void (*)(const nlohmann::json& config, ModelConfig& out);

struct Family {
  std::string_view model_type;
  ReadFamily read;
};

std::span<const Family> Families();
// Null when it is not served. A text model that was saved by itself ("qwen3_5_text") is of the
// family of the whole model.
const Family* FindFamily(std::string_view model_type);

// deepseek.cc
void ReadDeepseekV2(const nlohmann::json& config, ModelConfig& out);
void ReadDeepseekV3(const nlohmann::json& config, ModelConfig& out);
// DeepSeek-V3.2, GLM-5
void ReadSparse(const nlohmann::json& config, ModelConfig& out);
void ReadKimiK25(const nlohmann::json& config, ModelConfig& out);
void ReadGlm4MoeLite(const nlohmann::json& config, ModelConfig& out);
void ReadYoutu(const nlohmann::json& config, ModelConfig& out);
// deepseek_v41.cc
void ReadDeepseekV41(const nlohmann::json& config, ModelConfig& out);
// llama.cc
void ReadLlama(const nlohmann::json& config, ModelConfig& out);
// Besides, layers that "layer_types" gives a window.
void ReadLlamaLayers(const nlohmann::json& config, ModelConfig& out);
void ReadMistral(const nlohmann::json& config, ModelConfig& out);
void ReadSeedOss(const nlohmann::json& config, ModelConfig& out);
void ReadErnie(const nlohmann::json& config, ModelConfig& out);
void ReadSmolLm3(const nlohmann::json& config, ModelConfig& out);
void ReadGranite(const nlohmann::json& config, ModelConfig& out);
void ReadInternLm3(const nlohmann::json& config, ModelConfig& out);
void ReadHelium(const nlohmann::json& config, ModelConfig& out);
void ReadMiniCpm(const nlohmann::json& config, ModelConfig& out);
// ministral.cc
void ReadMinistral3(const nlohmann::json& config, ModelConfig& out);
void ReadMistral3(const nlohmann::json& config, ModelConfig& out);
// qwen.cc
void ReadQwen2(const nlohmann::json& config, ModelConfig& out);
void ReadQwen3(const nlohmann::json& config, ModelConfig& out);
void ReadQwen2Moe(const nlohmann::json& config, ModelConfig& out);
void ReadQwen3Moe(const nlohmann::json& config, ModelConfig& out);
void ReadQwen3Vl(const nlohmann::json& config, ModelConfig& out);
void ReadQwen3VlMoe(const nlohmann::json& config, ModelConfig& out);
// Which layers have experts, how many and how wide.
void ReadQwenExperts(const nlohmann::json& config, ModelConfig& out);
// qwen_next.cc
void ReadQwen3Next(const nlohmann::json& config, ModelConfig& out);
void ReadQwen35(const nlohmann::json& config, ModelConfig& out);
// nemotron_h.cc
void ReadNemotronH(const nlohmann::json& config, ModelConfig& out);
// gpt_oss.cc
void ReadGptOss(const nlohmann::json& config, ModelConfig& out);
// mixtral.cc
void ReadMixtral(const nlohmann::json& config, ModelConfig& out);
// phi.cc
void ReadPhi3(const nlohmann::json& config, ModelConfig& out);
// gemma.cc
void ReadGemma3Text(const nlohmann::json& config, ModelConfig& out);
void ReadGemma3(const nlohmann::json& config, ModelConfig& out);
// gemma4.cc
void ReadGemma4Text(const nlohmann::json& config, ModelConfig& out);
void ReadGemma4(const nlohmann::json& config, ModelConfig& out);
// glm.cc
void ReadGlm4(const nlohmann::json& config, ModelConfig& out);
void ReadGlm4Moe(const nlohmann::json& config, ModelConfig& out);
void ReadSolarOpen(const nlohmann::json& config, ModelConfig& out);
void ReadDots1(const nlohmann::json& config, ModelConfig& out);
void ReadExaoneMoe(const nlohmann::json& config, ModelConfig& out);
// minimax.cc
void ReadMiniMax(const nlohmann::json& config, ModelConfig& out);
// minimax_m3.cc
void ReadMiniMaxM3(const nlohmann::json& config, ModelConfig& out);
// exaone.cc
void ReadExaone4(const nlohmann::json& config, ModelConfig& out);
// olmo.cc
void ReadOlmo2(const nlohmann::json& config, ModelConfig& out);
void ReadOlmo3(const nlohmann::json& config, ModelConfig& out);
void ReadOlmoe(const nlohmann::json& config, ModelConfig& out);

}  // namespace macrame::runtime::engine
