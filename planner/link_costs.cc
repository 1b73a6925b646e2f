#include "planner/link_costs.h"

#include <algorithm>
#include <utility>

#include "proto/backends.h"

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
    case v1::LINK_MEDIUM_VPN:
      return kTypicalVpn;
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

// Of equally fast ones the broader. False: what there was is better.
bool TakeBetter(const PathCost& path, std::optional<PathCost>* best) {
  if (best->has_value() && std::pair(CarryUs(**best), -(*best)->bandwidth) <=
                               std::pair(CarryUs(path), -path.bandwidth)) {
    return false;
  }
  *best = path;
  return true;
}

PathCost Measured(double round_trip_us, double bandwidth, const PathCost& typical) {
  return {round_trip_us > 0 ? round_trip_us / 2 : typical.one_way_us,
          bandwidth > 0 ? bandwidth : typical.bandwidth};
}

}  // namespace

std::string FabricName(const Fabric& fabric) {
  if (!fabric.is_rdma()) return "TCP";
  return std::string(fabric.is_ring() ? "an RDMA ring (" : "an RDMA mesh (") +
         NameOf(fabric.backend) + ")";
}

bool HasBackend(const v1::EngineTraits& traits, std::string_view backend) {
  const auto& names = traits.backends();
  return names.empty() || std::find(names.begin(), names.end(), backend) != names.end();
}

bool AllowsStagesOfGroups(const Fabric& fabric) {
  return fabric.backend != Backend::kJaccl && !fabric.is_ring();
}

bool TransportAllows(const std::string& wanted, const Fabric& fabric) {
  if (wanted == kRdmaTransport) return fabric.is_rdma();
  const Backend backend = BackendNamed(wanted);
  if (backend == Backend::kNone || backend == Backend::kSingle) return true;
  return backend == fabric.backend;
}

LinkCosts::LinkCosts(const v1::PlanRequest& request, const std::vector<Candidate>& candidates)
    : count_(candidates.size()),
      mesh_ranks_max_(request.mesh_ranks_max() > 0
                          ? std::min(request.mesh_ranks_max(), kMeshRanksPossible)
                          : kMeshRanksMax) {
  const auto tables = std::make_shared<Tables>();
  tables_ = tables;
  std::unordered_map<std::string, size_t> index;
  for (size_t i = 0; i < candidates.size(); ++i) index[candidates[i].node->node_id()] = i;
  for (const v1::PlannerLink& listed : request.links()) {
    const auto from = index.find(listed.from_node_id());
    const auto to = index.find(listed.to_node_id());
    if (from == index.end() || to == index.end() || from->second == to->second) continue;
    AddPaths(listed, candidates[from->second].traits, candidates[to->second].traits,
             &tables->links[KeyOf(from->second, to->second)]);
    // Named, so that no default takes the place of what is not there.
    if (listed.one_way()) tables->links[KeyOf(to->second, from->second)];
  }
  if (request.has_default_link()) {
    AddPaths(request.default_link(), {}, {}, &tables->unlisted);
  } else {
    tables->unlisted.reaches = true;
    tables->unlisted.tcp = kTypicalEthernet;
  }
  KeepApartWithoutTcp(candidates, tables.get());
  FindNeighbours(tables.get());
}

void LinkCosts::FindNeighbours(Tables* tables) const {
  using Lists = std::vector<std::vector<size_t>>;
  tables->jaccl_neighbours.resize(count_);
  tables->verbs_neighbours.resize(count_);
  for (const auto& [key, link] : tables->links) {
    const size_t from = key / count_, to = key % count_;
    if (HasRdma(from, to, Backend::kJaccl)) tables->jaccl_neighbours[from].push_back(to);
    if (HasRdma(from, to, Backend::kVerbs)) tables->verbs_neighbours[from].push_back(to);
  }
  for (Lists* lists : {&tables->jaccl_neighbours, &tables->verbs_neighbours}) {
    for (std::vector<size_t>& list : *lists) std::sort(list.begin(), list.end());
  }
  FindTcpGroups(tables);
}

