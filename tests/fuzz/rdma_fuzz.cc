// ibv_devices, ibv_devinfo, rdma_ctl, and what the kernel says of RDMA.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "discovery/parsers/link_parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame::discovery;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto listed = ParseIbvDevices(text);
  if (listed && listed->size() > kRdmaDevicesMax) std::abort();
  const auto detailed = ParseIbvDevinfo(text);
  if (detailed.size() > kRdmaDevicesMax) std::abort();
  for (const auto& device : detailed) {
    if (device.gids_size() > kGidsMax) std::abort();
  }
  ParseRdmaCtl(text);
  ParseClassCounts(text);
  ParseKextLoaded(text, "com.apple.iokit.IORDMAFamily");
  if (ParseKernelLog(text).lines.size() > kKernelLinesMax) std::abort();
  ParsePowerSettings(text);
  return 0;
}
