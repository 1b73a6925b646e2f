#include "planner/offline/machine_table.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "planner/chip_table.h"
#include "proto/bytes.h"
#include "proto/suggestions.h"

namespace macrame::planner {
namespace {

// The sockets' numbers are those that macOS gives them ("Thunderbolt 1"); on a Mac Studio the first
// is the one beside Ethernet.
const std::vector<Machine>& Table() {
  static const std::vector<Machine> machines = {
      {"mac-mini-m1", "Apple M1", "Macmini9,1", {8, 16}, 2, 0, 0, 0, 0, true},
      {"mac-mini-m2", "Apple M2", "Mac14,3", {8, 16, 24}, 2, 0, 0, 0, 0, true},
      {"mac-mini-m2-pro", "Apple M2 Pro", "Mac14,12", {16, 32}, 4, 0, 0, 0, 0, true},
      {"mac-mini-m4", "Apple M4", "Mac16,10", {16, 24, 32}, 3, 0, 0, 65, 4},
      {"mac-mini-m4-pro", "Apple M4 Pro", "Mac16,11", {24, 48, 64}, 3, 3, 0, 140, 5},
      {"mac-studio-m1-max", "Apple M1 Max", "Mac13,1", {32, 64}, 4, 0, 0, 115, 11, true},
      {"mac-studio-m1-ultra", "Apple M1 Ultra", "Mac13,2", {64, 128}, 6, 0, 0, 215, 11, true},
      {"mac-studio-m2-max", "Apple M2 Max", "Mac14,13", {32, 64, 96}, 4, 0, 0, 145, 10, true},
      {"mac-studio-m2-ultra", "Apple M2 Ultra", "Mac14,14", {64, 128, 192}, 6, 0, 0, 295, 10, true},
      {"mac-studio-m4-max", "Apple M4 Max", "Mac16,9", {36, 48, 64, 128}, 4, 3, 1, 145, 10},
      {"mac-studio-m3-ultra", "Apple M3 Ultra", "Mac15,14", {96, 256, 512}, 6, 5, 1, 270, 9},
      {"mac-pro-m2-ultra", "Apple M2 Ultra", "Mac14,8", {64, 128, 192}, 8, 0, 0, 330, 32, true},
      {"macbook-pro-m1-max",
       "Apple M1 Max",
       "MacBookPro18,2 MacBookPro18,4",
       {32, 64},
       3,
       0,
       0,
       0,
       0,
       true},
      {"macbook-pro-m2-max", "Apple M2 Max", "Mac14,5 Mac14,6", {32, 64, 96}, 3, 0, 0, 0, 0, true},
      {"macbook-pro-m3-max",
       "Apple M3 Max",
       "Mac15,8 Mac15,9 Mac15,10 Mac15,11",
       {36, 48, 64, 96, 128},
       3,
       0,
       0,
       0,
       0,
       true},
      {"macbook-pro-m4-pro", "Apple M4 Pro", "Mac16,7 Mac16,8", {24, 48}, 3, 3, 0, 0, 0},
      {"macbook-pro-m4-max", "Apple M4 Max", "Mac16,5 Mac16,6", {36, 48, 64, 128}, 3, 3, 0, 0, 0},
      {"macbook-pro-m5-max", "Apple M5 Max", "Mac17,6 Mac17,7", {36, 48, 64, 128}, 3, 3, 0, 0, 0},
  };
  return machines;
}

}  // namespace

std::span<const Machine> Machines() { return Table(); }

bool IsPortable(const Machine& machine) { return machine.name.starts_with("macbook"); }

std::string MachineConfiguration::Name() const {
  return absl::StrCat(absl::string_view(machine->name.data(), machine->name.size()), "-",
                      memory_gib, "gb");
}

absl::StatusOr<MachineConfiguration> FindMachine(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(std::string(name));
  const Machine* best = nullptr;
  for (const Machine& machine : Table()) {
    const bool named = lower == machine.name || lower.starts_with(std::string(machine.name) + "-");
    if (named && (best == nullptr || machine.name.size() > best->name.size())) best = &machine;
  }
  std::vector<std::string> names, sold_names;
  for (const Machine& machine : Table()) {
    names.emplace_back(machine.name);
    for (const uint32_t memory : machine.memory_gib) {
      sold_names.push_back(MachineConfiguration{&machine, memory, true}.Name());
    }
  }
  if (best == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no machine is called '", lower, "'; known are ", absl::StrJoin(names, ", "),
        ", each with its memory, such as ", names.back(), "-128gb", DidYouMean(lower, sold_names)));
  }
  absl::string_view rest(lower);
  rest.remove_prefix(best->name.size());
  absl::ConsumePrefix(&rest, "-");
  if (!absl::ConsumeSuffix(&rest, "gib")) absl::ConsumeSuffix(&rest, "gb");
  MachineConfiguration configuration;
  configuration.machine = best;
  const std::string sold = absl::StrJoin(best->memory_gib, ", ");
  if (!absl::SimpleAtoi(rest, &configuration.memory_gib) || configuration.memory_gib == 0 ||
      configuration.memory_gib > 65536) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", lower, "' does not say how much memory: ", names[best - Table().data()],
                     " is sold with ", sold, " GB, such as ", names[best - Table().data()], "-",
                     best->memory_gib.back(), "gb"));
  }
  configuration.is_sold = std::find(best->memory_gib.begin(), best->memory_gib.end(),
                                    configuration.memory_gib) != best->memory_gib.end();
  return configuration;
}

