#include "runtime/supervisor/process_supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/memory_need.h"
#include "proto/reasons.h"
#include "runtime/supervisor/memory_admission.h"
#include "runtime/supervisor/port_reservation.h"
#include "runtime/supervisor/process_identity.h"
#include "runtime/supervisor/run_files.h"
#include "runtime/supervisor/supervised_rank.h"
#include "transport/program_path.h"

namespace macrame::runtime {
namespace {

constexpr Duration kLeftoverGrace = std::chrono::seconds(2);
constexpr uint32_t kHoldMsMax = 10 * 60 * 1000;
// A broken stream is often the first sign of a rank's death; why it died is known a moment later.
constexpr Duration kExitNewsLimit = std::chrono::seconds(1);

bool HasReason(const absl::Status& status) {
  return status.GetPayload({kReasonPayloadUrl.data(), kReasonPayloadUrl.size()}).has_value();
}

}  // namespace

class ProcessSupervisor::Impl {
 public:
  Impl(SupervisorOptions options, transport::Dispatcher* dispatcher)
      : options_(std::move(options)), dispatcher_(dispatcher), files_(options_.state_folder) {}
  FastSynch metal_fast_synch() const { return options_.metal_fast_synch; }
  void SetPython(std::string python) { options_.python = std::move(python); }
  ~Impl() {
    *alive_ = false;
    ranks_.clear();
  }

  absl::Status Start();
  absl::StatusOr<v1::ReserveResponse> Reserve(const v1::ReserveRequest& request,
                                              const std::string& local_ip,
                                              const NodeMemory& memory);
  absl::StatusOr<v1::LaunchResponse> Launch(const v1::LaunchSpec& spec);
  uint32_t StopRanks(const std::string& deployment, uint64_t up_to_epoch, const std::string& why,
                     bool at_once, uint64_t from_epoch);
  std::vector<v1::RankStatus> Statuses() const;
  Bytes ReservedBytes() const;
  Bytes AwaitedBytes() const;
  GenerateId Generate(const v1::GenerateRequest& request, ChunkCallback on_chunk,
                      DoneCallback on_done);
  void VerifyGroup(const std::string& deployment, const v1::VerifyGroupRequest& request,
                   std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done);
  void TraceRanks(const v1::TraceRankRequest& request,
                  std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done);
  void CancelGenerate(GenerateId id);
  void ShutDown(std::function<void()> done);

  size_t generations() const { return generations_.size(); }

  std::function<void()> on_change = [] {};

 private:
  // A request or a verification at an entry rank.
  struct Generation {
    RankKey rank;
    DoneCallback done;
    transport::CallHandle call;
  };
  struct Ended {
    v1::RankStatus status;
    MonotonicTime when;
  };

  void EndLeftovers();
  absl::Status CheckRoom(const v1::ReserveRequest& request, const RankKey& key,
                         const NodeMemory& memory) const;
  void Gone(const RankKey& key);
  // Of all requests at that rank.
  void CutOff(const RankKey& key, const v1::Reason& why);
  // What the rank, or the way to it, says of the end.
  void EndCall(GenerateId id, const absl::Status& status);
  void FinishGeneration(GenerateId id, const absl::Status& status);
  void FinishShutDown();
  SupervisedRank* EntryRank(const v1::GenerateRequest& request, RankKey* key,
                            absl::Status* why_not);
  void After(Duration delay, std::function<void()> task) {
    dispatcher_->PostAfter(delay, [alive = alive_, task = std::move(task)] {
      if (*alive) task();
    });
  }

  SupervisorOptions options_;
  transport::Dispatcher* const dispatcher_;
  RunFiles files_;
  std::string rankd_path_;                                    // empty: there is none
  std::map<RankKey, std::shared_ptr<SupervisedRank>> ranks_;  // no other owner
  std::deque<Ended> ended_;
  std::map<GenerateId, Generation> generations_;
  GenerateId last_generation_ = 0;
  uint64_t last_serial_ = 0;
  bool shutting_down_ = false;
  std::function<void()> shut_down_done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

absl::Status ProcessSupervisor::Impl::Start() {
  if (auto prepared = files_.Prepare(); !prepared.ok()) return prepared;
  EndLeftovers();
  const std::string path =
      options_.rankd_path.empty() ? RankdBesideThisProgram() : options_.rankd_path;
  if (access(path.c_str(), X_OK) != 0) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kEngineMissing,
                        absl::StrCat("there is no rankd at ", path), options_.node_id);
  }
  rankd_path_ = path;
  return absl::OkStatus();
}

