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

// The verdict of a subset, rank order included: `node_ids` in the order that is asked for; ranks
// follow it unless a ring asks for another.
v1::GroupVerdict JudgeGroup(const v1::LinkSnapshot& snapshot, const v1::ClusterLinks& links,
                            std::span<const std::string> node_ids);

// Which devices of each node lead to each other one, in the order of `node_ids`; `only_usable`: of
// links that RDMA works on. macOS names the device of interface enX rdma_enX; where a link's device
// is not listed, that name stands in the matrix that is not for use.
std::vector<v1::DeviceRow> DeviceMatrix(const v1::ClusterLinks& links,
                                        std::span<const std::string> node_ids, bool only_usable);

// The most devices on a side of JACCL's ring (RING_MAX_CONNS of its ring_impl.h, MLX 0.32).
inline constexpr int kRingCablesMax = 4;

// What the ranks of a group are given: the usable devices, cut down to what MLX takes. After
// mlx/distributed/jaccl/lib/jaccl of MLX 0.32 (jaccl.cpp, ring.cpp, ring_impl.h, mesh.cpp):
// - A mesh has a device in every cell off the diagonal; only the first is used, and is left here.
// - A ring has as many devices towards either neighbour of every rank as rank 0 has towards rank 1,
//   four at most. Otherwise MLX refuses it, or, where the matrix is also a mesh, runs a mesh
//   without a word. So every cell is cut down to what the pair with the fewest cables has. Other
//   cells are not looked at, and are empty here. Of two ranks, each is both neighbours of the
//   other: MLX opens every device twice.
// - Device k of a cell is connected with device k of the opposite one: both name the same cable.
// A ring in which two neighbours have no device is no ring; it is left as it is, for MLX to refuse.
std::vector<v1::DeviceRow> GroupMatrix(const v1::ClusterLinks& links,
                                       std::span<const std::string> node_ids, bool is_ring);

// The best measured (else the best by kind: Thunderbolt, Ethernet, Wi-Fi) way; null when there is
// none. Never a wildcard, loopback to another machine, bridge or VPN address.
const v1::NodePath* PathBetween(const v1::ClusterLinks& links, const std::string& from_node_id,
                                const std::string& to_node_id);

// Whether nobody else can listen on the way to `to_ip` of a node: within one machine, or over one
// Thunderbolt cable between the two. What is not known to be so is not.
bool IsPrivateWay(const v1::ClusterLinks& links, const std::string& from_node_id,
                  const std::string& to_node_id, const std::string& to_ip);

}  // namespace macrame::transport
