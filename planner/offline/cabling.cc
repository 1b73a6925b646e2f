#include "planner/offline/cabling.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "planner/chip_table.h"
#include "planner/link_costs.h"
#include "planner/offline/cluster_file.h"

namespace macrame::planner {
namespace {

// Of a Mac with Thunderbolt 5 that no table and no agent tells the sockets of: the fewest there
// are.
constexpr uint32_t kSocketsAtLeast = 3;

bool Contains(const std::vector<uint32_t>& sockets, uint32_t socket) {
  return std::find(sockets.begin(), sockets.end(), socket) != sockets.end();
}

std::vector<uint32_t> SocketsBut(uint32_t count, const std::vector<uint32_t>& avoided) {
  std::vector<uint32_t> sockets;
  for (uint32_t socket = 1; socket <= count; ++socket) {
    if (!Contains(avoided, socket)) sockets.push_back(socket);
  }
  return sockets;
}

// Cables that are there, by the machines' indices, and which sockets are still free.
class Desktop {
 public:
  Desktop(const std::vector<CabledMachine>& machines, const std::vector<v1::PresentCable>& present)
      : machines_(machines), in_use_(machines.size()) {
    for (const v1::PresentCable& cable : present) {
      const int a = IndexOf(cable.a()), b = IndexOf(cable.b());
      if (a < 0 || b < 0 || a == b) continue;
      cables_.push_back({a, b, cable.a_socket(), cable.b_socket(), &cable});
      in_use_[a].insert(cable.a_socket());
      in_use_[b].insert(cable.b_socket());
    }
    for (const Cable& cable : cables_) {
      const Cable*& best = between_[std::minmax(cable.a, cable.b)];
      if (best == nullptr || Rank(cable) > Rank(*best)) best = &cable;
    }
  }

  bool Joined(int a, int b) const { return Between(a, b) != nullptr; }

  // Sockets for these pairs: those of the cables that are there, free ones for the others.
  std::vector<Cable> Lay(const std::vector<std::pair<int, int>>& pairs) const {
    std::vector<std::set<uint32_t>> taken(machines_.size());
    std::vector<Cable> laid;
    for (const auto& [a, b] : pairs) {
      const Cable* there = Between(a, b);
      Cable cable{a, b, 0, 0, nullptr};
      if (there != nullptr) {
        cable = *there;
        taken[cable.a].insert(cable.a_socket);
        taken[cable.b].insert(cable.b_socket);
      }
      laid.push_back(cable);
    }
    for (Cable& cable : laid) {
      if (cable.present != nullptr) continue;
      cable.a_socket = TakeSocket(cable.a, &taken[cable.a]);
      cable.b_socket = TakeSocket(cable.b, &taken[cable.b]);
    }
    return laid;
  }

 private:
  int IndexOf(const std::string& name) const {
    for (size_t i = 0; i < machines_.size(); ++i) {
      if (machines_[i].node.hostname() == name) return static_cast<int>(i);
    }
    return -1;
  }

  // When there are several, one in good sockets, then one over which RDMA works.
  const Cable* Between(int a, int b) const {
    const auto found = between_.find(std::minmax(a, b));
    return found == between_.end() ? nullptr : found->second;
  }

  int Rank(const Cable& cable) const {
    const bool avoided = Contains(machines_[cable.a].sockets_to_avoid, cable.a_socket) ||
                         Contains(machines_[cable.b].sockets_to_avoid, cable.b_socket);
    return (avoided ? 0 : 2) + (cable.present->rdma() ? 1 : 0);
  }

  // A socket with nothing in it rather than one whose cable would have to go.
  uint32_t TakeSocket(int machine, std::set<uint32_t>* taken) const {
    for (const bool empty : {true, false}) {
      for (const uint32_t socket : machines_[machine].sockets) {
        if (taken->count(socket) > 0 || (empty && in_use_[machine].count(socket) > 0)) continue;
        taken->insert(socket);
        return socket;
      }
    }
    return 0;
  }

