#include "discovery/beacons/unknown_node_reason.h"

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::discovery {
namespace {

v1::Reason ReasonFor(const DecodedBeacon& decoded, const std::string& who,
                     const std::string& own_cluster) {
  const v1::Beacon& beacon = decoded.beacon;
  const std::string& id = beacon.node_id();
  if (decoded.verdict == BeaconVerdict::kBadSignature) {
    return MakeReason(reasons::kBadSignature,
                      absl::StrCat(who, " names cluster '", beacon.cluster_name(),
                                   "' but its beacons were not made with that cluster's secret"),
                      id);
  }
  if (decoded.verdict == BeaconVerdict::kNoSecret) {
    v1::Reason reason =
        MakeReason(reasons::kNoSecret, absl::StrCat(who, " has no cluster secret"), id);
    if (own_cluster.empty()) {
      reason.set_message(absl::StrCat(who, " has no cluster secret, and neither has this node"));
      reason.set_remedy(
          "run 'clusterctl cluster init' and then 'clusterctl cluster token' on one of them, and "
          "'clusterctl cluster join TOKEN' on the other");
    }
    return reason;
  }
  v1::Reason reason =
      MakeReason(reasons::kOtherCluster,
                 absl::StrCat(who, " belongs to cluster '", beacon.cluster_name(), "'"), id);
  if (own_cluster.empty()) {
    reason.set_message(absl::StrCat(reason.message(), ", this node to none"));
    reason.set_remedy(
        "to join it, run 'clusterctl cluster token' there and 'clusterctl cluster join TOKEN' "
        "here");
  } else if (own_cluster == beacon.cluster_name()) {
    reason.set_message(
        absl::StrCat(reason.message(), ", which has this cluster's name but another secret"));
  }
  return reason;
}

}  // namespace

std::optional<v1::UnknownNode> UnknownNodeOf(const DecodedBeacon& decoded,
                                             const std::string& source_ip,
                                             const std::string& own_cluster, uint64_t now_unix_ms) {
  switch (decoded.verdict) {
    case BeaconVerdict::kOtherCluster:
    case BeaconVerdict::kNoSecret:
    case BeaconVerdict::kBadSignature:
      break;
    default:
      return std::nullopt;
  }
  const v1::Beacon& beacon = decoded.beacon;
  v1::UnknownNode unknown_node;
  unknown_node.set_node_id(beacon.node_id());
  unknown_node.set_hostname(beacon.hostname());
  unknown_node.set_cluster_name(beacon.cluster_name());
  unknown_node.set_address(source_ip);
  unknown_node.set_beacons_heard(1);
  unknown_node.set_last_heard_unix_ms(now_unix_ms);
  const std::string who =
      absl::StrCat(beacon.hostname().empty() ? beacon.node_id().substr(0, 8) : beacon.hostname(),
                   " at ", source_ip);
  *unknown_node.mutable_reason() = ReasonFor(decoded, who, own_cluster);
  return unknown_node;
}

}  // namespace macrame::discovery
