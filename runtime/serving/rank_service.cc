#include "runtime/serving/rank_service.h"

#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/rank_methods.h"
#include "proto/reasons.h"
#include "proto/serving_limits.h"
#include "runtime/gang/gang_link.h"
#include "runtime/serving/prompt_parts.h"
#include "runtime/serving/prompt_tokens.h"
#include "runtime/text/cancellation.h"
#include "runtime/watch/trace_ring.h"
#include "transport/memory_release.h"

namespace macrame::runtime::engine {
namespace {

// What costs less than so many tokens is not worth a line in the log.
constexpr size_t kLoggedMissTokens = 512;

uint64_t RandomSeed() {
  uint64_t seed = 0;
  MACRAME_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof(seed)) == 1)
      << "the system gives no random bytes";
  return seed;
}

absl::Status QueueFull(std::string why) {
  return ReasonStatus(absl::StatusCode::kResourceExhausted, reasons::kQueueFull, std::move(why));
}

// On a lane's thread.
absl::Status Prepare(PendingRequest& pending, const ModelText& text, int vocab_size,
                     uint32_t context_length) {
  const text::CancelledBy caller(pending.cancelled);
  pending.local_unix_s = LocalUnixSeconds();
  if (pending.request.has_tokenize()) {
    auto told = TellTokens(pending.request, text, vocab_size, pending.local_unix_s);
    if (!told.ok()) return told.status();
    pending.told = *std::move(told);
    return absl::OkStatus();
  }
  auto job = PrepareJob(pending.request, text, vocab_size, context_length, RandomSeed(),
                        pending.local_unix_s);
  if (!job.ok()) return job.status();
  pending.prompt = job->prompt;
  pending.job = *std::move(job);
  return absl::OkStatus();
}

void LogMiss(const PendingRequest& request, const PrefixMiss& miss,
             const v1::PrefixMiss& explained) {
  const bool was_there = miss.kind == PrefixMiss::Kind::kDiffers ||
                         miss.kind == PrefixMiss::Kind::kEvicted ||
                         miss.kind == PrefixMiss::Kind::kState;
  const size_t lacking = request.prompt.size() - miss.position;
  if (!was_there || lacking < kLoggedMissTokens) return;
  const std::string line = absl::StrCat("rankd: ", lacking, " of ", request.prompt.size(),
                                        " prompt tokens not cached: ", explained.text(), "\n");
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  (void)written;
}

}  // namespace

uint32_t QueuedRequestsMax(const v1::LaunchSpec& spec) {
  return spec.queued_requests_max() == 0 ? kQueuedRequestsDefault : spec.queued_requests_max();
}

RankService::RankService(transport::Dispatcher& dispatcher, const v1::LaunchSpec& spec,
                         std::function<void(std::shared_ptr<PendingRequest>)> submit,
                         std::function<void()> stop)
    : dispatcher_(dispatcher),
      spec_(spec),
      submit_(std::move(submit)),
      stop_(std::move(stop)),
      server_(dispatcher),
      lanes_(dispatcher) {
  status_.set_deployment(spec.deployment());
  status_.set_epoch(spec.epoch());
  status_.set_rank(spec.rank());
  status_.set_engine(spec.model().engine());
  status_.set_node_id(spec.assignment().node_id());
  status_.set_phase(v1::RANK_PHASE_STAGING);
  status_.set_pid(static_cast<uint64_t>(getpid()));
}

absl::Status RankService::Start() {
  server_.HandleStream(kRankWatch,
                       [this](const transport::Caller&, v1::WatchRequest,
                              transport::ServerStream stream) { Watch(std::move(stream)); });
  server_.HandleStream(kRankGenerate, [this](const transport::Caller&, v1::GenerateRequest request,
                                             transport::ServerStream stream) {
    Generate(std::move(request), std::move(stream));
  });
  server_.HandleUnary(kRankStop, [this](const transport::Caller&, v1::StopRequest,
                                        transport::GrpcServer::Reply<v1::StopResponse> reply) {
    reply(v1::StopResponse());
    stop_();
  });
  server_.HandleUnary(kRankVerifyGroup,
                      [this](const transport::Caller&, v1::VerifyGroupRequest request,
                             transport::GrpcServer::Reply<v1::VerifyGroupResponse> reply) {
                        VerifyGroup(std::move(request), std::move(reply));
                      });
  server_.HandleUnary(kRankTrace,
                      [this](const transport::Caller&, v1::TraceRankRequest request,
                             transport::GrpcServer::Reply<v1::TraceRankResponse> reply) {
                        Trace(request, std::move(reply));
                      });
  const absl::Status status = server_.StartUnix(spec_.socket_path());
  if (status.ok()) dispatcher_.PostAfter(kStatusInterval, [this] { Tick(); });
  return status;
}

