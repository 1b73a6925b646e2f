#pragma once

// A ClusterService on a unix socket that answers from a script, for running clusterctl against.

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "macrame/v1/access.grpc.pb.h"
#include "macrame/v1/cluster.grpc.pb.h"
#include "macrame/v1/operation.grpc.pb.h"

namespace macrame::cli {

class FakeClusterService final : public v1::ClusterService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::ClusterStatus* response) override;
  grpc::Status WatchStatus(grpc::ServerContext* context, const v1::WatchStatusRequest*,
                           grpc::ServerWriter<v1::ClusterStatus>* writer) override;
  // No node has the files of "nosuch", and of names with a capital letter, as in the catalogue.
  grpc::Status PlanModel(grpc::ServerContext*, const v1::PlanModelRequest* request,
                         v1::PlanResult* response) override;
  grpc::Status LoadModel(grpc::ServerContext*, const v1::LoadModelRequest* request,
                         grpc::ServerWriter<v1::LoadModelProgress>* writer) override;
  grpc::Status UnloadModel(grpc::ServerContext*, const v1::UnloadModelRequest* request,
                           v1::UnloadModelResponse*) override;
  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override;
  // "slow" streams words until it is cancelled, "thinker" reasons, speaks and calls; others answer
  // two pieces.
  grpc::Status Infer(grpc::ServerContext* context, const v1::GenerateRequest* request,
                     grpc::ServerWriter<v1::GenerateChunk>* writer) override;
  grpc::Status Version(grpc::ServerContext*, const v1::VersionRequest*,
                       v1::VersionResponse* response) override;

  // One line, then "followed" when it was asked to follow.
  grpc::Status Logs(grpc::ServerContext*, const v1::LogsRequest* request,
                    grpc::ServerWriter<v1::LogsChunk>* writer) override;

  grpc::Status GetLinks(grpc::ServerContext*, const v1::GetLinksRequest*,
                        v1::LinksView* response) override;
  grpc::Status Diagnose(grpc::ServerContext*, const v1::DiagnoseRequest* request,
                        v1::Diagnosis* response) override;
  grpc::Status RecheckLinks(grpc::ServerContext*, const v1::RecheckLinksRequest* request,
                            v1::RecheckLinksResponse* response) override;
  grpc::Status ExportHostfile(grpc::ServerContext*, const v1::ExportHostfileRequest* request,
                              v1::ExportHostfileResponse* response) override;
  grpc::Status PlanNet(grpc::ServerContext*, const v1::PlanNetRequest* request,
                       v1::NetPlan* response) override;

  // Names the format that was asked for.
  grpc::Status GetMetrics(grpc::ServerContext*, const v1::GetMetricsRequest* request,
                          v1::GetMetricsResponse* response) override;

  // The script; set before calls.
  absl::Status failure;  // of every call, unless OK
  bool troubled = false;
  bool fits = true;
  std::optional<v1::ClusterStatus> status;  // instead of the samples
  std::optional<v1::LinksView> links;       // unset: SamplePair()
  std::optional<v1::NetPlan> net_plan;      // unset: SampleNetPlan()
  int statuses_per_watch = 0;               // 0: until cancelled
  int infer_failures = 0;                   // so many questions are refused: PROMPT_TOO_LONG
  int messages_max = 1000;                  // conversations of more messages are refused likewise
  // Also while calls are under way.
  void SetStatus(const v1::ClusterStatus& next) {
    const std::lock_guard lock(status_mutex_);
    status = next;
  }
  // What was asked last.
  v1::LoadModelRequest last_load;
  v1::PlanModelRequest last_plan;
  v1::GenerateRequest last_infer;
  std::set<std::string> inferred;  // the deployments that were asked for
  v1::LogsRequest last_logs;
  std::string last_unload;
  v1::DiagnoseRequest last_diagnose;
  v1::RecheckLinksRequest last_recheck;
  v1::ExportHostfileRequest last_export;
  v1::PlanNetRequest last_plan_net;
  std::atomic<int> watches{0};
  std::atomic<bool> infer_was_cancelled{false};

 private:
  std::mutex status_mutex_;
};

