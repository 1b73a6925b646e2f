#include "agentd/services/cluster_service.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/base/version.h"
#include "agentd/cores/cluster_pause.h"
#include "agentd/cores/cordon.h"
#include "agentd/cores/load_decision.h"
#include "agentd/cores/node_marks.h"
#include "agentd/cores/state_keys.h"
#include "agentd/gateway/access/known_models.h"
#include "agentd/gateway/base/tenant.h"
#include "agentd/services/agent_service.h"
#include "agentd/services/remote_models.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

using transport::Caller;
using transport::RpcServer;
using transport::ServerStream;

constexpr Duration kRefreshTimeout = std::chrono::milliseconds(800);
constexpr Duration kRefreshInterval = std::chrono::milliseconds(500);
constexpr Duration kPlanTimeout = std::chrono::seconds(20);
constexpr Duration kUnloadTimeout = std::chrono::seconds(30);
constexpr Duration kUnloadGoneLimit = std::chrono::seconds(20);
// Who follows a log for longer starts again.
constexpr Duration kLogsLimit = std::chrono::hours(24);
constexpr Duration kPollInterval = std::chrono::milliseconds(100);
// What a model held that was unloaded is free in the nodes' reports within so long.
constexpr Duration kFreedSeenLimit = std::chrono::seconds(10);
constexpr Duration kFreedPause = std::chrono::milliseconds(300);
// Whether models are still in use is looked at anew after so long.
constexpr Duration kUsedPause = std::chrono::seconds(2);

Duration LimitOf(const v1::LoadModelRequest& request) {
  return std::chrono::milliseconds(request.timeout_ms() == 0 ? kLoadTimeoutDefaultMs
                                                             : request.timeout_ms());
}

bool IsOfAnother(const v1::Deployment& deployment, const std::string& tenant) {
  const std::string& owner = deployment.placement().tenant();
  return !owner.empty() && owner != tenant;
}

// Deployments of `unused` that a plan needs the memory of; empty: it needs none, or others, too.
std::vector<std::string> UnusedToUnload(const v1::PlanResult& result,
                                        const std::vector<std::string>& unused) {
  std::set<std::string> names;
  for (const std::string& evicted : result.evicted()) {
    const std::string name(DeploymentOfReplica(evicted));
    if (std::find(unused.begin(), unused.end(), name) == unused.end()) return {};
    names.insert(name);
  }
  return {names.begin(), names.end()};
}

absl::Status NoSuchNode(const std::string& id) {
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kNodeNotFound,
                      absl::StrCat("no node with the id '", id.substr(0, 64), "' is known"));
}

absl::Status NodeIsGone(const NodeId& node) {
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeDead,
                      "that node's agent does not answer", node.value());
}

}  // namespace

ClusterService::ClusterService(Parts parts)
    : parts_(std::move(parts)),
      way_({parts_.dispatcher, parts_.election, parts_.channels, parts_.own}),
      loads_(parts_.dispatcher, parts_.gang_controller),
      logs_(parts_.log_file) {}

void ClusterService::Register(RpcServer& server) {
  RegisterReading(server);
  RegisterChanging(server);
}

void ClusterService::RegisterReading(RpcServer& server) {
  server.HandleUnary(kGetStatus, [this](const Caller& caller, v1::GetStatusRequest,
                                        Reply<v1::ClusterStatus> reply) {
    OnGetStatus(caller, std::move(reply));
  });
  server.HandleStream(kWatchStatus, [this](const Caller& caller, v1::WatchStatusRequest request,
                                           ServerStream stream) {
    if (!watches_.Add(caller, request.interval_ms_max(), std::move(stream))) return;
    RefreshFromCoordinator([this] { Tick(); });
  });
  server.HandleUnary(kListModels, [this](const Caller& caller, v1::ListModelsRequest,
                                         Reply<v1::ListModelsResponse> reply) {
    RefreshFromCoordinator([this, reply, known = parts_.caller_view.Watch(caller)] {
      reply(parts_.reporter.Models([view = known()](const v1::Deployment& deployment) {
        return view.Knows(deployment.name());
      }));
    });
  });
  server.HandleUnary(kVersion,
                     [this](const Caller&, v1::VersionRequest, Reply<v1::VersionResponse> reply) {
                       v1::VersionResponse response;
                       response.set_version(kAgentVersion);
                       response.set_node_id(parts_.own.id().value());
                       response.set_hostname(parts_.own.identity().hostname());
                       response.set_mlx_version(kMlxVersion);
                       reply(std::move(response));
                     });
  server.HandleStream(kLogs,
                      [this](const Caller& caller, v1::LogsRequest request, ServerStream stream) {
                        OnLogs(caller, request, std::move(stream));
                      });
  server.HandleStream(
      kInfer, [this](const Caller& caller, v1::GenerateRequest request, ServerStream stream) {
        OnInfer(caller, std::move(request), std::move(stream));
      });
}

