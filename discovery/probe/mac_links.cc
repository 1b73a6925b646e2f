#include <algorithm>

#include "absl/strings/str_cat.h"
#include "discovery/base/interfaces.h"
#include "discovery/base/plain_text.h"
#include "discovery/parsers/link_parsers.h"
#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/mac_probe.h"
#include "proto/reasons.h"
#include "proto/utf8.h"
#include "transport/links/mac_bridges.h"

namespace macrame::discovery {
namespace {

constexpr size_t kOutputBytesMax = 4096;
constexpr char kSharingPreferences[] =
    "/Library/Preferences/SystemConfiguration/com.apple.nat.plist";
constexpr char kProtectionDomainClass[] = "AppleThunderboltRDMAProtectionDomain";

// Desktops whose socket 1 lies beside the Ethernet port. A warning hangs on it, never a verdict.
bool HasSocketBesideEthernet(const std::string& machine_model) {
  return machine_model == "Mac15,14" || machine_model == "Mac16,9";
}

v1::Fact FactOf(bool value) { return value ? v1::FACT_YES : v1::FACT_NO; }

// Output that ended by itself and with its last line: only such a list lacks what it does not name.
bool IsWhole(const CommandResult& result) {
  return result.Succeeded() && result.out.ends_with('\n');
}

class MacLinks {
 public:
  MacLinks(CommandRunner& runner, const LinkInputs& inputs) : runner_(runner) {
    facts_.set_node_id(inputs.node_id.value());
    facts_.set_hostname(inputs.hostname);
    facts_.set_mlx_version(inputs.mlx_version);
  }

  v1::LinkFacts Collect() {
    ReadSystem();
    ReadThunderbolt();
    ReadNetwork();
    ReadRdma();
    FindThunderboltInterfaces();
    ReadServices();
    JoinPorts();
    ReadKernel();
    ReadPower();
    return std::move(facts_);
  }

 private:
  CommandResult Ask(const Command& command) {
    CommandResult result = runner_.Run(command);
    v1::ProbeOutput& output = *facts_.add_outputs();
    output.set_command(CommandLine(command));
    output.set_exit_code(result.exit_code);
    const std::string& said = result.out.empty() ? result.err : result.out;
    output.set_text(ToPlainLines(said));
    return result;
  }

  // Control characters but line breaks and tabs are taken out.
  static std::string ToPlainLines(const std::string& text) {
    std::string plain;
    const std::string ended = text + "\n";
    for (const std::string_view line : WholeLines(ended)) {
      if (plain.size() > kOutputBytesMax) break;
      absl::StrAppend(&plain, plain.empty() ? "" : "\n",
                      ToPlainText(Untabbed(line), kOutputBytesMax));
    }
    return std::string(CutToBytes(plain, kOutputBytesMax));
  }

  static std::string Untabbed(std::string_view line) {
    std::string text(line);
    std::replace(text.begin(), text.end(), '\t', ' ');
    return text;
  }

  void Unknown(const std::string& fact, const Command& command, const CommandResult& result) {
    std::string_view code = reasons::kCommandFailed;
    std::string why = DescribeOutcome(command, result);
    if (result.outcome == CommandOutcome::kNotFound) code = reasons::kCommandMissing;
    if (result.outcome == CommandOutcome::kTimedOut) code = reasons::kCommandTimedOut;
    if (result.Succeeded()) {
      code = reasons::kOutputUnreadable;
      why = "its output does not tell";
    }
    *facts_.add_unknown() = MakeReason(
        code, absl::StrCat(fact, ": ", CommandLine(command), ": ", why), facts_.node_id());
  }