// Cordons are taken, unless the coordinator changes, and one event is told.
class FakeOperationService final : public v1::OperationService::Service {
 public:
  grpc::Status SetCordon(grpc::ServerContext*, const v1::SetCordonRequest* request,
                         v1::SetCordonResponse* response) override;
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override;
  grpc::Status MarkNode(grpc::ServerContext*, const v1::MarkNodeRequest* request,
                        v1::MarkNodeResponse* response) override;
  grpc::Status PauseCluster(grpc::ServerContext*, const v1::PauseClusterRequest* request,
                            v1::PauseClusterResponse* response) override;
  grpc::Status VerifyModel(grpc::ServerContext*, const v1::VerifyModelRequest* request,
                           grpc::ServerWriter<v1::ModelVerification>* writer) override;

  grpc::Status ChangeProfile(grpc::ServerContext*, const v1::ChangeProfileRequest* request,
                             v1::ChangeProfileResponse* response) override;
  grpc::Status ListProfiles(grpc::ServerContext*, const v1::ListProfilesRequest* request,
                            v1::ListProfilesResponse* response) override;

  v1::ChangeProfileRequest last_profile;
  v1::ListProfilesResponse profiles;
  v1::MarkNodeRequest last_marks;
  std::vector<v1::PauseOrder> pauses;
  v1::VerifyModelRequest last_verified;
  v1::ModelVerification verification;
  bool changes = true;
  std::atomic<int> coordinator_changes{0};  // so many orders are not acknowledged
  v1::SetCordonRequest last_cordon;
  v1::ListEventsRequest last_events;
  uint64_t also_at_unix_ms = 0;  // the same happened then, too; 0: it did not
  int events_told_max = -1;      // then the caller's key is revoked; -1: it never is
  std::atomic<int> cordons{0};
};

// Keys and an audit log that stand for any.
class FakeAccessService final : public v1::AccessService::Service {
 public:
  grpc::Status CreateKey(grpc::ServerContext*, const v1::CreateKeyRequest* request,
                         v1::CreateKeyResponse* response) override;
  grpc::Status CreateAccessFile(grpc::ServerContext*, const v1::CreateAccessFileRequest* request,
                                v1::CreateAccessFileResponse* response) override;
  grpc::Status ListKeys(grpc::ServerContext*, const v1::ListKeysRequest*,
                        v1::ListKeysResponse* response) override;
  grpc::Status GetKeyEnergy(grpc::ServerContext*, const v1::GetKeyEnergyRequest*,
                            v1::GetKeyEnergyResponse* response) override;
  grpc::Status RevokeKey(grpc::ServerContext*, const v1::RevokeKeyRequest* request,
                         v1::RevokeKeyResponse* response) override;
  grpc::Status ReadAudit(grpc::ServerContext*, const v1::ReadAuditRequest* request,
                         v1::ReadAuditResponse* response) override;
  grpc::Status VerifyAudit(grpc::ServerContext*, const v1::VerifyAuditRequest*,
                           v1::VerifyAuditResponse* response) override;

  grpc::Status SetTenant(grpc::ServerContext*, const v1::SetTenantRequest* request,
                         v1::SetTenantResponse* response) override;
  grpc::Status ListTenants(grpc::ServerContext*, const v1::ListTenantsRequest*,
                           v1::ListTenantsResponse* response) override;

  grpc::Status EraseTenant(grpc::ServerContext*, const v1::EraseTenantRequest* request,
                           v1::EraseTenantResponse* response) override;

  v1::SetTenantRequest last_tenant;
  v1::EraseTenantResponse erased;
  v1::ListTenantsResponse tenants;
  v1::ApiKey last_created;
  std::string last_revoked;
  std::optional<v1::GetKeyEnergyResponse> energy;  // nullopt: an agent that does not know of it
  v1::ReadAuditRequest last_read;
  bool broken = false;
};

// Serves at a path of its own in the test's temporary folder.
class FakeAgent {
 public:
  FakeAgent();
  ~FakeAgent();
  const std::string& socket_path() const { return socket_path_; }
  FakeClusterService service;
  FakeOperationService operations;
  FakeAccessService access;

 private:
  std::string socket_path_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace macrame::cli
