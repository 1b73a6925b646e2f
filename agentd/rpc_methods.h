#pragma once

// The paths of the methods that agents and clusterctl call (proto/macrame/v1/agent.proto,
// cluster.proto).

#include <string_view>

namespace macrame::agentd {

inline constexpr std::string_view kHeartbeat = "/macrame.v1.AgentService/Heartbeat";
inline constexpr std::string_view kRequestLease = "/macrame.v1.AgentService/RequestLease";
inline constexpr std::string_view kReplicate = "/macrame.v1.AgentService/Replicate";
inline constexpr std::string_view kReserve = "/macrame.v1.AgentService/Reserve";
inline constexpr std::string_view kLaunch = "/macrame.v1.AgentService/Launch";
inline constexpr std::string_view kStopRanks = "/macrame.v1.AgentService/StopRanks";
inline constexpr std::string_view kDescribeModel = "/macrame.v1.AgentService/DescribeModel";
inline constexpr std::string_view kLeave = "/macrame.v1.AgentService/Leave";
inline constexpr std::string_view kOpenMeter = "/macrame.v1.AgentService/OpenMeter";
inline constexpr std::string_view kProbeLinks = "/macrame.v1.AgentService/ProbeLinks";
inline constexpr std::string_view kMeasureLink = "/macrame.v1.AgentService/MeasureLink";
inline constexpr std::string_view kVerifyGroup = "/macrame.v1.AgentService/VerifyGroup";
inline constexpr std::string_view kTraceRanks = "/macrame.v1.AgentService/TraceRanks";
inline constexpr std::string_view kGenerate = "/macrame.v1.AgentService/Generate";

inline constexpr std::string_view kGetStatus = "/macrame.v1.ClusterService/GetStatus";
inline constexpr std::string_view kWatchStatus = "/macrame.v1.ClusterService/WatchStatus";
inline constexpr std::string_view kPlanModel = "/macrame.v1.ClusterService/PlanModel";
inline constexpr std::string_view kLoadModel = "/macrame.v1.ClusterService/LoadModel";
inline constexpr std::string_view kUnloadModel = "/macrame.v1.ClusterService/UnloadModel";
inline constexpr std::string_view kListModels = "/macrame.v1.ClusterService/ListModels";
inline constexpr std::string_view kInfer = "/macrame.v1.ClusterService/Infer";
inline constexpr std::string_view kLogs = "/macrame.v1.ClusterService/Logs";
inline constexpr std::string_view kGetLinks = "/macrame.v1.ClusterService/GetLinks";
inline constexpr std::string_view kDiagnose = "/macrame.v1.ClusterService/Diagnose";
inline constexpr std::string_view kRecheckLinks = "/macrame.v1.ClusterService/RecheckLinks";
inline constexpr std::string_view kBenchLinks = "/macrame.v1.ClusterService/BenchLinks";
inline constexpr std::string_view kExportHostfile = "/macrame.v1.ClusterService/ExportHostfile";
inline constexpr std::string_view kVerifyTransport = "/macrame.v1.ClusterService/VerifyTransport";
inline constexpr std::string_view kTraceModel = "/macrame.v1.ClusterService/TraceModel";
inline constexpr std::string_view kForgetSpeeds = "/macrame.v1.ClusterService/ForgetSpeeds";
inline constexpr std::string_view kPlanNet = "/macrame.v1.ClusterService/PlanNet";
inline constexpr std::string_view kForgetNode = "/macrame.v1.ClusterService/ForgetNode";
inline constexpr std::string_view kCreateJoinToken = "/macrame.v1.EnrolmentService/CreateJoinToken";
inline constexpr std::string_view kJoinCluster = "/macrame.v1.EnrolmentService/JoinCluster";
inline constexpr std::string_view kApproveNode = "/macrame.v1.EnrolmentService/ApproveNode";
inline constexpr std::string_view kRevokeNode = "/macrame.v1.EnrolmentService/RevokeNode";
inline constexpr std::string_view kRenewCertificate =
    "/macrame.v1.EnrolmentService/RenewCertificate";
inline constexpr std::string_view kTakeRevocations = "/macrame.v1.EnrolmentService/TakeRevocations";
inline constexpr std::string_view kVersion = "/macrame.v1.ClusterService/Version";

}  // namespace macrame::agentd
