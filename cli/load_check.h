#pragma once

// Is a loaded model as its plan said? Eight questions, answered with figures: is it served by the
// engine that was planned, is the memory filled as planned, were its machines busy with something
// else, do all GPUs work, do they compute what their processors do, is it as fast as predicted, are
// the links what was planned, and does an answer begin at once. Pure.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// kNoted: nothing is wrong with the model, and other figures are worse for it.
enum class LoadVerdict { kPassed, kFailed, kUnknown, kNoted };

struct LoadCheck {
  std::string what;  // "memory of mini-2"
  LoadVerdict verdict = LoadVerdict::kUnknown;
  std::string measured;
  std::string expected;  // or why it can't be told
};

// One answer, and what was seen while it came.
struct LoadTrial {
  double first_text_ms = -1;
  double tokens_per_second = 0;            // generated, without the prompt
  std::map<std::string, double> gpu_busy;  // by node id: the highest seen; not there: not known
  std::optional<v1::VerifyTransportResponse> group;  // of several ranks
};

// Bounds. Memory: the weights at least, less what the files hold beside them; at most all that was
// planned, which the caches fill in time.
inline constexpr double kMemoryTolerance = 0.15;
inline constexpr uint64_t kMemorySlackBytes = 64ULL << 20;
inline constexpr double kGpuBusyMin = 0.3;
// Of a processor before anything was asked of it: more takes from what the trial measures.
inline constexpr double kCpuBusyMax = 0.25;
// The planner's largest error on published figures is about a quarter.
inline constexpr double kSpeedOfPredictedMin = 0.7;
inline constexpr double kFirstTextMsMax = 100;
// A small all-reduce inside MLX's graph; the link itself takes under 10 us.
inline constexpr double kRdmaCollectiveUsMax = 100;

// `cluster`: as it was before the trial.
std::vector<LoadCheck> CheckLoad(const v1::DeploymentStatus& deployment,
                                 const v1::ClusterStatus& cluster, const LoadTrial& trial);

}  // namespace macrame::cli
