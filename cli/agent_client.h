#pragma once

// Calls to an agent: the one on this machine over its unix socket, or one of a cluster that an
// access file is of, over mutual TLS. Blocking; every call has a limit. The only place of the tool
// that knows gRPC.
//
// Errors are those that the agent gave, with their Reason; when nobody answers, or not within the
// limit, it is UNAVAILABLE with AGENT_UNREACHABLE; when the agent is older and has no such call,
// UNIMPLEMENTED with VERSION_SKEW. Cancel() may be called from any thread.

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/access.pb.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/enrolment.pb.h"
#include "macrame/v1/operation.pb.h"

namespace macrame::cli {

// Which agent is asked.
struct AgentPlace {
  std::string socket_path;
  std::string access_file;  // set: an agent of its cluster, and not this machine's
  std::string host;         // of these; empty: whichever answers first (transport/access_file.h)

  // As errors and `version` name it.
  std::string Text() const;
};

class AgentClient {
 public:
  // Return false to end the stream; the call then answers OK.
  using OnStatus = std::function<bool(const v1::ClusterStatus& status)>;
  using OnProgress = std::function<void(const v1::LoadModelProgress& progress)>;
  using OnChunk = std::function<void(const v1::GenerateChunk& chunk)>;

  using OnLogs = std::function<void(const v1::LogsChunk& chunk)>;

  // `answer_limit`: of calls that an agent answers from what it has at hand.
  static constexpr std::chrono::milliseconds kAnswerLimit{10'000};
  explicit AgentClient(const AgentPlace& place,
                       std::chrono::milliseconds answer_limit = kAnswerLimit);
  ~AgentClient();
  AgentClient(const AgentClient&) = delete;
  AgentClient& operator=(const AgentClient&) = delete;

  absl::StatusOr<v1::ClusterStatus> GetStatus();
  absl::Status WatchStatus(const v1::WatchStatusRequest& request, const OnStatus& on_status);
  absl::StatusOr<v1::PlanResult> PlanModel(const v1::PlanModelRequest& request);
  // Waits for request.timeout_ms and a little longer: the agent is the one to say
  // DEADLINE_EXCEEDED.
  absl::Status LoadModel(const v1::LoadModelRequest& request, const OnProgress& on_progress);
  absl::Status UnloadModel(const std::string& name);
  absl::StatusOr<v1::ListModelsResponse> ListModels();
  absl::Status Infer(const v1::GenerateRequest& request, const OnChunk& on_chunk);
  absl::Status Logs(const v1::LogsRequest& request, const OnLogs& on_logs);
  absl::StatusOr<v1::VersionResponse> Version();
  absl::StatusOr<v1::LinksView> GetLinks();
  absl::StatusOr<v1::Diagnosis> Diagnose(const v1::DiagnoseRequest& request);
  absl::StatusOr<v1::RecheckLinksResponse> RecheckLinks(const v1::RecheckLinksRequest& request);
  absl::Status BenchLinks(const v1::BenchLinksRequest& request,
                          const std::function<void(const v1::LinkMeasurement&)>& on_measured);
  absl::StatusOr<v1::ExportHostfileResponse> ExportHostfile(
      const v1::ExportHostfileRequest& request);
  absl::StatusOr<v1::VerifyTransportResponse> VerifyTransport(
      const v1::VerifyTransportRequest& request);
  // Waits for request.duration_ms and a little longer.
  absl::StatusOr<v1::TraceModelResponse> TraceModel(const v1::TraceRankRequest& request);
  absl::StatusOr<v1::ForgetSpeedsResponse> ForgetSpeeds();
  absl::StatusOr<v1::ForgetNodeResponse> ForgetNode(const v1::ForgetNodeRequest& request);
  // `format`: "prometheus", "openmetrics" or "json".
  absl::StatusOr<std::string> GetMetrics(const std::string& format);
  absl::StatusOr<v1::NetPlan> PlanNet(const v1::PlanNetRequest& request);
  absl::StatusOr<v1::CreateJoinTokenResponse> CreateJoinToken(
      const v1::CreateJoinTokenRequest& request);
  absl::StatusOr<v1::JoinClusterResponse> JoinCluster(const v1::JoinClusterRequest& request);
  absl::StatusOr<v1::GetAuthorityResponse> GetAuthority();
  absl::StatusOr<v1::ApproveNodeResponse> ApproveNode(const v1::ApproveNodeRequest& request);
  absl::StatusOr<v1::RevokeNodeResponse> RevokeNode(const v1::RevokeNodeRequest& request);
  absl::StatusOr<v1::SetCordonResponse> SetCordon(const v1::SetCordonRequest& request);
  absl::StatusOr<v1::MarkNodeResponse> MarkNode(const v1::MarkNodeRequest& request);
  absl::StatusOr<v1::ChangeProfileResponse> ChangeProfile(const v1::ChangeProfileRequest& request);
  absl::StatusOr<v1::ListProfilesResponse> ListProfiles();
  absl::StatusOr<v1::PauseClusterResponse> PauseCluster(v1::PauseOrder order);
  absl::StatusOr<v1::ListEventsResponse> ListEvents(const v1::ListEventsRequest& request);

  // Reads all files of the model on each node: as long as the slowest disk takes.
  absl::Status VerifyModel(const v1::VerifyModelRequest& request,
                           const std::function<void(const v1::ModelVerification&)>& on_progress);

  absl::StatusOr<v1::CreateKeyResponse> CreateKey(const v1::CreateKeyRequest& request);
  absl::StatusOr<v1::CreateAccessFileResponse> CreateAccessFile(
      const v1::CreateAccessFileRequest& request);
  absl::StatusOr<v1::ListKeysResponse> ListKeys();
  absl::StatusOr<v1::GetKeyEnergyResponse> GetKeyEnergy();
  absl::StatusOr<v1::SetTenantResponse> SetTenant(const v1::SetTenantRequest& request);
  absl::StatusOr<v1::ListTenantsResponse> ListTenants();
  absl::StatusOr<v1::EraseTenantResponse> EraseTenant(const std::string& name);
  absl::StatusOr<v1::RevokeKeyResponse> RevokeKey(const v1::RevokeKeyRequest& request);
  absl::StatusOr<v1::RotateKeyResponse> RotateKey(const v1::RotateKeyRequest& request);
  absl::StatusOr<v1::ReadAuditResponse> ReadAudit(const v1::ReadAuditRequest& request);
  absl::StatusOr<v1::VerifyAuditResponse> VerifyAudit();

  // Ends the call under way and all later ones with CANCELLED.
  void Cancel();

 private:
  class Impl;
  const std::chrono::milliseconds answer_limit_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace macrame::cli
