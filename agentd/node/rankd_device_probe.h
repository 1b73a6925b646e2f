#pragma once

// DeviceProbe through `rankd --device-memory`, on a thread of its own: the agent has no MLX, and a
// GPU's driver may take its time.

#include <memory>
#include <string>
#include <thread>

#include "agentd/node/device_probe.h"
#include "discovery/probe/command_runner.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

inline constexpr Duration kDeviceProbeLimit = std::chrono::seconds(20);

// "working_set_bytes 115343360000", as rankd writes it. Unset for 0 and for anything else.
std::optional<uint64_t> ParseDeviceMemory(const std::string& text);

class RankdDeviceProbe final : public DeviceProbe {
 public:
  explicit RankdDeviceProbe(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}
  ~RankdDeviceProbe() override { Stop(); }
  RankdDeviceProbe(const RankdDeviceProbe&) = delete;
  RankdDeviceProbe& operator=(const RankdDeviceProbe&) = delete;

  void Start(std::string rankd_path, Found found) override;
  // Waits until the process is gone: 20 ms or so.
  void Stop() override;

 private:
  transport::Dispatcher& dispatcher_;
  discovery::ProcessCommandRunner runner_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::thread thread_;
};

}  // namespace macrame::agentd
