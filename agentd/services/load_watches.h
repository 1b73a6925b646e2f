#pragma once

// Those who wait for a deployment to become ready: each is told of every change until it is, or
// until it is clear that it won't be soon. Owner thread, coordinator only.

#include <list>
#include <optional>
#include <string>

#include "agentd/gangs/gang_controller.h"
#include "macrame/v1/cluster.pb.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

inline constexpr size_t kLoadWatchesMax = 64;
inline constexpr uint32_t kLoadTimeoutDefaultMs = 10 * 60 * 1000;
// A deployment that waits for so long with a reason has been refused, not just interrupted.
inline constexpr Duration kPendingUntilTold = std::chrono::seconds(4);
// After so many failed launches the one who waits is told; the cluster goes on trying.
inline constexpr uint32_t kAttemptsUntilTold = 3;

class LoadWatches {
 public:
  LoadWatches(transport::Dispatcher& dispatcher, GangController& gang_controller)
      : dispatcher_(dispatcher), gang_controller_(gang_controller) {}

  // All replicas are waited for, one after the other. `after_epoch`: of the first one, a gang of
  // this epoch or an older one is not what is waited for.
  void Add(transport::ServerStream stream, std::string deployment, std::string resolved_name,
           uint64_t after_epoch, uint32_t timeout_ms);
  // Tells of changes. Each 100 ms or so, and when something changed.
  void Tick();
  bool IsEmpty() const { return watches_.empty(); }
  // This node leads no more.
  void EndAll(const absl::Status& status);

 private:
  struct Watch {
    transport::ServerStream stream;
    std::string deployment;
    std::string resolved_name;
    uint64_t after_epoch = 0;
    MonotonicTime ends;
    std::optional<MonotonicTime> pending_since;
    std::string last_sent;
  };
  // A gang that is not the one from before the load; of the further replicas any.
  static bool IsCurrent(const Watch& watch, const v1::DeploymentStatus& status);
  static bool IsReady(const Watch& watch, const v1::DeploymentStatus& status);
  // True when the watch has ended.
  bool Tell(Watch& watch, const std::optional<v1::DeploymentStatus>& status);

  transport::Dispatcher& dispatcher_;
  GangController& gang_controller_;
  std::list<Watch> watches_;
};

}  // namespace macrame::agentd
