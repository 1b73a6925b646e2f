// Mixtral: Mistral with experts in every layer, under names of its own.

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

void ReadMixtral(const nlohmann::json& config, ModelConfig& out) {
  ReadMistral(config, out);
  ReadBlockSparseExperts(config, out.experts);
  ReadActiveExperts(config, out);
}

}  // namespace macrame::runtime::engine
