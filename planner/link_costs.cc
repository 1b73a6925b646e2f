#include "planner/link_costs.h"

#include <algorithm>
#include <utility>

namespace macrame::planner {
namespace {

PathCost TypicalOf(v1::LinkMedium medium) {
  switch (medium) {
    case v1::LINK_MEDIUM_THUNDERBOLT:
      return kTypicalThunderbolt;
    case v1::LINK_MEDIUM_WIFI:
      return kTypicalWifi;
    case v1::LINK_MEDIUM_LOOPBACK:
      return kTypicalLoopback;
    default:
      return kTypicalEthernet;
  }
}

double TransferUs(double bytes, double bandwidth) {
  return bytes / bandwidth * kMicrosecondsPerSecond;
}

double CarryUs(const PathCost& path) {
  return path.one_way_us + TransferUs(kComparedMessageBytes, path.bandwidth);
}

// Of equally fast ones the broader.
void TakeBetter(const PathCost& path, std::optional<PathCost>* best) {
  if (best->has_value() && std::pair(CarryUs(**best), -(*best)->bandwidth) <=
                               std::pair(CarryUs(path), -path.bandwidth)) {
    return;
  }
  *best = path;
}

PathCost Measured(double round_trip_us, double bandwidth, const PathCost& typical) {
  return {round_trip_us > 0 ? round_trip_us / 2 : typical.one_way_us,
          bandwidth > 0 ? bandwidth : typical.bandwidth};
}

}  // namespace

std::string BackendName(const Fabric& fabric) {
  switch (fabric.backend) {
    case Fabric::Backend::kJaccl:
      return "jaccl";
    case Fabric::Backend::kVerbs:
      return "verbs";
    default:
      return "ring";
  }
}

std::string FabricName(const Fabric& fabric) {
  if (!fabric.is_rdma()) return "TCP";
  return std::string(fabric.ring ? "an RDMA ring (" : "an RDMA mesh (") + BackendName(fabric) + ")";
}

bool TransportAllows(const std::string& wish, const Fabric& fabric) {
  if (wish == "rdma") return fabric.is_rdma();
  if (wish != "jaccl" && wish != "verbs" && wish != "ring") return true;
  return wish == BackendName(fabric);
}

LinkCosts::LinkCosts(const v1::PlanRequest& request, const std::vector<Candidate>& candidates)
    : count_(candidates.size()),
      mesh_ranks_max_(request.mesh_ranks_max() > 0
                          ? std::min(request.mesh_ranks_max(), kMeshRanksPossible)
                          : kMeshRanksMax),
      jaccl_neighbours_(candidates.size()),
      verbs_neighbours_(candidates.size()) {
  std::unordered_map<std::string, size_t> index;
  for (size_t i = 0; i < candidates.size(); ++i) index[candidates[i].node->node_id()] = i;
  for (const v1::PlannerLink& listed : request.links()) {
    const auto from = index.find(listed.from_node_id());
    const auto to = index.find(listed.to_node_id());
    if (from == index.end() || to == index.end() || from->second == to->second) continue;
    AddPaths(listed, &links_[uint64_t{from->second} * count_ + to->second]);
  }
  unlisted_.reaches = true;
  unlisted_.tcp = kTypicalEthernet;
  for (const auto& [key, link] : links_) {
    const size_t from = key / count_, to = key % count_;
    if (HasRdma(from, to, Fabric::Backend::kJaccl)) jaccl_neighbours_[from].push_back(to);
    if (HasRdma(from, to, Fabric::Backend::kVerbs)) verbs_neighbours_[from].push_back(to);
  }
  for (size_t i = 0; i < count_; ++i) {
    std::sort(jaccl_neighbours_[i].begin(), jaccl_neighbours_[i].end());
    std::sort(verbs_neighbours_[i].begin(), verbs_neighbours_[i].end());
  }
}

void LinkCosts::AddPaths(const v1::PlannerLink& listed, Link* link) {
  const PathCost rdma =
      Measured(listed.rdma_round_trip_us(), listed.rdma_bandwidth_bytes_per_second(), kTypicalRdma);
  for (const std::string& backend : listed.backends()) {
    link->reaches = true;
    if (backend == "jaccl") TakeBetter(rdma, &link->jaccl);
    if (backend == "verbs") TakeBetter(rdma, &link->verbs);
    if (backend != "ring") continue;
    TakeBetter(Measured(listed.round_trip_us(), listed.bandwidth_bytes_per_second(),
                        TypicalOf(listed.medium())),
               &link->tcp);
  }
}

const LinkCosts::Link& LinkCosts::Between(size_t from, size_t to) const {
  const auto found = links_.find(uint64_t{from} * count_ + to);
  return found == links_.end() ? unlisted_ : found->second;
}

bool LinkCosts::Reaches(size_t from, size_t to) const {
  return Between(from, to).reaches && Between(to, from).reaches;
}

bool LinkCosts::HasTcp(size_t from, size_t to) const {
  return Between(from, to).tcp.has_value() && Between(to, from).tcp.has_value();
}

// A cable that only one end can use is none.
bool LinkCosts::HasRdma(size_t from, size_t to, Fabric::Backend backend) const {
  const Link& there = Between(from, to);
  const Link& back = Between(to, from);
  return backend == Fabric::Backend::kJaccl ? there.jaccl.has_value() && back.jaccl.has_value()
                                            : there.verbs.has_value() && back.verbs.has_value();
}

const std::vector<size_t>& LinkCosts::RdmaNeighbours(size_t node, Fabric::Backend backend) const {
  return backend == Fabric::Backend::kJaccl ? jaccl_neighbours_[node] : verbs_neighbours_[node];
}

bool LinkCosts::Allows(const Fabric& fabric, std::span<const size_t> nodes) const {
  const size_t count = nodes.size();
  if (fabric.is_rdma() && !fabric.ring && count > mesh_ranks_max_) return false;
  if (fabric.ring && count < 3) return false;  // of two, a mesh is the same and simpler
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      if (!Reaches(nodes[i], nodes[j])) return false;
      if (!fabric.is_rdma() && !HasTcp(nodes[i], nodes[j])) return false;
      const bool neighbours = j == i + 1 || (i == 0 && j + 1 == count);
      if (!fabric.is_rdma() || (fabric.ring && !neighbours)) continue;
      if (!HasRdma(nodes[i], nodes[j], fabric.backend)) return false;
    }
  }
  return true;
}

