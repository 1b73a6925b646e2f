#pragma once

// Takes each request for text to the node that holds the entry rank: this one's rank process, or
// the other node's agent. Owner thread, but for the InferenceBackend methods, which the gateway
// calls from its own.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/gateway/inference_backend.h"
#include "agentd/peer_channels.h"
#include "agentd/state_replicator.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/dispatcher.h"
#include "transport/guarded.h"
#include "transport/peer_channel.h"

namespace macrame::agentd {

// The longest that one answer may take.
inline constexpr Duration kGenerateLimit = std::chrono::hours(2);
// A request that has no answer yet waits this long for an entry rank that is being moved: a node
// that was away knows only after a moment that the gang went elsewhere.
inline constexpr Duration kEntryWaitMax = std::chrono::seconds(8);
// A replica without an answer is passed over for so long while there are others.
inline constexpr Duration kFailedReplicaPause = std::chrono::seconds(5);
inline constexpr Duration kEntryRetryPause = std::chrono::milliseconds(100);

// Whether the same request may find an entry rank a moment later: the failure is of the way there
// (NOT_READY, ENTRY_UNREACHABLE) or of a record that is out of date (MODEL_NOT_LOADED, from a node
// that was said to hold the entry rank). Pure.
bool IsWorthAnotherTry(const absl::Status& status);

class GenerateRouter : public InferenceBackend {
 public:
  GenerateRouter(transport::Dispatcher& dispatcher, NodeId self, const StateReplicator& replicator,
                 PeerChannels& channels, runtime::RankSupervisor& supervisor);

  // Wherever the entry rank is, or will be within kEntryWaitMax. `on_done` once, never from within
  // the call.
  transport::CallHandle Route(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                              DoneCallback on_done);
  // The entry rank must be here.
  transport::CallHandle RouteLocal(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                                   DoneCallback on_done);
  // The desired state changed: what is served is listed anew.
  void Refresh();

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override;

 private:
  class GatewayCall;
  class RoutedCall;
  transport::CallHandle RouteOnce(const NodeId& entry, const v1::GenerateRequest& request,
                                  ChunkCallback on_chunk, DoneCallback on_done);
  // A replica of the deployment and where its entry rank is: the one with the fewest requests of
  // this router's under way; one that lately had no answer only when there is no other. "NAME#2"
  // means that replica alone.
  struct Entry {
    std::string replica;
    NodeId node;
    bool failed_lately = false;
  };
  absl::StatusOr<Entry> FindEntry(const std::string& deployment) const;
  transport::CallHandle RouteRemote(const NodeId& entry, const v1::GenerateRequest& request,
                                    ChunkCallback on_chunk, DoneCallback on_done);

  transport::Dispatcher& dispatcher_;
  const NodeId self_;
  const StateReplicator& replicator_;
  PeerChannels& channels_;
  runtime::RankSupervisor& supervisor_;
  transport::Guarded<std::vector<ServedModel>> served_;
  // Of each replica: requests under way, and when one was last sent there (counted in requests).
  struct Sent {
    uint32_t under_way = 0;
    uint64_t last = 0;
    std::optional<MonotonicTime> failed_at;
  };
  std::map<std::string, Sent> sent_;
  uint64_t requests_sent_ = 0;
};

}  // namespace macrame::agentd
