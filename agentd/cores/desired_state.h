#pragma once

// The desired state, read: what the entries of the table (state_table.h) hold, as messages. An
// entry is parsed once each time it changes, by whoever asks first. One that does not parse is as
// if it were not there, for another version may have written it; so is a deployment or a gang under
// another key than its own.
//
// Contract: pure. What is given back holds until the table changes.
// Owner: the agent's owner thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "agentd/cores/state_table.h"
#include "macrame/v1/access.pb.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/link.pb.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::agentd {

class DesiredState {
 public:
  // `table` must outlive this.
  explicit DesiredState(const StateTable& table) : table_(table) {}

  // Null: the node is not cordoned.
  const v1::Cordon* FindCordon(const std::string& node_id) const;
  // Null: nothing is said of the node.
  const v1::NodeMarks* FindMarks(const std::string& node_id) const;
  // Null: the model has none.
  const v1::ModelProfile* FindProfile(const std::string& model) const;
  // Null when nobody wants it, or nothing serves it.
  const v1::Deployment* FindDeployment(const std::string& name) const;
  const v1::GangRecord* FindGang(const std::string& replica) const;

  // By their names.
  const std::map<std::string, v1::Deployment>& deployments() const { return Fresh().deployments; }
  const std::map<std::string, v1::GangRecord>& gangs() const { return Fresh().gangs; }
  // Of gangs that were removed, the last epoch.
  const std::map<std::string, uint64_t>& removed_epochs() const { return Fresh().removed_epochs; }

  // By node, of machines that restarted under a rank.
  const std::map<std::string, v1::NodeCrashes>& crashes() const { return Fresh().crashes; }
  // By node, of those that take nothing new.
  const std::map<std::string, v1::Cordon>& cordons() const { return Fresh().cordons; }
  // By model.
  const std::map<std::string, v1::ModelProfile>& profiles() const { return Fresh().profiles; }
  // Of the HTTP API, by id; ended ones too.
  const std::map<std::string, v1::ApiKey>& api_keys() const { return Fresh().api_keys; }
  // Of tenants that have some, by name.
  const std::map<std::string, v1::TenantLimits>& tenants() const { return Fresh().tenants; }
  // By key.
  const std::map<std::string, v1::TransportRefusal>& refusals() const { return Fresh().refusals; }
  // Null: the cluster serves.
  const v1::ClusterPause* pause() const {
    const std::optional<v1::ClusterPause>& pause = Fresh().pause;
    return pause.has_value() ? &*pause : nullptr;
  }
  // What is loaded again when a stopped cluster is started, by name.
  const std::map<std::string, v1::Deployment>& stopped() const { return Fresh().stopped; }
  // The coordinator's verdicts on links; without a revision before it wrote any.
  const v1::ClusterLinks& links() const { return Fresh().links; }
  // What answers told of speeds.
  const v1::SpeedCorrections& speeds() const { return Fresh().speeds; }

 private:
  struct Parsed {
    std::map<std::string, v1::Deployment> deployments;
    std::map<std::string, v1::GangRecord> gangs;
    std::map<std::string, uint64_t> removed_epochs;
    std::map<std::string, v1::NodeCrashes> crashes;
    std::map<std::string, v1::Cordon> cordons;
    std::map<std::string, v1::NodeMarks> marks;
    std::map<std::string, v1::ModelProfile> profiles;
    std::map<std::string, v1::ApiKey> api_keys;
    std::map<std::string, v1::TenantLimits> tenants;
    std::map<std::string, v1::TransportRefusal> refusals;
    std::optional<v1::ClusterPause> pause;
    std::map<std::string, v1::Deployment> stopped;
    v1::ClusterLinks links;
    v1::SpeedCorrections speeds;
  };

  const Parsed& Fresh() const;
  void Take(const std::string& key, const v1::StateEntry& entry) const;
  void TakeGang(const std::string& replica, const v1::StateEntry& entry) const;
  void Drop(const std::string& key) const;

  const StateTable& table_;
  mutable std::optional<uint64_t> revision_;
  mutable std::map<std::string, StateVersion> versions_;  // of what is parsed
  mutable Parsed parsed_;
};

}  // namespace macrame::agentd
