// system_profiler's and ioreg's words about Thunderbolt.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "discovery/parsers/link_parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace macrame::discovery;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& buses : {ParseThunderboltBuses(text), ParseThunderboltText(text)}) {
    if (buses.ports.size() > kThunderboltPortsMax + 1) std::abort();
    for (const auto& port : buses.ports) {
      if (port.peers_size() > kPeersPerPortMax || port.socket() > 64) std::abort();
    }
  }
  ParseThunderboltSockets(text);
  return 0;
}
