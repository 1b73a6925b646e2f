// Mixtral: Mistral with experts in every layer, under names of its own.

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

void ReadMixtral(const nlohmann::json& config, ModelConfig& out) {
  ReadMistral(config, out);
  ExpertTraits& experts = out.experts;
  experts.count = ReadInt(config, "num_local_experts", std::nullopt);
  experts.width = ReadInt(config, "intermediate_size", std::nullopt);
  experts.normalized = true;
  experts.module = "block_sparse_moe";
  experts.gate_name = "w1";
  experts.up_name = "w3";
  experts.down_name = "w2";
  ReadActiveExperts(config, out);
}

}  // namespace macrame::runtime::engine
