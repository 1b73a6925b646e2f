#pragma once

// Macs that are or were sold: what planning and buying need to know of them. Sources: Apple's
// technical specifications and support pages (power: the most that Apple states for the machine).

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/plan.pb.h"

namespace macrame::planner {

struct Machine {
  std::string_view name;  // "mac-studio-m3-ultra"; people add "-512gb"
  std::string_view chip;
  std::string_view model_ids;  // as macOS calls it: "Mac16,9", several with spaces between
  std::vector<uint32_t> memory_gib;
  uint32_t thunderbolt_ports;
  uint32_t rdma_ports;       // of those, usable for RDMA; 0: no Thunderbolt 5
  uint32_t socket_to_avoid;  // its number: beside Ethernet, where RDMA is said to fail; 0: none
  double peak_watts;         // 0: not known
  double idle_watts;
  bool used_only = false;  // Apple sells it no more: planned with, but no offer
};

std::span<const Machine> Machines();
// A laptop: it has a user before it, a battery, and a lid.
bool IsPortable(const Machine& machine);

struct MachineConfiguration {
  const Machine* machine = nullptr;
  uint32_t memory_gib = 0;
  bool is_sold = true;
  std::string Name() const;  // "mac-studio-m3-ultra-512gb"
};

// "mac-studio-m3-ultra-512gb". INVALID_ARGUMENT names what there is. A memory that was never sold
// is given back with is_sold false.
absl::StatusOr<MachineConfiguration> FindMachine(std::string_view name);

// By what macOS calls it and its chip; nullptr when the table has it not.
const Machine* FindMachineModel(std::string_view model, std::string_view chip);

// "4x mac-studio-m3-ultra-512gb, mac-mini-m4-pro-64gb": one entry a machine. At most kMachinesMax.
absl::StatusOr<std::vector<MachineConfiguration>> ParsePurchase(std::string_view text);
inline constexpr uint32_t kMachinesMax = 1024;

// As the planner sees such a machine with nothing else on it: GpuUsableBytes of its memory.
v1::PlannerNode DescribeMachine(const MachineConfiguration& configuration, const std::string& name);

}  // namespace macrame::planner