void RankService::Stop(Duration grace) {
  // Who was told to stop never had a fault; of one that failed a request may be the cause, and is
  // not to be handed from gang to gang.
  const bool has_failed = status_.phase() == v1::RANK_PHASE_FAILED;
  const absl::Status why =
      has_failed ? ReasonStatus(absl::StatusCode::kUnavailable, reasons::kRankExited,
                                absl::StrCat("model ", spec_.deployment(),
                                             " failed: ", status_.failure().message()))
                 : ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                                absl::StrCat("model ", spec_.deployment(), " is stopping"));
  for (const auto& request : requests_) {
    request->cancelled = true;
    request->stream.Finish(why);
  }
  requests_.clear();
  preparing_ = 0;
  for (const auto& verification : std::exchange(verifications_, {})) verification->on_verified(why);
  for (const auto& watcher : watchers_) watcher.Finish(absl::OkStatus());
  watchers_.clear();
  server_.Stop(grace);
}

void RankService::Watch(transport::ServerStream stream) {
  ReadFigures();
  stream.Write(status_);
  watchers_.push_back(std::move(stream));
}

void RankService::Publish() {
  std::erase_if(watchers_, [this](const transport::ServerStream& watcher) {
    if (watcher.Write(status_)) return false;
    watcher.Finish(absl::OkStatus());
    return true;
  });
}

// What is not told at each change.
void RankService::ReadFigures() {
  if (fill_group_) fill_group_(status_);
  if (fill_timings_) fill_timings_(status_);
  if (resident_) status_.set_memory_bytes(resident_());
  if (fill_cold_) fill_cold_(*status_.mutable_kv_cache_disk());
}

void RankService::Tick() {
  const MonotonicTime now = dispatcher_.Now();
  while (!made_.empty() && made_.front().when + kRateWindow < now) made_.pop_front();
  uint64_t tokens = 0;
  for (const Made& made : made_) tokens += made.tokens;
  const double seconds = std::chrono::duration<double>(kRateWindow).count();
  status_.set_tokens_per_second(static_cast<double>(tokens) / seconds);
  ReadFigures();
  Publish();
  dispatcher_.PostAfter(kStatusInterval, [this] { Tick(); });
}

void RankService::SetPhase(v1::RankPhase phase) {
  if (status_.phase() == v1::RANK_PHASE_FAILED) return;
  status_.set_phase(phase);
  if (phase != v1::RANK_PHASE_CONNECTING && phase != v1::RANK_PHASE_FAILED) {
    status_.clear_phase_detail();
  }
  const bool lacks_template =
      text_ != nullptr && !text_->no_template.ok() && text_->embedding.has_head;
  if (phase == v1::RANK_PHASE_READY && lacks_template) {
    status_.set_phase_detail(std::string(kNoChatTemplate));
  }
  if (phase >= v1::RANK_PHASE_WARMING_UP) status_.set_progress(1.0);
  Publish();
}

void RankService::SetConnecting(const std::string& detail) {
  status_.set_phase_detail(detail);
  Publish();
}

void RankService::SetGroup(std::function<void(v1::RankStatus&)> fill) {
  fill_group_ = std::move(fill);
  fill_group_(status_);
  Publish();
}

void RankService::SetMemory(std::function<uint64_t()> resident) { resident_ = std::move(resident); }

void RankService::SetColdFigures(std::function<void(v1::KvCacheDisk&)> fill) {
  fill_cold_ = std::move(fill);
}

void RankService::SetProgress(uint64_t loaded, uint64_t total, uint64_t memory_bytes) {
  status_.set_bytes_loaded(loaded);
  status_.set_bytes_total(total);
  status_.set_memory_bytes(memory_bytes);
  const double progress =
      total == 0 ? 0.0 : static_cast<double>(loaded) / static_cast<double>(total);
  status_.set_progress(progress);
  // A hundred messages tell as much as ten thousand.
  if (progress - told_progress_ < 0.01 && loaded != total && loaded != 0) return;
  told_progress_ = progress;
  Publish();
}

void RankService::SetFailure(const v1::Reason& reason, std::optional<uint32_t> stalled_rank) {
  if (status_.phase() == v1::RANK_PHASE_FAILED) return;
  status_.set_phase(v1::RANK_PHASE_FAILED);
  *status_.mutable_failure() = reason;
  if (stalled_rank.has_value()) status_.mutable_stalled()->set_rank(*stalled_rank);
  Publish();
}

void RankService::SetModel(std::shared_ptr<const ModelText> text, int vocab_size,
                           uint32_t context_length) {
  text_ = std::move(text);
  vocab_size_ = vocab_size;
  context_length_ = context_length;
}

