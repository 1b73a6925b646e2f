#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "discovery/base/plain_text.h"
#include "discovery/parsers/text_scan.h"
#include "discovery/probe/linux_files.h"
#include "discovery/probe/linux_power.h"
#include "discovery/probe/linux_probe.h"
#include "discovery/probe/machine_id.h"
#include "discovery/probe/unknown_facts.h"
#include "proto/reason_codes.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDisksMax = 16;

std::string Unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
      text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  return ToPlainText(text, kFactBytesMax);
}

void ReadOs(const std::string& root, v1::Inventory& inventory, UnknownFacts& unknown) {
  std::string text = ReadFile(root + "/etc/os-release");
  if (text.empty()) text = ReadFile(root + "/usr/lib/os-release");
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, "=", name, value)) continue;
    if (name == "NAME") inventory.set_os_name(Unquoted(value));
    if (name == "VERSION_ID") inventory.set_os_version(Unquoted(value));
    // Rolling distributions have no version.
    if (name == "BUILD_ID" && inventory.os_version().empty()) {
      inventory.set_os_version(Unquoted(value));
    }
  }
  if (inventory.os_name().empty()) {
    unknown.Add(reasons::kFactUnknown, "os_name", "/etc/os-release does not tell");
  }
  if (inventory.os_version().empty()) {
    unknown.Add(reasons::kFactUnknown, "os_version", "/etc/os-release does not tell");
  }
  inventory.set_os_build(ReadLine(root + "/proc/sys/kernel/osrelease"));
  if (inventory.os_build().empty()) {
    unknown.Add(reasons::kFactUnknown, "os_build", "/proc/sys/kernel/osrelease can't be read");
  }
}

std::string MachineModel(const std::string& root) {
  const std::string folder = root + "/sys/class/dmi/id/";
  std::string model = ReadLine(folder + "product_name");
  const std::string vendor = ReadLine(folder + "sys_vendor");
  if (!model.empty() && !vendor.empty() && !model.starts_with(vendor)) {
    model = absl::StrCat(vendor, " ", model);
  }
  if (model.empty()) {
    model = ReadFile(root + "/proc/device-tree/model");  // ends with a NUL
    while (!model.empty() && model.back() == '\0') model.pop_back();
  }
  return ToPlainText(model, kFactBytesMax);
}

// Cores of "0-3,8" as /sys/devices/*/cpus has it; 0 when it can't be read.
uint32_t CountCpuList(std::string_view list) {
  uint64_t count = 0;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
    const size_t dash = item.find('-');
    const auto first = ParseUnsigned(item.substr(0, dash));
    const auto last = dash == item.npos ? first : ParseUnsigned(item.substr(dash + 1));
    if (!first || !last || *last < *first || *last > 4096) return 0;
    count += *last - *first + 1;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(count, 4096));
}

void ReadCpu(const std::string& root, v1::Inventory& inventory, UnknownFacts& unknown) {
  std::string chip;
  uint32_t cores = 0;
  const std::string text = ReadFile(root + "/proc/cpuinfo");
  for (const std::string_view line : WholeLines(text)) {
    std::string_view name;
    std::string_view value;
    if (!SplitOnce(line, ":", name, value)) continue;
    if (name == "processor") ++cores;
    if ((name == "model name" || name == "Model") && chip.empty()) {
      chip = ToPlainText(value, kFactBytesMax);
    }
  }
  if (cores == 0) cores = CountCpuList(ReadLine(root + "/sys/devices/system/cpu/online"));
  inventory.set_chip(chip);
  inventory.set_cpu_cores(cores);
  // Only hybrid chips have this list; on all others every core is one.
  const uint32_t fast = CountCpuList(ReadLine(root + "/sys/devices/cpu_core/cpus"));
  inventory.set_performance_cores(fast > 0 && fast <= cores ? fast : cores);
  if (chip.empty()) unknown.Add(reasons::kFactUnknown, "chip", "/proc/cpuinfo names no model");
  if (cores == 0)
    unknown.Add(reasons::kFactUnknown, "cpu_cores", "/proc/cpuinfo lists no processor");
}

