#pragma once

// From what all nodes say of their ports to what each link can do, and what a set of nodes can run
// together. Pure: the same snapshot gives the same answer on every node. Any thread.
//
// A link is one cable between two Macs (joined by domain UUIDs, never by order or names), one pair
// of verbs devices in one subnet on Linux, or a pair of addresses that reach each other. Each end
// is judged by itself, in the order of Layer; the first that fails is the link's reason. What is
// unknown is said to be unknown and does not count as "no": a link whose usability hangs on it is
// FACT_UNKNOWN and not used for RDMA.

#include <span>
#include <string>
#include <vector>

#include "macrame/v1/link.pb.h"

namespace macrame::transport {

// Lowest first. LayerName gives "os", "controller", "enablement", "device", "peer", "speed",
// "port", "address", "rendezvous", "queue_pair", "collective".
enum class Layer {
  kNone,
  kOs,
  kController,
  kEnablement,
  kDevice,
  kPeer,
  kSpeed,
  kPort,
  kAddress,
  kRendezvous,
  kQueuePair,
  kCollective,
};
std::string_view LayerName(Layer layer);
// The layer that a reason code belongs to; kNone for those of none.
Layer LayerOf(std::string_view reason_code);

// All links and paths of the snapshot, and the verdict of all its nodes together. `previous`, when
// given, keeps a path that is still about as good as the best: within three tenths of its
// bandwidth.
v1::ClusterLinks JudgeLinks(const v1::LinkSnapshot& snapshot,
                            const v1::ClusterLinks* previous = nullptr);

// The verdict of a subset, rank order included: `node_ids` in the order that is wished for; ranks
// follow it unless a ring asks for another.
v1::GroupVerdict JudgeGroup(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                            std::span<const std::string> node_ids);

// Which devices of each node lead to each other one, in the order of `node_ids`; `only_usable`: of
// links that RDMA works on. macOS names the device of interface enX rdma_enX; where a link's device
// is not listed, that name stands in the matrix that is not for use.
std::vector<v1::DeviceRow> DeviceMatrix(const v1::ClusterLinks& links,
                                        std::span<const std::string> node_ids, bool only_usable);

// The best measured (else the best by kind: Thunderbolt, Ethernet, Wi-Fi) way; null when there is
// none. Never a wildcard, loopback to another machine, bridge or VPN address.
const v1::NodePath* PathBetween(const v1::ClusterLinks& links, const std::string& from_node_id,
                                const std::string& to_node_id);

}  // namespace macrame::transport