  void ReadSystem() {
    const CommandResult versions = Ask(SwVersCommand());
    const SwVers os = ParseSwVers(versions.out);
    facts_.set_os_name(ToPlainText(os.name, kFactBytesMax));
    facts_.set_os_version(ToPlainText(os.version, kFactBytesMax));
    facts_.set_os_build(ToPlainText(os.build, kFactBytesMax));
    if (os.version.empty()) Unknown("os_version", SwVersCommand(), versions);
    // sysctl fails as a whole when one name is unknown, yet prints the others.
    const CommandResult answer = Ask(SysctlLinksCommand());
    const auto values = ParseSysctl(answer.out);
    const auto value = [&](const char* name) {
      const auto found = values.find(name);
      return found == values.end() ? std::string() : ToPlainText(found->second, kFactBytesMax);
    };
    facts_.set_machine_model(value("hw.model"));
    facts_.set_chip(value("machdep.cpu.brand_string"));
    if (facts_.machine_model().empty()) Unknown("machine_model", SysctlLinksCommand(), answer);
    const auto arm = SysctlNumber(values, "hw.optional.arm64");
    facts_.set_is_mac(arm == 1 || !os.name.empty() ? v1::FACT_YES : v1::FACT_UNKNOWN);
    const auto guest = SysctlNumber(values, "kern.hv_vmm_present");
    if (guest) facts_.set_is_virtual_machine(FactOf(*guest != 0));
    const auto forwarding = SysctlNumber(values, "net.inet.ip.forwarding");
    if (forwarding) facts_.set_ip_forwarding(FactOf(*forwarding != 0));
    facts_.set_boot_time_unix_seconds(ParseBootTime(value("kern.boottime")).value_or(0));
    facts_.set_memory_pressure(
        PressureOfLevel(SysctlNumber(values, "kern.memorystatus_vm_pressure_level")));
    const std::string uuid = PlatformUuid(runner_.Run(PlatformUuidCommand()).out);
    if (!uuid.empty()) facts_.set_hardware_id(HardwareId(uuid));
    ReadFirmware();
  }

  // Not among the outputs: it prints serial numbers too.
  void ReadFirmware() {
    const CommandResult answer = runner_.Run(HardwareOverviewCommand());
    facts_.set_system_firmware(ParseHardwareOverview(answer.out).firmware);
    if (facts_.system_firmware().empty()) {
      Unknown("system_firmware", HardwareOverviewCommand(), answer);
    }
  }

  void ReadThunderbolt() {
    const CommandResult answer = Ask(ThunderboltCommand());
    ThunderboltBuses buses = ParseThunderboltBuses(answer.out);
    if (buses.read) {
      facts_.set_has_thunderbolt(FactOf(!buses.ports.empty()));
    } else {
      Unknown("ports", ThunderboltCommand(), answer);
      // The form for people tells most of it, when that can be had.
      buses = ParseThunderboltText(Ask(ThunderboltTextCommand()).out);
      if (buses.ports.empty()) return;
      facts_.set_has_thunderbolt(v1::FACT_YES);
    }
    const auto sockets = ParseThunderboltSockets(Ask(ThunderboltSocketsCommand()).out);
    for (v1::ThunderboltPort& port : buses.ports) {
      // The driver's own bit outweighs the speed that system_profiler words.
      const auto socket = sockets.find(port.socket());
      if (socket != sockets.end() && port.socket() != 0 &&
          socket->second.is_thunderbolt5 != v1::FACT_UNKNOWN) {
        port.set_is_thunderbolt5(socket->second.is_thunderbolt5);
        port.set_controller_evidence(socket->second.evidence);
        if (port.speed_gbps() == 0) port.set_speed_gbps(socket->second.speed_gbps);
      }
      *facts_.add_ports() = std::move(port);
    }
    AgreeOnController();
  }

  // All sockets of one machine have controllers of one kind: a socket that is in use, and says
  // nothing of its own, is judged by those that are idle.
  void AgreeOnController() {
    const v1::ThunderboltPort* teller = nullptr;
    for (const v1::ThunderboltPort& port : facts_.ports()) {
      if (port.is_thunderbolt5() == v1::FACT_UNKNOWN) continue;
      if (teller != nullptr && teller->is_thunderbolt5() != port.is_thunderbolt5()) return;
      teller = &port;
    }
    if (teller == nullptr) return;
    const v1::Fact fact = teller->is_thunderbolt5();
    const std::string evidence =
        absl::StrCat("socket ", teller->socket(), ": ", teller->controller_evidence());
    for (v1::ThunderboltPort& port : *facts_.mutable_ports()) {
      if (port.is_thunderbolt5() != v1::FACT_UNKNOWN) continue;
      port.set_is_thunderbolt5(fact);
      port.set_controller_evidence(evidence);
    }
  }

