#pragma once

// The functions of the table in architecture_names.cc that stand in architecture_configs.cc.

#include "runtime/gguf/architectures.h"

namespace macrame::runtime::gguf {

void ReadLlamaConfig(ImportContext& context);
void ReadMistral3Config(ImportContext& context);
void ReadQwen2Config(ImportContext& context);
void ReadQwen3Config(ImportContext& context);
void ReadQwen2MoeConfig(ImportContext& context);
void ReadQwen3MoeConfig(ImportContext& context);
void ReadQwen3VlConfig(ImportContext& context);
void ReadQwen3VlMoeConfig(ImportContext& context);
void ReadDeepseek2Config(ImportContext& context);
void ReadDeepseek32Config(ImportContext& context);
void ReadGlmDsaConfig(ImportContext& context);
void ReadGlm4Config(ImportContext& context);
void ReadGlm4MoeConfig(ImportContext& context);
void ReadDots1Config(ImportContext& context);
void ReadExaone4Config(ImportContext& context);
void ReadExaoneMoeConfig(ImportContext& context);
void ReadGemma3Config(ImportContext& context);
void ReadGptOssConfig(ImportContext& context);
void ReadPhi3Config(ImportContext& context);
void ReadOlmo2Config(ImportContext& context);
void ReadOlmoeConfig(ImportContext& context);
void ReadGraniteConfig(ImportContext& context);
void ReadSmolLm3Config(ImportContext& context);
void ReadSeedOssConfig(ImportContext& context);
void ReadErnieConfig(ImportContext& context);
void ReadMiniCpmConfig(ImportContext& context);
void ReadMiniMaxM2Config(ImportContext& context);

}  // namespace macrame::runtime::gguf
