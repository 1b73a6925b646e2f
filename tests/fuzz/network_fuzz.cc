// networksetup, ifconfig, netstat and the list of shared devices.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "discovery/base/interfaces.h"
#include "discovery/parsers/link_parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame::discovery;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ParseHardwarePortNames(text);
  ParseServiceOrder(text);
  ParseSharingDevices(text);
  if (ParseRoutes(text).routes.size() > kRoutesMax) std::abort();
  for (const auto& interface : ParseIfconfig(text).interfaces) {
    for (const auto& address : interface.addresses()) {
      if (address.prefix_length() > 128) std::abort();
    }
  }
  return 0;
}
