#include "agentd/services/status_reporter.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "agentd/cores/degradation.h"
#include "agentd/cores/health.h"
#include "agentd/cores/machine_share.h"
#include "agentd/cores/node_transport.h"
#include "proto/reasons.h"

namespace macrame::agentd {

void StatusReporter::SetCluster(std::string id, std::string name, bool insecure) {
  cluster_id_ = std::move(id);
  cluster_name_ = std::move(name);
  insecure_ = insecure;
}

void StatusReporter::TakeDeployments(const v1::ClusterStatus& coordinators) {
  told_.assign(coordinators.deployments().begin(), coordinators.deployments().end());
  told_by_ = coordinators.answered_by();
  told_at_ = parts_.dispatcher.Now();
}

std::vector<v1::DeploymentStatus> StatusReporter::Deployments() const {
  const MonotonicTime now = parts_.dispatcher.Now();
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(now);
  const bool told = coordinator.has_value() && coordinator->coordinator.value() == told_by_ &&
                    now - told_at_ < kCoordinatorWordHolds;
  const bool leads = parts_.election.Leading(now).has_value();
  return told && !leads ? told_ : parts_.gang_controller.Statuses();
}

void StatusReporter::AddNodes(v1::ClusterStatus& status) const {
  for (const NodeFacts& facts : parts_.views.All()) {
    v1::NodeStatus& node = *status.add_nodes();
    *node.mutable_identity() = facts.identity;
    node.mutable_identity()->set_hostname(facts.display_name);
    node.set_state(facts.state);
    *node.mutable_state_reason() = facts.state_reason;
    if (facts.inventory != nullptr) *node.mutable_inventory() = *facts.inventory;
    if (facts.load != nullptr) *node.mutable_load() = *facts.load;
    node.set_is_coordinator(status.coordinator().term() > 0 &&
                            status.coordinator().coordinator_id() == facts.id.value());
    node.set_is_self(facts.is_self);
    node.set_last_heartbeat_age_ms(facts.age_ms);
    if (facts.cordon != nullptr) *node.mutable_cordon() = *facts.cordon;
    if (facts.marks != nullptr) *node.mutable_marks() = *facts.marks;
    if (facts.ranks != nullptr && facts.state == v1::NODE_STATE_ALIVE) {
      node.set_ranks_running(RunningRanks(*facts.ranks));
    }
    node.set_draining(facts.draining && facts.state == v1::NODE_STATE_ALIVE);
  }
  std::set<std::string> live;
  for (const v1::NodeStatus& node : status.nodes()) {
    if (node.state() == v1::NODE_STATE_ALIVE) live.insert(node.identity().node_id());
  }
  for (v1::NodeStatus& node : *status.mutable_nodes()) {
    node.set_transport_verdict(
        NodeTransport(parts_.links.links(), node.identity().node_id(), live));
  }
}

v1::Reason StatusReporter::NoCoordinator(MonotonicTime now) const {
  const std::optional<Election::Minority> minority = parts_.election.InMinority(now);
  if (!minority.has_value())
    return MakeReason(reasons::kNoCoordinator, "no coordinator is agreed on");
  if (parts_.member_writer.listed().empty()) {
    return MakeReason(reasons::kMinority,
                      absl::StrCat("the first list of members is written by ", minority->listed,
                                   " nodes together (quorum_first_members); ", minority->live,
                                   minority->live == 1 ? " is here" : " are here"),
                      parts_.own.id().value());
  }
  std::string away;
  for (const NodeId& node : parts_.member_writer.listed()) {
    if (node == parts_.own.id() || parts_.members.IsAlive(node)) continue;
    absl::StrAppend(&away, away.empty() ? "" : ", ", parts_.views.DisplayName(node));
  }
  std::string until = "until more of them are in reach";
  if (minority->until.has_value()) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(*minority->until - now).count();
    until = absl::StrCat("for ", left, " s more, or until others are in reach");
  }
  return MakeReason(
      reasons::kMinority,
      absl::StrCat("this side has ", minority->live, " of the cluster's ", minority->listed,
                   " members: it serves what it runs and changes nothing ", until,
                   away.empty() ? "" : absl::StrCat(" (away: ", away, ")")),
      parts_.own.id().value());
}

