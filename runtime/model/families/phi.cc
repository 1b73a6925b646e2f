// Phi 3, 3.5 and 4: q, k and v are stored as one tensor, and so are gate and up.

#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {

void ReadPhi3(const nlohmann::json& config, ModelConfig& out) {
  ReadFrame(config, out);
  out.fused_qkv = out.fused_gate_up = true;
  ReadSlidingWindows(config, 0, out);
}

}  // namespace macrame::runtime::engine
