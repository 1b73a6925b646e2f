#include "planner/described/topology_advice.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/link_costs.h"
#include "planner/planner.h"

namespace macrame::planner {
namespace {

// Costing every cable plans the cluster again for each.
constexpr int kCablesCostedMax = 12;
// Of two ways that are as fast as each other, desks: each of them serves by itself.
constexpr double kFasterByAtLeast = 1.01;

using CabledMachines = std::vector<CabledMachine>;
using Cables = std::vector<Cable>;

std::string SocketText(uint32_t socket) {
  return socket == 0 ? "any free Thunderbolt socket" : absl::StrCat("Thunderbolt socket ", socket);
}

bool IsAvoided(const CabledMachine& machine, uint32_t socket) {
  const auto& avoided = machine.sockets_to_avoid;
  return std::find(avoided.begin(), avoided.end(), socket) != avoided.end();
}

// A socket of the machine that no cable of these is in.
uint32_t FreeSocket(const CabledMachines& machines, const Cables& cables, int machine) {
  for (const uint32_t socket : machines[machine].sockets) {
    const bool taken = std::any_of(cables.begin(), cables.end(), [&](const Cable& cable) {
      return (cable.a == machine && cable.a_socket == socket) ||
             (cable.b == machine && cable.b_socket == socket);
    });
    if (!taken) return socket;
  }
  return 0;
}

// What is to be done about a cable that is there.
std::string NoteOn(const CabledMachines& machines, const Cables& cables, const Cable& cable) {
  std::vector<std::string> notes;
  for (const bool first : {true, false}) {
    const int machine = first ? cable.a : cable.b;
    const uint32_t socket = first ? cable.a_socket : cable.b_socket;
    if (!IsAvoided(machines[machine], socket)) continue;
    notes.push_back(absl::StrCat("move it on ", machines[machine].node.hostname(), " from socket ",
                                 socket, ", beside Ethernet, to ",
                                 SocketText(FreeSocket(machines, cables, machine))));
  }
  const bool works = cable.present->rdma();
  if (!works) {
    const std::string& why = cable.present->why_not();
    notes.push_back(absl::StrCat("RDMA does not work over it", why.empty() ? "" : ": ", why));
  }
  return absl::StrJoin(notes, "; ");
}

v1::TopologyCable Described(const CabledMachines& machines, const Cables& cables,
                            const Cable& cable, bool is_there) {
  v1::TopologyCable made;
  made.set_a(machines[cable.a].node.hostname());
  made.set_b(machines[cable.b].node.hostname());
  made.set_a_port(SocketText(cable.a_socket));
  made.set_b_port(SocketText(cable.b_socket));
  if (cable.present != nullptr) {
    made.set_state("present");
    made.set_note(NoteOn(machines, cables, cable));
  } else if (is_there) {
    made.set_state("missing");
  }
  return made;
}

v1::PlannerLink RdmaLink(const std::string& from, const std::string& to) {
  v1::PlannerLink link;
  link.set_from_node_id(from);
  link.set_to_node_id(to);
  link.set_medium(v1::LINK_MEDIUM_THUNDERBOLT);
  link.add_backends("ring");
  link.add_backends("jaccl");
  return link;
}

// What one user of the model gets on these machines with these cables, RDMA over all of them, the
// LAN between all others. 0: it does not fit.
class Speeds {
 public:
  Speeds(const CabledMachines& machines, const v1::ModelDescription& model) : machines_(machines) {
    *bare_.mutable_model() = model;
    bare_.set_files_may_be_fetched(true);
    bare_.set_brief(true);
    for (const CabledMachine& machine : machines) *bare_.add_nodes() = machine.node;
  }

  double With(const Cables& cables) const { return Of(cables, -1, {}); }

  // Without cable `without`: of the desk that it belongs to where that holds the model by itself,
  // because another desk is as fast as before.
  double Without(const Cabling& way, int without) const {
    for (const std::vector<int>& desk : way.desks) {
      const Cable& cable = way.cables[without];
      if (std::find(desk.begin(), desk.end(), cable.a) == desk.end()) continue;
      const double speed = Of(way.cables, without, desk);
      if (speed > 0) return speed;
    }
    return Of(way.cables, without, {});
  }

  // Desks that hold the model by themselves.
  uint32_t Copies(const Cabling& way) const {
    return static_cast<uint32_t>(
        std::count_if(way.desks.begin(), way.desks.end(),
                      [&](const std::vector<int>& desk) { return Of(way.cables, -1, desk) > 0; }));
  }