// Their stdin ended with the agent that started them, so most are gone or going; these are asked,
// then made to.
void ProcessSupervisor::Impl::EndLeftovers() {
  for (const RunNote& note : files_.TakeLeftovers()) {
    const auto still_there = [note] {
      return note.pid > 1 && !note.identity.empty() && ProcessIdentity(note.pid) == note.identity;
    };
    if (!still_there()) continue;
    kill(-note.pid, SIGTERM);
    After(kLeftoverGrace, [note, still_there] {
      if (still_there()) kill(-note.pid, SIGKILL);
    });
  }
}

absl::Status ProcessSupervisor::Impl::CheckRoom(const v1::ReserveRequest& request,
                                                const RankKey& key,
                                                const NodeMemory& memory) const {
  if (shutting_down_) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNodeLeft,
                        "this agent is shutting down", options_.node_id);
  }
  if (rankd_path_.empty()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kEngineMissing,
                        "this node has no rankd", options_.node_id);
  }
  std::vector<AdmittedRank> admitted;
  for (const auto& [other, rank] : ranks_) {
    if (other != key) admitted.push_back(rank->memory());
  }
  if (admitted.size() >= options_.ranks_max) {
    return ReasonStatus(
        absl::StatusCode::kResourceExhausted, reasons::kMemoryShort,
        absl::StrCat("this node has ", admitted.size(), " ranks, as many as may be"),
        options_.node_id);
  }
  const v1::Assignment& part = request.assignment();
  const absl::Status wired =
      AdmitWired({request.deployment(), part.hostname(), options_.node_id, WiredBytes(part.need())},
                 admitted, memory);
  if (!wired.ok()) return wired;
  return AdmitMemory(Bytes(part.need().total_bytes()), admitted, memory, options_.node_id);
}

absl::StatusOr<v1::ReserveResponse> ProcessSupervisor::Impl::Reserve(
    const v1::ReserveRequest& request, const std::string& local_ip, const NodeMemory& memory) {
  const RankKey key{request.deployment(), request.epoch(), request.assignment().rank()};
  const auto known = ranks_.find(key);
  if (known != ranks_.end() && known->second->running()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kSnapshotStale,
                        "this rank runs already", options_.node_id);
  }
  if (auto room = CheckRoom(request, key, memory); !room.ok()) return room;
  auto ring = PortReservation::Bind(local_ip);
  if (!ring.ok()) return ring.status();
  PortReservation step;
  if (key.rank == 0) {
    auto bound = PortReservation::Bind(local_ip);
    if (!bound.ok()) return bound.status();
    step = *std::move(bound);
  }
  SupervisedRank::Events events;
  events.changed = [this] { on_change(); };
  events.died = [this, key](const v1::Reason& why) { CutOff(key, why); };
  events.gone = [this, key] { Gone(key); };
  auto rank = std::make_shared<SupervisedRank>(options_, dispatcher_, request, *std::move(ring),
                                               std::move(step), std::move(events));
  v1::ReserveResponse response;
  response.set_ring_address(rank->ring_address());
  response.set_step_address(rank->step_address());
  response.set_model_path(request.model().path());
  // Weak, not by address: a later reservation may lie where this one did.
  After(std::chrono::milliseconds(std::min(request.hold_ms(), kHoldMsMax)),
        [this, key, made = std::weak_ptr<SupervisedRank>(rank)] {
          const auto found = ranks_.find(key);
          if (found != ranks_.end() && found->second == made.lock() && !found->second->running()) {
            ranks_.erase(found);
          }
        });
  ranks_[key] = std::move(rank);
  return response;
}

