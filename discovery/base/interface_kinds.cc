// What kind of network an interface is: sysfs, networksetup, and names.

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "discovery/base/interfaces.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr int kArpHardwareLoopback = 772;
constexpr int kArpHardwarePpp = 512;
constexpr int kArpHardwareNone = 65534;  // tun devices

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string FirstLine(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// A name that is `prefix` and then only digits.
bool IsNumbered(std::string_view name, std::string_view prefix) {
  if (!absl::StartsWith(absl::string_view(name.data(), name.size()),
                        absl::string_view(prefix.data(), prefix.size()))) {
    return false;
  }
  name.remove_prefix(prefix.size());
  for (const char c : name) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

// Whether `text` holds `word` with no letter beside it: "WLAN" holds no LAN.
bool HoldsWord(absl::string_view text, absl::string_view word) {
  const auto is_letter = [&](size_t at) {
    return at < text.size() && absl::ascii_isalpha(static_cast<unsigned char>(text[at]));
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !is_letter(at - 1)) && !is_letter(at + word.size())) return true;
  }
  return false;
}

// The names are those of the system's language, or what people made of them; "Thunderbolt 2",
// "Ethernet" and "Wi-Fi" are the same in most.
v1::InterfaceKind KindOfHardwarePort(absl::string_view port) {
  absl::string_view number = port;
  if (absl::ConsumePrefix(&number, "Thunderbolt ") &&
      IsNumbered(std::string_view(number.data(), number.size()), "")) {
    return v1::INTERFACE_KIND_THUNDERBOLT;
  }
  for (const char* name : {"Wi-Fi", "WLAN", "AirPort"}) {
    if (port == name) return v1::INTERFACE_KIND_WIFI;
  }
  if (absl::StrContains(port, "Bridge")) return v1::INTERFACE_KIND_BRIDGE;
  if (absl::StrContains(port, "Ethernet") || HoldsWord(port, "LAN")) {
    return v1::INTERFACE_KIND_ETHERNET;
  }
  // A tethered telephone ("iPhone USB") is a network of its own to each machine, and is left
  // unspecified: it comes after what joins them.
  return v1::INTERFACE_KIND_UNSPECIFIED;
}

// What a Mac calls lo0, bridge0, utun3 … is the same in every language.
v1::InterfaceKind KindOfDevice(absl::string_view device, absl::string_view port) {
  const v1::InterfaceKind kind = KindFromName(std::string_view(device.data(), device.size()));
  return kind == v1::INTERFACE_KIND_BRIDGE || kind == v1::INTERFACE_KIND_LOOPBACK ||
                 kind == v1::INTERFACE_KIND_VPN
             ? kind
             : KindOfHardwarePort(port);
}

}  // namespace

v1::InterfaceKind KindFromSysfs(const std::string& root, const std::string& name) {
  const fs::path folder = fs::path(root + "/sys/class/net") / name;
  if (name.empty() || absl::StrContains(name, "/") || !Exists(folder)) {
    return v1::INTERFACE_KIND_UNSPECIFIED;
  }
  const std::string type_text = FirstLine(folder / "type");
  const int type = std::atoi(type_text.c_str());
  if (type == kArpHardwareLoopback) return v1::INTERFACE_KIND_LOOPBACK;
  if (Exists(folder / "wireless") || Exists(folder / "phy80211")) return v1::INTERFACE_KIND_WIFI;
  if (Exists(folder / "bridge")) return v1::INTERFACE_KIND_BRIDGE;
  if (Exists(folder / "tun_flags") || type == kArpHardwarePpp || type == kArpHardwareNone) {
    return v1::INTERFACE_KIND_VPN;
  }
  std::ifstream events(folder / "uevent");
  std::string line;
  while (std::getline(events, line)) {
    if (line == "DEVTYPE=wireguard") return v1::INTERFACE_KIND_VPN;
    if (line == "DEVTYPE=wlan") return v1::INTERFACE_KIND_WIFI;
    if (line == "DEVTYPE=bridge") return v1::INTERFACE_KIND_BRIDGE;
  }
  std::error_code error;
  const std::string driver =
      fs::read_symlink(folder / "device" / "driver", error).filename().string();
  if (driver == "thunderbolt-net" || IsNumbered(name, "thunderbolt")) {
    return v1::INTERFACE_KIND_THUNDERBOLT;
  }
  return v1::INTERFACE_KIND_ETHERNET;
}

std::map<std::string, v1::InterfaceKind> ParseHardwarePorts(std::string_view text) {
  std::map<std::string, v1::InterfaceKind> kinds;
  absl::string_view port;
  size_t start = 0;
  while (start < text.size() && kinds.size() < kInterfacesMax) {
    const size_t end = text.find('\n', start);
    // A last line without its end may be cut in the middle of a name.
    if (end == std::string_view::npos) break;
    absl::string_view line =
        absl::StripAsciiWhitespace(absl::string_view(text.data() + start, end - start));
    start = end + 1;
    if (absl::ConsumePrefix(&line, "Hardware Port:")) {
      port = absl::StripAsciiWhitespace(line);
    } else if (absl::ConsumePrefix(&line, "Device:") && !port.empty()) {
      const absl::string_view device = absl::StripAsciiWhitespace(line);
      const v1::InterfaceKind kind = KindOfDevice(device, port);
      if (kind != v1::INTERFACE_KIND_UNSPECIFIED && !device.empty()) {
        kinds[std::string(device)] = kind;
      }
      port = {};
    }
  }
  return kinds;
}

v1::InterfaceKind KindFromName(std::string_view name) {
  if (name == "lo" || IsNumbered(name, "lo")) return v1::INTERFACE_KIND_LOOPBACK;
  for (const char* prefix : {"utun", "tun", "tap", "wg", "ppp", "ipsec", "tailscale", "zt"}) {
    if (IsNumbered(name, prefix)) return v1::INTERFACE_KIND_VPN;
  }
  for (const char* prefix : {"bridge", "br", "docker", "virbr", "vmnet", "lxcbr"}) {
    if (IsNumbered(name, prefix)) return v1::INTERFACE_KIND_BRIDGE;
  }
  if (name.starts_with("br-")) return v1::INTERFACE_KIND_BRIDGE;
  for (const char* prefix : {"awdl", "llw", "wlan", "ap"}) {
    if (IsNumbered(name, prefix)) return v1::INTERFACE_KIND_WIFI;
  }
  if (name.starts_with("wlp") || name.starts_with("wlx")) return v1::INTERFACE_KIND_WIFI;
  if (IsNumbered(name, "thunderbolt")) return v1::INTERFACE_KIND_THUNDERBOLT;
  if (IsNumbered(name, "eth") || name.starts_with("enp") || name.starts_with("eno") ||
      name.starts_with("ens") || name.starts_with("enx") || name.starts_with("veth")) {
    return v1::INTERFACE_KIND_ETHERNET;
  }
  return v1::INTERFACE_KIND_UNSPECIFIED;
}

}  // namespace macrame::discovery
