#include "tests/unit/planner/test_models.h"

#include <utility>

namespace macrame::planner {

v1::ModelDescription SmallModel() {
  v1::ModelDescription model;
  model.set_name("small");
  model.set_architecture("llama");
  model.set_layer_count(6);
  model.set_hidden_size(256);
  model.set_intermediate_size(768);
  model.set_attention_heads(8);
  model.set_kv_heads(4);
  model.set_head_dim(32);
  model.set_vocab_size(2048);
  model.set_context_length_max(1024);
  model.set_tied_embeddings(true);
  model.set_dtype("float16");
  model.mutable_quantization()->set_bits(4);
  model.mutable_quantization()->set_group_size(64);
  model.set_embedding_bytes(2048 * 256 / 2);
  model.set_final_norm_bytes(512);
  for (int i = 0; i < 6; ++i) {
    model.add_layer_bytes(450'000);
    model.add_layer_divisible_bytes(448'000);
  }
  model.set_parameter_count(5'000'000);
  return model;
}

v1::ModelDescription LargeModel(const std::string& name, uint64_t total_bytes, uint32_t layers) {
  v1::ModelDescription model;
  model.set_name(name);
  model.set_architecture("llama");
  model.set_layer_count(layers);
  model.set_hidden_size(8192);
  model.set_intermediate_size(24576);
  model.set_attention_heads(64);
  model.set_kv_heads(8);
  model.set_head_dim(128);
  model.set_vocab_size(128'000);
  model.set_context_length_max(131'072);
  model.set_dtype("bfloat16");
  const uint64_t table = total_bytes / 100;
  model.set_embedding_bytes(table);
  model.set_head_bytes(table);
  for (uint32_t i = 0; i < layers; ++i) {
    const uint64_t bytes = (total_bytes - 2 * table) / layers;
    model.add_layer_bytes(bytes);
    model.add_layer_divisible_bytes(bytes / 100 * 95);
  }
  return model;
}

v1::ModelDescription MixtureModel(const std::string& name, uint64_t total_bytes, uint32_t layers) {
  v1::ModelDescription model = LargeModel(name, total_bytes, layers);
  model.set_experts(128);
  model.set_experts_active(8);
  for (uint32_t i = 0; i < layers; ++i) {
    model.add_layer_expert_bytes(model.layer_bytes(static_cast<int>(i)) / 10 * 9);
  }
  return model;
}

void AddLink(const std::string& a, const std::string& b, const std::vector<std::string>& backends,
             v1::LinkMedium medium, v1::PlanRequest* request) {
  for (const bool back : {false, true}) {
    v1::PlannerLink* link = request->add_links();
    link->set_from_node_id(back ? b : a);
    link->set_to_node_id(back ? a : b);
    link->set_medium(medium);
    for (const std::string& backend : backends) link->add_backends(backend);
  }
}

void AddMesh(const std::vector<std::string>& ids, v1::PlanRequest* request) {
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t j = i + 1; j < ids.size(); ++j) {
      AddLink(ids[i], ids[j], {"ring", "jaccl"}, v1::LINK_MEDIUM_THUNDERBOLT, request);
    }
  }
}

v1::PlannerNode Node(const std::string& id, uint64_t usable_bytes) {
  v1::PlannerNode node;
  node.set_node_id(id);
  node.set_hostname("host-" + id);
  node.set_memory_usable_bytes(usable_bytes);
  node.set_memory_available_bytes(usable_bytes);
  node.set_gpu_cores(40);
  node.set_schedulable(true);
  node.set_has_model_files(true);
  node.add_engine_names("mlx");
  return node;
}

v1::PlanRequest Request(v1::ModelDescription model, std::vector<v1::PlannerNode> nodes) {
  v1::PlanRequest request;
  *request.mutable_model() = std::move(model);
  for (v1::PlannerNode& node : nodes) *request.add_nodes() = std::move(node);
  request.set_snapshot_revision(7);
  return request;
}

}  // namespace macrame::planner
