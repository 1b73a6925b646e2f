#pragma once

// SecondEngineProbe by a Python process, on a thread of its own: Python takes seconds to import
// mlx-lm.

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "agentd/node/second_engine_probe.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

class MlxLmProbe final : public SecondEngineProbe {
 public:
  explicit MlxLmProbe(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}
  ~MlxLmProbe() override { Stop(); }
  MlxLmProbe(const MlxLmProbe&) = delete;
  MlxLmProbe& operator=(const MlxLmProbe&) = delete;

  void Start(std::string python, Found found) override;
  // Waits for the end of the look: half a second or so.
  void Stop() override;

 private:
  transport::Dispatcher& dispatcher_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace macrame::agentd
