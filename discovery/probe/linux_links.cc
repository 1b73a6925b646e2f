#include <arpa/inet.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "discovery/base/interfaces.h"
#include "discovery/parsers/text_scan.h"
#include "discovery/probe/inventory.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/linux_files.h"
#include "proto/reasons.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr int kRoutesListedMax = 1024;
constexpr uint64_t kSpeedMbpsMax = 10'000'000;
constexpr uint32_t kRouteUp = 0x1, kRouteReject = 0x200;  // linux/route.h

class LinuxLinks {
 public:
  LinuxLinks(std::string root, const LinkInputs& inputs) : root_(std::move(root)) {
    facts_.set_node_id(inputs.node_id.value());
    facts_.set_hostname(inputs.hostname);
    facts_.set_mlx_version(inputs.mlx_version);
    facts_.set_is_mac(v1::FACT_NO);
    facts_.set_sleep_minutes(-1);
    facts_.set_protection_domains(-1);
  }

  v1::LinkFacts Collect(const LinkInputs& inputs, const VerbsLister& verbs) {
    InventoryInputs asked;
    asked.node_id = inputs.node_id;
    asked.disk_paths.clear();
    const v1::Inventory inventory = CollectLinuxInventory(root_, asked);
    facts_.set_os_name(inventory.os_name());
    facts_.set_os_version(inventory.os_version());
    facts_.set_os_build(inventory.os_build());
    facts_.set_machine_model(inventory.machine_model());
    facts_.set_boot_time_unix_seconds(inventory.boot_time_unix_seconds());
    // A bare system has no machine id yet; its kernel's is the same for all who share its network.
    std::string machine = ReadLine(root_ + "/etc/machine-id");
    if (machine.empty()) machine = ReadLine(root_ + "/proc/sys/kernel/random/boot_id");
    if (!machine.empty()) facts_.set_hardware_id(HardwareId(machine));
    ReadInterfaces();
    ReadRoutes();
    const auto forwarding = ReadNumber(root_ + "/proc/sys/net/ipv4/ip_forward");
    if (forwarding) {
      facts_.set_ip_forwarding(*forwarding != 0 ? v1::FACT_YES : v1::FACT_NO);
    }
    ListDevices(verbs);
    return std::move(facts_);
  }

 private:
  std::string Sys(const std::string& name, const char* file) const {
    return absl::StrCat(root_, "/sys/class/net/", name, "/", file);
  }

  void ReadInterfaces() {
    const auto interfaces =
        ListInterfaces([this](const std::string& name) { return QuickKind(name); });
    if (!interfaces.ok()) {
      *facts_.add_unknown() =
          MakeReason(reasons::kFactUnknown,
                     absl::StrCat("interfaces: ", interfaces.status().message()), facts_.node_id());
      return;
    }
    for (const Interface& interface : *interfaces) AddInterface(interface);
  }

  v1::InterfaceKind QuickKind(const std::string& name) const {
    const v1::InterfaceKind kind = KindFromSysfs(root_, name);
    return kind == v1::INTERFACE_KIND_UNSPECIFIED ? KindFromName(name) : kind;
  }

  void AddInterface(const Interface& interface) {
    v1::LinkInterface& out = *facts_.add_interfaces();
    out.set_name(interface.name);
    out.set_kind(interface.kind);
    out.set_is_up(interface.is_up ? v1::FACT_YES : v1::FACT_NO);
    const auto carrier = ReadNumber(Sys(interface.name, "carrier"));
    if (carrier) out.set_has_carrier(*carrier != 0 ? v1::FACT_YES : v1::FACT_NO);
    const auto mtu = ReadNumber(Sys(interface.name, "mtu"));
    out.set_mtu(static_cast<uint32_t>(std::min<uint64_t>(mtu.value_or(0), 1u << 20)));
    // "-1" of interfaces that have no speed is no number here.
    const auto speed = ReadNumber(Sys(interface.name, "speed"));
    if (speed && *speed <= kSpeedMbpsMax) out.set_speed_mbps(*speed);
    std::error_code error;
    const fs::path master = fs::read_symlink(Sys(interface.name, "master"), error);
    if (!error && fs::exists(Sys(master.filename().string(), "bridge"), error)) {
      out.set_bridge(master.filename().string());
    }
    for (const InterfaceAddress& address : interface.addresses) {
      v1::NodeAddress& held = *out.add_addresses();
      held.set_ip(address.ip);
      held.set_interface_name(interface.name);
      held.set_interface_kind(interface.kind);
      held.set_prefix_length(address.prefix_length);
    }
    if (interface.kind == v1::INTERFACE_KIND_BRIDGE) AddBridge(interface);
  }

  void AddBridge(const Interface& interface) {
    v1::NetworkBridge& bridge = *facts_.add_bridges();
    bridge.set_name(interface.name);
    bridge.set_is_up(interface.is_up ? v1::FACT_YES : v1::FACT_NO);
    std::error_code error;
    std::vector<std::string> members;
    for (fs::directory_iterator it(Sys(interface.name, "brif"), error), end; !error && it != end;
         it.increment(error)) {
      members.push_back(it->path().filename().string());
    }
    std::sort(members.begin(), members.end());
    for (const std::string& member : members) bridge.add_members(member);
  }

  // /proc/net/route: "eth0 0000000A 00000000 0001 0 0 0 00FFFFFF …", addresses as the machine holds
  // them in memory.
  void ReadRoutes() {
    const std::string table = ReadFile(root_ + "/proc/net/route");
    for (const std::string_view line : WholeLines(table)) {
      const auto words = Words(line);
      if (words.size() < 8 || words[0] == "Iface") continue;
      uint32_t destination = 0, gateway = 0, flags = 0, mask = 0;
      const auto hex = [](std::string_view text, uint32_t* out) {
        return absl::SimpleHexAtoi(absl::string_view(text.data(), text.size()), out);
      };
      if (!hex(words[1], &destination) || !hex(words[2], &gateway) || !hex(words[3], &flags) ||
          !hex(words[7], &mask) || (flags & kRouteUp) == 0) {
        continue;
      }
      if (facts_.routes_size() >= kRoutesListedMax) break;
      v1::NetworkRoute& route = *facts_.add_routes();
      route.set_destination(mask == 0 ? "default"
                                      : absl::StrCat(Text(destination), "/", Ones(mask)));
      if (gateway != 0) route.set_gateway(Text(gateway));
      route.set_interface_name(std::string(words[0]));
      route.set_is_reject((flags & kRouteReject) != 0);
    }
  }

  static std::string Text(uint32_t network_order) {
    char text[INET_ADDRSTRLEN] = {};
    in_addr address{};
    address.s_addr = network_order;
    return inet_ntop(AF_INET, &address, text, sizeof(text)) == nullptr ? "" : text;
  }
  static int Ones(uint32_t mask) { return __builtin_popcount(mask); }

  void ListDevices(const VerbsLister& verbs) {
    if (!verbs) return;
    bool library_missing = false;
    const auto devices = verbs(&library_missing);
    facts_.set_verbs_library_missing(library_missing);
    if (!devices) return;
    facts_.set_rdma_devices_listed(v1::FACT_YES);
    for (const v1::RdmaDevice& device : *devices) *facts_.add_rdma_devices() = device;
  }

  const std::string root_;
  v1::LinkFacts facts_;
};

}  // namespace

v1::LinkFacts CollectLinuxLinks(const std::string& root, const LinkInputs& inputs,
                                const VerbsLister& verbs) {
  return LinuxLinks(root, inputs).Collect(inputs, verbs);
}

}  // namespace macrame::discovery
