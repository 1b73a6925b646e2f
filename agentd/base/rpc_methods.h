#pragma once

// The methods that agents and clusterctl call (proto/macrame/v1/agent.proto, cluster.proto,
// enrolment.proto, operation.proto, access.proto).

#include "macrame/v1/access.pb.h"
#include "macrame/v1/agent.pb.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/enrolment.pb.h"
#include "macrame/v1/operation.pb.h"
#include "proto/rpc_method.h"

namespace macrame::agentd {

inline constexpr Method<v1::HeartbeatRequest, v1::HeartbeatResponse> kHeartbeat{
    "/macrame.v1.AgentService/Heartbeat", Access::kCertificate};
inline constexpr Method<v1::LeaseRequest, v1::LeaseResponse> kRequestLease{
    "/macrame.v1.AgentService/RequestLease", Access::kMember};
inline constexpr Method<v1::ReplicateRequest, v1::ReplicateResponse> kReplicate{
    "/macrame.v1.AgentService/Replicate", Access::kCertificate};
inline constexpr Method<v1::ReserveRequest, v1::ReserveResponse> kReserve{
    "/macrame.v1.AgentService/Reserve", Access::kCertificate};
inline constexpr Method<v1::LaunchRequest, v1::LaunchResponse> kLaunch{
    "/macrame.v1.AgentService/Launch", Access::kCertificate};
inline constexpr Method<v1::StopRanksRequest, v1::StopRanksResponse> kStopRanks{
    "/macrame.v1.AgentService/StopRanks", Access::kCertificate};
inline constexpr Method<v1::DescribeModelRequest, v1::DescribeModelResponse> kDescribeModel{
    "/macrame.v1.AgentService/DescribeModel", Access::kMember};
inline constexpr Method<v1::LeaveRequest, v1::LeaveResponse> kLeave{
    "/macrame.v1.AgentService/Leave", Access::kCertificate};
inline constexpr Method<v1::OpenMeterRequest, v1::OpenMeterResponse> kOpenMeter{
    "/macrame.v1.AgentService/OpenMeter", Access::kMember};
inline constexpr Method<v1::ProbeLinksRequest, v1::ProbeLinksResponse> kProbeLinks{
    "/macrame.v1.AgentService/ProbeLinks", Access::kMember};
inline constexpr Method<v1::MeasureLinkRequest, v1::MeasureLinkResponse> kMeasureLink{
    "/macrame.v1.AgentService/MeasureLink", Access::kMember};
inline constexpr Method<v1::VerifyTransportRequest, v1::VerifyTransportResponse> kVerifyGroup{
    "/macrame.v1.AgentService/VerifyGroup", Access::kMember};
inline constexpr Method<v1::TraceRankRequest, v1::TraceRankResponse> kTraceRanks{
    "/macrame.v1.AgentService/TraceRanks", Access::kMember};
inline constexpr StreamMethod<v1::GenerateRequest, v1::GenerateChunk> kGenerate{
    "/macrame.v1.AgentService/Generate", Access::kMember};

inline constexpr Method<v1::GetStatusRequest, v1::ClusterStatus> kGetStatus{
    "/macrame.v1.ClusterService/GetStatus", Access::kCertificate, Remote::kRead};
inline constexpr StreamMethod<v1::WatchStatusRequest, v1::ClusterStatus> kWatchStatus{
    "/macrame.v1.ClusterService/WatchStatus", Access::kCertificate, Remote::kRead};
inline constexpr Method<v1::PlanModelRequest, v1::PlanResult> kPlanModel{
    "/macrame.v1.ClusterService/PlanModel", Access::kCertificate, Remote::kRead};
inline constexpr StreamMethod<v1::LoadModelRequest, v1::LoadModelProgress> kLoadModel{
    "/macrame.v1.ClusterService/LoadModel", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::UnloadModelRequest, v1::UnloadModelResponse> kUnloadModel{
    "/macrame.v1.ClusterService/UnloadModel", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::ListModelsRequest, v1::ListModelsResponse> kListModels{
    "/macrame.v1.ClusterService/ListModels", Access::kCertificate, Remote::kRead};
inline constexpr StreamMethod<v1::GenerateRequest, v1::GenerateChunk> kInfer{
    "/macrame.v1.ClusterService/Infer", Access::kCertificate, Remote::kInfer};
inline constexpr StreamMethod<v1::LogsRequest, v1::LogsChunk> kLogs{
    "/macrame.v1.ClusterService/Logs", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::GetLinksRequest, v1::LinksView> kGetLinks{
    "/macrame.v1.ClusterService/GetLinks", Access::kCertificate, Remote::kRead};
inline constexpr Method<v1::DiagnoseRequest, v1::Diagnosis> kDiagnose{
    "/macrame.v1.ClusterService/Diagnose", Access::kCertificate, Remote::kRead};
inline constexpr Method<v1::RecheckLinksRequest, v1::RecheckLinksResponse> kRecheckLinks{
    "/macrame.v1.ClusterService/RecheckLinks", Access::kCertificate, Remote::kOperate};
inline constexpr StreamMethod<v1::BenchLinksRequest, v1::LinkMeasurement> kBenchLinks{
    "/macrame.v1.ClusterService/BenchLinks", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::ExportHostfileRequest, v1::ExportHostfileResponse> kExportHostfile{
    "/macrame.v1.ClusterService/ExportHostfile", Access::kCertificate, Remote::kRead};
inline constexpr Method<v1::VerifyTransportRequest, v1::VerifyTransportResponse> kVerifyTransport{
    "/macrame.v1.ClusterService/VerifyTransport", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::TraceRankRequest, v1::TraceModelResponse> kTraceModel{
    "/macrame.v1.ClusterService/TraceModel", Access::kLocal, Remote::kOperate};
inline constexpr Method<v1::ForgetSpeedsRequest, v1::ForgetSpeedsResponse> kForgetSpeeds{
    "/macrame.v1.ClusterService/ForgetSpeeds", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::PlanNetRequest, v1::NetPlan> kPlanNet{
    "/macrame.v1.ClusterService/PlanNet", Access::kCertificate, Remote::kRead};
inline constexpr Method<v1::ForgetNodeRequest, v1::ForgetNodeResponse> kForgetNode{
    "/macrame.v1.ClusterService/ForgetNode", Access::kCertificate, Remote::kOperate};
inline constexpr Method<v1::GetMetricsRequest, v1::GetMetricsResponse> kGetMetrics{
    "/macrame.v1.ClusterService/GetMetrics", Access::kLocal, Remote::kRead};
inline constexpr Method<v1::CreateJoinTokenRequest, v1::CreateJoinTokenResponse> kCreateJoinToken{
    "/macrame.v1.EnrolmentService/CreateJoinToken", Access::kLocal, Remote::kAdmin};
inline constexpr Method<v1::JoinClusterRequest, v1::JoinClusterResponse> kJoinCluster{
    "/macrame.v1.EnrolmentService/JoinCluster", Access::kLocal};
inline constexpr Method<v1::ApproveNodeRequest, v1::ApproveNodeResponse> kApproveNode{
    "/macrame.v1.EnrolmentService/ApproveNode", Access::kLocal, Remote::kAdmin};
inline constexpr Method<v1::RevokeNodeRequest, v1::RevokeNodeResponse> kRevokeNode{
    "/macrame.v1.EnrolmentService/RevokeNode", Access::kLocal, Remote::kAdmin};
inline constexpr Method<v1::GetAuthorityRequest, v1::GetAuthorityResponse> kGetAuthority{
    "/macrame.v1.EnrolmentService/GetAuthority", Access::kLocal, Remote::kRead};
inline constexpr Method<v1::RenewCertificateRequest, v1::RenewCertificateResponse>
    kRenewCertificate{"/macrame.v1.EnrolmentService/RenewCertificate", Access::kCertificate};
inline constexpr Method<v1::TakeRevocationsRequest, v1::TakeRevocationsResponse> kTakeRevocations{
    "/macrame.v1.EnrolmentService/TakeRevocations", Access::kCertificate};
inline constexpr Method<v1::CreateKeyRequest, v1::CreateKeyResponse> kCreateKey{
    "/macrame.v1.AccessService/CreateKey", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::CreateAccessFileRequest, v1::CreateAccessFileResponse>
    kCreateAccessFile{"/macrame.v1.AccessService/CreateAccessFile", Access::kLocal};
inline constexpr Method<v1::ListKeysRequest, v1::ListKeysResponse> kListKeys{
    "/macrame.v1.AccessService/ListKeys", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::RevokeKeyRequest, v1::RevokeKeyResponse> kRevokeKey{
    "/macrame.v1.AccessService/RevokeKey", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::RotateKeyRequest, v1::RotateKeyResponse> kRotateKey{
    "/macrame.v1.AccessService/RotateKey", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::GetKeyEnergyRequest, v1::GetKeyEnergyResponse> kGetKeyEnergy{
    "/macrame.v1.AccessService/GetKeyEnergy", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::SetTenantRequest, v1::SetTenantResponse> kSetTenant{
    "/macrame.v1.AccessService/SetTenant", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::ListTenantsRequest, v1::ListTenantsResponse> kListTenants{
    "/macrame.v1.AccessService/ListTenants", Access::kMember, Remote::kAdmin};
inline constexpr Method<v1::EraseTenantRequest, v1::EraseTenantResponse> kEraseTenant{
    "/macrame.v1.AccessService/EraseTenant", Access::kLocal, Remote::kAdmin};
inline constexpr Method<v1::DropAnswersRequest, v1::DropAnswersResponse> kDropAnswers{
    "/macrame.v1.AccessService/DropAnswers", Access::kMember};
inline constexpr Method<v1::ReadAuditRequest, v1::ReadAuditResponse> kReadAudit{
    "/macrame.v1.AccessService/ReadAudit", Access::kLocal, Remote::kAdmin};
inline constexpr Method<v1::VerifyAuditRequest, v1::VerifyAuditResponse> kVerifyAudit{
    "/macrame.v1.AccessService/VerifyAudit", Access::kLocal, Remote::kAdmin};
inline constexpr Method<v1::VersionRequest, v1::VersionResponse> kVersion{
    "/macrame.v1.ClusterService/Version", Access::kCertificate, Remote::kRead};

inline constexpr Method<v1::SetCordonRequest, v1::SetCordonResponse> kSetCordon{
    "/macrame.v1.OperationService/SetCordon", Access::kMember, Remote::kOperate};
inline constexpr Method<v1::MarkNodeRequest, v1::MarkNodeResponse> kMarkNode{
    "/macrame.v1.OperationService/MarkNode", Access::kMember, Remote::kOperate};
inline constexpr Method<v1::ChangeProfileRequest, v1::ChangeProfileResponse> kChangeProfile{
    "/macrame.v1.OperationService/ChangeProfile", Access::kMember, Remote::kOperate};
inline constexpr Method<v1::ListProfilesRequest, v1::ListProfilesResponse> kListProfiles{
    "/macrame.v1.OperationService/ListProfiles", Access::kMember, Remote::kRead};
inline constexpr Method<v1::PauseClusterRequest, v1::PauseClusterResponse> kPauseCluster{
    "/macrame.v1.OperationService/PauseCluster", Access::kMember, Remote::kOperate};
inline constexpr StreamMethod<v1::VerifyFilesRequest, v1::NodeModelFiles> kVerifyFiles{
    "/macrame.v1.FileService/VerifyFiles", Access::kMember};
inline constexpr StreamMethod<v1::VerifyModelRequest, v1::ModelVerification> kVerifyModel{
    "/macrame.v1.OperationService/VerifyModel", Access::kLocal, Remote::kOperate};
inline constexpr Method<v1::ListEventsRequest, v1::ListEventsResponse> kListEvents{
    "/macrame.v1.OperationService/ListEvents", Access::kMember, Remote::kRead};

}  // namespace macrame::agentd
