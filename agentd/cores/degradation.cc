#include "agentd/cores/degradation.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/cost_model.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

const v1::NodeStatus* FindNode(const v1::ClusterStatus& status, const std::string& node_id) {
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.identity().node_id() == node_id) return &node;
  }
  return nullptr;
}

// Of the last answers, tokens a second; 0: not enough of them.
double MeasuredRate(const v1::DeploymentStatus& deployment) {
  for (const v1::RankStatus& rank : deployment.ranks()) {
    if (rank.rank() != 0 || rank.decode_step_us() <= 0) continue;
    if (rank.decode_answers() >= kAnswersUntilSlow) {
      return planner::kMicrosecondsPerSecond / rank.decode_step_us();
    }
  }
  return 0;
}

}  // namespace

std::vector<v1::Reason> FindDegradation(const v1::ClusterStatus& status) {
  std::vector<v1::Reason> found;
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    if (deployment.state() != v1::DEPLOYMENT_STATE_READY) continue;
    const std::string& name = deployment.deployment().name();
    for (const v1::Assignment& part : deployment.plan().assignments()) {
      const v1::NodeStatus* node = FindNode(status, part.node_id());
      if (node == nullptr || node->load().thermal_state() != v1::THERMAL_STATE_THROTTLED) continue;
      found.push_back(MakeReason(reasons::kThermal,
                                 absl::StrCat(part.hostname(), ", which runs rank ", part.rank(),
                                              " of '", name, "', is throttled by heat"),
                                 part.node_id()));
    }
    const double measured = MeasuredRate(deployment);
    const double predicted = deployment.plan().prediction().tokens_per_second();
    if (measured <= 0 || measured >= kSlowShareOfPredicted * predicted) continue;
    found.push_back(MakeReason(
        reasons::kSlowerThanPredicted,
        absl::StrFormat("'%s' gave %.1f tokens/s in its last answer; %.1f were predicted", name,
                        measured, predicted)));
    found.back().set_remedy(absl::StrCat("'clusterctl model check ", name,
                                         "' says where the time goes; unload and load it to plan "
                                         "anew with what was measured"));
  }
  for (const v1::Reason& warning : status.links().group().warnings()) {
    if (warning.code() == reasons::kGpuWedged) found.push_back(warning);
  }
  return found;
}

}  // namespace macrame::agentd