void RankService::OnTokens(uint32_t count) {
  made_.push_back({dispatcher_.Now(), count});
  status_.set_tokens_generated_total(status_.tokens_generated_total() + count);
}

void RankService::SetPreempted(const PreemptionCounts& counts) {
  status_.set_preemptions_total(counts.preemptions);
  status_.set_recomputed_tokens_total(counts.recomputed_tokens);
}

void RankService::SetCounts(uint32_t running, uint32_t waiting) {
  status_.set_requests_running(running);
  engine_waiting_ = waiting;
  TellQueued();
  // Who has just had an answer finds its steps counted.
  if (fill_timings_) fill_timings_(status_);
  Publish();
}

absl::Status RankService::CheckServing(const v1::GenerateRequest& request) const {
  if (spec_.rank() != 0) {
    return ReasonStatus(absl::StatusCode::kFailedPrecondition, reasons::kBadRequest,
                        absl::StrCat("rank ", spec_.rank(), " takes no requests; rank 0 does"));
  }
  if (!request.deployment().empty() && request.deployment() != spec_.deployment()) {
    return ReasonStatus(
        absl::StatusCode::kNotFound, reasons::kModelNotLoaded,
        absl::StrCat("this rank serves ", spec_.deployment(), ", not ", request.deployment()));
  }
  if (status_.phase() != v1::RANK_PHASE_READY || text_ == nullptr) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                        absl::StrCat("model ", spec_.deployment(), " is not ready"));
  }
  if (request.epoch() != 0 && request.epoch() != spec_.epoch()) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                        absl::StrCat("this is epoch ", spec_.epoch(), " of ", spec_.deployment(),
                                     ", not ", request.epoch()));
  }
  // The engine thread says more exactly who waits; this bounds what is on its way to it, in the
  // lanes too.
  const uint32_t queued_max = QueuedRequestsMax(spec_);
  if (!ShareOf(LaneKeyOf(request)).Fits(1)) {
    return QueueFull(absl::StrCat(queued_max, " requests wait for model ", spec_.deployment()));
  }
  return absl::OkStatus();
}

Share RankService::ShareOf(std::string_view key) const {
  Share share;
  share.most = QueuedRequestsMax(spec_) + kAnsweredAtOnceMax;
  share.of_all = requests_.size();
  if (share.of_all < share.most) return share;
  std::set<std::string_view> others;
  for (const auto& request : requests_) {
    const std::string_view whose = LaneKeyOf(request->request);
    if (whose == key) {
      ++share.of_key;
    } else {
      others.insert(whose);
    }
  }
  share.others = others.size();
  return share;
}

void RankService::TellQueued() { status_.set_requests_queued(engine_waiting_ + preparing_); }

void RankService::Generate(v1::GenerateRequest request, transport::ServerStream stream) {
  const absl::Status status = CheckServing(request);
  if (!status.ok()) return stream.Finish(status);
  auto pending = std::make_shared<PendingRequest>();
  pending->lane = LaneOf(request);
  pending->request = std::move(request);
  pending->stream = stream;
  pending->received = dispatcher_.Now();
  requests_.push_back(pending);
  ++preparing_;
  TellQueued();
  const bool added = lanes_.Add(
      pending->lane, LaneKeyOf(pending->request), pending->request.ByteSizeLong(),
      [this, pending, text = text_, vocab = vocab_size_, context = context_length_](bool in_time) {
        absl::Status prepared = QueueFull("requests before this one took too long to prepare");
        if (pending->cancelled) {
          prepared = absl::CancelledError("the caller went away");
        } else if (in_time) {
          prepared = Prepare(*pending, *text, vocab, context);
          if (pending->lane == Lane::kLong) transport::ReleaseFreedMemory();
        }
        dispatcher_.Post([this, pending, prepared] { OnPrepared(pending, prepared); });
      });
  if (!added) {
    return OnPrepared(pending, QueueFull(absl::StrCat("your prompts that wait for model ",
                                                      spec_.deployment(), " take their share of ",
                                                      kPreparingBytesMax >> 20, " MiB already")));
  }
  stream.OnCancel([this, pending] {
    pending->cancelled = true;
    // Its place is free at once, whatever its lane is busy with.
    OnPrepared(pending, absl::CancelledError("the caller went away"));
  });
}

void RankService::OnPrepared(const std::shared_ptr<PendingRequest>& request,
                             const absl::Status& status) {
  const auto found = std::find(requests_.begin(), requests_.end(), request);
  if (found == requests_.end() || request->is_prepared) return;
  --preparing_;
  TellQueued();
  if (status.ok() && !request->told.has_value()) {
    request->is_prepared = true;
    request->job.received = request->received;
    request->job.prepared = dispatcher_.Now();
    return submit_(request);
  }
  requests_.erase(found);
  if (status.ok()) request->stream.Write(*request->told);
  request->stream.Finish(status);
}

