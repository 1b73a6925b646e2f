#include "agentd/generate_router.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "agentd/cores/gang_reconciler.h"
#include "agentd/rpc_methods.h"
#include "proto/reasons.h"
#include "proto/replicas.h"

namespace macrame::agentd {
namespace {

constexpr absl::string_view kDeploymentPrefix = "deployment/";
// Counts of more replicas than this are forgotten when they are 0.
constexpr size_t kReplicasCountedMax = 1024;

// A failure of the way there, not of the model.
absl::Status Unreachable(const absl::Status& status, const NodeId& entry) {
  const bool has_reason = ReasonOf(status).code() != "INTERNAL";
  if (has_reason || !(absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status))) {
    return status;
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, "ENTRY_UNREACHABLE",
                      absl::StrCat("node ", ShortId(entry), " does not answer: ", status.message()),
                      entry.value());
}

}  // namespace

bool IsWorthAnotherTry(const absl::Status& status) {
  const std::string code = ReasonOf(status).code();
  return code == "NOT_READY" || code == "ENTRY_UNREACHABLE" || code == "MODEL_NOT_LOADED";
}

// One request on its way: asks again, where the record then says, until a first chunk came, the
// failure is of another kind or kEntryWaitMax is over. Owner thread, but for Cancel.
class GenerateRouter::RoutedCall : public std::enable_shared_from_this<RoutedCall> {
 public:
  RoutedCall(GenerateRouter& router, v1::GenerateRequest request, ChunkCallback on_chunk,
             DoneCallback on_done)
      : router_(router),
        request_(std::move(request)),
        deployment_(request_.deployment()),
        on_chunk_(std::move(on_chunk)),
        on_done_(std::move(on_done)),
        give_up_(router.dispatcher_.Now() + kEntryWaitMax) {}

  // Any thread.
  void Cancel() {
    router_.dispatcher_.Post([self = shared_from_this()] {
      self->cancelled_ = true;
      self->attempt_.Cancel();
    });
  }

  void Try() {
    if (cancelled_) return on_done_(absl::CancelledError("cancelled before it began"));
    const absl::StatusOr<Entry> entry = router_.FindEntry(deployment_);
    if (!entry.ok()) {
      if (absl::IsNotFound(entry.status())) return on_done_(entry.status());
      return Ended(entry.status());
    }
    replica_ = entry->replica;
    request_.set_deployment(replica_);
    Sent& sent = router_.sent_[replica_];
    ++sent.under_way;
    sent.last = ++router_.requests_sent_;
    attempt_ = router_.RouteOnce(
        entry->node, request_,
        [self = shared_from_this()](const v1::GenerateChunk& chunk) {
          self->has_answered_ = true;
          self->on_chunk_(chunk);
        },
        [self = shared_from_this()](const absl::Status& status) {
          self->TakeBack(status);
          self->Ended(status);
        });
  }

 private:
  void TakeBack(const absl::Status& status) {
    Sent& sent = router_.sent_[replica_];
    --sent.under_way;
    sent.failed_at.reset();
    if (!status.ok() && IsWorthAnotherTry(status)) sent.failed_at = router_.dispatcher_.Now();
    if (sent.under_way == 0 && router_.sent_.size() > kReplicasCountedMax) {
      router_.sent_.erase(replica_);
    }
  }

  void Ended(const absl::Status& status) {
    const bool again = !status.ok() && !has_answered_ && !cancelled_ && IsWorthAnotherTry(status) &&
                       router_.dispatcher_.Now() < give_up_;
    if (!again) return on_done_(status);
    const absl::StatusOr<Entry> other = router_.FindEntry(deployment_);
    const bool at_once = other.ok() && !other->failed_lately;
    router_.dispatcher_.PostAfter(at_once ? Duration(0) : kEntryRetryPause,
                                  [self = shared_from_this()] { self->Try(); });
  }

  GenerateRouter& router_;
  v1::GenerateRequest request_;
  const std::string deployment_;
  const ChunkCallback on_chunk_;
  const DoneCallback on_done_;
  const MonotonicTime give_up_;
  bool has_answered_ = false;
  bool cancelled_ = false;
  transport::CallHandle attempt_;
  std::string replica_;  // of the present attempt
};