absl::StatusOr<v1::LaunchResponse> ProcessSupervisor::Impl::Launch(const v1::LaunchSpec& spec) {
  const RankKey key{spec.deployment(), spec.epoch(), spec.rank()};
  const auto found = ranks_.find(key);
  if (found == ranks_.end()) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kReservationLapsed,
                        absl::StrCat("nothing is reserved for rank ", key.rank, " of ",
                                     key.deployment, " (epoch ", key.epoch, ")"),
                        options_.node_id);
  }
  if (!found->second->running()) {
    const absl::Status launched = found->second->Launch(spec, rankd_path_, ++last_serial_);
    if (!launched.ok()) {
      ranks_.erase(found);
      return ReasonStatus(launched.code(), reasons::kRankExited, std::string(launched.message()),
                          options_.node_id);
    }
    dispatcher_->Post([this, alive = alive_] {
      if (*alive) on_change();
    });
  }
  v1::LaunchResponse response;
  response.set_pid(found->second->status().pid());
  return response;
}

uint32_t ProcessSupervisor::Impl::StopRanks(const std::string& deployment, uint64_t up_to_epoch,
                                            const std::string& why, bool at_once,
                                            uint64_t from_epoch) {
  const auto is_meant = [&](const std::string& name, uint64_t epoch) {
    return (deployment.empty() || name == deployment) && epoch >= from_epoch &&
           epoch <= up_to_epoch;
  };
  uint32_t told = 0;
  std::vector<SupervisedRank*> running;
  for (auto it = ranks_.begin(); it != ranks_.end();) {
    if (!is_meant(it->first.deployment, it->first.epoch)) {
      ++it;
    } else if (it->second->running()) {
      running.push_back((it++)->second.get());
    } else {
      it = ranks_.erase(it);
    }
  }
  ended_.erase(std::remove_if(ended_.begin(), ended_.end(),
                              [&](const Ended& ended) {
                                return ended.status.phase() == v1::RANK_PHASE_FAILED &&
                                       is_meant(ended.status.deployment(), ended.status.epoch());
                              }),
               ended_.end());
  for (SupervisedRank* rank : running) {
    rank->End(why, at_once);
    ++told;
  }
  return told;
}

void ProcessSupervisor::Impl::Gone(const RankKey& key) {
  const auto found = ranks_.find(key);
  MACRAME_CHECK(found != ranks_.end()) << "an unknown rank ended";
  const v1::RankStatus status = found->second->status();
  ended_.push_back({status, dispatcher_->Now()});
  if (ended_.size() > options_.ended_statuses_max) ended_.pop_front();
  ranks_.erase(found);
  v1::Reason reason = status.failure();
  if (reason.code().empty()) reason = MakeReason(reasons::kNotReady, "the rank was stopped");
  CutOff(key, reason);
  on_change();
  FinishShutDown();
}

void ProcessSupervisor::Impl::CutOff(const RankKey& key, const v1::Reason& why) {
  std::vector<GenerateId> cut_off;
  for (const auto& [id, generation] : generations_) {
    if (generation.rank == key) cut_off.push_back(id);
  }
  for (GenerateId id : cut_off) {
    FinishGeneration(id, ReasonStatus(absl::StatusCode::kUnavailable, why));
  }
}

std::vector<v1::RankStatus> ProcessSupervisor::Impl::Statuses() const {
  std::vector<v1::RankStatus> statuses;
  for (const auto& [key, rank] : ranks_) {
    if (rank->running()) statuses.push_back(rank->status());
  }
  const MonotonicTime now = dispatcher_->Now();
  for (const Ended& ended : ended_) {
    const bool stopped = ended.status.phase() == v1::RANK_PHASE_STOPPED;
    if (!stopped || now - ended.when <= options_.stopped_status_kept) {
      statuses.push_back(ended.status);
    }
  }
  return statuses;
}

Bytes ProcessSupervisor::Impl::ReservedBytes() const {
  Bytes total;
  for (const auto& [key, rank] : ranks_) total += rank->memory().need;
  return total;
}

Bytes ProcessSupervisor::Impl::AwaitedBytes() const {
  Bytes total;
  for (const auto& [key, rank] : ranks_) total += rank->memory().need - rank->memory().resident;
  return total;
}

