// MiniMax M2: experts behind a sigmoid router in every layer; queries and keys are normed over all
// heads at once. MiniMax Text 01, of the same "model_type", has layers of linear attention.

#include "absl/strings/str_cat.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

void ExpectFullAttention(const json& config) {
  for (const char* key : {"attn_type_list", "layer_types"}) {
    const json* kinds = FindField(config, key);
    if (kinds == nullptr || !kinds->is_array()) continue;
    for (const json& kind : *kinds) {
      if (kind != 1 && kind != "full_attention") {
        Unsupported(absl::StrCat("'", key, "' names ", kind.dump(),
                                 "; only layers of full attention are implemented"));
      }
    }
  }
}

}  // namespace

void ReadMiniMax(const json& config, ModelConfig& out) {
  ExpectFullAttention(config);
  ReadFrame(config, out);
  out.rope.dims = ReadInt(config, "rotary_dim", out.rope.dims);
  if (out.rope.dims % 2 != 0 || out.rope.dims > out.head_dim) {
    Invalid(absl::StrCat("'rotary_dim' ", out.rope.dims, " of a head of ", out.head_dim));
  }
  if (out.rope.scaling == RopeScalingKind::kLongrope) {
    Unsupported("rope scaling 'longrope' of minimax is not implemented");
  }
  out.qk_norm_whole = ReadBool(config, "use_qk_norm", true);
  if (const std::string kind = ReadText(config, "qk_norm_type", "per_layer"); kind != "per_layer") {
    Unsupported(absl::StrCat("'qk_norm_type' '", kind, "'; only per_layer is implemented"));
  }
  ExpertTraits& experts = out.experts;
  ReadBlockSparseExperts(config, experts);
  experts.scores = RouterScores::kSigmoid;
  if (ReadBool(config, "use_routing_bias", true)) experts.score_bias = "e_score_correction_bias";
  if (const std::string kind = ReadText(config, "scoring_func", "sigmoid"); kind != "sigmoid") {
    Unsupported(absl::StrCat("router's scoring_func '", kind, "' is not implemented; sigmoid is"));
  }
  if (ReadInt(config, "shared_intermediate_size", 0, 0) != 0) {
    Unsupported("'shared_intermediate_size': experts that all tokens take are not implemented");
  }
  ReadActiveExperts(config, out);
}

}  // namespace macrame::runtime::engine