void ReadGpu(const std::string& root, v1::Inventory& inventory) {
  std::error_code error;
  for (fs::directory_iterator it(root + "/proc/driver/nvidia/gpus", error), end;
       !error && it != end; it.increment(error)) {
    const std::string text = ReadFile(it->path().string() + "/information");
    for (const std::string_view line : WholeLines(text)) {
      std::string_view name;
      std::string_view value;
      if (SplitOnce(line, ":", name, value) && name == "Model") {
        inventory.set_gpu_name(ToPlainText(value, kFactBytesMax));
        return;
      }
    }
  }
}

void ReadMemory(const std::string& root, v1::Inventory& inventory, UnknownFacts& unknown) {
  const auto memory = ParseMeminfo(ReadFile(root + "/proc/meminfo"));
  const auto total = memory.find("MemTotal");
  const auto swap = memory.find("SwapTotal");
  if (total == memory.end()) {
    unknown.Add(reasons::kFactUnknown, "memory_total_bytes",
                "/proc/meminfo does not tell MemTotal");
    unknown.Add(reasons::kFactUnknown, "memory_gpu_usable_bytes", "the memory's size is not known");
  } else {
    const uint64_t usable = CgroupMemory(root).Limit(total->second).value_or(total->second);
    inventory.set_memory_total_bytes(usable);
    inventory.set_memory_gpu_usable_bytes(usable);
  }
  if (swap == memory.end()) {
    unknown.Add(reasons::kFactUnknown, "swap_total_bytes", "/proc/meminfo does not tell SwapTotal");
  } else {
    inventory.set_swap_total_bytes(swap->second);
  }
}

void ReadBootTime(const std::string& root, v1::Inventory& inventory, UnknownFacts& unknown) {
  const std::string text = ReadFile(root + "/proc/stat");
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    if (words.size() != 2 || words[0] != "btime") continue;
    if (const auto seconds = ParseUnsigned(words[1])) {
      inventory.set_boot_time_unix_seconds(*seconds);
      return;
    }
  }
  unknown.Add(reasons::kFactUnknown, "boot_time_unix_seconds", "/proc/stat does not tell btime");
}

void ReadDisks(const std::string& root, const InventoryInputs& inputs, v1::Inventory& inventory,
               UnknownFacts& unknown) {
  std::set<std::pair<unsigned long, uint64_t>> seen;
  for (const std::string& path : inputs.disk_paths) {
    if (inventory.disks_size() >= static_cast<int>(kDisksMax)) break;
    struct statvfs info {};
    if (statvfs((root + path).c_str(), &info) != 0) {
      unknown.Add(reasons::kFactUnknown, "disks", absl::StrCat(path, ": ", std::strerror(errno)));
      continue;
    }
    const uint64_t total = static_cast<uint64_t>(info.f_blocks) * info.f_frsize;
    // Some file systems have no id; then path and size must do.
    if (info.f_fsid != 0 && !seen.insert({info.f_fsid, total}).second) continue;
    v1::Disk& disk = *inventory.add_disks();
    disk.set_path(path);
    disk.set_total_bytes(total);
    disk.set_free_bytes(static_cast<uint64_t>(info.f_bavail) * info.f_frsize);
  }
}

}  // namespace

v1::Inventory CollectLinuxInventory(const std::string& root, const InventoryInputs& inputs) {
  v1::Inventory inventory;
  inventory.set_node_id(inputs.node_id.value());
  UnknownFacts unknown(inventory);
  ReadOs(root, inventory, unknown);
  inventory.set_machine_model(MachineModel(root));
  if (inventory.machine_model().empty()) {
    unknown.Add(reasons::kFactUnknown, "machine_model", "neither DMI nor the device tree names it");
  }
  ReadCpu(root, inventory, unknown);
  ReadGpu(root, inventory);
  ReadMemory(root, inventory, unknown);
  ReadBootTime(root, inventory, unknown);
  inventory.set_boot_digest(BootDigest(ReadLine(root + "/proc/sys/kernel/random/boot_id")));
  ReadDisks(root, inputs, inventory, unknown);
  if (const std::string why = WhyNoLinuxPower(root); !why.empty()) {
    unknown.Add(reasons::kFactUnknown, "power_watts", why);
  }
  if (inputs.mlx_working_set_bytes.value_or(0) > 0) {  // a GPU with memory of its own
    inventory.set_memory_gpu_usable_bytes(*inputs.mlx_working_set_bytes);
  }
  for (const v1::Engine& engine : inputs.engines) *inventory.add_engines() = engine;
  return inventory;
}

}  // namespace macrame::discovery
