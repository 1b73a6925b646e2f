#include "transport/verbs/verbs_devices.h"

namespace macrame::transport {

// A Mac's devices are asked for with ibv_devices (discovery/parsers/link_parsers.h).
std::optional<std::vector<v1::RdmaDevice>> ListVerbsDevices(const std::string&,
                                                            bool* library_missing) {
  *library_missing = true;
  return std::nullopt;
}

}  // namespace macrame::transport
