#pragma once

// The architectures that are imported, as GGUF names them: for each the function that turns its
// keys into a config.json, and the tables that give its tensors their names in a folder that MLX
// and rankd read. One more is a row in architecture_names.cc and a function in
// architecture_configs.cc (or hybrid_configs.cc, for those whose layers are not all alike).
//
// What llama.cpp's converter did to a tensor is undone: rows that it puts in another order, numbers
// that it stores in another form, maps that it splits or joins (import_plan.cc).
//
// Sources: the keys and defaults of llama.cpp's src/models, the changes of its conversion/.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/gguf/metadata_keys.h"

namespace macrame::runtime::gguf {

// What an import reads from and writes to. Sizes are filled in by ReadFrame.
struct ImportContext {
  MetadataKeys& keys;
  const GgufModel& model;
  nlohmann::json& config;
  uint64_t layers = 0;  // without those that predict further tokens
  uint64_t blocks = 0;  // with them
  uint64_t hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0;
  // Of layers with a state: value heads stand in groups, one for each key head.
  uint64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
  // By layer: whether it has a state; empty: none has.
  std::vector<bool> recurrent{};
  // Layers from here on read another layer's keys and values.
  uint64_t first_shared_kv = UINT64_MAX;

  // Whether any layer has it: "attn_q.bias".
  bool HasLayerTensor(std::string_view rest) const;
};

// How the numbers of a tensor are stored in GGUF.
enum class NumberForm {
  kSame,
  kPlusOne,   // a norm's weight with the one that the model adds
  kMinusExp,  // -exp(x)
};

struct TensorName {
  std::string_view gguf;  // of a layer, without ".weight" and ".bias"; `whole`: with what is behind
  std::string_view ours;  // below "model.layers.N."; `whole`: a tensor's full name
  bool whole = false;
  NumberForm form = NumberForm::kSame;
};

struct Architecture {
  std::string_view gguf;
  void (*read)(ImportContext& context);
  // The first table that has a name counts.
  std::vector<std::span<const TensorName>> names;
  bool neighbours_turn = false;  // rows of q and k: those that turn together stand side by side
  bool norms_plus_one = false;
};

// Null when it is not known.
const Architecture* FindArchitecture(std::string_view name);
std::span<const Architecture> Architectures();

// Of a layer, by what stands behind "blk.N."; null: the architecture has no such tensor.
const TensorName* FindLayerTensor(const Architecture& architecture, std::string_view rest);
// "token_embd.weight" and others outside of layers.
const TensorName* FindModelTensor(const Architecture& architecture, std::string_view name);

// ---- architecture_configs.cc: what the functions share

// The sizes that all architectures name alike, and the rotary form.
struct FrameOptions {
  bool partial_rotary = false;  // a part of each head may turn: "partial_rotary_factor"
  bool is_latent = false;       // no width of heads: keys and values come from latent vectors
  bool has_own_rope = false;    // the caller reads the rotary form
  bool differs = false;         // sizes of the first layer where layers have their own
};
void ReadFrame(ImportContext& context, const char* model_type, const char* class_name,
               const FrameOptions& options = {});
// "sliding_attention" and "full_attention" for each layer, and the window's width.
void SetLayerTypes(ImportContext& context, const std::vector<bool>& windowed, uint64_t window);
// By "attention.sliding_window_pattern": a list, or a number of which each such layer is global
// (`first_global`: the first of them), or `period` where it is not there.
std::vector<bool> WindowedLayers(ImportContext& context, uint64_t period);
// "n_group", "topk_group".
void ReadExpertGroups(ImportContext& context);
// MODEL_FORMAT_UNSUPPORTED unless the router's scores are made so: 1 softmax, 2 sigmoid.
void ExpectGating(ImportContext& context, int64_t expected, bool unless_said);

// ---- hybrid_configs.cc
void ReadQwen3NextConfig(ImportContext& context);
void ReadQwen35Config(ImportContext& context);
void ReadQwen35MoeConfig(ImportContext& context);
void ReadNemotronHConfig(ImportContext& context);
void ReadGemma4Config(ImportContext& context);
void ReadMiniMaxM3Config(ImportContext& context);

// ---- rope_config.cc
// "rope_theta" and "rope_scaling"; `dims` of a head turn.
void ReadRope(ImportContext& context, uint64_t dims);

}  // namespace macrame::runtime::gguf
