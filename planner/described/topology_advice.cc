#include "planner/described/topology_advice.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/described/cluster_file.h"
#include "planner/link_costs.h"
#include "planner/planner.h"

namespace macrame::planner {
namespace {

// Costing every cable plans the cluster again for each.
constexpr int kCablesCostedMax = 12;

// Indices of machines that can do RDMA with `sockets` free sockets, in order.
std::vector<int> WithSockets(const std::vector<MachineConfiguration>& machines, uint32_t sockets) {
  std::vector<int> found;
  for (size_t i = 0; i < machines.size(); ++i) {
    if (machines[i].machine->rdma_ports >= sockets) found.push_back(static_cast<int>(i));
  }
  return found;
}

class CableLayer {
 public:
  CableLayer(const v1::PlanRequest& cluster, v1::TopologyAdvice* advice)
      : cluster_(cluster), advice_(advice), used_(cluster.nodes_size(), 0) {}

  void Join(int a, int b) {
    v1::TopologyCable& cable = *advice_->add_cables();
    cable.set_a(cluster_.nodes(a).hostname());
    cable.set_b(cluster_.nodes(b).hostname());
    cable.set_a_port(NextPort(a));
    cable.set_b_port(NextPort(b));
  }

 private:
  std::string NextPort(int node) { return absl::StrCat("Thunderbolt socket ", ++used_[node]); }

  const v1::PlanRequest& cluster_;
  v1::TopologyAdvice* advice_;
  std::vector<uint32_t> used_;
};

void LayMesh(const std::vector<int>& nodes, CableLayer* layer) {
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t j = i + 1; j < nodes.size(); ++j) layer->Join(nodes[i], nodes[j]);
  }
}

void LayRing(const std::vector<int>& nodes, CableLayer* layer) {
  for (size_t i = 0; i < nodes.size(); ++i) layer->Join(nodes[i], nodes[(i + 1) % nodes.size()]);
}

// The cluster with these cables, all of them RDMA.
v1::PlanRequest WithCables(const v1::PlanRequest& bare, const v1::TopologyAdvice& advice,
                           int without) {
  v1::PlanRequest request = bare;
  request.clear_links();
  for (int i = 0; i < advice.cables_size(); ++i) {
    if (i == without) continue;
    for (const bool back : {false, true}) {
      v1::PlannerLink& link = *request.add_links();
      link.set_from_node_id(back ? advice.cables(i).b() : advice.cables(i).a());
      link.set_to_node_id(back ? advice.cables(i).a() : advice.cables(i).b());
      link.set_medium(v1::LINK_MEDIUM_THUNDERBOLT);
      link.add_backends("ring");
      link.add_backends("jaccl");
    }
  }
  return request;
}

double SpeedOf(v1::PlanRequest request, const v1::ModelDescription& model) {
  *request.mutable_model() = model;
  return PlanModel(request).plan().prediction().tokens_per_second();
}

void CostCables(const v1::PlanRequest& bare, const v1::ModelDescription& model,
                v1::TopologyAdvice* advice) {
  advice->set_model(model.name());
  advice->set_tokens_per_second(SpeedOf(WithCables(bare, *advice, -1), model));
  if (advice->tokens_per_second() == 0) {
    advice->add_notes(absl::StrCat(model.name(),
                                   " does not fit on these machines; the cables are "
                                   "not costed"));
    return;
  }
  for (int i = 0; i < std::min(advice->cables_size(), kCablesCostedMax); ++i) {
    advice->mutable_cables(i)->set_tokens_per_second_without(
        SpeedOf(WithCables(bare, *advice, i), model));
  }
}

void AddNotes(const std::vector<MachineConfiguration>& machines, v1::TopologyAdvice* advice) {
  std::set<std::string> notes;
  for (const MachineConfiguration& machine : machines) {
    const std::string name(machine.machine->name);
    if (machine.machine->socket_to_avoid > 0) {
      notes.insert(absl::StrCat(name, ": Thunderbolt socket ", machine.machine->socket_to_avoid,
                                " is beside Ethernet and said not to work for RDMA; leave it empty "
                                "or use it for something else"));
    }
    if (machine.machine->rdma_ports == 0) {
      notes.insert(
          absl::StrCat(name, " has no Thunderbolt 5: no RDMA; it takes part over the LAN"));
    }
    if (!machine.is_sold) notes.insert(absl::StrCat(machine.Name(), " is not sold"));
  }
  for (const std::string& note : notes) advice->add_notes(note);
  advice->add_notes("all machines stay on one LAN as well: control and what has no cable go there");
}

}  // namespace

v1::TopologyAdvice AdviseOnTopology(const std::vector<MachineConfiguration>& machines,
                                    const v1::ModelDescription* model) {
  v1::TopologyAdvice advice;
  const v1::PlanRequest bare = ClusterOf(machines);
  CableLayer layer(bare, &advice);
  const uint32_t count = static_cast<uint32_t>(machines.size());
  const std::vector<int> able = WithSockets(machines, 1);
  const uint32_t capable = static_cast<uint32_t>(able.size());
  const bool mesh = capable <= kMeshRanksMax && capable >= 2 &&
                    WithSockets(machines, capable - 1).size() == capable;
  const bool ring = !mesh && capable >= 3 && WithSockets(machines, 2).size() == capable;
  if (count < 2) {
    advice.set_graph("none");
    advice.add_notes("one machine needs no cable");
    return advice;
  }
  if (mesh) {
    LayMesh(able, &layer);
    advice.set_graph(capable == 2 ? "pair" : "mesh");
    advice.add_notes(absl::StrCat("a mesh of ", capable, ": ", capable * (capable - 1) / 2,
                                  " cables, ", capable - 1, " sockets of each machine"));
  } else if (ring) {
    LayRing(able, &layer);
    advice.set_graph("ring");
    advice.add_notes(absl::StrCat("a ring of ", capable, ": ", capable,
                                  " cables, 2 sockets of each machine; a mesh goes up to ",
                                  kMeshRanksMax, ", because there is no Thunderbolt 5 switch"));
  } else {
    advice.set_graph("none");
    advice.add_notes(
        "fewer than two machines can do RDMA: Ethernet of 10 Gb/s is the best between them");
  }
  if (capable > 0 && capable < count) {
    advice.add_notes(
        absl::StrCat(count - capable, " of ", count, " machines stay outside of the RDMA cables"));
  }
  AddNotes(machines, &advice);
  if (model != nullptr) CostCables(bare, *model, &advice);
  return advice;
}

}  // namespace macrame::planner
