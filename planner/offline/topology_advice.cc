#include "planner/offline/topology_advice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/link_costs.h"
#include "planner/planner.h"
#include "planner/prediction.h"
#include "proto/backends.h"

namespace macrame::planner {
namespace {

// Costing a cable plans the cluster again; cables that are like a costed one need no plan.
constexpr int kCablesCostedMax = 12;
// Of two ways that are as fast as each other the one that is laid already, else desks: each of them
// serves by itself.
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
  link.add_backends(NameOf(Backend::kRing));
  link.add_backends(NameOf(Backend::kJaccl));
  return link;
}

// Machines that plan alike have the same number.
std::vector<int> KindsOf(const CabledMachines& machines) {
  std::map<std::string, int> numbers;
  std::vector<int> kinds;
  for (const CabledMachine& machine : machines) {
    v1::PlannerNode nameless = machine.node;
    nameless.clear_node_id();
    nameless.clear_hostname();
    const int next = static_cast<int>(numbers.size());
    kinds.push_back(numbers.emplace(nameless.SerializeAsString(), next).first->second);
  }
  return kinds;
}

// What one user of the model gets on these machines with these cables, RDMA over all of them, the
// LAN between all others. 0: it does not fit. Cables and desks that are alike are planned once.
class Speeds {
 public:
  Speeds(const CabledMachines& machines, const v1::ModelDescription& model)
      : machines_(machines), kinds_(KindsOf(machines)) {
    *bare_.mutable_model() = model;
    bare_.set_files_may_be_fetched(true);
    bare_.set_brief(true);
    all_.resize(machines.size());
    std::iota(all_.begin(), all_.end(), 0);
  }

  double With(const Cables& cables) const { return Of(cables, -1, all_); }

  // Without cable `without`: of its desk alone where that holds the model and another desk is as
  // fast as this one was, else of all machines. Nothing once kCablesCostedMax were planned.
  std::optional<double> Without(const Cabling& way, int without) {
    const Cable& cable = way.cables[without];
    for (const std::vector<int>& desk : way.desks) {
      if (std::find(desk.begin(), desk.end(), cable.a) == desk.end()) continue;
      if (HasTwin(way, desk)) {
        const auto alone = Costed({Scope::kDesk, DeskKey(desk, &cable)},
                                  [&] { return Of(way.cables, without, desk); });
        if (!alone.has_value() || *alone > 0) return alone;
      }
      return Costed({Scope::kAll, DeskKey(desk, &cable)},
                    [&] { return Of(way.cables, without, all_); });
    }
    return Costed({Scope::kAll, ChainKey(way.cables, without)},
                  [&] { return Of(way.cables, without, all_); });
  }

  // Desks that hold the model by themselves.
  uint32_t Replicas(const Cabling& way) {
    uint32_t replicas = 0;
    for (const std::vector<int>& desk : way.desks) {
      const Key key{Scope::kDesk, DeskKey(desk, nullptr)};
      if (known_.count(key) == 0) known_[key] = Of(way.cables, -1, desk);
      if (known_[key] > 0) ++replicas;
    }
    return replicas;
  }

 private:
  enum class Scope { kDesk, kAll };
  using Key = std::pair<Scope, std::vector<int>>;

  template <typename Plan>
  std::optional<double> Costed(const Key& key, const Plan& plan) {
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    if (costed_ >= kCablesCostedMax) return std::nullopt;
    ++costed_;
    return known_[key] = plan();
  }

  // Whether another desk has machines of the same kinds.
  bool HasTwin(const Cabling& way, const std::vector<int>& desk) {
    if (desks_of_kinds_.empty()) {
      for (const std::vector<int>& one : way.desks) ++desks_of_kinds_[DeskKey(one, nullptr)];
    }
    return desks_of_kinds_[DeskKey(desk, nullptr)] > 1;
  }

  // The machines of a desk, which are all joined, and between which the cable is missing.
  std::vector<int> DeskKey(const std::vector<int>& desk, const Cable* missing) const {
    std::vector<int> key;
    for (const int machine : desk) key.push_back(kinds_[machine]);
    std::sort(key.begin(), key.end());
    key.push_back(-1);  // an end to the desk
    if (missing == nullptr) return key;
    const auto [less, more] = std::minmax(kinds_[missing->a], kinds_[missing->b]);
    key.push_back(less);
    key.push_back(more);
    return key;
  }

  // The chain of machines that is left of a ring, from whichever end.
  std::vector<int> ChainKey(const Cables& ring, int without) const {
    const int count = static_cast<int>(ring.size());
    std::vector<int> key;
    for (int i = 1; i <= count; ++i) {
      const Cable& before = ring[(without + i - 1) % count];
      const Cable& after = ring[(without + i) % count];
      const bool shared = before.a == after.a || before.a == after.b;
      key.push_back(kinds_[shared ? before.a : before.b]);
    }
    return std::min(key, std::vector<int>(key.rbegin(), key.rend()));
  }

