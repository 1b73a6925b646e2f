#pragma once

// What it costs to tell another node something: measured where the snapshot has a measurement, else
// what the medium typically does. Pure, built once a plan.
//
// A pair of nodes may be listed several times: two cables, or a cable and the LAN, in any order. It
// can do what any of them can; each fabric takes the one that carries a token's state the soonest,
// as a whole (latency and bandwidth of one path, never of two).

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "planner/constraints.h"
#include "planner/cost_model.h"
#include "proto/backends.h"

namespace macrame::planner {

// How the ranks of one gang reach each other. A mesh has a link of its own for each pair; a ring
// has one to the next and one to the previous rank.
struct Fabric {
  Backend backend = Backend::kRing;
  Topology topology = Topology::kMesh;
  bool is_rdma() const { return IsRdma(backend); }
  bool is_ring() const { return topology == Topology::kRing; }
  bool operator==(const Fabric&) const = default;
};

// "RDMA mesh (jaccl)", "TCP".
std::string FabricName(const Fabric& fabric);

// Does an engine know this backend? One that names none knows all.
bool HasBackend(const v1::EngineTraits& traits, std::string_view backend);

// May stages be tensor groups over it? JACCL's groups can't be divided (MLX's Group::split), and a
// ring of cables joins neighbours only.
bool AllowsStagesOfGroups(const Fabric& fabric);

// Is this fabric of the transport that was asked for? "rdma" is either of its backends; a word that
// is no backend's is left to who chooses transports.
bool TransportAllows(const std::string& wanted, const Fabric& fabric);

// JACCL's mesh has at most so many ranks, because a Mac has so many ports.
inline constexpr uint32_t kMeshRanksMax = 4;
// No larger one is looked for, whatever a request says: what JACCL itself takes, and the most that
// agents may be configured for (rdma_nodes_max).
inline constexpr uint32_t kMeshRanksPossible = 8;

// One way between two nodes.
struct PathCost {
  double one_way_us;
  double bandwidth;  // bytes a second
  bool operator==(const PathCost&) const = default;
};
// Typical figures, for paths that were not measured.
// Half of the 14 us that RDMA over Thunderbolt 5 was seen to take at most; bandwidth as people
// measured it with large tensors (8 of nominally 10 GB/s).
inline constexpr PathCost kTypicalRdma{7, 8.0e9};
// TCP over a Thunderbolt cable takes about 300 us there and back.
inline constexpr PathCost kTypicalThunderbolt{150, 3.0e9};
// A gigabit switch; faster ones are known by their measurements.
inline constexpr PathCost kTypicalEthernet{150, 0.117e9};
inline constexpr PathCost kTypicalWifi{2000, 0.04e9};
inline constexpr PathCost kTypicalLoopback{15, 4.0e9};
// Between two homes: assumed, an uplink of 50 Mb/s and 20 ms there and back.
inline constexpr PathCost kTypicalVpn{10000, 0.00625e9};

// Of several paths between two nodes the best is the one that carries so many bytes first: about
// what a large model's token is between two stages.
inline constexpr double kComparedMessageBytes = 16384;

class LinkCosts {
 public:
  // `candidates` are named by their index from here on. All must outlive this.
  LinkCosts(const v1::PlanRequest& request, const std::vector<Candidate>& candidates);

  // Do they reach each other at all, over whatever path? An RDMA gang needs that too, to meet.
  bool Reaches(size_t from, size_t to) const;
  // Can ranks on the two exchange tensors over TCP?
  bool HasTcp(size_t from, size_t to) const;
  bool HasRdma(size_t from, size_t to, Backend backend) const;
  uint32_t mesh_ranks_max() const { return mesh_ranks_max_; }
  // Nodes with a cable of this backend to `node`, ascending.
  const std::vector<size_t>& RdmaNeighbours(size_t node, Backend backend) const;

  // Does TCP between the two go over Wi-Fi one way or the other?
  bool IsWireless(size_t from, size_t to) const;
  // Or over a VPN?
  bool IsVpn(size_t from, size_t to) const;
  // Does one of the two reach the other, and not the other way?
  bool IsOneWay(size_t from, size_t to) const;
  // Is there a Thunderbolt cable between the two, whatever it is used for?
  bool HasThunderbolt(size_t from, size_t to) const;

  // Would the links among these nodes be the same if the two changed places?
  bool AreAlike(size_t a, size_t b, std::span<const size_t> among) const;

  // Sets of nodes that all exchange tensors over TCP, each as large as can be when it takes nodes
  // in their order; every node is in one of them, unless there are more than kGroupsMax. Each is
  // ascending. Where every node reaches every other there is one.
  const std::vector<std::vector<size_t>>& TcpGroups() const { return tables_->tcp_groups; }
  static constexpr size_t kGroupsMax = 64;

  // The same with one more link, between two nodes and over one fabric, that typically carries it.
  // RdmaNeighbours and TcpGroups stay as they are.
  LinkCosts Joined(const Fabric& fabric, size_t a, size_t b) const;

  // Can these nodes, in this order, be one gang over the fabric?
  bool Allows(const Fabric& fabric, std::span<const size_t> nodes) const;

  // One all-reduce of `bytes` among the nodes: all to all while messages are small, in two rounds
  // of parts where that is faster, or from neighbour to neighbour in a ring.
  double CollectiveUs(const Fabric& fabric, std::span<const size_t> nodes, double bytes,
                      const CostParameters& parameters) const;
  // From the ranks of one stage to those of the next: the slowest of their links.
  double HopUs(const Fabric& fabric, std::span<const size_t> from, std::span<const size_t> to,
               double bytes, const CostParameters& parameters) const;

 private:
  struct Link {
    bool reaches = false;
    bool thunderbolt = false;
    bool wireless = false;  // what TCP takes
    bool vpn = false;       // what TCP takes
    bool direct = false;    // what TCP takes: Thunderbolt
    std::optional<PathCost> tcp, jaccl, verbs;
    bool operator==(const Link&) const = default;
  };
  using Links = std::unordered_map<uint64_t, Link>;
  struct Tables {
    Links links;
    Link
        unlisted;  // a pair that the snapshot says nothing of: PlanRequest.default_link, or the LAN
    std::vector<std::vector<size_t>> jaccl_neighbours, verbs_neighbours, tcp_groups;
  };
  static void AddPaths(const v1::PlannerLink& listed, const v1::EngineTraits& from,
                       const v1::EngineTraits& to, Link* link);
  void KeepApartWithoutTcp(const std::vector<Candidate>& candidates, Tables* tables) const;
  void FindNeighbours(Tables* tables) const;
  void FindTcpGroups(Tables* tables) const;
  uint64_t KeyOf(size_t from, size_t to) const { return uint64_t{from} * count_ + to; }
  const Link& Between(size_t from, size_t to) const;
  PathCost CostOf(const Fabric& fabric, size_t from, size_t to) const;

  size_t count_;
  uint32_t mesh_ranks_max_;
  std::shared_ptr<const Tables> tables_;
  Links joined_;  // instead of those in the tables
};

}  // namespace macrame::planner
