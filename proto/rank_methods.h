#pragma once

// What a node's agent calls of its rank processes (macrame/v1/rank.proto), over a unix socket.

#include "macrame/v1/rank.pb.h"
#include "proto/rpc_method.h"

namespace macrame {

inline constexpr StreamMethod<v1::WatchRequest, v1::RankStatus> kRankWatch{
    "/macrame.v1.RankService/Watch", Access::kLocal};
inline constexpr StreamMethod<v1::GenerateRequest, v1::GenerateChunk> kRankGenerate{
    "/macrame.v1.RankService/Generate", Access::kLocal};
inline constexpr Method<v1::StopRequest, v1::StopResponse> kRankStop{"/macrame.v1.RankService/Stop",
                                                                     Access::kLocal};
inline constexpr Method<v1::VerifyGroupRequest, v1::VerifyGroupResponse> kRankVerifyGroup{
    "/macrame.v1.RankService/VerifyGroup", Access::kLocal};
inline constexpr Method<v1::TraceRankRequest, v1::TraceRankResponse> kRankTrace{
    "/macrame.v1.RankService/Trace", Access::kLocal};

}  // namespace macrame