// Whoever may open this machine's socket may ask all models, as it may load them. An access file's
// key has no tenant: it is told of others' models what a key of the HTTP API is told, and shares
// prefixes with itself alone. What it may not ask goes the way of what does not exist, and both are
// told with the same names.
void ClusterService::OnInfer(const Caller& caller, v1::GenerateRequest request,
                             ServerStream stream) {
  std::function<absl::Status(const absl::Status&)> told = [](const absl::Status& status) {
    return status;
  };
  if (!caller.key_id.empty()) {
    SetTenant(AskerOfKey("", caller.key_id), &request);
    const auto known = parts_.caller_view.Watch(caller);
    told = [known, asked = request.deployment()](const absl::Status& status) {
      const bool is_missing = ReasonOf(status).code() == reasons::kModelNotLoaded;
      return is_missing ? EntryTable::NotLoaded(asked, known().Usable()) : status;
    };
    if (!known().MayUse(request.deployment())) request.set_deployment(kNoModel);
  }
  ServeGenerate(parts_.dispatcher, stream, [&](auto on_chunk, auto on_done) {
    return parts_.router.Route(std::move(request), std::move(on_chunk),
                               [told, on_done = std::move(on_done)](const absl::Status& status) {
                                 on_done(status.ok() ? status : told(status));
                               });
  });
}

template <typename Request>
absl::Status ClusterService::TakeNames(const Caller& caller, Request* request) const {
  if (caller.key_id.empty()) return absl::OkStatus();
  const std::vector<NodeFacts> nodes = parts_.views.All();
  absl::StatusOr<std::string> model = ModelNameFrom(caller, request->name_or_path(), nodes);
  if (!model.ok()) return model.status();
  request->set_name_or_path(*std::move(model));
  if (request->placement().draft_model().empty()) return absl::OkStatus();
  absl::StatusOr<std::string> draft =
      ModelNameFrom(caller, request->placement().draft_model(), nodes);
  if (!draft.ok()) return draft.status();
  request->mutable_placement()->set_draft_model(*std::move(draft));
  return absl::OkStatus();
}

void ClusterService::OnPlanModel(const Caller& caller, v1::PlanModelRequest request,
                                 Reply<v1::PlanResult> reply) {
  if (absl::Status named = TakeNames(caller, &request); !named.ok()) return reply(named);
  // Of a deployment that it may not know of only the name counts, as if there were none. Whom the
  // coordinator would pass it on to asks the same nodes.
  const KnownModels known = parts_.caller_view.Of(caller);
  if (!known.knows_all() && !known.Knows(request.name_or_path())) {
    PlanOrder order;
    order.name_or_path = request.name_or_path();
    return Plan(std::move(order), request.placement(), std::move(reply));
  }
  way_.Unary(kPlanModel, caller, request, kPlanTimeout, reply, [this, request, reply] {
    const std::string& tenant = request.placement().tenant();
    const bool knows_all = tenant.empty() && !request.keeps_others();
    Plan(OrderFor(request.name_or_path(), knows_all ? nullptr : &tenant), request.placement(),
         reply);
  });
}

void ClusterService::Plan(PlanOrder order, const v1::PlacementOptions& placement,
                          Reply<v1::PlanResult> reply) {
  order.placement = placement;
  order.in_force = parts_.gang_controller.InForce();
  parts_.planner.Plan(order, [reply = std::move(reply)](absl::StatusOr<PlanOutcome> outcome) {
    if (!outcome.ok()) return reply(outcome.status());
    reply(std::move(outcome->result));
  });
}

