#pragma once

// Models, deployments and plans as people read them. Pure.

#include <string>

#include "cli/format/text.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::cli {

// "pending", "loading", "ready", "recovering", "removing".
std::string DeploymentWord(v1::DeploymentState state);
// "one node", "pipeline over 3 via ring", "tensor over 2 via verbs".
std::string ShapeText(const v1::Plan& plan);

// Every deployment with a line for each of its ranks.
std::string DeploymentsView(const v1::ClusterStatus& status, int width, const Style& style);
// `model status --detail`: what each rank holds by plan and by measure, and its share of all.
std::string BalanceView(const v1::DeploymentStatus& deployment, int width, const Style& style);
// `ps`: a line for each deployment: its nodes, memory, speed and requests.
std::string LoadedView(const v1::ClusterStatus& status, int width, const Style& style);
// `model list`: what is on disk and what is loaded.
std::string ModelsView(const v1::ListModelsResponse& models, int width, const Style& style);
// `plan`: the plan that would be carried out and why, or why there is none.
std::string PlanView(const v1::PlanResult& result, int width, const Style& style);
// The lines that end `model load`.
// What measured speeds put on what is predicted, by backend.
std::string SpeedsView(const v1::SpeedCorrections& speeds, int width, const Style& style);
std::string LoadedSummary(const v1::DeploymentStatus& status, double seconds);

}  // namespace macrame::cli