SupervisedRank* ProcessSupervisor::Impl::EntryRank(const v1::GenerateRequest& request, RankKey* key,
                                                   absl::Status* why_not) {
  SupervisedRank* best = nullptr;
  bool known = false;
  for (const auto& [other, rank] : ranks_) {  // by rising epoch
    if (other.deployment != request.deployment() || other.rank != 0) continue;
    if (request.epoch() != 0 && other.epoch != request.epoch()) continue;
    known = true;
    if (rank->serves() && rank->status().phase() == v1::RANK_PHASE_READY) {
      best = rank.get();
      *key = other;
    }
  }
  if (best == nullptr) {
    *why_not = known ? ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                                    absl::StrCat(request.deployment(), " is not ready yet"))
                     : ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
                                    absl::StrCat("no entry rank of ", request.deployment(),
                                                 " is on this node"),
                                    options_.node_id);
  }
  return best;
}

ProcessSupervisor::GenerateId ProcessSupervisor::Impl::Generate(const v1::GenerateRequest& request,
                                                                ChunkCallback on_chunk,
                                                                DoneCallback on_done) {
  const GenerateId id = ++last_generation_;
  Generation& generation = generations_[id];
  generation.done = std::move(on_done);
  absl::Status why_not;
  SupervisedRank* entry = EntryRank(request, &generation.rank, &why_not);
  if (entry == nullptr) {
    dispatcher_->Post([this, alive = alive_, id, why_not] {
      if (*alive) FinishGeneration(id, why_not);
    });
    return id;
  }
  generation.call = entry->Generate(
      request,
      [on_chunk = std::move(on_chunk)](const v1::GenerateChunk& chunk) { on_chunk(chunk); },
      [this, id](const absl::Status& status) { EndCall(id, status); });
  return id;
}

void ProcessSupervisor::Impl::EndCall(GenerateId id, const absl::Status& status) {
  if (!absl::IsUnavailable(status) || HasReason(status)) return FinishGeneration(id, status);
  After(kExitNewsLimit, [this, id, status] { FinishGeneration(id, status); });  // Gone first
}

void ProcessSupervisor::Impl::FinishGeneration(GenerateId id, const absl::Status& status) {
  auto node = generations_.extract(id);
  if (!node.empty()) node.mapped().done(status);
}

void ProcessSupervisor::Impl::VerifyGroup(
    const std::string& deployment, const v1::VerifyGroupRequest& request,
    std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) {
  v1::GenerateRequest asked;
  asked.set_deployment(deployment);
  RankKey key;
  absl::Status why_not;
  SupervisedRank* entry = EntryRank(asked, &key, &why_not);
  if (entry == nullptr) return done(why_not);
  // Like a request, it ends with the reason when its rank ends.
  const GenerateId id = ++last_generation_;
  generations_[id] = {key, [done](const absl::Status& why) { done(why); }, {}};
  entry->VerifyGroup(request, [this, id, done](absl::StatusOr<v1::VerifyGroupResponse> response) {
    if (!response.ok()) return EndCall(id, response.status());
    if (generations_.erase(id) > 0) done(std::move(response));
  });
}

void ProcessSupervisor::Impl::TraceRanks(
    const v1::TraceRankRequest& request,
    std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) {
  struct Gathering {
    v1::TraceRankResponse response;
    absl::Status failure;
    size_t awaited = 1;  // the one that began it
    std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done;
    void Add(const absl::StatusOr<v1::TraceRankResponse>& answer) {
      if (answer.ok()) {
        response.mutable_ranks()->MergeFrom(answer->ranks());
      } else {
        failure = answer.status();
      }
      if (--awaited > 0) return;
      if (response.ranks().empty()) return done(failure);
      done(std::move(response));
    }
  };
  auto gathering = std::make_shared<Gathering>();
  gathering->done = std::move(done);
  for (const auto& [key, rank] : ranks_) {
    const bool is_ready = rank->serves() && rank->status().phase() == v1::RANK_PHASE_READY;
    if (key.deployment != request.deployment() || !is_ready) continue;
    ++gathering->awaited;
    rank->Trace(request, [gathering](absl::StatusOr<v1::TraceRankResponse> answer) {
      gathering->Add(answer);
    });
  }
  gathering->Add(
      ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                   absl::StrCat("no rank of ", request.deployment(), " on this node is ready"),
                   options_.node_id));
}