void ClusterService::RegisterChanging(RpcServer& server) {
  server.HandleUnary(kPlanModel, [this](const Caller& caller, v1::PlanModelRequest request,
                                        Reply<v1::PlanResult> reply) {
    OnPlanModel(caller, std::move(request), std::move(reply));
  });
  server.HandleStream(
      kLoadModel, [this](const Caller& caller, v1::LoadModelRequest request, ServerStream stream) {
        if (absl::Status named = TakeNames(caller, &request); !named.ok()) {
          return stream.Finish(named);
        }
        OnLoadModel(caller, request, std::move(stream));
      });
  server.HandleUnary(kForgetSpeeds, [this](const Caller& caller, v1::ForgetSpeedsRequest request,
                                           Reply<v1::ForgetSpeedsResponse> reply) {
    way_.Unary(kForgetSpeeds, caller, request, kUnloadTimeout, reply, [this, reply] {
      v1::ForgetSpeedsResponse response;
      *response.mutable_forgotten() = parts_.gang_controller.Speeds();
      parts_.gang_controller.ForgetSpeeds(AnswerWhenWritten(reply, response));
    });
  });
  server.HandleUnary(kForgetNode, [this](const Caller& caller, v1::ForgetNodeRequest request,
                                         Reply<v1::ForgetNodeResponse> reply) {
    ForgetNode(caller, request, std::move(reply));
  });
  server.HandleUnary(kSetCordon, [this](const Caller& caller, v1::SetCordonRequest request,
                                        Reply<v1::SetCordonResponse> reply) {
    way_.Unary(kSetCordon, caller, request, kUnloadTimeout, reply,
               [this, request, reply] { SetCordonHere(request, reply); });
  });
  server.HandleUnary(kMarkNode, [this](const Caller& caller, v1::MarkNodeRequest request,
                                       Reply<v1::MarkNodeResponse> reply) {
    way_.Unary(kMarkNode, caller, request, kUnloadTimeout, reply,
               [this, request, reply] { MarkNodeHere(request, reply); });
  });
  server.HandleUnary(kUnloadModel, [this](const Caller& caller, v1::UnloadModelRequest request,
                                          Reply<v1::UnloadModelResponse> reply) {
    way_.Unary(kUnloadModel, caller, request, kUnloadTimeout, reply,
               [this, request, reply] { UnloadHere(request.name(), reply); });
  });
}

void ClusterService::RefreshFromCoordinator(std::function<void()> done) {
  const MonotonicTime now = parts_.dispatcher.Now();
  const std::optional<FencePair> coordinator = parts_.election.Coordinator(now);
  if (!coordinator.has_value() || coordinator->coordinator == parts_.own.id()) return done();
  transport::PeerChannel* channel = parts_.channels.For(coordinator->coordinator);
  if (channel == nullptr) return done();
  channel->Call(kGetStatus, v1::GetStatusRequest(), kRefreshTimeout,
                [this, done = std::move(done)](absl::StatusOr<v1::ClusterStatus> status) {
                  if (status.ok()) parts_.reporter.TakeDeployments(*status);
                  done();
                });
}

bool ClusterService::IsWatched() const {
  return !watches_.IsEmpty() ||
         (asked_at_.has_value() && parts_.dispatcher.Now() - *asked_at_ < kLooksOnFor);
}

void ClusterService::OnGetStatus(const Caller& caller, Reply<v1::ClusterStatus> reply) {
  asked_at_ = parts_.dispatcher.Now();
  if (!caller.IsPerson()) return reply(parts_.reporter.Status());
  RefreshFromCoordinator([this, reply] { reply(parts_.reporter.Status()); });
}

void ClusterService::AskStatus(std::function<void(v1::ClusterStatus)> told) {
  asked_at_ = parts_.dispatcher.Now();
  RefreshFromCoordinator([this, told = std::move(told)] { told(parts_.reporter.Status()); });
}

void ClusterService::Tick() {
  loads_.Tick();
  logs_.Tick();
  if (watches_.IsEmpty()) {
    changed_ = false;
    return;
  }
  const MonotonicTime now = parts_.dispatcher.Now();
  if (!refreshing_ && now - refreshed_at_ > kRefreshInterval) {
    refreshing_ = true;
    refreshed_at_ = now;
    RefreshFromCoordinator([this] { refreshing_ = false; });
  }
  watches_.Tick(now, changed_, [this] { return parts_.reporter.Status(); });
  changed_ = false;
}