// What neither nodes nor deployments show.
std::vector<v1::Reason> StatusReporter::Found(const v1::ClusterStatus& status) const {
  const MonotonicTime now = parts_.dispatcher.Now();
  std::vector<v1::Reason> found;
  if (status.coordinator().term() == 0) found.push_back(NoCoordinator(now));
  for (v1::Reason& reason : FindDegradation(status)) found.push_back(std::move(reason));
  for (v1::Reason& reason : parts_.members.table().Problems(now)) {
    found.push_back(std::move(reason));
  }
  for (v1::Reason& reason : parts_.problems()) found.push_back(std::move(reason));
  for (const NodeFacts& facts : parts_.views.All()) {
    if (facts.state_failure == nullptr) continue;
    v1::Reason failure = *facts.state_failure;
    failure.set_message(absl::StrCat(facts.display_name, ": ", failure.message()));
    failure.set_node_id(facts.id.value());
    found.push_back(std::move(failure));
  }
  return found;
}

std::vector<v1::Reason> StatusReporter::Problems() const {
  const v1::ClusterStatus status = Status();
  return {status.problems().begin(), status.problems().end()};
}

bool StatusReporter::Knows(const NodeId& node) const {
  return node == parts_.own.id() || parts_.members.table().Find(node) != nullptr;
}

v1::ClusterStatus StatusReporter::Status() const {
  const MonotonicTime now = parts_.dispatcher.Now();
  v1::ClusterStatus status;
  status.set_cluster_id(cluster_id_);
  status.set_cluster_name(cluster_name_);
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(now);
  if (coordinator.has_value()) *status.mutable_coordinator() = ToProto(*coordinator);
  AddNodes(status);
  *status.mutable_aggregate_load() = SumLoad(status);
  for (v1::DeploymentStatus& deployment : Deployments()) {
    const v1::ModelEnergy* energy =
        parts_.energy.Find(deployment.deployment().name(), deployment.epoch());
    // The coordinator's own comes with its word; it hears of all ranks soonest.
    if (energy != nullptr && !deployment.has_energy()) *deployment.mutable_energy() = *energy;
    *status.add_deployments() = std::move(deployment);
  }
  for (const v1::UnknownNode& unknown_node : parts_.members.table().UnknownNodes()) {
    *status.add_unknown_nodes() = unknown_node;
  }
  *status.mutable_links() = parts_.links.links();
  *status.mutable_speeds() = parts_.gang_controller.Speeds();
  JudgeHealth(Found(status), &status);
  for (const NodeId& node : parts_.member_writer.listed()) status.add_member_ids(node.value());
  status.set_answered_by(parts_.own.id().value());
  status.set_insecure(insecure_);
  return status;
}

v1::ListModelsResponse StatusReporter::Models(
    const std::function<bool(const v1::Deployment&)>& is_told) const {
  // By name and fingerprint: two nodes may hold different models under one name.
  std::map<std::pair<std::string, std::string>, v1::ModelEntry> entries;
  for (const NodeFacts& facts : parts_.views.All()) {
    if (facts.inventory == nullptr || facts.state != v1::NODE_STATE_ALIVE) continue;
    for (const v1::LocalModel& model : facts.inventory->models()) {
      v1::ModelEntry& entry = entries[{model.name(), model.fingerprint()}];
      entry.set_name(model.name());
      entry.set_fingerprint(model.fingerprint());
      entry.set_size_bytes(model.size_bytes());
      entry.add_node_ids(facts.id.value());
    }
  }
  for (const v1::DeploymentStatus& status : Deployments()) {
    const v1::Deployment& deployment = status.deployment();
    if (is_told && !is_told(deployment)) continue;
    v1::ModelEntry& entry = entries[{deployment.model_name(), deployment.model_fingerprint()}];
    entry.set_name(deployment.model_name());
    entry.set_fingerprint(deployment.model_fingerprint());
    if (!entry.has_deployment()) *entry.mutable_deployment() = status;
  }
  v1::ListModelsResponse response;
  for (auto& [key, entry] : entries) *response.add_models() = std::move(entry);
  return response;
}

}  // namespace macrame::agentd
