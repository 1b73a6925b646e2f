#pragma once

// Those who read this node's log through the agent (`clusterctl logs`). Owner thread.

#include <list>
#include <memory>
#include <string>

#include "agentd/services/watch_places.h"
#include "macrame/v1/cluster.pb.h"
#include "transport/log_tail.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

inline constexpr size_t kLogWatchesMax = 16;
inline constexpr uint32_t kLogLinesDefault = 100;

class LogWatches {
 public:
  explicit LogWatches(std::string path) : path_(std::move(path)) {}

  // The last request.lines lines; with request.follow also what comes, until the reader goes away:
  // RESOURCE_EXHAUSTED when there is no place for this caller.
  void Add(const transport::Caller& caller, const v1::LogsRequest& request,
           transport::ServerStream stream);
  // Hands on what is new. Each 100 ms or so; reads nothing while nobody follows.
  void Tick();
  bool IsEmpty() const { return watches_.empty(); }

 private:
  struct Watch {
    transport::ServerStream stream;
    transport::LogTail tail;
    std::shared_ptr<const WatchPlaces::Place> place;
    std::shared_ptr<bool> gone;
  };

  const std::string path_;
  WatchPlaces places_{kLogWatchesMax};
  std::list<Watch> watches_;
};

}  // namespace macrame::agentd