void ClusterService::OnLogs(const Caller& caller, const v1::LogsRequest& request,
                            ServerStream stream) {
  const bool own = request.node_id().empty() || request.node_id() == parts_.own.id().value();
  if (own) return logs_.Add(caller, request, std::move(stream));
  if (!parts_.reporter.Knows(NodeId(request.node_id()))) {
    return stream.Finish(NoSuchNode(request.node_id()));
  }
  // What came over the wire is not passed on again.
  transport::PeerChannel* channel =
      caller.IsPerson() ? parts_.channels.For(NodeId(request.node_id())) : nullptr;
  if (channel == nullptr) {
    return stream.Finish(ReasonStatus(absl::StatusCode::kNotFound, reasons::kNodeNotFound,
                                      "that node can't be reached from this one",
                                      request.node_id().substr(0, 32)));
  }
  PassLogsOn(caller, request, *channel, std::move(stream));
}

// The other node is asked by this one, and knows of no key: what a key follows is counted here.
void ClusterService::PassLogsOn(const Caller& caller, const v1::LogsRequest& request,
                                transport::PeerChannel& channel, ServerStream stream) {
  auto passed = std::make_shared<PassedLogs>();
  passed->node = NodeId(request.node_id());
  if (request.follow()) passed->key_id = caller.key_id;
  const auto of_key =
      std::count_if(passed_logs_->begin(), passed_logs_->end(),
                    [&](const auto& other) { return other->key_id == passed->key_id; });
  if (!passed->key_id.empty() && static_cast<size_t>(of_key) >= kPassedLogsOfKeyMax) {
    return stream.Finish(absl::ResourceExhaustedError("too many follow logs with this key"));
  }
  passed->stream = stream;
  passed->handle = channel.Stream(
      kLogs, request, kLogsLimit, [stream](const v1::LogsChunk& chunk) { stream.Write(chunk); },
      [all = passed_logs_, stream,
       weak = std::weak_ptr<PassedLogs>(passed)](const absl::Status& status) {
        const std::shared_ptr<PassedLogs> over = weak.lock();
        if (over == nullptr) return;
        all->remove(over);
        stream.Finish(absl::IsUnavailable(status) ? NodeIsGone(over->node) : status);
      });
  passed_logs_->push_back(passed);
  stream.OnCancel([all = passed_logs_, weak = std::weak_ptr<PassedLogs>(passed)] {
    const std::shared_ptr<PassedLogs> over = weak.lock();
    if (over == nullptr) return;
    over->handle.Cancel();
    all->remove(over);
  });
}

void ClusterService::NoteDead(const NodeId& node) {
  AllPassedLogs over;
  for (const std::shared_ptr<PassedLogs>& passed : *passed_logs_) {
    if (passed->node == node) over.push_back(passed);
  }
  for (const std::shared_ptr<PassedLogs>& passed : over) {
    passed_logs_->remove(passed);
    passed->stream.Finish(NodeIsGone(node));
    passed->handle.Cancel();
  }
}

void ClusterService::StopLeading() { loads_.EndAll(CoordinatorWay::NoCoordinator()); }

void ClusterService::OnLoadModel(const Caller& caller, const v1::LoadModelRequest& request,
                                 ServerStream stream) {
  const Duration timeout = LimitOf(request) + std::chrono::seconds(30);
  way_.At(
      caller, [this, request, stream] { LoadHere(request, stream); },
      [request, stream, timeout](transport::PeerChannel& channel, const NodeId& coordinator) {
        const transport::CallHandle handle = channel.Stream(
            kLoadModel, request, timeout,
            [stream](const v1::LoadModelProgress& progress) { stream.Write(progress); },
            [stream, coordinator](const absl::Status& status) {
              // A limit that is over is told by the coordinator itself.
              stream.Finish(absl::IsUnavailable(status) ? CoordinatorWay::Told(coordinator, status)
                                                        : status);
            });
        stream.OnCancel([handle] { handle.Cancel(); });
      },
      [stream](const absl::Status& status) { stream.Finish(status); });
}