  const std::vector<CabledMachine>& machines_;
  std::vector<Cable> cables_;
  std::map<std::pair<int, int>, const Cable*> between_;  // into cables_
  std::vector<std::set<uint32_t>> in_use_;
};

std::vector<std::pair<int, int>> MeshPairs(const std::vector<std::vector<int>>& desks) {
  std::vector<std::pair<int, int>> pairs;
  for (const std::vector<int>& desk : desks) {
    for (size_t i = 0; i < desk.size(); ++i) {
      for (size_t j = i + 1; j < desk.size(); ++j) pairs.emplace_back(desk[i], desk[j]);
    }
  }
  return pairs;
}

// Groups of up to four, those that have cables already together.
std::vector<std::vector<int>> DesksOf(std::vector<int> free, const Desktop& desktop) {
  std::vector<std::vector<int>> desks;
  while (!free.empty()) {
    std::vector<int> desk;
    while (!free.empty() && desk.size() < kMeshRanksMax) {
      const auto cables = [&](int machine) {
        return std::count_if(desk.begin(), desk.end(),
                             [&](int other) { return desktop.Joined(machine, other); });
      };
      const auto next = std::max_element(free.begin(), free.end(),
                                         [&](int x, int y) { return cables(x) < cables(y); });
      desk.push_back(*next);
      free.erase(next);
    }
    std::sort(desk.begin(), desk.end());
    desks.push_back(std::move(desk));
  }
  return desks;
}

// Around the machines, along cables that are there as far as they lead.
std::vector<std::pair<int, int>> RingPairs(std::vector<int> free, const Desktop& desktop) {
  const auto degree = [&](int machine) {
    return std::count_if(free.begin(), free.end(),
                         [&](int other) { return desktop.Joined(machine, other); });
  };
  // From the end of a chain, when there is one.
  auto at = std::find_if(free.begin(), free.end(), [&](int x) { return degree(x) == 1; });
  if (at == free.end()) at = free.begin();
  std::vector<int> order = {*at};
  free.erase(at);
  while (!free.empty()) {
    auto next = std::find_if(free.begin(), free.end(),
                             [&](int x) { return desktop.Joined(order.back(), x); });
    if (next == free.end()) next = free.begin();
    order.push_back(*next);
    free.erase(next);
  }
  std::vector<std::pair<int, int>> pairs;
  for (size_t i = 0; i < order.size(); ++i) {
    pairs.emplace_back(order[i], order[(i + 1) % order.size()]);
  }
  return pairs;
}

}  // namespace

std::vector<CabledMachine> MachinesAsBought(const std::vector<MachineConfiguration>& machines) {
  const v1::PlanRequest cluster = ClusterOf(machines);
  std::vector<CabledMachine> made;
  for (size_t i = 0; i < machines.size(); ++i) {
    const Machine& machine = *machines[i].machine;
    CabledMachine one;
    one.node = cluster.nodes(static_cast<int>(i));
    one.kind = std::string(machine.name);
    if (machine.socket_to_avoid > 0) one.sockets_to_avoid = {machine.socket_to_avoid};
    if (machine.rdma_ports > 0) {
      one.sockets = SocketsBut(machine.thunderbolt_ports, one.sockets_to_avoid);
    }
    made.push_back(std::move(one));
  }
  return made;
}

CabledMachine MachineAsReported(const v1::PresentMachine& machine) {
  const Machine* known = FindMachineModel(machine.machine_model(), machine.chip());
  const Chip* chip = FindChip(machine.chip());
  CabledMachine made;
  made.kind = known == nullptr ? machine.name() : std::string(known->name);
  v1::PlannerNode& node = made.node;
  node.set_node_id(machine.name());
  node.set_hostname(machine.name());
  node.set_chip(machine.chip());
  node.set_gpu_cores(machine.gpu_cores());
  node.set_cpu_cores(machine.cpu_cores());
  node.set_memory_total_bytes(machine.memory_total_bytes());
  node.set_memory_usable_bytes(machine.memory_usable_bytes() > 0
                                   ? machine.memory_usable_bytes()
                                   : GpuUsableBytes(machine.memory_total_bytes()));
  node.set_memory_available_bytes(node.memory_usable_bytes());
  node.set_schedulable(true);
  node.add_engine_names("mlx");
  node.add_engine_names("mlx-lm");
  node.mutable_traits()->set_uneven_tensor(true);
  node.mutable_traits()->set_whole_experts(true);
  node.mutable_traits()->set_narrow_kv(true);
  made.sockets_to_avoid.assign(machine.sockets_to_avoid().begin(),
                               machine.sockets_to_avoid().end());
  if (made.sockets_to_avoid.empty() && known != nullptr && known->socket_to_avoid > 0) {
    made.sockets_to_avoid = {known->socket_to_avoid};
  }
  for (const uint32_t socket : machine.sockets()) {
    if (!Contains(made.sockets_to_avoid, socket)) made.sockets.push_back(socket);
  }
  if (!machine.sockets().empty() || chip == nullptr || chip->thunderbolt < 5) return made;
  made.sockets = SocketsBut(known == nullptr ? kSocketsAtLeast : known->thunderbolt_ports,
                            made.sockets_to_avoid);
  return made;
}

std::vector<Cabling> CablingsOf(const std::vector<CabledMachine>& machines,
                                const std::vector<v1::PresentCable>& present) {
  std::vector<int> able;
  size_t fewest = SIZE_MAX;
  for (size_t i = 0; i < machines.size(); ++i) {
    if (machines[i].sockets.empty()) continue;
    able.push_back(static_cast<int>(i));
    fewest = std::min(fewest, machines[i].sockets.size());
  }
  std::vector<Cabling> ways;
  if (able.size() < 2) return ways;
  const Desktop desktop(machines, present);
  if (fewest + 1 >= std::min<size_t>(able.size(), kMeshRanksMax)) {
    Cabling mesh;
    mesh.desks = DesksOf(able, desktop);
    mesh.cables = desktop.Lay(MeshPairs(mesh.desks));
    mesh.graph = able.size() == 2         ? CableGraph::kPair
                 : mesh.desks.size() == 1 ? CableGraph::kMesh
                                          : CableGraph::kDesks;
    ways.push_back(std::move(mesh));
  }
  const bool one_mesh = !ways.empty() && ways[0].desks.size() == 1;
  if (!one_mesh && able.size() >= 3 && fewest >= 2) {
    ways.push_back({CableGraph::kRing, {}, desktop.Lay(RingPairs(able, desktop))});
  }
  return ways;
}

}  // namespace macrame::planner
