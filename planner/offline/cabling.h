#pragma once

// Which machines a Thunderbolt cable joins, and in which sockets: a mesh for up to four, beyond
// that desks (meshes of up to four side by side) or one ring. There is no Thunderbolt 5 switch, so
// a cable goes from Mac to Mac. Cables that are there are kept where they fit.

#include <cstdint>
#include <string>
#include <vector>

#include "macrame/v1/plan.pb.h"
#include "macrame/v1/planner.pb.h"
#include "planner/offline/machine_table.h"
#include "proto/backends.h"

namespace macrame::planner {

struct CabledMachine {
  v1::PlannerNode node;
  std::string kind;               // "mac-studio-m3-ultra"; its own name when the table has it not
  std::vector<uint32_t> sockets;  // that RDMA works in, by number; none: it meets others on the LAN
  std::vector<uint32_t> sockets_to_avoid;
};

std::vector<CabledMachine> MachinesAsBought(const std::vector<MachineConfiguration>& machines);
// What an agent reports, and the tables where it reports nothing.
CabledMachine MachineAsReported(const v1::PresentMachine& machine);

// One cable; machines by their index.
struct Cable {
  int a = 0, b = 0;
  uint32_t a_socket = 0, b_socket = 0;
  const v1::PresentCable* present = nullptr;
};

struct Cabling {
  CableGraph graph = CableGraph::kNone;  // a pair, a mesh, desks, a ring
  std::vector<std::vector<int>> desks;   // machines that are all joined to each other
  std::vector<Cable> cables;
};

// The ways that their sockets allow; none: fewer than two machines can be joined. `present` must
// outlive the result.
std::vector<Cabling> CablingsOf(const std::vector<CabledMachine>& machines,
                                const std::vector<v1::PresentCable>& present);

}  // namespace macrame::planner
