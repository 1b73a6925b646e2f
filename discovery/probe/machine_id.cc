#include "discovery/probe/machine_id.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "discovery/probe/link_facts.h"
#include "discovery/probe/linux_files.h"
#include "discovery/probe/node_probe.h"

namespace macrame::discovery {
namespace {

namespace fs = std::filesystem;

constexpr size_t kInterfacesMax = 256;
// <linux/netdevice.h>: NET_ADDR_PERM, the address that the device was made with.
constexpr uint64_t kPermanentAddress = 0;

// Board makers who filled in nothing share these.
bool IsFiller(const std::string& uuid) {
  std::set<char> digits;
  for (const char c : uuid) {
    if (c != '-') digits.insert(c);
  }
  return digits.size() < 3 || uuid == "03000200-0400-0500-0006-000700080009";
}

std::string ProductUuid(const std::string& root) {
  const std::string uuid = absl::AsciiStrToLower(ReadLine(root + "/sys/class/dmi/id/product_uuid"));
  return IsFiller(uuid) ? "" : uuid;
}

std::string DeviceTreeSerial(const std::string& root) {
  std::string serial = ReadLine(root + "/proc/device-tree/serial-number");
  std::erase(serial, '\0');
  return serial;
}

// Wired, in the machine, with the address that it was made with.
bool IsOwnInterface(const std::string& folder) {
  std::error_code error;
  const fs::path device = fs::canonical(folder + "/device", error);
  if (error) return false;  // virtual
  if (device.string().find("/usb") != std::string::npos) return false;
  if (fs::exists(folder + "/phy80211", error)) return false;
  return ReadNumber(folder + "/addr_assign_type") == kPermanentAddress;
}

std::vector<std::string> PermanentAddresses(const std::string& root) {
  std::vector<std::string> addresses;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator it(root + "/sys/class/net", error), end;
       !error && it != end && seen < kInterfacesMax; it.increment(error), ++seen) {
    if (!IsOwnInterface(it->path().string())) continue;
    std::string address = ReadLine(it->path().string() + "/address");
    if (address.find_first_not_of("0:") != std::string::npos) addresses.push_back(address);
  }
  std::sort(addresses.begin(), addresses.end());
  return addresses;
}

// What tells this container from others of its image: where its root comes from, which a restart of
// the container keeps. Empty where "/" is a file system of its own.
std::string ContainerRoot(const std::string& root) {
  // "36 35 98:0 /root /mount/point options - type source super-options" (proc(5)).
  for (const absl::string_view line :
       absl::StrSplit(ReadFile(root + "/proc/self/mountinfo"), '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    const auto dash = std::find(fields.begin(), fields.end(), "-");
    if (fields.size() < 5 || fields[4] != "/" || fields.end() - dash < 4) continue;
    std::string told;
    if (fields[3] != "/") told = std::string(fields[3]);
    for (const absl::string_view option : absl::StrSplit(*(dash + 3), ',')) {
      if (absl::StartsWith(option, "upperdir=")) absl::StrAppend(&told, ";", option);
    }
    return told;
  }
  return "";
}

std::string DigestOf(const std::string& salted) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(salted.data()), salted.size(), digest.data());
  return std::string(reinterpret_cast<const char*>(digest.data()), kMachineMarkBytes);
}

}  // namespace

std::string LinuxMachineId(const std::string& root) {
  std::string installed = ReadLine(root + "/etc/machine-id");
  if (installed.empty()) installed = ReadLine(root + "/var/lib/dbus/machine-id");
  std::string made = ProductUuid(root);
  if (made.empty()) made = DeviceTreeSerial(root);
  if (made.empty()) {
    for (const std::string& address : PermanentAddresses(root))
      absl::StrAppend(&made, address, ",");
  }
  const std::string container = ContainerRoot(root);
  if (installed.empty() && made.empty() && container.empty()) return "";
  return absl::StrCat(installed, "/", made, container.empty() ? "" : "/", container);
}

std::string MachineMark(const std::string& machine_id, const NodeId& node) {
  if (machine_id.empty()) return "";
  return DigestOf(absl::StrCat("macrame machine ", node.value(), " ", machine_id));
}

std::string BootDigest(const std::string& boot_id) {
  return boot_id.empty() ? "" : DigestOf(absl::StrCat("macrame boot ", boot_id));
}

std::string ThisMachineMark(const std::string& id_file, const NodeId& node) {
  if (!id_file.empty()) {
    return MachineMark(ReadFile(id_file).substr(0, kMachineIdFileBytesMax), node);
  }
  const std::unique_ptr<CommandRunner> runner = MakeCommandRunner();
  return MachineMark(MakeNodeProbe("", *runner)->CollectMachineId(), node);
}

}  // namespace macrame::discovery
