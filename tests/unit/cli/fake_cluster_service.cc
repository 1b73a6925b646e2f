#include "tests/unit/cli/fake_cluster_service.h"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "tests/unit/cli/sample_links.h"
#include "tests/unit/cli/sample_messages.h"
#include "tests/unit/fresh_folder.h"
#include "transport/status_codec.h"
#include "transport/unix_socket.h"

namespace macrame::cli {

using transport::ToGrpcStatus;

namespace {

// Reasoning, a word and a call, each in two pieces.
std::vector<v1::GenerateChunk> ThinkersAnswer() {
  std::vector<v1::GenerateChunk> pieces(6);
  pieces[0].set_reasoning("Let me");
  pieces[1].set_reasoning(" see");
  pieces[2].set_text("I look.");
  v1::ToolCallDelta& begin = *pieces[3].add_tool_calls();
  begin.set_id("call_1");
  begin.set_name("get_weather");
  pieces[4].add_tool_calls()->set_arguments("{\"city\": ");
  pieces[5].add_tool_calls()->set_arguments("\"Oslo\"}");
  pieces[5].set_reasoning_tokens(3);
  pieces[5].set_completion_tokens(9);
  pieces[5].set_finish_reason(v1::FINISH_REASON_STOP);
  return pieces;
}

}  // namespace

grpc::Status FakeClusterService::GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                                           v1::ClusterStatus* response) {
  const std::lock_guard lock(status_mutex_);
  *response = status.has_value() ? *status : troubled ? TroubledCluster() : HealthyCluster();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::WatchStatus(grpc::ServerContext* context,
                                             const v1::WatchStatusRequest*,
                                             grpc::ServerWriter<v1::ClusterStatus>* writer) {
  ++watches;
  if (!failure.ok()) return ToGrpcStatus(failure);
  for (int i = 0; statuses_per_watch == 0 || i < statuses_per_watch; ++i) {
    if (!writer->Write(troubled ? TroubledCluster() : HealthyCluster())) break;
    if (context->IsCancelled()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::PlanModel(grpc::ServerContext*,
                                           const v1::PlanModelRequest* request,
                                           v1::PlanResult* response) {
  last_plan = *request;
  const std::string& name = request->name_or_path();
  if (failure.ok() && (name == "nosuch" || (name[0] >= 'A' && name[0] <= 'Z'))) {
    return ToGrpcStatus(ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                                     "no model on this node"));
  }
  *response = fits ? FittingPlan() : MisfitPlan();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::LoadModel(grpc::ServerContext*,
                                           const v1::LoadModelRequest* request,
                                           grpc::ServerWriter<v1::LoadModelProgress>* writer) {
  last_load = *request;
  if (!failure.ok()) return ToGrpcStatus(failure);
  v1::LoadModelProgress progress = SampleProgress();
  writer->Write(progress);
  *progress.mutable_status() = HealthyCluster().deployments(0);
  writer->Write(progress);
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::UnloadModel(grpc::ServerContext*,
                                             const v1::UnloadModelRequest* request,
                                             v1::UnloadModelResponse*) {
  last_unload = request->name();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                                            v1::ListModelsResponse* response) {
  *response = SampleModels();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::Infer(grpc::ServerContext* context,
                                       const v1::GenerateRequest* request,
                                       grpc::ServerWriter<v1::GenerateChunk>* writer) {
  last_infer = *request;
  inferred.insert(request->deployment());
  if (!failure.ok()) return ToGrpcStatus(failure);
  if (infer_failures > 0 || request->messages_size() > messages_max) {
    --infer_failures;
    return ToGrpcStatus(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kPromptTooLong,
                                     "the prompt is longer than the context"));
  }
  if (request->deployment() == "thinker") {
    for (const v1::GenerateChunk& piece : ThinkersAnswer()) writer->Write(piece);
    return grpc::Status::OK;
  }
  if (request->progress()) {
    v1::GenerateChunk told;
    told.mutable_progress()->set_prompt_tokens(12);
    told.mutable_progress()->set_computed_tokens(6);
    writer->Write(told);
  }
  v1::GenerateChunk chunk;
  chunk.set_text("RDMA is");
  chunk.set_prompt_tokens(12);
  writer->Write(chunk);
  if (request->deployment() == "slow") {
    while (!context->IsCancelled()) {
      writer->Write(chunk);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    infer_was_cancelled = true;
    return grpc::Status::CANCELLED;
  }
  chunk.set_text(" \x1b[31mquick");
  chunk.set_completion_tokens(4);
  chunk.set_decode_ms(100);
  chunk.set_finish_reason(v1::FINISH_REASON_STOP);
  writer->Write(chunk);
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::Version(grpc::ServerContext*, const v1::VersionRequest*,
                                         v1::VersionResponse* response) {
  response->set_version("0.1.0");
  response->set_hostname("mini-2");
  response->set_mlx_version("0.32.4");
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::Logs(grpc::ServerContext*, const v1::LogsRequest* request,
                                      grpc::ServerWriter<v1::LogsChunk>* writer) {
  if (!failure.ok()) return transport::ToGrpcStatus(failure);
  last_logs = *request;
  v1::LogsChunk chunk;
  chunk.set_text("heard mini-3\x1b[2J\n");
  writer->Write(chunk);
  if (request->follow()) {
    chunk.set_text("followed\n");
    writer->Write(chunk);
  }
  return grpc::Status::OK;
}

grpc::Status FakeClusterService::GetLinks(grpc::ServerContext*, const v1::GetLinksRequest*,
                                          v1::LinksView* response) {
  *response = links.has_value() ? *links : SamplePair();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::Diagnose(grpc::ServerContext*, const v1::DiagnoseRequest* request,
                                          v1::Diagnosis* response) {
  last_diagnose = *request;
  if (troubled) *response = SampleDiagnosis();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::RecheckLinks(grpc::ServerContext*,
                                              const v1::RecheckLinksRequest* request,
                                              v1::RecheckLinksResponse* response) {
  last_recheck = *request;
  const v1::LinksView view = SamplePair();
  *response->mutable_links() = view.links();
  *response->mutable_forgotten() = view.refusals();
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::ExportHostfile(grpc::ServerContext*,
                                                const v1::ExportHostfileRequest* request,
                                                v1::ExportHostfileResponse* response) {
  last_export = *request;
  response->set_hostfile("[{\"ssh\": \"mini-a\", \"ips\": [\"10.77.5.1\"]}]\n");
  response->set_backend("ring");
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::GetMetrics(grpc::ServerContext*,
                                            const v1::GetMetricsRequest* request,
                                            v1::GetMetricsResponse* response) {
  response->set_text("# " + request->format() + "\n");
  return ToGrpcStatus(failure);
}

grpc::Status FakeClusterService::PlanNet(grpc::ServerContext*, const v1::PlanNetRequest* request,
                                         v1::NetPlan* response) {
  last_plan_net = *request;
  *response = net_plan.value_or(SampleNetPlan());
  return ToGrpcStatus(failure);
}

grpc::Status FakeOperationService::SetCordon(grpc::ServerContext*,
                                             const v1::SetCordonRequest* request,
                                             v1::SetCordonResponse* response) {
  last_cordon = *request;
  if (coordinator_changes > 0) {
    --coordinator_changes;
    return ToGrpcStatus(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                                     "this node stopped being coordinator"));
  }
  response->set_changed(changes);
  ++cordons;
  return grpc::Status::OK;
}

grpc::Status FakeOperationService::MarkNode(grpc::ServerContext*,
                                            const v1::MarkNodeRequest* request,
                                            v1::MarkNodeResponse* response) {
  last_marks = *request;
  response->set_changed(changes);
  response->mutable_marks()->set_tenant(request->tenant());
  *response->mutable_marks()->mutable_labels() = request->labels();
  return grpc::Status::OK;
}

grpc::Status FakeOperationService::ChangeProfile(grpc::ServerContext*,
                                                 const v1::ChangeProfileRequest* request,
                                                 v1::ChangeProfileResponse* response) {
  last_profile = *request;
  response->set_changed(changes);
  *response->mutable_profile() = request->set();
  return grpc::Status::OK;
}

grpc::Status FakeOperationService::ListProfiles(grpc::ServerContext*,
                                                const v1::ListProfilesRequest*,
                                                v1::ListProfilesResponse* response) {
  *response = profiles;
  return grpc::Status::OK;
}

grpc::Status FakeOperationService::PauseCluster(grpc::ServerContext*,
                                                const v1::PauseClusterRequest* request,
                                                v1::PauseClusterResponse* response) {
  pauses.push_back(request->order());
  response->set_changed(changes);
  response->add_models("tiny");
  if (request->order() != v1::PAUSE_ORDER_START) {
    response->mutable_pause()->set_stopped(request->order() == v1::PAUSE_ORDER_STOP);
  }
  return grpc::Status::OK;
}

grpc::Status FakeOperationService::VerifyModel(grpc::ServerContext*,
                                               const v1::VerifyModelRequest* request,
                                               grpc::ServerWriter<v1::ModelVerification>* writer) {
  last_verified = *request;
  v1::ModelVerification progress = verification;
  progress.set_finished(false);
  writer->Write(progress);
  writer->Write(verification);
  return grpc::Status::OK;
}

grpc::Status FakeOperationService::ListEvents(grpc::ServerContext*,
                                              const v1::ListEventsRequest* request,
                                              v1::ListEventsResponse* response) {
  last_events = *request;
  if (events_told_max == 0) {
    return transport::ToGrpcStatus(ReasonStatus(absl::StatusCode::kUnauthenticated,
                                                reasons::kKeyNotFound,
                                                "the access file's key was revoked"));
  }
  if (events_told_max > 0) --events_told_max;
  v1::Event& event = *response->add_events();
  event.set_at_unix_ms(1'764'081'005'000);
  event.set_kind("node");
  event.set_subject("mini-2");
  event.set_message("is dead");
  event.mutable_reason()->set_code("NODE_DEAD");
  event.mutable_reason()->set_message("no heartbeat for 3 s");
  if (also_at_unix_ms > 0) {
    v1::Event& later = *response->add_events();
    later = event;
    later.set_at_unix_ms(also_at_unix_ms);
  }
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::CreateKey(grpc::ServerContext*, const v1::CreateKeyRequest* request,
                                          v1::CreateKeyResponse* response) {
  last_created = request->key();
  response->set_secret_key("mk-0123456789ab-secret");
  *response->mutable_key() = request->key();
  response->mutable_key()->set_id("0123456789ab");
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::CreateAccessFile(grpc::ServerContext*,
                                                 const v1::CreateAccessFileRequest* request,
                                                 v1::CreateAccessFileResponse* response) {
  last_created = request->key();
  *response->mutable_key() = request->key();
  response->mutable_key()->set_id("0123456789ab");
  response->mutable_key()->set_has_access_file(true);
  v1::AccessFile& file = *response->mutable_file();
  file.set_cluster_name("lab");
  file.set_key_id("0123456789ab");
  file.set_private_key("the private key");
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::SetTenant(grpc::ServerContext*, const v1::SetTenantRequest* request,
                                          v1::SetTenantResponse* response) {
  last_tenant = *request;
  response->set_changed(true);
  v1::TenantLimits& tenant = *response->mutable_tenant();
  tenant.set_name(request->name());
  tenant.set_requests_per_minute(request->requests_per_minute());
  tenant.set_tokens_per_minute(request->tokens_per_minute());
  tenant.set_concurrent_requests(request->concurrent_requests());
  if (request->has_retention_s()) tenant.set_retention_s(request->retention_s());
  tenant.set_memory_only(request->memory_only());
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::EraseTenant(grpc::ServerContext*,
                                            const v1::EraseTenantRequest* request,
                                            v1::EraseTenantResponse* response) {
  *response = erased;
  response->set_name(request->name());
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::ListTenants(grpc::ServerContext*, const v1::ListTenantsRequest*,
                                            v1::ListTenantsResponse* response) {
  *response = tenants;
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::ListKeys(grpc::ServerContext*, const v1::ListKeysRequest*,
                                         v1::ListKeysResponse* response) {
  v1::ApiKey& valid = *response->add_keys();
  valid.set_id("0123456789ab");
  valid.set_name("laptop\x1b[31m");
  valid.add_scopes("infer");
  valid.set_requests_per_minute(60);
  v1::ApiKey& revoked = *response->add_keys();
  revoked.set_id("ba9876543210");
  revoked.set_revoked_unix_ms(1);
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::GetKeyEnergy(grpc::ServerContext*, const v1::GetKeyEnergyRequest*,
                                             v1::GetKeyEnergyResponse* response) {
  if (!energy.has_value()) return {grpc::StatusCode::UNIMPLEMENTED, "no such method"};
  *response = *energy;
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::RevokeKey(grpc::ServerContext*, const v1::RevokeKeyRequest* request,
                                          v1::RevokeKeyResponse* response) {
  last_revoked = request->key();
  response->mutable_key()->set_id(request->key());
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::ReadAudit(grpc::ServerContext*, const v1::ReadAuditRequest* request,
                                          v1::ReadAuditResponse* response) {
  last_read = *request;
  const bool is_second = request->from_sequence() == 2;
  response->add_lines(is_second ? R"({"seq":2,"what":"UnloadModel","outcome":"ok"})"
                                : R"({"seq":1,"what":"LoadModel","outcome":"ok"})");
  if (request->from_sequence() == 1) response->set_next_sequence(2);
  return grpc::Status::OK;
}

grpc::Status FakeAccessService::VerifyAudit(grpc::ServerContext*, const v1::VerifyAuditRequest*,
                                            v1::VerifyAuditResponse* response) {
  response->set_entries(7);
  if (broken) response->set_broken_at("audit.log:8");
  return grpc::Status::OK;
}

FakeAgent::FakeAgent() {
  socket_path_ = FreshFolder() + "/agentd.sock";
  grpc::ServerBuilder builder;
  builder.AddListeningPort(transport::SocketTarget(socket_path_),
                           grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  builder.RegisterService(&operations);
  builder.RegisterService(&access);
  server_ = builder.BuildAndStart();
  MACRAME_CHECK(server_ != nullptr) << "nothing can be served at " << socket_path_;
}

FakeAgent::~FakeAgent() {
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  unlink(socket_path_.c_str());
}

}  // namespace macrame::cli
