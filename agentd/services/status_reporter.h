#pragma once

// Puts together what `clusterctl status` and its kin show. Owner thread.

#include <functional>
#include <string>
#include <vector>

#include "agentd/gangs/gang_controller.h"
#include "agentd/links/link_table.h"
#include "agentd/node/member_monitor.h"
#include "agentd/node/node_views.h"
#include "agentd/services/energy_service.h"
#include "agentd/state/member_writer.h"
#include "macrame/v1/cluster.pb.h"

namespace macrame::agentd {

class StatusReporter {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    const MemberMonitor& members;
    const MemberWriter& member_writer;
    NodeViews& views;
    GangController& gang_controller;
    const OwnNode& own;
    LinkTable& links;
    const EnergyService& energy;
    // Troubles of this node's own: beacons, models, lost writes, ports.
    std::function<std::vector<v1::Reason>()> problems;
  };

  explicit StatusReporter(Parts parts) : parts_(std::move(parts)) {}

  void SetCluster(std::string id, std::string name, bool insecure);
  // The coordinator's word on deployments, for nodes that don't lead. It counts for
  // kCoordinatorWordHolds.
  void TakeDeployments(const v1::ClusterStatus& coordinators);

  v1::ClusterStatus Status() const;
  // As Status() lists them.
  std::vector<v1::Reason> Problems() const;
  // With those deployments that are to be told of; null: with all.
  v1::ListModelsResponse Models(
      const std::function<bool(const v1::Deployment&)>& is_told = nullptr) const;
  // A member, this node among them, whatever its state.
  bool Knows(const NodeId& node) const;
  std::vector<v1::DeploymentStatus> Deployments() const;

 private:
  void AddNodes(v1::ClusterStatus& status) const;
  // Why nothing is agreed on, in the words that fit.
  v1::Reason NoCoordinator(MonotonicTime now) const;
  std::vector<v1::Reason> Found(const v1::ClusterStatus& status) const;

  Parts parts_;
  std::string cluster_id_;
  std::string cluster_name_;
  bool insecure_ = false;
  std::vector<v1::DeploymentStatus> told_;
  std::string told_by_;
  MonotonicTime told_at_;
};

inline constexpr Duration kCoordinatorWordHolds = std::chrono::seconds(3);

}  // namespace macrame::agentd