  // Of these machines alone, without cable `without`; -1: with all.
  double Of(const Cables& cables, int without, const std::vector<int>& machines) const {
    v1::PlanRequest request = bare_;
    std::vector<bool> taken(machines_.size());
    for (const int machine : machines) {
      *request.add_nodes() = machines_[machine].node;
      taken[machine] = true;
    }
    for (int i = 0; i < static_cast<int>(cables.size()); ++i) {
      const Cable& cable = cables[i];
      if (i != without && taken[cable.a] && taken[cable.b]) AddCable(cable.a, cable.b, &request);
    }
    return PlanModel(request).plan().prediction().tokens_per_second();
  }

  void AddCable(int a, int b, v1::PlanRequest* request) const {
    const std::string &from = machines_[a].node.node_id(), &to = machines_[b].node.node_id();
    *request->add_links() = RdmaLink(from, to);
    *request->add_links() = RdmaLink(to, from);
  }

  const CabledMachines& machines_;
  const std::vector<int> kinds_;
  std::vector<int> all_;
  v1::PlanRequest bare_;
  std::map<Key, double> known_;
  std::map<std::vector<int>, int> desks_of_kinds_;  // of the one way whose cables are costed
  int costed_ = 0;
};

// "desks of 4 and 2", "250 desks of 4".
std::string DeskSizes(const Cabling& way) {
  constexpr size_t kNamedSingly = 4;
  if (way.desks.size() > kNamedSingly) {
    const size_t largest = way.desks.front().size(), last = way.desks.back().size();
    return last == largest
               ? absl::StrCat(way.desks.size(), " desks of ", largest)
               : absl::StrCat(way.desks.size() - 1, " desks of ", largest, " and one of ", last);
  }
  std::vector<std::string> sizes;
  for (const auto& desk : way.desks) sizes.push_back(absl::StrCat(desk.size()));
  return absl::StrCat("desks of ", absl::StrJoin(sizes, " and "));
}

std::string WhatItSuits(const Cabling& way) {
  if (way.graph == CableGraph::kDesks) {
    return absl::StrCat(DeskSizes(way),
                        ", RDMA between each two machines of one: for models that a desk holds; "
                        "each desk serves a replica or a model of its own");
  }
  if (way.graph == CableGraph::kRing) {
    return "RDMA from neighbour to neighbour around all machines: for one model that no desk holds";
  }
  return "";
}

std::string CountNote(const Cabling& way, size_t able) {
  if (way.graph == CableGraph::kRing) {
    return absl::StrCat("a ring of ", able, ": ", way.cables.size(),
                        " cables, 2 sockets of each machine; a mesh goes up to ", kMeshRanksMax,
                        ", because there is no Thunderbolt 5 switch");
  }
  const auto [least, most] =
      std::minmax_element(way.desks.begin(), way.desks.end(),
                          [](const auto& x, const auto& y) { return x.size() < y.size(); });
  const std::string what = way.graph == CableGraph::kDesks
                               ? absl::StrCat(way.desks.size(), " desks")
                               : absl::StrCat("a mesh of ", able);
  return absl::StrCat(what, ": ", way.cables.size(),
                      way.cables.size() == 1 ? " cable, " : " cables, ",
                      least->size() < most->size() ? "up to " : "", most->size() - 1,
                      most->size() == 2 ? " socket" : " sockets", " of each machine");
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

bool IsLaid(const Cabling& way) {
  return std::all_of(way.cables.begin(), way.cables.end(),
                     [](const Cable& cable) { return cable.present != nullptr; });
}

double Speed(const Option& option) { return option.told.tokens_per_second(); }

bool AreAsFast(const Option& x, const Option& y) {
  return std::max(Speed(x), Speed(y)) <= kFasterByAtLeast * std::min(Speed(x), Speed(y));
}

// The advised one first.
std::vector<Option> OptionsFor(const CabledMachines& machines,
                               const std::vector<v1::PresentCable>& present, bool is_there,
                               Speeds* speeds) {
  std::vector<Option> options;
  for (Cabling& way : CablingsOf(machines, present)) {
    Option option;
    option.told.set_graph(NameOf(way.graph));
    option.told.set_suits(WhatItSuits(way));
    for (const Cable& cable : way.cables) {
      *option.told.add_cables() = Described(machines, way.cables, cable, is_there);
    }
    if (speeds != nullptr) option.told.set_tokens_per_second(speeds->With(way.cables));
    if (speeds != nullptr && way.graph == CableGraph::kDesks)
      option.told.set_replicas(speeds->Replicas(way));
    option.way = std::move(way);
    options.push_back(std::move(option));
  }
  if (options.size() != 2) return options;
  const bool swaps = AreAsFast(options[0], options[1])
                         ? IsLaid(options[1].way) && !IsLaid(options[0].way)
                         : Speed(options[1]) > Speed(options[0]);
  if (swaps) std::swap(options[0], options[1]);
  return options;
}

std::string WhenToTakeTheOther(const Option& advised, const Option& other) {
  if (advised.way.graph == CableGraph::kRing) {
    return "; take desks for models that one desk holds, each desk with its own";
  }
  // No desk holds the model, and the ring is no faster.
  if (Speed(advised) > 0 && advised.told.replicas() == 0) {
    return absl::StrCat("; the ring needs ", other.way.cables.size(), " cables instead of ",
                        advised.way.cables.size());
  }
  return "; take the ring for one model that no desk holds";
}

// Why the first of two ways is advised, and when the other is the better one.
std::string WhyThisWay(const std::vector<Option>& options, const std::string& model) {
  const Option &advised = options[0], &other = options[1];
  const CableGraph graph = advised.way.graph;
  const std::string is_advised = graph == CableGraph::kRing
                                     ? "the ring is advised"
                                     : absl::StrCat(NameOf(graph), " are advised");
  std::string why;
  if (!AreAsFast(advised, other)) {
    why = absl::StrCat(": ", SpeedText(Speed(advised)), " for one user of ", model, ", over the ",
                       other.told.graph(), " ", SpeedText(Speed(other)));
  } else {
    if (!model.empty() && Speed(advised) > 0) {
      why = absl::StrCat(", though the ", other.told.graph(),
                         graph == CableGraph::kRing ? " are" : " is", " as fast for ", model);
    }
    const bool laid = IsLaid(advised.way) && !IsLaid(other.way);
    absl::StrAppend(&why, laid ? ": all its cables are there"
                               : ": each desk serves by itself, and goes on when another fails");
  }
  if (advised.told.replicas() > 1 || other.told.replicas() > 1) {
    absl::StrAppend(&why, "; ", std::max(advised.told.replicas(), other.told.replicas()),
                    " desks hold a replica each");
  }
  return absl::StrCat(is_advised, why, WhenToTakeTheOther(advised, other));
}

void CostCables(Speeds* speeds, const Cabling& way, const std::string& model,
                v1::TopologyAdvice* advice) {
  advice->set_model(model);
  if (advice->tokens_per_second() == 0) {
    advice->add_notes(
        absl::StrCat(model, " does not fit on these machines; the cables are not costed"));
    return;
  }
  for (int i = 0; i < advice->cables_size(); ++i) {
    const auto without = speeds->Without(way, i);
    if (without.has_value()) advice->mutable_cables(i)->set_tokens_per_second_without(*without);
  }
}

}  // namespace

v1::TopologyAdvice AdviseOnTopology(const CabledMachines& machines,
                                    const std::vector<v1::PresentCable>& present, bool is_there,
                                    const v1::ModelDescription* model) {
  v1::TopologyAdvice advice;
  advice.set_graph(NameOf(CableGraph::kNone));
  if (machines.size() < 2) {
    advice.add_notes("one machine needs no cable");
    return advice;
  }
  std::optional<Speeds> speeds;
  if (model != nullptr) speeds.emplace(machines, *model);
  const std::vector<Option> options =
      OptionsFor(machines, present, is_there, speeds.has_value() ? &*speeds : nullptr);
  if (options.size() == 2) {
    advice.add_notes(WhyThisWay(options, model == nullptr ? "" : model->name()));
  }
  const size_t able = std::count_if(machines.begin(), machines.end(),
                                    [](const CabledMachine& one) { return !one.sockets.empty(); });
  const Cabling way = options.empty() ? Cabling() : options[0].way;
  if (options.empty() && able >= 2) {
    advice.add_notes(absl::StrCat(
        able, " machines can do RDMA, and one of them has a single socket for it: no ring and no ",
        "mesh of all of them can be cabled; a pair of two is what there is"));
  } else if (options.empty()) {
    advice.add_notes(
        "fewer than two machines can do RDMA: a Thunderbolt cable with IP over it is the best "
        "between two of them, else the fastest Ethernet that both have");
  } else {
    advice.set_graph(NameOf(way.graph));
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
  advice.set_tokens_per_second(options.empty() ? speeds->With({}) : Speed(options[0]));
  CostCables(&*speeds, way, model->name(), &advice);
  return advice;
}

}  // namespace macrame::planner