void ClusterService::LoadHere(const v1::LoadModelRequest& request, ServerStream stream) {
  if (request.deployment_name().size() > kDeploymentNameBytesMax) {
    return stream.Finish(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                                      "the deployment's name is too long"));
  }
  const std::string& name = request.deployment_name();
  if (DeploymentOfReplica(name) != name && !IsOthers(request, name)) {
    return stream.Finish(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                                      "a deployment's name has no '#': it numbers replicas"));
  }
  if (request.replicas() > kReplicasMax) {
    return stream.Finish(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                                      absl::StrCat("at most ", kReplicasMax, " replicas")));
  }
  const Duration limit = LimitOf(request);
  const MonotonicTime now = parts_.dispatcher.Now();
  TryLoad({request, std::move(stream), now + limit, now + limit * 3 / 4, false, false});
}

absl::Status ClusterService::CheckNotStopped() const {
  const DesiredState& desired = parts_.replicator.desired();
  if (desired.pause() == nullptr || !desired.pause()->stopped()) return absl::OkStatus();
  return ReasonStatus(absl::StatusCode::kFailedPrecondition, *PausedReason(desired));
}

// Of what is served already only what the order names changes; true: it is to be planned so.
bool ClusterService::KeepOptions(const std::string& name, v1::LoadModelRequest& request) const {
  const v1::PlacementOptions kept =
      WithKeptOptions(request.placement(), parts_.replicator.desired().FindDeployment(name));
  if (kept.SerializeAsString() == request.placement().SerializeAsString()) return false;
  *request.mutable_placement() = kept;
  return true;
}

void ClusterService::TryLoad(LoadAttempt attempt) {
  const MonotonicTime begun = parts_.dispatcher.Now();
  if (!parts_.election.Leading(begun).has_value()) {
    return attempt.stream.Finish(CoordinatorWay::NoCoordinator());
  }
  if (const absl::Status stopped = CheckNotStopped(); !stopped.ok()) {
    return attempt.stream.Finish(stopped);
  }
  const bool may_unload = attempt.request.unload_unused() && unused_;
  PlanOrder order =
      OrderFor(attempt.request.name_or_path(),
               attempt.request.keeps_others() ? &attempt.request.placement().tenant() : nullptr);
  order.placement = attempt.request.placement();
  order.priority = attempt.request.priority();
  order.may_evict = attempt.request.may_evict();
  // What models held that are going is not free yet: others need not go for it.
  if (may_unload && begun >= freed_until_) {
    order.unused = unused_(attempt.asks_if_ever ? Duration(0) : kUnusedMin);
  }
  order.replicas = attempt.request.replicas();
  order.in_force = parts_.gang_controller.InForce();
  order.may_reuse_answers = attempt.is_repeated;
  attempt.is_repeated = true;
  parts_.planner.Plan(order, [this, attempt = std::move(attempt), may_unload,
                              unused = order.unused](absl::StatusOr<PlanOutcome> outcome) mutable {
    if (!outcome.ok()) return attempt.stream.Finish(outcome.status());
    const std::string name = DeploymentNameOf(attempt.request, outcome->model);
    if (IsOthers(attempt.request, name)) return RefuseOthers(attempt);
    if (KeepOptions(name, attempt.request)) return TryLoad(std::move(attempt));
    const MonotonicTime now = parts_.dispatcher.Now();
    const std::vector<std::string> go = UnusedToUnload(outcome->result, unused);
    UnusedQuestion question;
    question.may_unload = may_unload;
    question.is_wanted = parts_.replicator.desired().FindDeployment(name) != nullptr;
    question.is_short = outcome->result.failure().code() == reasons::kMemoryShort;
    question.frees_some = !go.empty();
    question.asked_if_ever = attempt.asks_if_ever;
    question.is_being_freed = now < freed_until_;
    question.may_wait = now < attempt.waits_until;
    LoadAttempt next = attempt;
    next.asks_if_ever = question.is_short;
    switch (NextStep(question)) {
      case UnusedStep::kLoad:
        return LoadPlanned(attempt, *outcome);
      case UnusedStep::kPlanAgain:
        return TryLoadAfter(kFreedPause, attempt);
      case UnusedStep::kPlanIfEver:
        return TryLoad(std::move(next));
      case UnusedStep::kAwait:
        return AwaitUnused(std::move(next), go);
      case UnusedStep::kUnload:
        break;
    }
    const std::string why = absl::StrCat(absl::StrJoin(go, ", "), " is unloaded for it");
    if (!WriteWaiting(attempt, why)) return;
    UnloadFor(name, go, [this, next](const absl::Status& gone) {
      if (!gone.ok()) return next.stream.Finish(gone);
      TryLoad(next);
    });
  });
}