void RankService::VerifyGroup(v1::VerifyGroupRequest request,
                              transport::GrpcServer::Reply<v1::VerifyGroupResponse> reply) {
  const absl::Status serving = CheckServing(v1::GenerateRequest());
  if (!serving.ok()) return reply(serving);
  const auto too_large = [](uint64_t size) { return size > kVerifyBytesMax; };
  if (request.sizes_bytes_size() > kVerifySizesMax || request.rounds() > kVerifyRoundsMax ||
      std::any_of(request.sizes_bytes().begin(), request.sizes_bytes().end(), too_large)) {
    return reply(
        ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                     absl::StrCat("at most ", kVerifySizesMax, " sizes of ", kVerifyBytesMax,
                                  " bytes and ", kVerifyRoundsMax, " rounds")));
  }
  if (!verifications_.empty()) {
    return reply(ReasonStatus(
        absl::StatusCode::kUnavailable, reasons::kNotReady,
        absl::StrCat("the group of model ", spec_.deployment(), " is being verified already")));
  }
  auto pending = std::make_shared<PendingRequest>();
  pending->verify = std::move(request);
  pending->on_verified = std::move(reply);
  verifications_.push_back(pending);
  submit_(std::move(pending));
}

void RankService::OnVerified(const std::shared_ptr<PendingRequest>& request,
                             const absl::StatusOr<v1::VerifyGroupResponse>& response) {
  if (std::erase(verifications_, request) > 0) request->on_verified(response);
}

void RankService::OnDrafted(uint32_t drafted, uint32_t accepted) {
  status_.set_draft_tokens_total(status_.draft_tokens_total() + drafted);
  status_.set_accepted_tokens_total(status_.accepted_tokens_total() + accepted);
}

void RankService::OnModelDrafted(uint32_t drafted, uint32_t accepted) {
  v1::DraftModelStatus& draft = *status_.mutable_draft_model();
  draft.set_draft_tokens_total(draft.draft_tokens_total() + drafted);
  draft.set_accepted_tokens_total(draft.accepted_tokens_total() + accepted);
}

void RankService::SetDeviceProof(int layers, int left_out, int rows, int agreeing) {
  v1::DeviceProof& proof = *status_.mutable_device_proof();
  proof.set_layers(static_cast<uint32_t>(layers));
  proof.set_layers_left_out(static_cast<uint32_t>(left_out));
  proof.set_rows(static_cast<uint32_t>(rows));
  proof.set_rows_agreeing(static_cast<uint32_t>(agreeing));
}

void RankService::SetDraftModelOff(const std::string& why) {
  status_.mutable_draft_model()->set_off_reason(why);
  Publish();
}

void RankService::Explain(const std::shared_ptr<PendingRequest>& request, const PrefixMiss& miss) {
  if (text_ == nullptr) return;
  // Who finds the lane full goes without.
  lanes_.Add(
      request->lane, LaneKeyOf(request->request), 0, [request, miss, text = text_](bool in_time) {
        if (!in_time || request->cancelled) return;
        const v1::PrefixMiss explained =
            ExplainMiss(miss, request->request, *text, request->prompt, request->local_unix_s);
        LogMiss(*request, miss, explained);
        request->explained.Put(explained);
      });
}

void RankService::Trace(const v1::TraceRankRequest& request,
                        transport::GrpcServer::Reply<v1::TraceRankResponse> reply) {
  const Duration duration = std::chrono::milliseconds(request.duration_ms());
  if (duration <= Duration(0) || duration > kTraceMax) {
    return reply(ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kBadRequest,
                              "a trace takes from 1 ms to 60 s"));
  }
  if (!begin_trace_()) {
    return reply(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNotReady,
                              "a trace of this rank is being taken already"));
  }
  dispatcher_.PostAfter(duration, [this, reply] {
    v1::TraceRankResponse response;
    v1::RankTrace& trace = *response.add_ranks();
    trace = end_trace_();
    trace.set_rank(spec_.rank());
    trace.set_node_id(spec_.assignment().node_id());
    reply(std::move(response));
  });
}

void RankService::OnDecodeTimed(double step_us) {
  status_.set_decode_step_us(step_us);
  status_.set_decode_answers(status_.decode_answers() + 1);
}

void RankService::OnRequestDone(const std::shared_ptr<PendingRequest>& request,
                                const absl::Status& status) {
  std::erase(requests_, request);
  request->stream.Finish(status);
}

}  // namespace macrame::runtime::engine