  void ReadNetwork() {
    const CommandResult ports = Ask(HardwarePortsCommand());
    hardware_ports_ = ParseHardwarePortNames(ports.out);
    kinds_ = ParseHardwarePorts(ports.out);
    if (hardware_ports_.empty()) Unknown("hardware_ports", HardwarePortsCommand(), ports);
    const CommandResult config = Ask(IfconfigCommand());
    IfconfigAnswer answer = ParseIfconfig(config.out);
    interfaces_are_whole_ = IsWhole(config);
    if (answer.interfaces.empty() || !interfaces_are_whole_) {
      Unknown("interfaces", IfconfigCommand(), config);
    }
    for (v1::LinkInterface& interface : answer.interfaces) {
      Complete(interface);
      *facts_.add_interfaces() = std::move(interface);
    }
    for (v1::NetworkBridge& bridge : answer.bridges) *facts_.add_bridges() = std::move(bridge);
    const CommandResult table = Ask(RoutesCommand());
    RoutingTable routes = ParseRoutes(table.out);
    if (!routes.read) Unknown("routes", RoutesCommand(), table);
    for (v1::NetworkRoute& route : routes.routes) *facts_.add_routes() = std::move(route);
    services_ = ParseServiceOrder(Ask(ServiceOrderCommand()).out);
    ReadSharing();
  }

  void Complete(v1::LinkInterface& interface) const {
    const auto kind = kinds_.find(interface.name());
    interface.set_kind(kind != kinds_.end() ? kind->second : KindFromName(interface.name()));
    const auto port = hardware_ports_.find(interface.name());
    if (port != hardware_ports_.end()) {
      interface.set_hardware_port(port->second);
    }
    for (v1::NodeAddress& address : *interface.mutable_addresses()) {
      address.set_interface_kind(interface.kind());
    }
  }

  // "Thunderbolt 2" → 2, whatever the system's language calls it.
  static uint32_t SocketOf(std::string_view hardware_port) {
    const size_t before = hardware_port.find_last_not_of("0123456789");
    if (before == hardware_port.npos || before + 1 == hardware_port.size()) return 0;
    const auto number = ParseUnsigned(hardware_port.substr(before + 1));
    return number && *number <= 64 ? static_cast<uint32_t>(*number) : 0;
  }

  // Named so, or a port of an unknown name that the system's own bridge or its RDMA holds: these
  // two hold Thunderbolt ports alone.
  bool IsThunderbolt(const v1::LinkInterface& interface) const {
    if (interface.kind() == v1::INTERFACE_KIND_THUNDERBOLT) return true;
    if (interface.kind() != v1::INTERFACE_KIND_UNSPECIFIED || interface.hardware_port().empty()) {
      return false;
    }
    return transport::BridgeNumber(interface.bridge()) == 0 ||
           std::any_of(facts_.rdma_devices().begin(), facts_.rdma_devices().end(),
                       [&](const v1::RdmaDevice& device) {
                         return device.interface_name() == interface.name();
                       });
  }

  void FindThunderboltInterfaces() {
    for (v1::LinkInterface& interface : *facts_.mutable_interfaces()) {
      if (!IsThunderbolt(interface)) continue;
      interface.set_kind(v1::INTERFACE_KIND_THUNDERBOLT);
      interface.set_socket(SocketOf(interface.hardware_port()));
      for (v1::NodeAddress& address : *interface.mutable_addresses()) {
        address.set_interface_kind(interface.kind());
      }
    }
  }

  // The service of the bridge that holds Thunderbolt ports: bridge0, unless somebody made another.
  void ReadServices() {
    const auto holds_ports = [this](const std::string& bridge) {
      return std::any_of(facts_.interfaces().begin(), facts_.interfaces().end(),
                         [&](const v1::LinkInterface& interface) {
                           return interface.bridge() == bridge &&
                                  interface.kind() == v1::INTERFACE_KIND_THUNDERBOLT;
                         });
    };
    bool is_sure = false;
    for (const NetworkService& service : services_) {
      const int number = transport::BridgeNumber(service.device);
      if (!service.is_enabled || number < 0 || number >= transport::kFirstMadeBridge) continue;
      const bool holds = holds_ports(service.device);
      if (is_sure || !(holds || number == 0)) continue;
      facts_.set_bridge_service(service.name);
      is_sure = holds;
    }
  }

  void ReadSharing() {
    const auto devices = ParseSharingDevices(Ask(SharingDevicesCommand()).out);
    const bool made_bridge = std::any_of(facts_.bridges().begin(), facts_.bridges().end(),
                                         transport::IsOfInternetSharing);
    if (devices) {
      for (const std::string& device : *devices) facts_.add_internet_sharing_interfaces(device);
    }
    // The list stays in the preferences when sharing is off; the bridge is what is on.
    if (made_bridge) {
      facts_.set_internet_sharing(v1::FACT_YES);
    } else if (facts_.interfaces_size() > 0 && interfaces_are_whole_) {
      facts_.set_internet_sharing(v1::FACT_NO);
    }
  }

