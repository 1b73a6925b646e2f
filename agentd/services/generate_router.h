#pragma once

// Takes each request for text to the node that holds the entry rank: this one's rank process, or
// the other node's agent. Owner thread, but for the InferenceBackend methods, which the gateway
// calls from its own, and for chunks: these come on the threads of the channel that they came by
// (routed_call.h).

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agentd/gateway/base/inference_backend.h"
#include "agentd/node/peer_channels.h"
#include "agentd/services/routed_call.h"
#include "agentd/state/entry_table.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/supervisor/rank_supervisor.h"
#include "transport/dispatcher.h"
#include "transport/guarded.h"
#include "transport/peer_channel.h"

namespace macrame::agentd {

class GenerateRouter : public InferenceBackend {
 public:
  GenerateRouter(transport::Dispatcher& dispatcher, NodeId self, const StateReplicator& replicator,
                 PeerChannels& channels, runtime::RankSupervisor& supervisor,
                 Duration moved_on_grace = kMovedOnGrace);

  // Wherever the entry rank is, or will be within kEntryWaitMax. `on_done` once, never from within
  // the call.
  transport::CallHandle Route(v1::GenerateRequest request, ChunkCallback on_chunk,
                              DoneCallback on_done);
  // The entry rank must be here. Of a rank that is gone a chunk may still come after `on_done`.
  transport::CallHandle RouteLocal(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                                   DoneCallback on_done);
  // The desired state changed: what is served is listed anew, and requests leave gangs that ended.
  void Refresh();
  // Whom the membership holds for dead: such a node is asked only when it is the only one, and not
  // waited for.
  void SetIsDead(std::function<bool(const NodeId&)> is_dead) {
    entries_.SetIsDead(std::move(is_dead));
  }
  // A member is dead: what it was asked is asked elsewhere, or ends.
  void NoteDead(const NodeId& node);
  // This node's requests under way. Those that only pass through are those of their gateways.
  size_t under_way() const { return calls_.size(); }
  // All of them end now, with this error, and so does what is asked later.
  void EndAll(const absl::Status& why);

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override;
  std::map<std::string, std::string> Aliases() override;
  bool IsLooking() override { return is_looking_; }
  // Whether this node is still looking through its model folders.
  void SetLooking(bool is_looking) { is_looking_ = is_looking; }

 private:
  // Any thread.
  std::shared_ptr<RoutedCall> Begin(v1::GenerateRequest request, ChunkCallback on_chunk,
                                    DoneCallback on_done);
  transport::CallHandle RouteOnce(const NodeId& entry, const v1::GenerateRequest& request,
                                  ChunkCallback on_chunk, DoneCallback on_done);
  transport::CallHandle RouteRemote(const NodeId& entry, const v1::GenerateRequest& request,
                                    ChunkCallback on_chunk, DoneCallback on_done);

  transport::Dispatcher& dispatcher_;
  const NodeId self_;
  const StateReplicator& replicator_;
  PeerChannels& channels_;
  runtime::RankSupervisor& supervisor_;
  transport::Guarded<std::vector<ServedModel>> served_;
  transport::Guarded<std::map<std::string, std::string>> aliases_;
  EntryTable entries_;
  const Duration moved_on_grace_;
  absl::Status ended_;
  std::atomic<bool> is_looking_ = false;
  std::atomic<uint64_t> last_call_ = 0;
  std::map<uint64_t, std::shared_ptr<RoutedCall>> calls_;  // under way
};

}  // namespace macrame::agentd
