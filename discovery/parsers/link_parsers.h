#pragma once

// Parsers of what a Mac's commands print about Thunderbolt, RDMA and the network. Pure; any bytes
// are safe; words and lines only, never columns. What is cut off, missing, translated or from a
// newer macOS leaves a fact unknown: each answer says by `read` (or FACT_UNKNOWN) whether it is
// one.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "macrame/v1/link.pb.h"
#include "transport/links/network_services.h"

namespace macrame::discovery {

// More than any machine has; what comes after is left out.
inline constexpr int kThunderboltPortsMax = 32;
inline constexpr int kPeersPerPortMax = 16;
inline constexpr int kRdmaDevicesMax = 64;
inline constexpr int kGidsMax = 1024;
inline constexpr int kRoutesMax = 1024;
inline constexpr int kKernelLinesMax = 64;

// The protocol by which a Mac with RDMA on offers it over Thunderbolt. Its name differs between
// versions of macOS, the number does not.
inline constexpr uint64_t kRdmaProtocolId = 64087;

// `system_profiler SPThunderboltDataType -json`, and its text form as far as that goes.
struct ThunderboltBuses {
  bool read = false;  // the output was whole; no buses then means no Thunderbolt
  std::vector<v1::ThunderboltPort> ports;
};
ThunderboltBuses ParseThunderboltBuses(std::string_view json);
ThunderboltBuses ParseThunderboltText(std::string_view text);

// `ioreg -r -d 1 -w0 -c IOPlatformExpertDevice`: the IOPlatformUUID; empty when it is not told.
std::string PlatformUuid(std::string_view text);

// `ioreg -r -c IOThunderboltPort -w0`: by socket number.
struct ThunderboltSocket {
  v1::Fact is_thunderbolt5 = v1::FACT_UNKNOWN;
  std::string evidence;     // the line
  uint32_t speed_gbps = 0;  // of the link as it is now; 0: idle or not known
};
std::map<uint32_t, ThunderboltSocket> ParseThunderboltSockets(std::string_view text);

// `networksetup -listallhardwareports`: device → port's name ("Thunderbolt 2").
std::map<std::string, std::string> ParseHardwarePortNames(std::string_view text);

// `networksetup -listnetworkserviceorder`
using transport::NetworkService;
std::vector<NetworkService> ParseServiceOrder(std::string_view text);

// `ifconfig` of all interfaces or some: interfaces, and bridges with their members.
struct IfconfigAnswer {
  std::vector<v1::LinkInterface> interfaces;
  std::vector<v1::NetworkBridge> bridges;
};
IfconfigAnswer ParseIfconfig(std::string_view text);

// `netstat -rn -f inet`
struct RoutingTable {
  bool read = false;
  std::vector<v1::NetworkRoute> routes;
};
RoutingTable ParseRoutes(std::string_view text);

// `ibv_devices`: the names. nullopt when its heading is not there.
std::optional<std::vector<v1::RdmaDevice>> ParseIbvDevices(std::string_view text);
// `ibv_devinfo` or `ibv_devinfo -v`.
std::vector<v1::RdmaDevice> ParseIbvDevinfo(std::string_view text);

// `rdma_ctl status`: exactly "enabled" or "disabled".
v1::Fact ParseRdmaCtl(std::string_view text);

// `ioclasscount CLASS…`: class → count.
std::map<std::string, uint64_t> ParseClassCounts(std::string_view text);

// `kmutil showloaded --collection boot`: whether a kext is loaded; UNKNOWN when the list's heading
// is not there.
v1::Fact ParseKextLoaded(std::string_view text, std::string_view bundle_id);

// `log show …` for RDMA lines. Without its heading nothing is concluded; with it, no line that
// refuses RDMA means NO, which holds only for the time that the log covers.
struct KernelLog {
  bool read = false;
  std::vector<v1::KernelLine> lines;
  v1::Fact refuses_rdma = v1::FACT_UNKNOWN;
};
KernelLog ParseKernelLog(std::string_view text);

// `pmset -g`: minutes; nullopt when not told.
struct PowerSettings {
  std::optional<uint32_t> sleep_minutes;
  v1::Fact low_power_mode = v1::FACT_UNKNOWN;
};
PowerSettings ParsePowerSettings(std::string_view text);

// A JSON list of device names: the interfaces that Internet Sharing serves.
std::optional<std::vector<std::string>> ParseSharingDevices(std::string_view json);

}  // namespace macrame::discovery
