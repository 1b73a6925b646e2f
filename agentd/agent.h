#pragma once

// The daemon: puts the parts together, keeps them ticking, and takes them down in order.
//
// Owner thread: the dispatcher's, for everything. agentd/README.md shows the parts and who calls
// whom.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "agentd/config/config.h"
#include "agentd/cores/state_store.h"
#include "agentd/platform.h"

namespace macrame::agentd {

struct AgentParts;

// What the agent does last of all takes no longer than this.
inline constexpr Duration kShutdownLimit = std::chrono::milliseconds(4500);

class Agent {
 public:
  // `store` is open: its node id and incarnation are this agent's. `machine`: NodeIdentity.machine.
  // `platform` outlives this.
  Agent(Platform& platform, const Config& config, std::unique_ptr<StateStore> store,
        std::string machine);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Opens sockets and ports and begins. Errors are start-up misconfigurations: an unusable secret
  // file, a socket or control port that is taken. A taken gateway port is none: the agent goes on
  // without.
  absl::Status Start();

  // Tells the members that this node is about to stop and waits until answers under way are over
  // and others have what it had, for `drain_timeout_s` at the most. Then says goodbye and ends the
  // ranks; `done` within kShutdownLimit of that. Once.
  void Shutdown(std::function<void()> done);

  // What it is made of, for whoever checks it from outside (agent_parts.h).
  AgentParts& parts();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace macrame::agentd
