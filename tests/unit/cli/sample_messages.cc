#include "tests/unit/cli/sample_messages.h"

#include <string>

namespace macrame::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string NodeIdOf(int i) { return std::string(31, '0') + std::to_string(i); }

void AddNode(v1::ClusterStatus& status, int i, uint64_t total, uint64_t free) {
  v1::NodeStatus* node = status.add_nodes();
  node->mutable_identity()->set_node_id("a1b2c3d" + std::to_string(i) + NodeIdOf(i).substr(8));
  node->mutable_identity()->set_hostname("mini-" + std::to_string(i));
  auto* address = node->mutable_identity()->add_addresses();
  address->set_ip("192.168.1.1" + std::to_string(i));
  address->set_interface_kind(v1::INTERFACE_KIND_ETHERNET);
  node->set_state(v1::NODE_STATE_ALIVE);
  node->mutable_inventory()->set_os_name("macOS");
  node->mutable_inventory()->set_os_version("26.4.1");
  node->mutable_inventory()->set_chip("Apple M4 Pro");
  node->mutable_inventory()->set_gpu_cores(20);
  node->mutable_inventory()->set_memory_total_bytes(total);
  node->mutable_load()->set_memory_available_bytes(free);
  node->mutable_load()->set_memory_pressure(v1::MEMORY_PRESSURE_NORMAL);
  node->mutable_load()->set_cpu_busy_ratio(0.07);
  node->mutable_load()->set_gpu_busy_ratio(-1);
  node->set_last_heartbeat_age_ms(120);
  node->set_transport_verdict("ring-only");
}

}  // namespace

v1::Plan SamplePlan() {
  v1::Plan plan;
  plan.set_model_name("tiny");
  plan.set_parallelism(v1::PARALLELISM_PIPELINE);
  plan.set_tp(1);
  plan.set_pp(3);
  plan.set_world_size(3);
  plan.set_backend("ring");
  plan.set_context_length(4096);
  plan.set_concurrent_sequences(1);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    v1::Assignment* assignment = plan.add_assignments();
    assignment->set_rank(rank);
    assignment->set_stage(rank);
    assignment->set_hostname("mini-" + std::to_string(rank + 1));
    const int number = static_cast<int>(rank) + 1;
    assignment->set_node_id("a1b2c3d" + std::to_string(number) + NodeIdOf(number).substr(8));
    assignment->set_layer_begin(rank * 4);
    assignment->set_layer_end(rank * 4 + 4);
    assignment->set_holds_embedding(rank == 0);
    assignment->set_holds_head(rank == 2);
    assignment->mutable_need()->set_weights_bytes(2 * kGiB);
    assignment->mutable_need()->set_kv_cache_bytes(256 * kMiB);
    assignment->mutable_need()->set_total_bytes(2 * kGiB + 512 * kMiB);
    assignment->set_budget_bytes(40 * kGiB);
  }
  v1::Reason* reason = plan.add_reasons();
  reason->set_code("NOT_CHOSEN");
  reason->set_message("three stages leave the most memory free");
  return plan;
}

v1::ClusterStatus HealthyCluster() {
  v1::ClusterStatus status;
  status.set_cluster_id("c1");
  status.set_cluster_name("lab");
  status.set_healthy(true);
  AddNode(status, 1, 64 * kGiB, 48 * kGiB);
  AddNode(status, 2, 64 * kGiB, 31 * kGiB);
  AddNode(status, 3, 24 * kGiB, 900 * kMiB);
  status.mutable_nodes(0)->set_is_coordinator(true);
  status.mutable_nodes(1)->set_is_self(true);
  status.set_answered_by(status.nodes(1).identity().node_id());
  status.mutable_nodes(0)->mutable_load()->set_tokens_per_second(41.25);
  status.mutable_coordinator()->set_term(4);
  status.mutable_coordinator()->set_coordinator_id(status.nodes(0).identity().node_id());
  v1::DeploymentStatus* deployment = status.add_deployments();
  deployment->mutable_deployment()->set_name("tiny");
  deployment->set_state(v1::DEPLOYMENT_STATE_READY);
  deployment->set_epoch(1);
  deployment->set_tokens_per_second(41.25);
  *deployment->mutable_plan() = SamplePlan();
  for (const v1::Assignment& assignment : deployment->plan().assignments()) {
    v1::RankStatus* rank = deployment->add_ranks();
    rank->set_rank(assignment.rank());
    rank->set_node_id(assignment.node_id());
    rank->set_phase(v1::RANK_PHASE_READY);
    rank->set_memory_bytes(2 * kGiB);
  }
  v1::AggregateLoad* load = status.mutable_aggregate_load();
  load->set_nodes_alive(3);
  load->set_nodes_total(3);
  load->set_memory_total_bytes(152 * kGiB);
  load->set_memory_available_bytes(79 * kGiB + 900 * kMiB);
  load->set_gpu_cores(60);
  load->set_tokens_per_second(41.25);
  return status;
}