const Machine* FindMachineModel(std::string_view model, std::string_view chip) {
  for (const Machine& machine : Table()) {
    const std::vector<std::string> ids =
        absl::StrSplit(absl::string_view(machine.model_ids.data(), machine.model_ids.size()), ' ');
    const bool is_one = std::find(ids.begin(), ids.end(), model) != ids.end();
    if (is_one && FindChip(chip) == FindChip(machine.chip)) return &machine;
  }
  return nullptr;
}

absl::StatusOr<std::vector<MachineConfiguration>> ParsePurchase(std::string_view text) {
  std::vector<MachineConfiguration> machines;
  const std::string plain =
      absl::StrReplaceAll(absl::string_view(text.data(), text.size()), {{"×", "x"}});
  for (absl::string_view part : absl::StrSplit(plain, absl::ByAnyChar(",;+"))) {
    part = absl::StripAsciiWhitespace(part);
    if (part.empty()) continue;
    uint32_t count = 1;
    const size_t times = part.find_first_of("xX*");
    uint32_t told = 0;  // "m4-max" has an x too
    if (times != absl::string_view::npos &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(part.substr(0, times)), &told)) {
      count = told;
      part = absl::StripAsciiWhitespace(part.substr(times + 1));
    }
    const auto found = FindMachine(std::string_view(part.data(), part.size()));
    if (!found.ok()) return found.status();
    if (count == 0 || count + machines.size() > kMachinesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("between 1 and ", kMachinesMax, " machines can be planned for"));
    }
    machines.insert(machines.end(), count, *found);
  }
  if (machines.empty()) {
    return absl::InvalidArgumentError("no machine is named; say e.g. 2x mac-studio-m3-ultra-256gb");
  }
  return machines;
}

v1::PlannerNode DescribeMachine(const MachineConfiguration& configuration,
                                const std::string& name) {
  v1::PlannerNode node;
  node.set_node_id(name);
  node.set_hostname(name);
  node.set_chip(std::string(configuration.machine->chip));
  node.set_gpu_cores(
      GpuCoresWith(*FindChip(configuration.machine->chip), configuration.memory_gib));
  node.set_memory_total_bytes(configuration.memory_gib * kBytesPerGiB);
  node.set_memory_usable_bytes(GpuUsableBytes(node.memory_total_bytes()));
  node.set_memory_available_bytes(node.memory_usable_bytes());
  node.set_schedulable(true);
  node.set_is_portable(IsPortable(*configuration.machine));
  node.add_engine_names("mlx");
  node.add_engine_names("mlx-lm");                 // which may be installed on it
  node.mutable_traits()->set_uneven_tensor(true);  // as rankd can
  node.mutable_traits()->set_whole_experts(true);
  node.mutable_traits()->set_narrow_kv(true);
  node.set_is_portable(configuration.machine->name.starts_with("macbook-"));
  node.set_power_peak_watts(configuration.machine->peak_watts);
  node.set_power_idle_watts(configuration.machine->idle_watts);
  return node;
}

}  // namespace macrame::planner
