#pragma once

// Looks for mlx-lm on this node once, at the agent's start, on a thread of its own: Python takes
// seconds to import it. Owner thread for all calls and the callback.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "runtime/second_engine/mlx_lm.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

class SecondEngineProbe {
 public:
  using Found = std::function<void(runtime::SecondEngine)>;

  explicit SecondEngineProbe(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}
  ~SecondEngineProbe() { Stop(); }
  SecondEngineProbe(const SecondEngineProbe&) = delete;
  SecondEngineProbe& operator=(const SecondEngineProbe&) = delete;

  // `python`: the setting mlx_lm_python. Once.
  void Start(std::string python, Found found);
  // Ends the look that is under way, and waits for that: half a second or so.
  void Stop();

 private:
  transport::Dispatcher& dispatcher_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace macrame::agentd