// What can't carry the fabric costs what typically carries it: searches cost first and ask later.
PathCost LinkCosts::CostOf(const Fabric& fabric, size_t from, size_t to) const {
  const Link& link = Between(from, to);
  switch (fabric.backend) {
    case Fabric::Backend::kJaccl:
      return link.jaccl.value_or(kTypicalRdma);
    case Fabric::Backend::kVerbs:
      return link.verbs.value_or(kTypicalRdma);
    default:
      return link.tcp.value_or(kTypicalEthernet);
  }
}

double LinkCosts::CollectiveUs(const Fabric& fabric, std::span<const size_t> nodes, double bytes,
                               const CostParameters& parameters) const {
  const size_t count = nodes.size();
  if (count < 2) return 0;
  double one_way = 0;
  double bandwidth = 1e18;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const bool neighbours = j == (i + 1) % count || i == (j + 1) % count;
      if (i == j || (fabric.ring && !neighbours)) continue;
      const PathCost link = CostOf(fabric, nodes[i], nodes[j]);
      one_way = std::max(one_way, link.one_way_us);
      bandwidth = std::min(bandwidth, link.bandwidth);
    }
  }
  const double others = static_cast<double>(count - 1);
  const double parts = 2 * others / static_cast<double>(count) * bytes;  // reduced, then gathered
  if (fabric.ring) {
    return 2 * others * one_way + TransferUs(parts, bandwidth) + parameters.collective_wait_us;
  }
  // Over RDMA each pair has a cable of its own; over TCP one interface sends to all in turn.
  const double copies = fabric.is_rdma() ? 1 : others;
  const double lanes = fabric.is_rdma() ? others : 1;
  // A TCP exchange wakes both ends' processes: as long as there and back.
  const double exchange = fabric.is_rdma() ? one_way : 2 * one_way + parameters.tcp_collective_us;
  const double at_once = exchange + TransferUs(bytes * copies, bandwidth);
  const double in_parts = 2 * exchange + TransferUs(parts / lanes, bandwidth);
  return std::min(at_once, in_parts) + parameters.collective_wait_us;
}

double LinkCosts::HopUs(const Fabric& fabric, std::span<const size_t> from,
                        std::span<const size_t> to, double bytes,
                        const CostParameters& parameters) const {
  double slowest = 0;
  for (const size_t a : from) {
    for (const size_t b : to) {
      const PathCost link = CostOf(fabric, a, b);
      slowest = std::max(slowest, link.one_way_us + TransferUs(bytes, link.bandwidth));
    }
  }
  return slowest + (fabric.is_rdma() ? parameters.rdma_hop_us : parameters.tcp_hop_us);
}

}  // namespace macrame::planner
