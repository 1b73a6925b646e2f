#include "cli/format/drain_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/format/cluster_view.h"
#include "cli/format/text.h"
#include "proto/suggestions.h"

namespace macrame::cli {
Draining DrainOf(const v1::ClusterStatus& status, const std::string& node_id) {
  Draining left;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.identity().node_id() == node_id) {
      left.ranks = IsUp(node) ? node.ranks_running() : 0;
    } else {
      left.has_other |= IsUp(node) && !node.draining() && !node.has_cordon();
    }
  }
  for (const v1::DeploymentStatus& deployment : status.deployments()) {
    const auto& parts = deployment.plan().assignments();
    const bool is_there = std::any_of(parts.begin(), parts.end(), [&](const v1::Assignment& part) {
      return part.node_id() == node_id;
    });
    if (!is_there) continue;
    left.models.push_back(deployment.deployment().name());
    if (left.reason.empty()) left.reason = deployment.failure().message();
  }
  // A node that is gone holds nothing, whatever records still name it.
  const bool is_gone =
      std::any_of(status.nodes().begin(), status.nodes().end(), [&](const v1::NodeStatus& node) {
        return node.identity().node_id() == node_id &&
               (node.state() == v1::NODE_STATE_DEAD || node.state() == v1::NODE_STATE_LEFT);
      });
  if (is_gone) left.models.clear();
  return left;
}

std::string Draining::Models() const {
  if (models.empty()) return "the answers of gangs that moved";
  return Printable(NameList(models));
}

std::string Draining::Why() const {
  std::string text = absl::StrCat(Plural(ranks, "rank"), " left, of ", Models());
  if (!models.empty() && !reason.empty()) absl::StrAppend(&text, " (", Printable(reason), ")");
  return text;
}

std::string DrainLine(const Draining& left, const std::string& node_name) {
  if (left.models.empty()) {
    return absl::StrCat(Printable(node_name), ": ", Plural(left.ranks, "rank"),
                        " left, which finish their answers\n");
  }
  return absl::StrCat(Printable(node_name), ": ", left.Models(), " ",
                      left.models.size() == 1 ? "is" : "are", " to be launched elsewhere\n");
}

}  // namespace macrame::cli
