#include "tests/conformance/gpu_graph/graph_models.h"

#include <fstream>
#include <map>

#include "proto/check.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::gpu_graph {

using nlohmann::json;

namespace engine = runtime::engine;

namespace {

// The shapes of small models: what depends on lengths shows with few positions.
constexpr int kSmallContext = 48;
constexpr int kSmallChunk = 24;
constexpr int kLargeChunk = 256;

// Those that family_model.h knows no config for, since other tests have theirs of their own.
const json& MoreConfigs() {
  static const json configs = json::parse(R"({
    "llama": {"model_type": "llama"},
    "llama biases": {"model_type": "llama", "attention_bias": true, "mlp_bias": true},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3"},
    "mistral": {"model_type": "mistral", "sliding_window": 24},
    "qwen2_moe": {"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 96, "shared_expert_intermediate_size": 64},
    "mixtral": {"model_type": "mixtral", "intermediate_size": 96, "num_local_experts": 8,
                "num_experts_per_tok": 2}
  })");
  return configs;
}

json WithFrame(const json& own) {
  json config = {{"num_hidden_layers", 2},
                 {"hidden_size", 64},
                 {"intermediate_size", 352},
                 {"num_attention_heads", 6},
                 {"vocab_size", 101},
                 {"num_key_value_heads", 3},
                 {"head_dim", 32},
                 {"rms_norm_eps", 1e-5},
                 {"tie_word_embeddings", false},
                 {"rope_theta", 10000.0},
                 {"max_position_embeddings", 512}};
  config.update(own);
  config["quantization"] = {{"bits", 4}, {"group_size", 32}};
  return config;
}

}  // namespace

std::vector<GraphModel> LargeModels(const std::string& models_file) {
  std::ifstream in(models_file);
  MACRAME_CHECK(in.good()) << "no file " << models_file;
  std::vector<GraphModel> models;
  const json file = json::parse(in);
  for (const auto& [name, entry] : file.items()) {
    json config = entry["config"];
    config["quantization"] = {{"bits", 4}, {"group_size", 64}};
    models.push_back({name, config, entry["context"], entry["chunk_at"], kLargeChunk, true, {}});
  }
  return models;
}

std::vector<GraphModel> FamilyModels() {
  std::vector<GraphModel> models;
  const auto add = [&](const std::string& name, const json& config) {
    models.push_back({name, config, kSmallContext, kSmallContext, kSmallChunk, false, {}});
  };
  for (const std::string name : {"deepseek_v3", "deepseek_v32"}) {
    engine::ModelShape shape{.architecture = name, .inner = 64, .kv_heads = 6, .bits = 4};
    shape.experts = 8;
    shape.latent = shape.query_latent = 64;
    shape.index_top = name == "deepseek_v32" ? 32 : 0;  // of kSmallContext positions
    add(name, {});
    models.back().files = engine::RandomModel(shape);
  }
  for (const auto& [name, own] : MoreConfigs().items()) add(name, WithFrame(own));
  add("deepseek_v41",
      engine::CompressedConfig(
          {{"q_lora_rank", 64}, {"quantization", {{"bits", 4}, {"group_size", 32}}}}));
  for (const std::string& name : engine::FamilyNames()) {
    // Experts that are published turned over, and 8-bit floats, are not packed.
    const bool is_float = name.ends_with("turned") || name.ends_with("fp8");
    add(name, engine::FamilyConfig({name, is_float ? 0 : 4}));
  }
  return models;
}

std::string WriteModel(const GraphModel& model) {
  auto files = model.files.empty() ? engine::ModelOfConfig(model.config) : model.files;
  files["model.safetensors"] = engine::InBfloat16(files.at("model.safetensors"));
  return engine::WriteFolder(files);
}

}  // namespace macrame::gpu_graph