void ProcessSupervisor::Impl::CancelGenerate(GenerateId id) {
  const auto found = generations_.find(id);
  if (found != generations_.end()) found->second.call.Cancel();
}

void ProcessSupervisor::Impl::ShutDown(std::function<void()> done) {
  shutting_down_ = true;
  shut_down_done_ = std::move(done);
  StopRanks("", std::numeric_limits<uint64_t>::max(), "the agent is shutting down",
            /*at_once=*/false, /*from_epoch=*/0);
  dispatcher_->Post([this, alive = alive_] {
    if (*alive) FinishShutDown();
  });
}

void ProcessSupervisor::Impl::FinishShutDown() {
  if (!shutting_down_ || !ranks_.empty() || !shut_down_done_) return;
  const auto done = std::exchange(shut_down_done_, nullptr);
  done();
}

std::string RankdBesideThisProgram() { return transport::ProgramBesideThis("rankd"); }

ProcessSupervisor::ProcessSupervisor(SupervisorOptions options, transport::Dispatcher* dispatcher)
    : impl_(std::make_unique<Impl>(std::move(options), dispatcher)) {}
ProcessSupervisor::~ProcessSupervisor() = default;
absl::Status ProcessSupervisor::Start() { return impl_->Start(); }
void ProcessSupervisor::SetPython(std::string python) { impl_->SetPython(std::move(python)); }
FastSynch ProcessSupervisor::metal_fast_synch() const { return impl_->metal_fast_synch(); }
absl::StatusOr<v1::ReserveResponse> ProcessSupervisor::Reserve(const v1::ReserveRequest& request,
                                                               const std::string& local_ip,
                                                               const NodeMemory& memory) {
  return impl_->Reserve(request, local_ip, memory);
}
absl::StatusOr<v1::LaunchResponse> ProcessSupervisor::Launch(const v1::LaunchSpec& spec) {
  return impl_->Launch(spec);
}
uint32_t ProcessSupervisor::StopRanks(const std::string& deployment, uint64_t up_to_epoch,
                                      const std::string& why, bool at_once, uint64_t from_epoch) {
  return impl_->StopRanks(deployment, up_to_epoch, why, at_once, from_epoch);
}
std::vector<v1::RankStatus> ProcessSupervisor::Statuses() const { return impl_->Statuses(); }
void ProcessSupervisor::OnChange(std::function<void()> callback) {
  impl_->on_change = std::move(callback);
}
Bytes ProcessSupervisor::ReservedBytes() const { return impl_->ReservedBytes(); }
Bytes ProcessSupervisor::AwaitedBytes() const { return impl_->AwaitedBytes(); }
ProcessSupervisor::GenerateId ProcessSupervisor::Generate(const v1::GenerateRequest& request,
                                                          ChunkCallback on_chunk,
                                                          DoneCallback on_done) {
  return impl_->Generate(request, std::move(on_chunk), std::move(on_done));
}
void ProcessSupervisor::VerifyGroup(
    const std::string& deployment, const v1::VerifyGroupRequest& request,
    std::function<void(absl::StatusOr<v1::VerifyGroupResponse>)> done) {
  impl_->VerifyGroup(deployment, request, std::move(done));
}

void ProcessSupervisor::TraceRanks(
    const v1::TraceRankRequest& request,
    std::function<void(absl::StatusOr<v1::TraceRankResponse>)> done) {
  impl_->TraceRanks(request, std::move(done));
}
size_t ProcessSupervisor::generations() const { return impl_->generations(); }
void ProcessSupervisor::CancelGenerate(GenerateId id) { impl_->CancelGenerate(id); }
void ProcessSupervisor::ShutDown(std::function<void()> done) { impl_->ShutDown(std::move(done)); }

}  // namespace macrame::runtime