void ClusterService::TryLoadAfter(Duration pause, LoadAttempt attempt) {
  parts_.dispatcher.PostAfter(pause, [this, attempt = std::move(attempt)] { TryLoad(attempt); });
}

// It fits when models have gone that are in use, or were a moment ago.
void ClusterService::AwaitUnused(LoadAttempt attempt, const std::vector<std::string>& in_use) {
  const std::string why = absl::StrCat("it fits when nobody uses ", absl::StrJoin(in_use, ", "),
                                       " any more, and waits for that");
  if (WriteWaiting(attempt, why)) TryLoadAfter(kUsedPause, std::move(attempt));
}

bool ClusterService::WriteWaiting(const LoadAttempt& attempt, const std::string& why) {
  v1::LoadModelProgress progress;
  v1::DeploymentStatus& status = *progress.mutable_status();
  status.mutable_deployment()->set_name(attempt.request.name_or_path());
  status.set_state(v1::DEPLOYMENT_STATE_PENDING);
  *status.mutable_failure() = MakeReason(reasons::kMemoryShort, why);
  return attempt.stream.Write(progress);
}

void ClusterService::UnloadFor(const std::string& name, std::vector<std::string> names,
                               std::function<void(const absl::Status&)> done) {
  if (names.empty()) return done(absl::OkStatus());
  const std::string next = std::move(names.back());
  names.pop_back();
  // Somebody may have come to use it since.
  const std::vector<std::string> unused = unused_(kUnusedMin);
  if (std::find(unused.begin(), unused.end(), next) == unused.end()) return done(absl::OkStatus());
  spdlog::info("model {} is unloaded: nobody uses it, and {} needs its memory", next, name);
  freed_until_ = parts_.dispatcher.Now() + kUnloadGoneLimit + kFreedSeenLimit;
  UnloadHere(next, [this, name, names = std::move(names),
                    done = std::move(done)](const absl::StatusOr<v1::UnloadModelResponse>& gone) {
    freed_until_ = parts_.dispatcher.Now() + kFreedSeenLimit;
    // One that somebody else has unloaded meanwhile is gone as well.
    if (!gone.ok() && !absl::IsNotFound(gone.status())) return done(gone.status());
    UnloadFor(name, names, done);
  });
}

// What is served under this name may lie outside of all model folders: loaded by its path.
PlanOrder ClusterService::OrderFor(const std::string& name, const std::string* tenant) const {
  PlanOrder order;
  order.name_or_path = name;
  const v1::Deployment* present = parts_.replicator.desired().FindDeployment(name);
  if (present == nullptr || (tenant != nullptr && IsOfAnother(*present, *tenant))) return order;
  if (!present->model_path().empty()) order.name_or_path = present->model_path();
  order.fingerprint = present->model_fingerprint();
  return order;
}

// Replicas of what others have and of what is not there are one: no name of a deployment.
bool ClusterService::IsOthers(const v1::LoadModelRequest& request, const std::string& name) const {
  if (!request.keeps_others()) return false;
  const std::string deployment = DeploymentOfReplica(name);
  const v1::Deployment* present = parts_.replicator.desired().FindDeployment(deployment);
  if (present == nullptr) return deployment != name;
  return IsOfAnother(*present, request.placement().tenant());
}

// Some node has files of that name, or its plan would have ended the order: they are asked for what
// none has, and their words are told of the name that was asked for.
void ClusterService::RefuseOthers(const LoadAttempt& attempt) {
  PlanOrder order;
  order.name_or_path = kNoModel;
  order.placement = attempt.request.placement();
  parts_.planner.Plan(order, [stream = attempt.stream, asked = attempt.request.name_or_path()](
                                 const absl::StatusOr<PlanOutcome>& outcome) {
    const std::string none = absl::StrCat("'", kNoModel, "'");
    const absl::Status missing =
        outcome.ok() ? ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                                    absl::StrCat("no model ", none))
                     : outcome.status();
    v1::Reason reason = ReasonOf(missing);
    reason.set_message(
        absl::StrReplaceAll(reason.message(), {{none, absl::StrCat("'", asked, "'")}}));
    stream.Finish(ReasonStatus(missing.code(), reason));
  });
}

