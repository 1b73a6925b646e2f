#pragma once

// The RPC edge of `clusterctl model verify`: clusterctl asks any agent, which has all live members
// read their files of the model at the same time, tells how far they are, and judges what they
// found (cores/model_integrity.h). Owner thread; files are read on a thread of their own, one model
// after the other, for as long as somebody waits for them.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "agentd/node/member_monitor.h"
#include "agentd/node/model_library.h"
#include "agentd/node/node_views.h"
#include "agentd/node/peer_channels.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/operation.pb.h"
#include "transport/dispatcher.h"
#include "transport/rpc_server.h"
#include "transport/worker_thread.h"

namespace macrame::agentd {

class VerifyService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    PeerChannels& channels;
    const MemberMonitor& members;
    ModelLibrary& library;
    const StateReplicator& replicator;
    NodeId self;
    const NodeViews* views = nullptr;  // null: no node's models are known
  };

  explicit VerifyService(Parts parts) : parts_(std::move(parts)) {}
  // Ends what is being read.
  ~VerifyService();

  // Between agents; the caller's certificate must be a member's.
  void RegisterAgent(transport::RpcServer& server);
  // For clusterctl.
  void RegisterCluster(transport::RpcServer& server);

 private:
  // Each progress, then the files, to `on_files`; then `done` once. The handle ends the reading.
  using OnFiles = std::function<void(v1::NodeModelFiles)>;
  using Done = std::function<void(const absl::Status&)>;
  struct Gathering;

  transport::CallHandle ReadHere(const std::string& name, OnFiles on_files, Done done);
  void Verify(const v1::VerifyModelRequest& request, transport::ServerStream stream);
  // What is loaded under a name of its own is named as its model.
  std::string ModelOf(const std::string& name) const;

  Parts parts_;
  const std::shared_ptr<std::atomic<bool>> stopping_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<transport::WorkerThread> reader_;  // from the first reading on
};

}  // namespace macrame::agentd