// Where nodes that nothing names reach each other, a node joins a group unless a member is named as
// apart from it; where they don't, if all members are named as joined to it.
void LinkCosts::FindTcpGroups(Tables* tables) const {
  const bool joined = tables->unlisted.tcp.has_value();
  std::vector<std::vector<size_t>> unlike(count_);  // of each node, those that are not as unnamed
  for (const auto& [key, link] : tables->links) {
    const size_t from = key / count_, to = key % count_;
    if (HasTcp(from, to) == joined) continue;
    // Both ways may be named, or one.
    if (from < to || tables->links.count(KeyOf(to, from)) == 0) {
      unlike[from].push_back(to);
      unlike[to].push_back(from);
    }
  }
  std::vector<bool> covered(count_, false);
  for (size_t first = 0; first < count_ && tables->tcp_groups.size() < kGroupsMax; ++first) {
    if (covered[first]) continue;
    std::vector<size_t> named(count_, 0);  // how many members it is unlike to
    std::vector<bool> is_member(count_, false);
    std::vector<size_t> group;
    const auto join = [&](size_t node) {
      group.push_back(node);
      covered[node] = is_member[node] = true;
      for (const size_t other : unlike[node]) ++named[other];
    };
    join(first);
    for (size_t next = 0; next < count_; ++next) {
      if (!is_member[next] && named[next] == (joined ? 0 : group.size())) join(next);
    }
    std::sort(group.begin(), group.end());
    tables->tcp_groups.push_back(std::move(group));
  }
}

// An engine without TCP between its ranks has none to any node, named or not.
void LinkCosts::KeepApartWithoutTcp(const std::vector<Candidate>& candidates,
                                    Tables* tables) const {
  if (!tables->unlisted.tcp.has_value()) return;
  for (size_t node = 0; node < count_; ++node) {
    if (HasBackend(candidates[node].traits, NameOf(Backend::kRing))) continue;
    for (size_t other = 0; other < count_; ++other) {
      if (other == node) continue;
      for (const uint64_t key : {KeyOf(node, other), KeyOf(other, node)}) {
        const auto [link, is_new] = tables->links.try_emplace(key, tables->unlisted);
        if (is_new) link->second.tcp.reset();
      }
    }
  }
}

void LinkCosts::AddPaths(const v1::PlannerLink& listed, const v1::EngineTraits& from,
                         const v1::EngineTraits& to, Link* link) {
  const PathCost rdma =
      Measured(listed.rdma_round_trip_us(), listed.rdma_bandwidth_bytes_per_second(), kTypicalRdma);
  for (const std::string& name : listed.backends()) {
    const Backend backend = BackendNamed(name);
    link->reaches = true;
    link->thunderbolt = link->thunderbolt || listed.medium() == v1::LINK_MEDIUM_THUNDERBOLT;
    if (!HasBackend(from, name) || !HasBackend(to, name)) continue;
    if (backend == Backend::kJaccl) TakeBetter(rdma, &link->jaccl);
    if (backend == Backend::kVerbs) TakeBetter(rdma, &link->verbs);
    if (backend != Backend::kRing) continue;
    const PathCost path = Measured(listed.round_trip_us(), listed.bandwidth_bytes_per_second(),
                                   TypicalOf(listed.medium()));
    if (TakeBetter(path, &link->tcp)) {
      link->wireless = listed.medium() == v1::LINK_MEDIUM_WIFI;
      link->vpn = listed.medium() == v1::LINK_MEDIUM_VPN;
      link->direct = listed.medium() == v1::LINK_MEDIUM_THUNDERBOLT;
    }
  }
}

const LinkCosts::Link& LinkCosts::Between(size_t from, size_t to) const {
  const uint64_t key = KeyOf(from, to);
  if (!joined_.empty()) {
    if (const auto found = joined_.find(key); found != joined_.end()) return found->second;
  }
  const auto found = tables_->links.find(key);
  return found == tables_->links.end() ? tables_->unlisted : found->second;
}

LinkCosts LinkCosts::Joined(const Fabric& fabric, size_t a, size_t b) const {
  LinkCosts with = *this;
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    Link link = Between(from, to);
    link.reaches = true;
    if (fabric.backend == Backend::kRing && TakeBetter(kTypicalEthernet, &link.tcp)) {
      link.wireless = link.vpn = false;
    }
    if (fabric.backend == Backend::kJaccl) TakeBetter(kTypicalRdma, &link.jaccl);
    if (fabric.backend == Backend::kVerbs) TakeBetter(kTypicalRdma, &link.verbs);
    with.joined_[KeyOf(from, to)] = link;
  }
  return with;
}

bool LinkCosts::Reaches(size_t from, size_t to) const {
  return Between(from, to).reaches && Between(to, from).reaches;
}