// Its model's own fault ended its launches, and it is not launched again by itself.
bool ClusterService::HasGivenUp(const std::string& name) const {
  const std::optional<v1::DeploymentStatus> status = parts_.gang_controller.Status(name);
  return status.has_value() && status->state() == v1::DEPLOYMENT_STATE_PENDING &&
         IsFaultOfModel(status->failure().code());
}

void ClusterService::LoadPlanned(const LoadAttempt& attempt, const PlanOutcome& outcome) {
  // It may have been stopped while nodes were asked, or models waited for.
  if (const absl::Status stopped = CheckNotStopped(); !stopped.ok()) {
    return attempt.stream.Finish(stopped);
  }
  const v1::LoadModelRequest& request = attempt.request;
  const ServerStream& stream = attempt.stream;
  const std::string name = DeploymentNameOf(request, outcome.model);
  const DesiredState& desired = parts_.replicator.desired();
  const PlannedLoad load{request,
                         name,
                         OrderFor(request.name_or_path()).name_or_path,
                         outcome.model,
                         outcome.result,
                         outcome.usable,
                         desired.FindDeployment(name),
                         desired.FindGang(name),
                         HasGivenUp(name),
                         parts_.gang_controller.InForce(),
                         parts_.dispatcher.UnixMs()};
  ClusterView state;
  FillFromState(desired, state);
  const LoadDecision decision = DecideLoad(load, state);
  if (!decision.refused.ok()) return stream.Finish(decision.refused);
  const auto watch = [this, name, stream, epoch = decision.after_epoch,
                      model = outcome.model.name(), until = attempt.until] {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - parts_.dispatcher.Now());
    loads_.Add(stream, name, model, epoch,
               static_cast<uint32_t>(std::max<int64_t>(1, left.count())));
  };
  if (!decision.wanted.has_value()) return watch();
  parts_.replicator.Write(DeploymentKey(name), decision.wanted->SerializeAsString(),
                          [this, stream, watch](const absl::Status& status) {
                            if (!status.ok()) return stream.Finish(status);
                            parts_.gang_controller.Wake();
                            // Behind the pass that this woke, so that what is told first is not of
                            // the time before.
                            parts_.dispatcher.Post(watch);
                          });
}

void ClusterService::ForgetNode(const Caller& caller, const v1::ForgetNodeRequest& request,
                                Reply<v1::ForgetNodeResponse> reply) {
  const NodeId node(request.node_id());
  if (!IsValidNodeId(request.node_id())) {
    return reply(ReasonStatus(
        absl::StatusCode::kInvalidArgument, reasons::kNodeNotFound,
        absl::StrCat("'", request.node_id().substr(0, 64), "' is no node id of 32 hex digits")));
  }
  const bool obeys = parts_.election.Coordinator(parts_.dispatcher.Now()).has_value();
  if (request.alone() && !obeys && caller.IsPerson()) {
    return reply(parts_.member_writer.ForgetAlone(node));
  }
  way_.Unary(kForgetNode, caller, request, kUnloadTimeout, reply,
             [this, node, reply] { ForgetHere(node, reply); });
}

// What was said of it goes with it: nobody could name the node to take it back.
void ClusterService::ForgetHere(const NodeId& node, Reply<v1::ForgetNodeResponse> reply) {
  parts_.member_writer.Forget(node, [this, node,
                                     reply](absl::StatusOr<v1::ForgetNodeResponse> response) {
    const DesiredState& desired = parts_.replicator.desired();
    const auto remove = [&](absl::string_view prefix, bool is_there) {
      if (!response.ok() || !is_there) return;
      parts_.replicator.Remove(absl::StrCat(prefix, node.value()), "", [](const absl::Status&) {});
    };
    remove(kCordonPrefix, desired.FindCordon(node.value()) != nullptr);
    remove(kMarksPrefix, desired.FindMarks(node.value()) != nullptr);
    reply(std::move(response));
  });
}

