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
inline constexpr std::string_view kEndRanks = "/macrame.v1.AgentService/EndRanks";
inline constexpr std::string_view kDescribeModel = "/macrame.v1.AgentService/DescribeModel";
inline constexpr std::string_view kLeave = "/macrame.v1.AgentService/Leave";
inline constexpr std::string_view kGenerate = "/macrame.v1.AgentService/Generate";

inline constexpr std::string_view kGetStatus = "/macrame.v1.ClusterService/GetStatus";
inline constexpr std::string_view kWatchStatus = "/macrame.v1.ClusterService/WatchStatus";
inline constexpr std::string_view kPlanModel = "/macrame.v1.ClusterService/PlanModel";
inline constexpr std::string_view kLoadModel = "/macrame.v1.ClusterService/LoadModel";
inline constexpr std::string_view kUnloadModel = "/macrame.v1.ClusterService/UnloadModel";
inline constexpr std::string_view kListModels = "/macrame.v1.ClusterService/ListModels";
inline constexpr std::string_view kInfer = "/macrame.v1.ClusterService/Infer";
inline constexpr std::string_view kLogs = "/macrame.v1.ClusterService/Logs";
inline constexpr std::string_view kVersion = "/macrame.v1.ClusterService/Version";

}  // namespace macrame::agentd