v1::ModelVerification DamagedModel() {
  v1::ModelVerification verification;
  verification.set_finished(true);
  const v1::ClusterStatus cluster = HealthyCluster();
  for (int i = 0; i < 3; ++i) {
    v1::NodeModelFiles& node = *verification.add_nodes();
    node.set_node_id(cluster.nodes(i).identity().node_id());
    if (i == 2) {
      node.mutable_failure()->set_code("MODEL_NOT_FOUND");
      continue;
    }
    node.set_model("org/m");
    node.set_path("/models/org/m");
    node.set_bytes_total(16 * kGiB);
    node.set_bytes_read(i == 0 ? 16 * kGiB : 8 * kGiB);
  }
  const auto add = [&](int node, const char* name, v1::ModelFileState state, const char* note) {
    v1::ModelFile& file = *verification.mutable_nodes(node)->add_files();
    file.set_name(name);
    file.set_state(state);
    file.set_note(note);
  };
  add(0, "config.json", v1::MODEL_FILE_STATE_AS_DOWNLOADED, "");
  add(0, "model-00001-of-00002.safetensors", v1::MODEL_FILE_STATE_AS_DOWNLOADED, "");
  add(0, "model-00002-of-00002.safetensors", v1::MODEL_FILE_STATE_AS_DOWNLOADED, "");
  add(1, "config.json", v1::MODEL_FILE_STATE_ALIKE, "");
  add(1, "model-00001-of-00002.safetensors", v1::MODEL_FILE_STATE_ALTERED,
      "SHA-256 aaaaaaaaaaaa\xE2\x80\xA6, as downloaded on 00000001 bbbbbbbbbbbb\xE2\x80\xA6");
  add(1, "model-00002-of-00002.safetensors", v1::MODEL_FILE_STATE_TRUNCATED,
      "it has 3000000 of 3468745 bytes");
  add(1, "vocab.json", v1::MODEL_FILE_STATE_MISSING, "other nodes have it\x1b[2J");
  verification.mutable_nodes(1)->mutable_broken()->set_code("MODEL_FILE_BROKEN");
  verification.mutable_nodes(1)->mutable_broken()->set_message(
      "/models/org/m/model-00002-of-00002.safetensors is cut short");
  return verification;
}