  void ReadRdma() {
    const CommandResult status = Ask(RdmaCtlCommand());
    facts_.set_rdma_ctl_missing(
        status.outcome == CommandOutcome::kNotFound ||
        (status.outcome == CommandOutcome::kExited && status.exit_code == 127));
    facts_.set_rdma_ctl_text(ToPlainText(Trim(status.out), kFactBytesMax));
    if (status.Succeeded()) facts_.set_rdma_enabled(ParseRdmaCtl(status.out));
    if (facts_.rdma_enabled() == v1::FACT_UNKNOWN && !facts_.rdma_ctl_missing()) {
      Unknown("rdma_enabled", RdmaCtlCommand(), status);
    }
    const CommandResult list = Ask(IbvDevicesCommand());
    const auto devices = ParseIbvDevices(list.out);
    if (!devices || !IsWhole(list)) {
      Unknown("rdma_devices", IbvDevicesCommand(), list);
      return;
    }
    facts_.set_rdma_devices_listed(v1::FACT_YES);
    for (const v1::RdmaDevice& device : *devices) *facts_.add_rdma_devices() = device;
    if (devices->empty()) return;
    const CommandResult info = Ask(IbvDevinfoCommand());
    MergeDevinfo(ParseIbvDevinfo(info.out));
    if (IsWhole(info)) return;
    Unknown("rdma_port_state", IbvDevinfoCommand(), info);
    for (v1::RdmaDevice& device : *facts_.mutable_rdma_devices()) device.set_gids_known(false);
  }

  void MergeDevinfo(const std::vector<v1::RdmaDevice>& detailed) {
    for (v1::RdmaDevice& device : *facts_.mutable_rdma_devices()) {
      for (const v1::RdmaDevice& more : detailed) {
        if (more.name() != device.name()) continue;
        const std::string guid = device.node_guid();
        device = more;
        if (device.node_guid().empty()) device.set_node_guid(guid);
      }
    }
  }

  // Where ifconfig told nothing of the interfaces, the name has to do.
  bool IsThunderboltPort(const std::string& device, const std::string& name) const {
    for (const v1::LinkInterface& interface : facts_.interfaces()) {
      if (interface.name() == device) return IsThunderbolt(interface);
    }
    return kinds_.contains(device) && kinds_.at(device) == v1::INTERFACE_KIND_THUNDERBOLT &&
           SocketOf(name) != 0;
  }

  // Socket → hardware port "Thunderbolt N" → interface → device: the only map that holds.
  void JoinPorts() {
    for (v1::ThunderboltPort& port : *facts_.mutable_ports()) {
      if (port.socket() == 0) continue;
      for (const auto& [device, name] : hardware_ports_) {
        if (SocketOf(name) == port.socket() && IsThunderboltPort(device, name)) {
          port.set_interface_name(device);
        }
      }
      if (port.interface_name().empty()) continue;
      const std::string wanted = absl::StrCat("rdma_", port.interface_name());
      for (const v1::RdmaDevice& device : facts_.rdma_devices()) {
        if (device.name() == wanted) port.set_rdma_device(wanted);
      }
      port.set_is_next_to_ethernet(port.socket() == 1 &&
                                   HasSocketBesideEthernet(facts_.machine_model()));
    }
  }

  void ReadKernel() {
    const CommandResult kexts = Ask(KextsCommand());
    facts_.set_rdma_family_kext(KextIn(kexts, "com.apple.iokit.IORDMAFamily"));
    facts_.set_rdma_driver_kext(KextIn(kexts, "com.apple.driver.AppleThunderboltRDMA"));
    const CommandResult shown = Ask(KernelLogCommand());
    KernelLog log = ParseKernelLog(shown.out);
    facts_.set_kernel_log_readable(log.read && shown.Succeeded() ? v1::FACT_YES : v1::FACT_UNKNOWN);
    facts_.set_kernel_refuses_rdma(log.refuses_rdma);
    for (v1::KernelLine& line : log.lines) {
      if (line.code() == reasons::kLocalNetworkPrivacy)
        facts_.set_local_network_denied(v1::FACT_YES);
      *facts_.add_kernel_lines() = std::move(line);
    }
    facts_.set_protection_domains(-1);
    const auto counts = ParseClassCounts(Ask(ClassCountCommand()).out);
    const auto domains = counts.find(kProtectionDomainClass);
    if (domains != counts.end() && domains->second < 100000) {
      facts_.set_protection_domains(static_cast<int32_t>(domains->second));
    }
  }