 private:
  // `only` these machines; none: all.
  double Of(const Cables& cables, int without, const std::vector<int>& only) const {
    v1::PlanRequest request = bare_;
    for (int i = 0; i < static_cast<int>(cables.size()); ++i) {
      if (i != without) AddCable(cables[i].a, cables[i].b, &request);
    }
    for (const int machine : only) {
      request.mutable_wishes()->add_node_ids(machines_[machine].node.node_id());
    }
    return PlanModel(request).plan().prediction().tokens_per_second();
  }

  void AddCable(int a, int b, v1::PlanRequest* request) const {
    const std::string &from = machines_[a].node.node_id(), &to = machines_[b].node.node_id();
    *request->add_links() = RdmaLink(from, to);
    *request->add_links() = RdmaLink(to, from);
  }

  const CabledMachines& machines_;
  v1::PlanRequest bare_;
};

std::string WhatItSuits(const Cabling& way) {
  if (way.graph == "desks") {
    std::vector<std::string> sizes;
    for (const auto& desk : way.desks) sizes.push_back(absl::StrCat(desk.size()));
    return absl::StrCat("desks of ", absl::StrJoin(sizes, " and "),
                        ", RDMA between each two machines of one: for models that a desk holds; "
                        "each desk serves a copy or a model of its own");
  }
  if (way.graph == "ring") {
    return "RDMA from neighbour to neighbour around all machines: for one model that no desk holds";
  }
  return "";
}

std::string CountNote(const Cabling& way, size_t able) {
  if (way.graph == "ring") {
    return absl::StrCat("a ring of ", able, ": ", way.cables.size(),
                        " cables, 2 sockets of each machine; a mesh goes up to ", kMeshRanksMax,
                        ", because there is no Thunderbolt 5 switch");
  }
  const size_t most =
      std::max_element(way.desks.begin(), way.desks.end(), [](const auto& x, const auto& y) {
        return x.size() < y.size();
      })->size();
  const std::string what = way.graph == "desks" ? absl::StrCat(way.desks.size(), " desks")
                                                : absl::StrCat("a mesh of ", able);
  return absl::StrCat(what, ": ", way.cables.size(),
                      way.cables.size() == 1 ? " cable, " : " cables, ", most - 1,
                      most == 2 ? " socket" : " sockets", " of each machine");
}

// What the machines themselves ask for.
void AddMachineNotes(const CabledMachines& machines, bool is_there, v1::TopologyAdvice* advice) {
  std::set<std::string> notes;
  for (const CabledMachine& machine : machines) {
    const std::string& name =
        is_there && machine.sockets.empty() ? machine.node.hostname() : machine.kind;
    if (machine.sockets.empty()) {
      notes.insert(
          absl::StrCat(name, " has no Thunderbolt 5: no RDMA; it takes part over the LAN"));
    } else if (!machine.sockets_to_avoid.empty()) {
      notes.insert(absl::StrCat(name, ": Thunderbolt socket ",
                                absl::StrJoin(machine.sockets_to_avoid, ", "),
                                " is beside Ethernet and said not to work for RDMA; leave it empty "
                                "or use it for something else"));
    }
  }
  for (const std::string& note : notes) advice->add_notes(note);
  advice->add_notes("all machines stay on one LAN as well: control and what has no cable go there");
}

// Cables that are there and not among these.
void AddSpare(const CabledMachines& machines, const std::vector<v1::PresentCable>& present,
              const Cables& used, v1::TopologyAdvice* advice) {
  for (const v1::PresentCable& cable : present) {
    const bool needed = std::any_of(used.begin(), used.end(),
                                    [&](const Cable& one) { return one.present == &cable; });
    const auto known = [&](const std::string& name) {
      return std::any_of(machines.begin(), machines.end(), [&](const CabledMachine& machine) {
        return machine.node.hostname() == name;
      });
    };
    if (needed || !known(cable.a()) || !known(cable.b())) continue;
    v1::TopologyCable& spare = *advice->add_spare();
    spare.set_a(cable.a());
    spare.set_b(cable.b());
    spare.set_a_port(SocketText(cable.a_socket()));
    spare.set_b_port(SocketText(cable.b_socket()));
    spare.set_state("present");
  }
}

Cables WorkingNow(const CabledMachines& machines, const std::vector<v1::PresentCable>& present) {
  Cables cables;
  const auto index = [&](const std::string& name) {
    const auto found =
        std::find_if(machines.begin(), machines.end(),
                     [&](const CabledMachine& one) { return one.node.hostname() == name; });
    return found == machines.end() ? -1 : static_cast<int>(found - machines.begin());
  };
  for (const v1::PresentCable& cable : present) {
    const int a = index(cable.a()), b = index(cable.b());
    if (cable.rdma() && a >= 0 && b >= 0) cables.push_back({a, b, 0, 0, &cable});
  }
  return cables;
}

void AddMissingNote(v1::TopologyAdvice* advice) {
  int missing = 0;
  for (const v1::TopologyCable& cable : advice->cables()) missing += cable.state() == "missing";
  advice->add_notes(missing == 0   ? "no cable is missing"
                    : missing == 1 ? "1 cable is missing"
                                   : absl::StrCat(missing, " cables are missing"));
}

struct Option {
  Cabling way;
  v1::TopologyOption told;
};

// The advised one first.
std::vector<Option> OptionsFor(const CabledMachines& machines,
                               const std::vector<v1::PresentCable>& present, bool is_there,
                               const Speeds* speeds) {
  std::vector<Option> options;
  for (Cabling& way : CablingsOf(machines, present)) {
    Option option;
    option.told.set_graph(way.graph);
    option.told.set_suits(WhatItSuits(way));
    for (const Cable& cable : way.cables) {
      *option.told.add_cables() = Described(machines, way.cables, cable, is_there);
    }
    if (speeds != nullptr) option.told.set_tokens_per_second(speeds->With(way.cables));
    if (speeds != nullptr && way.graph == "desks") option.told.set_copies(speeds->Copies(way));
    option.way = std::move(way);
    options.push_back(std::move(option));
  }
  if (options.size() == 2 && options[1].told.tokens_per_second() >
                                 kFasterByAtLeast * options[0].told.tokens_per_second()) {
    std::swap(options[0], options[1]);
  }
  return options;
}

void CostCables(const Speeds& speeds, const Cabling& way, const std::string& model,
                v1::TopologyAdvice* advice) {
  advice->set_model(model);
  advice->set_tokens_per_second(speeds.With(way.cables));
  if (advice->tokens_per_second() == 0) {
    advice->add_notes(
        absl::StrCat(model, " does not fit on these machines; the cables are not costed"));
    return;
  }
  for (int i = 0; i < std::min(advice->cables_size(), kCablesCostedMax); ++i) {
    advice->mutable_cables(i)->set_tokens_per_second_without(speeds.Without(way, i));
  }
}

}  // namespace

v1::TopologyAdvice AdviseOnTopology(const CabledMachines& machines,
                                    const std::vector<v1::PresentCable>& present, bool is_there,
                                    const v1::ModelDescription* model) {
  v1::TopologyAdvice advice;
  advice.set_graph("none");
  if (machines.size() < 2) {
    advice.add_notes("one machine needs no cable");
    return advice;
  }
  std::optional<Speeds> speeds;
  if (model != nullptr) speeds.emplace(machines, *model);
  const std::vector<Option> options =
      OptionsFor(machines, present, is_there, speeds.has_value() ? &*speeds : nullptr);
  const size_t able = std::count_if(machines.begin(), machines.end(),
                                    [](const CabledMachine& one) { return !one.sockets.empty(); });
  const Cabling way = options.empty() ? Cabling() : options[0].way;
  if (options.empty()) {
    advice.add_notes(
        "fewer than two machines can do RDMA: Ethernet of 10 Gb/s is the best between them");
  } else {
    advice.set_graph(way.graph);
    *advice.mutable_cables() = options[0].told.cables();
    advice.add_notes(CountNote(way, able));
    if (is_there) AddMissingNote(&advice);
  }
  for (const Option& option : options) {
    if (options.size() > 1) *advice.add_options() = option.told;
  }
  if (able > 0 && able < machines.size()) {
    advice.add_notes(absl::StrCat(machines.size() - able, " of ", machines.size(),
                                  " machines stay outside of the RDMA cables"));
  }
  AddSpare(machines, present, way.cables, &advice);
  AddMachineNotes(machines, is_there, &advice);
  if (!speeds.has_value()) return advice;
  if (is_there) advice.set_tokens_per_second_now(speeds->With(WorkingNow(machines, present)));
  CostCables(*speeds, way, model->name(), &advice);
  return advice;
}

}  // namespace macrame::planner
