#pragma once

// ClusterService: what clusterctl asks, on the unix socket of any agent; and what an agent passes
// on to the coordinator's, over mutual TLS. Owner thread.

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agentd/gangs/deployment_planner.h"
#include "agentd/gangs/gang_controller.h"
#include "agentd/node/peer_channels.h"
#include "agentd/services/caller_view.h"
#include "agentd/services/coordinator_way.h"
#include "agentd/services/generate_router.h"
#include "agentd/services/load_watches.h"
#include "agentd/services/log_watches.h"
#include "agentd/services/status_reporter.h"
#include "agentd/services/status_watches.h"
#include "agentd/state/member_writer.h"
#include "agentd/state/state_replicator.h"
#include "macrame/v1/cluster.pb.h"
#include "macrame/v1/operation.pb.h"
#include "transport/dispatcher.h"
#include "transport/peer_channel.h"
#include "transport/rpc_server.h"

namespace macrame::agentd {

// Of what one access file's key follows of other nodes' logs through this one.
inline constexpr size_t kPassedLogsOfKeyMax = 3;
inline constexpr size_t kDeploymentNameBytesMax = 200;
// A model that was asked for so lately does not go for another: an agent's next turn may come.
inline constexpr Duration kUnusedMin = std::chrono::seconds(10);
// Who asked for the status once is likely to ask again within so long.
inline constexpr Duration kLooksOnFor = std::chrono::seconds(3);

class ClusterService {
 public:
  struct Parts {
    transport::Dispatcher& dispatcher;
    const Election& election;
    PeerChannels& channels;
    const OwnNode& own;
    StateReplicator& replicator;
    GangController& gang_controller;
    DeploymentPlanner& planner;
    StatusReporter& reporter;
    GenerateRouter& router;
    MemberWriter& member_writer;
    const NodeViews& views;
    const CallerView& caller_view;
    std::string log_file;
  };

  explicit ClusterService(Parts parts);
  void Register(transport::RpcServer& server);
  // Deployments without a priority that nobody used for so long, the least recently used first
  // (ModelDemand): they may be unloaded for another.
  using Unused = std::function<std::vector<std::string>(Duration unused_for)>;
  void SetUnused(Unused unused) { unused_ = std::move(unused); }

  // As clusterctl is told it; `told` is called once, on the owner thread.
  void AskStatus(std::function<void(v1::ClusterStatus)> told);

  // Who follows the log of that node through this one is told that it is gone.
  void NoteDead(const NodeId& node);

  // Something that status shows has changed.
  void NoteChange() { changed_ = true; }
  // Each 100 ms or so.
  void Tick();
  // Nobody waits to be told of anything.
  bool IsIdle() const { return watches_.IsEmpty() && loads_.IsEmpty() && logs_.IsEmpty(); }
  // Somebody looks at the status, or did a moment ago.
  bool IsWatched() const;
  void StopLeading();
  // Asks the coordinator for its word on deployments; `done` when it is there or won't come.
  void RefreshFromCoordinator(std::function<void()> done);

 private:
  template <typename Response>
  using Reply = transport::RpcServer::Reply<Response>;

  void RegisterReading(transport::RpcServer& server);
  void RegisterChanging(transport::RpcServer& server);

  // Puts names in the place of what the request names models by (remote_models.h).
  template <typename Request>
  absl::Status TakeNames(const transport::Caller& caller, Request* request) const;
  void OnInfer(const transport::Caller& caller, v1::GenerateRequest request,
               transport::ServerStream stream);
  void OnPlanModel(const transport::Caller& caller, v1::PlanModelRequest request,
                   Reply<v1::PlanResult> reply);
  void Plan(PlanOrder order, const v1::PlacementOptions& placement, Reply<v1::PlanResult> reply);
  void OnGetStatus(const transport::Caller& caller, Reply<v1::ClusterStatus> reply);
  void PassLogsOn(const transport::Caller& caller, const v1::LogsRequest& request,
                  transport::PeerChannel& channel, transport::ServerStream stream);
  void OnLogs(const transport::Caller& caller, const v1::LogsRequest& request,
              transport::ServerStream stream);
  void OnLoadModel(const transport::Caller& caller, const v1::LoadModelRequest& request,
                   transport::ServerStream stream);
  void LoadHere(const v1::LoadModelRequest& request, transport::ServerStream stream);
  // An order to load, from its plan to what is written; with models that go for it, several plans.
  struct LoadAttempt {
    v1::LoadModelRequest request;
    transport::ServerStream stream;
    MonotonicTime until;        // the caller waits
    MonotonicTime waits_until;  // for models to be unused: the load itself takes time, too
    bool asks_if_ever = false;  // whether it fits when all that may go have gone
    bool is_repeated = false;
  };
  absl::Status CheckNotStopped() const;
  void TryLoad(LoadAttempt attempt);
  void TryLoadAfter(Duration pause, LoadAttempt attempt);
  // Says why nothing happens yet; false when nobody waits any more.
  bool WriteWaiting(const LoadAttempt& attempt, const std::string& why);
  void AwaitUnused(LoadAttempt attempt, const std::vector<std::string>& in_use);
  // `tenant`: what others than this one have is not there; null: all is.
  PlanOrder OrderFor(const std::string& name, const std::string* tenant = nullptr) const;
  // Whether an order that keeps what others have may not load it under this name.
  bool IsOthers(const v1::LoadModelRequest& request, const std::string& name) const;
  // Ends it as one for a name that no node has files of.
  void RefuseOthers(const LoadAttempt& attempt);
  bool KeepOptions(const std::string& name, v1::LoadModelRequest& request) const;
  bool HasGivenUp(const std::string& name) const;
  absl::Status NothingToUnload(const std::string& name) const;
  void LoadPlanned(const LoadAttempt& attempt, const PlanOutcome& outcome);
  // Unloads those of `names`, which a load named `name` needs the memory of, one after the other,
  // up to one that is in use again.
  void UnloadFor(const std::string& name, std::vector<std::string> names,
                 std::function<void(const absl::Status&)> done);
  void ForgetNode(const transport::Caller& caller, const v1::ForgetNodeRequest& request,
                  Reply<v1::ForgetNodeResponse> reply);
  void ForgetHere(const NodeId& node, Reply<v1::ForgetNodeResponse> reply);
  void SetCordonHere(const v1::SetCordonRequest& request, Reply<v1::SetCordonResponse> reply);
  void MarkNodeHere(const v1::MarkNodeRequest& request, Reply<v1::MarkNodeResponse> reply);
  void UnloadHere(const std::string& name, Reply<v1::UnloadModelResponse> reply);
  void AnswerWhenGone(const std::string& name, MonotonicTime since,
                      Reply<v1::UnloadModelResponse> reply);

  Parts parts_;
  CoordinatorWay way_;
  Unused unused_;
  MonotonicTime freed_until_;  // what was unloaded for a load is free in the nodes' reports by then
  LoadWatches loads_;
  LogWatches logs_;
  StatusWatches watches_;
  // Logs of other nodes that are read through this one.
  struct PassedLogs {
    NodeId node;
    std::string key_id;  // of the access file that follows it; else empty
    transport::ServerStream stream;
    transport::CallHandle handle;
  };
  using AllPassedLogs = std::list<std::shared_ptr<PassedLogs>>;
  const std::shared_ptr<AllPassedLogs> passed_logs_ = std::make_shared<AllPassedLogs>();
  bool changed_ = false;
  bool refreshing_ = false;
  std::optional<MonotonicTime> asked_at_;
  MonotonicTime refreshed_at_;
};

}  // namespace macrame::agentd
