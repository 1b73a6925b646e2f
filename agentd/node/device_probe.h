#pragma once

// Asks what this machine's GPU can keep resident for all ranks together, once, at the agent's
// start. RankdDeviceProbe (rankd_device_probe.h) asks MLX through rankd; a simulation has its own.
// Owner thread for all calls and the callback.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace macrame::agentd {

class DeviceProbe {
 public:
  // In bytes; unset: there is no GPU, or nothing was reported.
  using Found = std::function<void(std::optional<uint64_t> working_set_bytes)>;

  virtual ~DeviceProbe() = default;

  // `rankd_path`: the setting; empty: rankd beside this program. Once.
  virtual void Start(std::string rankd_path, Found found) = 0;
  // Ends a question that is under way; `found` does not run any more.
  virtual void Stop() = 0;
};

}  // namespace macrame::agentd