v1::ClusterStatus TroubledCluster() {
  v1::ClusterStatus status = HealthyCluster();
  status.set_healthy(false);
  v1::NodeStatus* dead = status.mutable_nodes(2);
  dead->set_state(v1::NODE_STATE_DEAD);
  dead->set_last_heartbeat_age_ms(42'000);
  status.mutable_nodes(1)->set_state(v1::NODE_STATE_SUSPECT);
  status.mutable_nodes(1)->mutable_identity()->set_hostname(
      "mini-2\x1b[2J\xE3\x83\x9F\xE3\x83\x8B");
  v1::DeploymentStatus* deployment = status.mutable_deployments(0);
  deployment->set_state(v1::DEPLOYMENT_STATE_BACKING_OFF);
  deployment->set_attempts(2);
  deployment->set_retry_in_ms(4000);
  deployment->set_tokens_per_second(0);
  deployment->mutable_failure()->set_code("GANG_LOST_NODE");
  deployment->mutable_failure()->set_message("mini-3 held rank 2 and is gone");
  deployment->mutable_ranks(1)->set_phase(v1::RANK_PHASE_LOADING);
  deployment->mutable_ranks(1)->set_progress(0.4);
  deployment->mutable_ranks(2)->set_phase(v1::RANK_PHASE_FAILED);
  v1::Reason* fallback = deployment->add_fallbacks();
  fallback->set_code("TRANSPORT_FALLBACK");
  fallback->set_message(
      "'tiny' could not be formed over jaccl: TB4_CONTROLLER: mini-2 has Thunderbolt 4");
  fallback->set_remedy("'clusterctl doctor' says why");
  v1::Reason* problem = status.add_problems();
  problem->set_code("NODE_DEAD");
  problem->set_node_id(dead->identity().node_id());
  problem->set_message("mini-3 has not been heard for 42 s");
  problem->set_remedy("start agentd on it again");
  v1::UnknownNode* unknown_node = status.add_unknown_nodes();
  unknown_node->set_hostname("studio-9");
  unknown_node->set_address("192.168.1.99");
  unknown_node->set_cluster_name("other");
  unknown_node->mutable_reason()->set_message("it belongs to cluster 'other'");
  unknown_node->mutable_reason()->set_remedy("give it this cluster's secret file");
  return status;
}

v1::PlanResult FittingPlan() {
  v1::PlanResult result;
  *result.mutable_plan() = SamplePlan();
  v1::Rejection* rejection = result.mutable_plan()->add_rejections();
  rejection->set_subject("tensor parallel over 3");
  rejection->mutable_reason()->set_code("HEADS_INDIVISIBLE");
  rejection->mutable_reason()->set_message("8 heads can't be divided by 3");
  v1::Rejection* runner_up = result.mutable_plan()->add_rejections();
  runner_up->set_subject("pipeline parallel over 2");
  runner_up->mutable_reason()->set_message("would fit, and give 21.0 tokens/s");
  runner_up->mutable_prediction()->set_tokens_per_second(21);
  v1::Prediction* prediction = result.mutable_plan()->mutable_prediction();
  prediction->set_tokens_per_second(25);
  prediction->set_weights_ms(20);
  prediction->set_kv_ms(1.5);
  prediction->set_overhead_ms(8);
  prediction->set_communication_ms(10.5);
  prediction->set_users(4);
  prediction->set_users_tokens_per_second(88.2);
  prediction->set_prompt_tokens(1024);
  prediction->set_first_token_ms(1830);
  prediction->set_power_watts(95);
  prediction->set_joules_per_token(3.8);
  prediction->set_correction(1.12);
  return result;
}

v1::PlanResult MisfitPlan() {
  v1::PlanResult result;
  result.mutable_failure()->set_code("MEMORY_SHORT");
  result.mutable_failure()->set_message("'huge' needs 812 GiB, the nodes have 152 GiB");
  result.mutable_failure()->set_remedy("use a smaller quantisation");
  v1::Rejection* rejection = result.add_rejections();
  rejection->set_subject("node mini-3");
  rejection->mutable_reason()->set_message("it is dead");
  return result;
}

v1::ListModelsResponse SampleModels() {
  v1::ListModelsResponse response;
  v1::ModelEntry* tiny = response.add_models();
  tiny->set_name("tiny");
  tiny->set_fingerprint("0123456789abcdef0123");
  tiny->set_size_bytes(8 * kMiB);
  tiny->add_node_ids("a");
  tiny->add_node_ids("b");
  tiny->add_node_ids("c");
  *tiny->mutable_deployment() = HealthyCluster().deployments(0);
  v1::ModelEntry* other = response.add_models();
  other->set_name("mlx-community/Qwen3-32B-4bit-with-a-long-name-that-goes-on");
  other->set_fingerprint("fedcba9876543210");
  other->set_size_bytes(18 * kGiB);
  other->add_node_ids("a");
  return response;
}

v1::LoadModelProgress SampleProgress() {
  v1::LoadModelProgress progress;
  v1::DeploymentStatus& status = *progress.mutable_status();
  status = HealthyCluster().deployments(0);
  status.set_state(v1::DEPLOYMENT_STATE_LAUNCHING);
  status.mutable_ranks()->RemoveLast();
  v1::RankStatus* loading = status.mutable_ranks(1);
  loading->set_phase(v1::RANK_PHASE_LOADING);
  loading->set_progress(0.5);
  loading->set_bytes_loaded(1 * kGiB);
  loading->set_bytes_total(2 * kGiB);
  return progress;
}

}  // namespace macrame::cli