  static v1::Fact KextIn(const CommandResult& list, std::string_view bundle_id) {
    const v1::Fact loaded = ParseKextLoaded(list.out, bundle_id);
    return loaded == v1::FACT_NO && !IsWhole(list) ? v1::FACT_UNKNOWN : loaded;
  }

  void ReadPower() {
    const PowerSettings power = ParsePowerSettings(Ask(PowerCommand()).out);
    facts_.set_sleep_minutes(power.sleep_minutes ? static_cast<int32_t>(*power.sleep_minutes) : -1);
    facts_.set_low_power_mode(power.low_power_mode);
    facts_.set_thermal_state(ParsePmsetTherm(Ask(PmsetThermCommand()).out));
  }

  CommandRunner& runner_;
  v1::LinkFacts facts_;
  std::map<std::string, std::string> hardware_ports_;
  std::map<std::string, v1::InterfaceKind> kinds_;
  std::vector<NetworkService> services_;
  bool interfaces_are_whole_ = false;
};

}  // namespace

std::string PlatformUuid(std::string_view text) {
  for (const std::string_view line : WholeLines(text)) {
    std::string_view key, value;
    if (!SplitOnce(line, " = ", key, value)) continue;
    if (key.find("\"IOPlatformUUID\"") != key.npos) return std::string(value);
  }
  return "";
}

Command ThunderboltCommand() {
  return {.argv = {"system_profiler", "SPThunderboltDataType", "-json"},
          .limit = kSlowCommandLimit};
}
Command ThunderboltTextCommand() {
  return {.argv = {"system_profiler", "SPThunderboltDataType"}, .limit = kSlowCommandLimit};
}
Command ThunderboltSocketsCommand() {
  return {.argv = {"ioreg", "-r", "-c", "IOThunderboltPort", "-w0"}};
}
Command PlatformUuidCommand() {
  return {.argv = {"ioreg", "-r", "-d", "1", "-w0", "-c", "IOPlatformExpertDevice"}};
}
Command ServiceOrderCommand() { return {.argv = {"networksetup", "-listnetworkserviceorder"}}; }
Command IfconfigCommand() { return {.argv = {"ifconfig"}}; }
Command RoutesCommand() { return {.argv = {"netstat", "-rn", "-f", "inet"}}; }
Command RdmaCtlCommand() { return {.argv = {"rdma_ctl", "status"}}; }
Command IbvDevicesCommand() { return {.argv = {"ibv_devices"}}; }
Command IbvDevinfoCommand() { return {.argv = {"ibv_devinfo", "-v"}}; }
Command ClassCountCommand() { return {.argv = {"ioclasscount", kProtectionDomainClass}}; }
Command KextsCommand() { return {.argv = {"kmutil", "showloaded", "--collection", "boot"}}; }
Command KernelLogCommand() {
  const char* of_rdma =
      "process == \"kernel\" AND (eventMessage CONTAINS[c] \"RDMA\" OR eventMessage CONTAINS[c] "
      "\"DART\")";
  return {.argv = {"log", "show", "--last", "boot", "--style", "compact", "--predicate", of_rdma},
          .limit = kSlowCommandLimit};
}
Command PowerCommand() { return {.argv = {"pmset", "-g"}}; }
Command SysctlLinksCommand() {
  return {.argv = {"sysctl", "hw.model", "hw.optional.arm64", "machdep.cpu.brand_string",
                   "kern.hv_vmm_present", "kern.boottime", "kern.memorystatus_vm_pressure_level",
                   "net.inet.ip.forwarding"}};
}
Command SharingDevicesCommand() {
  return {
      .argv = {"plutil", "-extract", "NAT.SharingDevices", "json", "-o", "-", kSharingPreferences}};
}

v1::LinkFacts CollectMacLinks(CommandRunner& runner, const LinkInputs& inputs) {
  return MacLinks(runner, inputs).Collect();
}

}  // namespace macrame::discovery
