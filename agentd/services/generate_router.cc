#include "agentd/services/generate_router.h"

#include "absl/strings/str_cat.h"
#include "agentd/base/rpc_methods.h"
#include "agentd/cores/cluster_pause.h"
#include "agentd/cores/model_profile.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

// A failure of the way there, not of the model.
absl::Status Unreachable(const absl::Status& status, const NodeId& entry) {
  const bool has_reason = ReasonOf(status).code() != reasons::kInternal;
  if (has_reason || !(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))) {
    return status;
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEntryUnreachable,
                      absl::StrCat("node ", ShortId(entry), " does not answer: ", status.message()),
                      entry.value());
}

}  // namespace

GenerateRouter::GenerateRouter(transport::Dispatcher& dispatcher, NodeId self,
                               const StateReplicator& replicator, PeerChannels& channels,
                               runtime::RankSupervisor& supervisor, Duration moved_on_grace)
    : dispatcher_(dispatcher),
      self_(std::move(self)),
      replicator_(replicator),
      channels_(channels),
      supervisor_(supervisor),
      entries_(dispatcher, replicator.desired()),
      moved_on_grace_(moved_on_grace) {}

std::shared_ptr<RoutedCall> GenerateRouter::Begin(v1::GenerateRequest request,
                                                  ChunkCallback on_chunk, DoneCallback on_done) {
  const uint64_t id = ++last_call_;
  auto call = std::make_shared<RoutedCall>(
      dispatcher_, entries_,
      [this](const NodeId& entry, const v1::GenerateRequest& sent, ChunkCallback chunk,
             DoneCallback done) {
        return RouteOnce(entry, sent, std::move(chunk), std::move(done));
      },
      std::move(request), std::move(on_chunk),
      [this, id, on_done = std::move(on_done)](const absl::Status& status) {
        calls_.erase(id);
        on_done(status);
      },
      moved_on_grace_);
  dispatcher_.Post([this, id, call] {
    if (!ended_.ok()) return call->End(ended_);
    if (const auto paused = PausedReason(replicator_.desired()); paused.has_value()) {
      return call->End(ReasonStatus(absl::StatusCode::kUnavailable, *paused));
    }
    calls_[id] = call;
    call->Start(replicator_.desired().FindProfile(DeploymentOfReplica(call->deployment())));
  });
  return call;
}

transport::CallHandle GenerateRouter::Route(v1::GenerateRequest request, ChunkCallback on_chunk,
                                            DoneCallback on_done) {
  auto call = Begin(std::move(request), std::move(on_chunk), std::move(on_done));
  return transport::CallHandle([call] { call->Cancel(); });
}

transport::CallHandle GenerateRouter::RouteOnce(const NodeId& entry,
                                                const v1::GenerateRequest& request,
                                                ChunkCallback on_chunk, DoneCallback on_done) {
  if (entry == self_) return RouteLocal(request, std::move(on_chunk), std::move(on_done));
  return RouteRemote(entry, request, std::move(on_chunk), std::move(on_done));
}

transport::CallHandle GenerateRouter::RouteLocal(const v1::GenerateRequest& request,
                                                 ChunkCallback on_chunk, DoneCallback on_done) {
  const runtime::RankSupervisor::GenerateId id =
      supervisor_.Generate(request, std::move(on_chunk), std::move(on_done));
  return transport::CallHandle([this, id] { supervisor_.CancelGenerate(id); });
}

transport::CallHandle GenerateRouter::RouteRemote(const NodeId& entry,
                                                  const v1::GenerateRequest& request,
                                                  ChunkCallback on_chunk, DoneCallback on_done) {
  transport::PeerChannel* channel = channels_.For(entry);
  if (channel == nullptr) {
    dispatcher_.Post([entry, on_done = std::move(on_done)] {
      on_done(Unreachable(absl::UnavailableError("this node has left its cluster"), entry));
    });
    return transport::CallHandle();
  }
  return channel->Stream(
      kGenerate, request, kGenerateLimit,
      [on_chunk = std::move(on_chunk)](const v1::GenerateChunk& chunk) { on_chunk(chunk); },
      [entry, on_done = std::move(on_done)](const absl::Status& status) {
        on_done(Unreachable(status, entry));
      },
      transport::HandOver::kChannelThread);
}

void GenerateRouter::Refresh() {
  const DesiredState& desired = replicator_.desired();
  // Of a cluster that is stopped, also what is loaded again when it is started: clients try a 503
  // again, and a 404 never.
  std::map<std::string, v1::Deployment> wanted = desired.deployments();
  if (desired.pause() != nullptr) {
    wanted.insert(desired.stopped().begin(), desired.stopped().end());
  }
  std::vector<ServedModel> served;
  for (const auto& [name, deployment] : wanted) {
    ServedModel model;
    model.id = name;
    model.created_unix_seconds = static_cast<int64_t>(deployment.created_unix_ms() / 1000);
    model.tenant = deployment.placement().tenant();
    model.is_stopped = desired.FindDeployment(name) == nullptr;
    const v1::GangRecord* gang = desired.FindGang(name);
    if (gang != nullptr) {
      model.context_length = gang->plan().context_length();
      for (const v1::Assignment& rank : gang->plan().assignments()) {
        const v1::MemoryNeed& need = rank.need();
        model.weight_bytes += need.weights_bytes() + need.embedding_bytes() + need.head_bytes();
      }
    }
    served.push_back(std::move(model));
  }
  served_.Set(std::move(served));
  aliases_.Set(AliasesOf(desired.profiles()));
  // A call that ends here leaves the map.
  const auto calls = calls_;
  for (const auto& [id, call] : calls) call->NoteStateChanged();
  // Drained is a cluster that no request reaches any more, those that waited among them.
  if (const auto paused = PausedReason(desired); paused.has_value()) {
    const absl::Status why = ReasonStatus(absl::StatusCode::kUnavailable, *paused);
    for (const auto& [id, call] : calls) call->EndUnlessSent(why);
  }
}

void GenerateRouter::NoteDead(const NodeId& node) {
  const auto calls = calls_;
  for (const auto& [id, call] : calls) call->NoteDead(node);
}

void GenerateRouter::EndAll(const absl::Status& why) {
  ended_ = why;
  const auto calls = calls_;
  for (const auto& [id, call] : calls) call->End(why);
}

std::shared_ptr<GenerateCall> GenerateRouter::StartGenerate(v1::GenerateRequest request,
                                                            ChunkCallback on_chunk,
                                                            DoneCallback on_done) {
  return Begin(std::move(request), std::move(on_chunk), std::move(on_done));
}

std::vector<ServedModel> GenerateRouter::ListModels() { return served_.Get(); }

std::map<std::string, std::string> GenerateRouter::Aliases() { return aliases_.Get(); }

}  // namespace macrame::agentd
