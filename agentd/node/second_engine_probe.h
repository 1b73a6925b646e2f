#pragma once

// Looks for mlx-lm on this node once, at the agent's start. MlxLmProbe (mlx_lm_probe.h) asks
// Python; a simulation has its own. Owner thread for all calls and the callback.

#include <functional>
#include <string>

#include "runtime/second_engine/mlx_lm.h"

namespace macrame::agentd {

class SecondEngineProbe {
 public:
  using Found = std::function<void(runtime::SecondEngine)>;

  virtual ~SecondEngineProbe() = default;

  // `python`: the setting mlx_lm_python. Once.
  virtual void Start(std::string python, Found found) = 0;
  // Ends the look that is under way.
  virtual void Stop() = 0;
};

}  // namespace macrame::agentd
