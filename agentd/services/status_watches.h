#pragma once

// Those who are told the status as it changes (`clusterctl status --watch`, `top`). Owner thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>

#include "agentd/services/watch_places.h"
#include "macrame/v1/cluster.pb.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

inline constexpr size_t kStatusWatchesMax = 32;
inline constexpr uint32_t kStatusIntervalMinMs = 100;
inline constexpr uint32_t kStatusIntervalDefaultMs = 1000;
inline constexpr uint32_t kStatusIntervalMaxMs = 60'000;

class StatusWatches {
 public:
  // `interval_ms`: told again after so long without a change, within the bounds above; 0: the
  // default. RESOURCE_EXHAUSTED when there is no place for this caller; true: it is told from now
  // on.
  bool Add(const transport::Caller& caller, uint32_t interval_ms, transport::ServerStream stream);
  // Tells those whose turn it is, all of them when something `changed`; `status` is asked once, and
  // for nobody not at all. Each 100 ms or so.
  void Tick(MonotonicTime now, bool changed, const std::function<v1::ClusterStatus()>& status);
  bool IsEmpty() const { return watches_.empty(); }

 private:
  struct Watch {
    transport::ServerStream stream;
    Duration interval{};
    std::shared_ptr<const WatchPlaces::Place> place;
    std::shared_ptr<bool> gone;
    MonotonicTime last_sent{};
  };

  WatchPlaces places_{kStatusWatchesMax};
  std::list<Watch> watches_;
};

}  // namespace macrame::agentd