// What is so already is not written again: an order may be repeated.
void ClusterService::SetCordonHere(const v1::SetCordonRequest& request,
                                   Reply<v1::SetCordonResponse> reply) {
  const v1::Cordon* present = parts_.replicator.desired().FindCordon(request.node_id());
  if (present == nullptr && !parts_.reporter.Knows(NodeId(request.node_id()))) {
    return reply(NoSuchNode(request.node_id()));
  }
  const std::optional<CordonChange> change =
      DecideCordon(request, present, parts_.dispatcher.UnixMs());
  if (!change.has_value()) {
    return reply(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                              "cordon, drain or uncordon: the request names none of them, or a "
                              "deadline of more than a day"));
  }
  if (!change->response.changed()) return reply(change->response);
  parts_.replicator.Set(absl::StrCat(kCordonPrefix, request.node_id()), change->value,
                        AnswerWhenWritten(reply, change->response));
}

void ClusterService::MarkNodeHere(const v1::MarkNodeRequest& request,
                                  Reply<v1::MarkNodeResponse> reply) {
  const v1::NodeMarks* present = parts_.replicator.desired().FindMarks(request.node_id());
  if (present == nullptr && !parts_.reporter.Knows(NodeId(request.node_id()))) {
    return reply(NoSuchNode(request.node_id()));
  }
  const absl::StatusOr<MarksChange> change = DecideMarks(request, present);
  if (!change.ok()) return reply(change.status());
  if (!change->response.changed()) return reply(change->response);
  parts_.replicator.Set(absl::StrCat(kMarksPrefix, request.node_id()), change->value,
                        AnswerWhenWritten(reply, change->response));
}

// To load it, as the reason's own remedy says, is not what was meant.
absl::Status ClusterService::NothingToUnload(const std::string& name) const {
  constexpr size_t kNamesMax = 16;
  ClusterView state;
  FillFromState(parts_.replicator.desired(), state);
  std::set<std::string> names;
  for (const v1::Deployment& deployment : state.deployments) {
    // Which models other tenants have is their own affair.
    if (deployment.placement().tenant().empty()) {
      names.insert(DeploymentOfReplica(deployment.name()));
    }
  }
  std::vector<std::string> served(names.begin(), names.end());
  const size_t more = served.size() > kNamesMax ? served.size() - kNamesMax : 0;
  served.resize(served.size() - more);
  v1::Reason reason = MakeReason(
      reasons::kModelNotLoaded,
      absl::StrCat("no model is served as '", name,
                   "'; served are: ", served.empty() ? "none" : absl::StrJoin(served, ", "),
                   more == 0 ? "" : absl::StrCat(", and ", more, " more")));
  reason.set_remedy(served.empty()
                        ? "nothing is left to unload"
                        : "give one of these names: 'clusterctl ps' shows what each one holds");
  return ReasonStatus(absl::StatusCode::kNotFound, reason);
}

void ClusterService::UnloadHere(const std::string& name, Reply<v1::UnloadModelResponse> reply) {
  if (parts_.replicator.desired().stopped().contains(name)) {
    // It is not loaded, and is not to be when the cluster is started.
    return parts_.replicator.Remove(absl::StrCat(kStoppedPrefix, name), "",
                                    AnswerWhenWritten(reply, v1::UnloadModelResponse()));
  }
  if (parts_.replicator.table().Find(DeploymentKey(name)) == nullptr) {
    return reply(NothingToUnload(name.substr(0, kDeploymentNameBytesMax)));
  }
  parts_.replicator.Remove(DeploymentKey(name), "",
                           [this, name, reply](const absl::Status& status) {
                             if (!status.ok()) return reply(status);
                             parts_.gang_controller.Wake();
                             AnswerWhenGone(name, parts_.dispatcher.Now(), reply);
                           });
}

void ClusterService::AnswerWhenGone(const std::string& name, MonotonicTime since,
                                    Reply<v1::UnloadModelResponse> reply) {
  bool gone = true;
  for (uint32_t index = 0; index < kReplicasMax; ++index) {
    const std::string key = GangKey(ReplicaName(name, index));
    gone = gone && parts_.replicator.table().Find(key) == nullptr;
  }
  // The order is on disk; ranks that take longer to end are ended all the same.
  if (gone || parts_.dispatcher.Now() - since > kUnloadGoneLimit) {
    return reply(v1::UnloadModelResponse());
  }
  parts_.dispatcher.PostAfter(kPollInterval,
                              [this, name, since, reply] { AnswerWhenGone(name, since, reply); });
}

}  // namespace macrame::agentd
