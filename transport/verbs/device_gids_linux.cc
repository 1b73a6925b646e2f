#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "transport/verbs/device_gids.h"

namespace macrame::transport {

std::string FirstLineOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<Gid> DeviceGids(const VerbsLibrary& library, ibv_context* context,
                            const std::string& device, const std::string& sys) {
  std::vector<Gid> found;
  for (int i = 0; i < kDeviceGidsMax; ++i) {
    ibv_gid raw{};
    if (library.query_gid(context, kDevicePort, i, &raw) != 0) break;
    Gid gid;
    std::memcpy(gid.bytes.data(), raw.raw, sizeof(raw.raw));
    gid.index = static_cast<uint8_t>(i);
    if (gid.bytes == std::array<uint8_t, 16>{}) continue;  // an empty place in the table
    const std::string type =
        FirstLineOf(absl::StrCat(sys, "/", device, "/ports/1/gid_attrs/types/", i));
    if (type == "IB/RoCE v1") continue;  // its packets are not IP and are met by nobody
    found.push_back(gid);
  }
  return found;
}

}  // namespace macrame::transport