// A request of the gateway: started, cancelled and ended on the owner thread, whatever thread asks.
class GenerateRouter::GatewayCall : public GenerateCall,
                                    public std::enable_shared_from_this<GatewayCall> {
 public:
  explicit GatewayCall(transport::Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  void Cancel() override {
    dispatcher_.Post([self = shared_from_this()] {
      self->cancelled_ = true;
      self->handle_.Cancel();
    });
  }

  // Owner thread from here on.
  void Start(GenerateRouter* router, const v1::GenerateRequest& request, ChunkCallback on_chunk,
             DoneCallback on_done) {
    if (cancelled_) return on_done(absl::CancelledError("cancelled before it began"));
    handle_ = router->Route(request, std::move(on_chunk), std::move(on_done));
  }

 private:
  transport::Dispatcher& dispatcher_;
  bool cancelled_ = false;
  transport::CallHandle handle_;
};

GenerateRouter::GenerateRouter(transport::Dispatcher& dispatcher, NodeId self,
                               const StateReplicator& replicator, PeerChannels& channels,
                               runtime::RankSupervisor& supervisor)
    : dispatcher_(dispatcher),
      self_(std::move(self)),
      replicator_(replicator),
      channels_(channels),
      supervisor_(supervisor) {}

absl::StatusOr<GenerateRouter::Entry> GenerateRouter::FindEntry(const std::string& asked) const {
  const StateTable& table = replicator_.table();
  const std::string deployment = DeploymentOfReplica(asked);
  v1::Deployment wanted;
  const v1::StateEntry* present = table.Find(DeploymentKey(deployment));
  if (present == nullptr || !wanted.ParseFromString(present->value())) {
    std::vector<std::string> names;
    for (const ServedModel& model : served_.Get()) names.push_back(model.id);
    return ReasonStatus(
        absl::StatusCode::kNotFound, "MODEL_NOT_LOADED",
        absl::StrCat("no model '", asked.substr(0, 128), "' is loaded",
                     names.empty() ? "" : absl::StrCat("; loaded: ", absl::StrJoin(names, ", "))));
  }
  std::optional<Entry> best;
  std::tuple<bool, uint32_t, uint64_t> best_rank;
  for (uint32_t index = 0; index < std::clamp(wanted.replicas(), 1u, kReplicasMax); ++index) {
    const std::string replica = ReplicaName(deployment, index);
    if (asked != deployment && asked != replica) continue;
    const v1::StateEntry* entry = table.Find(GangKey(replica));
    v1::GangRecord record;
    if (entry == nullptr || !record.ParseFromString(entry->value()) ||
        record.entry_node_id().empty()) {
      continue;
    }
    const auto sent = sent_.find(replica);
    const Sent known = sent == sent_.end() ? Sent{} : sent->second;
    const bool failed =
        known.failed_at.has_value() && dispatcher_.Now() - *known.failed_at < kFailedReplicaPause;
    const std::tuple rank(failed, known.under_way, known.last);
    if (best.has_value() && rank >= best_rank) continue;
    best = Entry{replica, NodeId(record.entry_node_id()), failed};
    best_rank = rank;
  }
  if (!best.has_value()) {
    return ReasonStatus(absl::StatusCode::kUnavailable, "NOT_READY",
                        absl::StrCat(asked, " is not placed on any node yet"));
  }
  return *std::move(best);
}

transport::CallHandle GenerateRouter::Route(const v1::GenerateRequest& request,
                                            ChunkCallback on_chunk, DoneCallback on_done) {
  auto call = std::make_shared<RoutedCall>(*this, request, std::move(on_chunk), std::move(on_done));
  dispatcher_.Post([call] { call->Try(); });
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
  return channel->Stream<v1::GenerateChunk>(
      kGenerate, request, kGenerateLimit,
      [on_chunk = std::move(on_chunk)](const v1::GenerateChunk& chunk) { on_chunk(chunk); },
      [entry, on_done = std::move(on_done)](const absl::Status& status) {
        on_done(Unreachable(status, entry));
      });
}

void GenerateRouter::Refresh() {
  std::vector<ServedModel> served;
  for (const auto& [key, entry] : replicator_.table().entries()) {
    if (entry.removed() || !absl::StartsWith(key, kDeploymentPrefix)) continue;
    v1::Deployment deployment;
    if (!deployment.ParseFromString(entry.value())) continue;
    ServedModel model;
    model.id = deployment.name();
    model.created_unix_seconds = static_cast<int64_t>(deployment.created_unix_ms() / 1000);
    v1::GangRecord record;
    const v1::StateEntry* gang = replicator_.table().Find(GangKey(deployment.name()));
    if (gang != nullptr && record.ParseFromString(gang->value())) {
      model.context_length = record.plan().context_length();
    }
    served.push_back(std::move(model));
  }
  served_.Set(std::move(served));
}

std::shared_ptr<GenerateCall> GenerateRouter::StartGenerate(v1::GenerateRequest request,
                                                            ChunkCallback on_chunk,
                                                            DoneCallback on_done) {
  auto call = std::make_shared<GatewayCall>(dispatcher_);
  dispatcher_.Post(
      [this, call, request = std::move(request), on_chunk = std::move(on_chunk),
       on_done = std::move(on_done)] { call->Start(this, request, on_chunk, on_done); });
  return call;
}

std::vector<ServedModel> GenerateRouter::ListModels() { return served_.Get(); }

}  // namespace macrame::agentd