bool LinkCosts::HasTcp(size_t from, size_t to) const {
  return Between(from, to).tcp.has_value() && Between(to, from).tcp.has_value();
}

bool LinkCosts::IsWireless(size_t from, size_t to) const {
  return Between(from, to).wireless || Between(to, from).wireless;
}

bool LinkCosts::IsVpn(size_t from, size_t to) const {
  return Between(from, to).vpn || Between(to, from).vpn;
}

bool LinkCosts::IsOneWay(size_t from, size_t to) const {
  return Between(from, to).reaches != Between(to, from).reaches;
}

bool LinkCosts::HasThunderbolt(size_t from, size_t to) const {
  return Between(from, to).thunderbolt || Between(to, from).thunderbolt;
}

// A cable that only one end can use is none.
bool LinkCosts::HasRdma(size_t from, size_t to, Backend backend) const {
  const Link& there = Between(from, to);
  const Link& back = Between(to, from);
  return backend == Backend::kJaccl ? there.jaccl.has_value() && back.jaccl.has_value()
                                    : there.verbs.has_value() && back.verbs.has_value();
}

bool LinkCosts::AreAlike(size_t a, size_t b, std::span<const size_t> among) const {
  if (!(Between(a, b) == Between(b, a))) return false;
  return std::all_of(among.begin(), among.end(), [&](size_t other) {
    return other == a || other == b ||
           (Between(a, other) == Between(b, other) && Between(other, a) == Between(other, b));
  });
}

const std::vector<size_t>& LinkCosts::RdmaNeighbours(size_t node, Backend backend) const {
  return backend == Backend::kJaccl ? tables_->jaccl_neighbours[node]
                                    : tables_->verbs_neighbours[node];
}

bool LinkCosts::Allows(const Fabric& fabric, std::span<const size_t> nodes) const {
  const size_t count = nodes.size();
  if (fabric.is_rdma() && !fabric.is_ring() && count > mesh_ranks_max_) return false;
  if (fabric.is_ring() && count < 3) return false;  // of two, a mesh is the same and simpler
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      if (!Reaches(nodes[i], nodes[j])) return false;
      if (!fabric.is_rdma() && !HasTcp(nodes[i], nodes[j])) return false;
      const bool neighbours = j == i + 1 || (i == 0 && j + 1 == count);
      if (!fabric.is_rdma() || (fabric.is_ring() && !neighbours)) continue;
      if (!HasRdma(nodes[i], nodes[j], fabric.backend)) return false;
    }
  }
  return true;
}

// What can't carry the fabric costs what typically carries it: searches cost first and ask later.
PathCost LinkCosts::CostOf(const Fabric& fabric, size_t from, size_t to) const {
  const Link& link = Between(from, to);
  switch (fabric.backend) {
    case Backend::kJaccl:
      return link.jaccl.value_or(kTypicalRdma);
    case Backend::kVerbs:
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
  bool direct = true;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const bool neighbours = j == (i + 1) % count || i == (j + 1) % count;
      if (i == j || (fabric.is_ring() && !neighbours)) continue;
      const PathCost link = CostOf(fabric, nodes[i], nodes[j]);
      one_way = std::max(one_way, link.one_way_us);
      bandwidth = std::min(bandwidth, link.bandwidth);
      direct = direct && Between(nodes[i], nodes[j]).direct;
    }
  }
  const double others = static_cast<double>(count - 1);
  const double parts = 2 * others / static_cast<double>(count) * bytes;  // reduced, then gathered
  if (fabric.is_ring()) {
    return 2 * others * one_way + TransferUs(parts, bandwidth) + parameters.collective_wait_us;
  }
  // Over RDMA each pair has a cable of its own; over TCP one interface sends to all in turn.
  const double copies = fabric.is_rdma() ? 1 : others;
  const double lanes = fabric.is_rdma() ? others : 1;
  // A TCP exchange wakes both ends' processes: as long as there and back.
  const double software = direct ? 0 : parameters.tcp_collective_us;
  const double exchange = fabric.is_rdma() ? one_way : 2 * one_way + software;
  const double at_once = exchange + TransferUs(bytes * copies, bandwidth);
  const double in_parts = 2 * exchange + TransferUs(parts / lanes, bandwidth);
  const double adding = fabric.is_rdma() ? SmallMessageUs(bytes, count, parameters) : 0;
  return std::min(at_once, in_parts) + adding + parameters.collective_wait_us;
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
