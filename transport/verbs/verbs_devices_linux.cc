#include <arpa/inet.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/reasons.h"
#include "transport/verbs/device_gids.h"
#include "transport/verbs/verbs_devices.h"
#include "transport/verbs/verbs_library.h"

namespace macrame::transport {
namespace {

v1::RdmaPortState PortStateOf(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return v1::RDMA_PORT_STATE_DOWN;
    case IBV_PORT_INIT:
      return v1::RDMA_PORT_STATE_INIT;
    case IBV_PORT_ARMED:
      return v1::RDMA_PORT_STATE_ARMED;
    case IBV_PORT_ACTIVE:
      return v1::RDMA_PORT_STATE_ACTIVE;
    default:
      return v1::RDMA_PORT_STATE_UNKNOWN;
  }
}

class DeviceReader {
 public:
  DeviceReader(const VerbsLibrary& library, const std::string& root)
      : library_(library), sys_(root + "/sys/class/infiniband") {}

  v1::RdmaDevice Read(ibv_device* listed) const {
    v1::RdmaDevice device;
    device.set_name(library_.get_device_name(listed));
    device.set_interface_name(InterfaceOf(device.name()));
    device.set_node_guid(absl::StrFormat("%016x", be64toh(library_.get_device_guid(listed))));
    device.set_port_number(kDevicePort);
    ibv_context* context = library_.open_device(listed);
    if (context == nullptr) {
      *device.mutable_fault() =
          MakeReason(reasons::kNoVerbsDevice,
                     absl::StrCat(device.name(), " can't be opened: ", std::strerror(errno)));
      return device;
    }
    ReadPort(context, device);
    ibv_pd* domain = library_.alloc_pd(context);
    if (domain == nullptr) {
      *device.mutable_fault() = MakeReason(
          reasons::kNoProtectionDomain,
          absl::StrCat(device.name(), " gives no protection domain: ", std::strerror(errno)));
    } else {
      library_.dealloc_pd(domain);
    }
    library_.close_device(context);
    return device;
  }

 private:
  // Of the GIDs first: a device may sit on a VLAN or a bond. One without any says its parent.
  std::string InterfaceOf(const std::string& name) const {
    for (int i = 0; i < kDeviceGidsMax; ++i) {
      const std::string interface =
          FirstLineOf(sys_ / name / "ports/1/gid_attrs/ndevs" / std::to_string(i));
      if (!interface.empty()) return interface;
    }
    const std::string parent = FirstLineOf(sys_ / name / "parent");
    if (!parent.empty()) return parent;
    std::error_code error;
    const std::filesystem::directory_iterator networks(sys_ / name / "device/net", error);
    if (error || networks == std::filesystem::directory_iterator()) return "";
    return networks->path().filename().string();
  }

  void ReadPort(ibv_context* context, v1::RdmaDevice& device) const {
    ibv_port_attr port{};
    if (library_.query_port(context, kDevicePort,
                            reinterpret_cast<_compat_ibv_port_attr*>(&port)) != 0) {
      return;
    }
    device.set_port_state(PortStateOf(port.state));
    device.set_active_width(port.active_width == 1   ? 1
                            : port.active_width == 2 ? 4
                            : port.active_width == 4 ? 8
                            : port.active_width == 8 ? 12
                                                     : 0);
    device.set_link_layer(port.link_layer == IBV_LINK_LAYER_ETHERNET     ? "Ethernet"
                          : port.link_layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand"
                                                                         : "");
    device.set_gids_known(true);
    for (const Gid& gid : DeviceGids(library_, context, device.name(), sys_.string())) {
      v1::RdmaGid& listed = *device.add_gids();
      listed.set_index(gid.index);
      listed.set_gid(GidText(gid.bytes));
      if (const auto ip = Ipv4Of(gid)) {
        in_addr address{htonl(*ip)};
        char text[INET_ADDRSTRLEN] = {};
        if (inet_ntop(AF_INET, &address, text, sizeof(text)) != nullptr) listed.set_ipv4(text);
      }
    }
  }

  const VerbsLibrary& library_;
  const std::filesystem::path sys_;
};

}  // namespace

std::optional<std::vector<v1::RdmaDevice>> ListVerbsDevices(const std::string& root,
                                                            bool* library_missing) {
  const auto library = FindVerbsLibrary();
  *library_missing = !library.ok();
  if (!library.ok()) return std::nullopt;
  int count = 0;
  ibv_device** listed = (*library)->get_device_list(&count);
  if (listed == nullptr) {
    // A kernel without RDMA is a machine without devices; anything else is not known.
    if (errno == ENOSYS) return std::vector<v1::RdmaDevice>{};
    return std::nullopt;
  }
  const DeviceReader reader(**library, root);
  std::vector<v1::RdmaDevice> devices;
  for (int i = 0; i < count; ++i) devices.push_back(reader.Read(listed[i]));
  (*library)->free_device_list(listed);
  return devices;
}

}  // namespace macrame::transport
