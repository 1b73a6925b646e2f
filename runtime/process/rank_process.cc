#include "runtime/process/rank_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/reasons.h"
#include "runtime/gang/timed_sums.h"
#include "runtime/process/cold_boot.h"
#include "runtime/process/draft_boot.h"
#include "runtime/process/second_boot.h"
#include "runtime/second_engine/worker_process.h"

namespace macrame::runtime::engine {
namespace {

constexpr char kTimedSums[] = "timed sums over the group";

}  // namespace

struct RankProcess::Parts {
  explicit Parts(boost::asio::io_context& io) : parent(io), signals(io) {}
  boost::asio::posix::stream_descriptor parent;  // stdin
  boost::asio::signal_set signals;
  char discarded[64];
};

RankProcess::RankProcess(v1::LaunchSpec spec, const BoundSockets& bound,
                         const EngineOverrides& types)
    : gang_secret_(std::exchange(*spec.mutable_gang_secret(), "")),
      bound_(bound),
      types_(types),
      spec_(std::move(spec)),
      termination_message_(spec_),
      watchdog_([this](const std::string& what, std::chrono::milliseconds limit) {
        Fail(StalledStatus(what, limit));
      }),
      service_(
          dispatcher_, spec_,
          [this](std::shared_ptr<PendingRequest> request) { mailbox_.Put(std::move(request)); },
          [this] { BeginStop(kStopLimit); }),
      parts_(std::make_unique<Parts>(dispatcher_.io())) {}

RankProcess::~RankProcess() = default;

int RankProcess::Run() {
  WatchSignals();
  WatchParent();
  service_.SetTrace(
      [this] {
        const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
        return recorder_.trace().Start(
            std::chrono::steady_clock::now(),
            static_cast<uint64_t>(std::chrono::duration_cast<Duration>(unix_time).count()));
      },
      [this] { return recorder_.trace().Stop(); });
  const absl::Status started = service_.Start();
  if (!started.ok()) {
    termination_message_.Say(started);
    return kExitSocketFailed;
  }
  engine_ = std::thread([this] { RunEngine(); });
  dispatcher_.Run();
  // Joining would wait for an engine that may hang; the process ends here in any case.
  _exit(kExitOrderly);
}

void RankProcess::WatchParent() {
  parts_->parent.assign(dup(STDIN_FILENO));
  parts_->parent.async_read_some(boost::asio::buffer(parts_->discarded),
                                 [this](const boost::system::error_code& error, size_t) {
                                   if (error == boost::asio::error::operation_aborted) return;
                                   if (error)
                                     return BeginStop(kOrphanStopLimit);  // the agent is gone
                                   WatchParent();
                                 });
}

void RankProcess::WatchSignals() {
  parts_->signals.add(SIGTERM);
  parts_->signals.add(SIGINT);
  parts_->signals.async_wait([this](const boost::system::error_code& error, int) {
    if (!error) BeginStop(kStopLimit);
  });
}

void RankProcess::BeginStop(Duration limit) {
  if (stopping_.exchange(true)) return;
  service_.SetPhase(v1::RANK_PHASE_STOPPING);
  service_.Stop(std::chrono::milliseconds(200));
  mailbox_.Close();
  GangLink* link = link_.load();
  if (link != nullptr && link->follower() != nullptr) {
    // Sums over jaccl wait for ever for a rank that has gone, and rank 0 may be in one: it is given
    // the time to end the steps itself.
    const bool waits = link->backend() == Backend::kJaccl;
    dispatcher_.PostAfter(waits ? limit / 2 : Duration::zero(), [link] { link->ShutDown(); });
  }
  // The engine posts the end when it has told the other ranks; this is for one that hangs.
  dispatcher_.PostAfter(limit, [this] { dispatcher_.Stop(); });
}

namespace {

void FillGroup(const GangLink& link, v1::RankStatus& status) {
  status.set_backend(NameOf(link.backend()));
  status.set_group_size(link.group_size());
  status.set_collective_bytes(link.bytes_sent());
  const transport::CollectiveTimes times = link.times();
  status.set_collective_us_p50(times.us_p50);
  status.set_collective_us_p99(times.us_p99);
}

}  // namespace

void RankProcess::RunEngine() {
  BootOptions options;
  options.on_phase = [this](v1::RankPhase phase) {
    dispatcher_.Post([this, phase] { service_.SetPhase(phase); });
  };
  options.on_progress = [this](uint64_t loaded, uint64_t total, uint64_t held) {
    dispatcher_.Post([=, this] { service_.SetProgress(loaded, total, held); });
  };
  options.on_note = [this](const std::string& line) { Say(line); };
  options.on_connecting = [this](const std::string& detail) {
    dispatcher_.Post([this, detail] { service_.SetConnecting(detail); });
  };
  options.types = types_;
  options.loads_draft_model = true;
  options.step_observer = &recorder_;
  options.wire_observer = &recorder_;
  options.on_link = [this](std::shared_ptr<GangLink> link) {
    kept_link_ = link;
    link_ = link.get();
    dispatcher_.Post([this, link] {
      service_.SetGroup([link](v1::RankStatus& status) { FillGroup(*link, status); });
    });
  };
  options.bound = bound_;
  v1::LaunchSpec spec = spec_;
  spec.set_gang_secret(std::string(gang_secret_.view()));
  gang_secret_ = {};
  auto rank = BootRank(std::move(spec), watchdog_, options);
  absl::Status status = rank.status();
  if (status.ok()) {
    rank_ = *std::move(rank);
    dispatcher_.Post([this, text = rank_->text, vocab = rank_->config.vocab_size,
                      context = rank_->context_length] {
      service_.SetModel(text, vocab, context);
      service_.SetPhase(v1::RANK_PHASE_READY);
      service_.SetMemory([rank = rank_.get()] { return rank->HeldBytes(); });
      if (rank_->drafter != nullptr) service_.SetDraftModel(DraftName(spec_));
      if (rank_->proven_device.has_value()) {
        const ProvenDevice& proven = *rank_->proven_device;
        service_.SetDeviceProof(proven.layers, proven.left_out, proven.rows, proven.agreeing);
      }
    });
    WatchGang(*rank_->link);
    if (rank_->worker.has_value()) WatchWorker(*rank_->worker);
    status = spec_.rank() == 0 ? Lead(*rank_) : FollowLeader(*rank_);
  }
  // Whether it failed or not: a Mac keeps what is not given back. An engine that hangs does not
  // come here.
  if (kept_link_ != nullptr) kept_link_->LeaveGroup();
  if (!status.ok() && !stopping_) Fail(status);
  dispatcher_.Post([this] {
    service_.SetPhase(v1::RANK_PHASE_STOPPED);
    dispatcher_.Stop();
  });
}

namespace {

// Who waits for an answer over RankService.
class StreamListener : public RequestListener {
 public:
  StreamListener(transport::Dispatcher& dispatcher, RankService& service,
                 std::shared_ptr<PendingRequest> request)
      : dispatcher_(dispatcher), service_(service), request_(std::move(request)) {}

  void OnStarted(const Effects::Started& started) override {
    if (started.miss.kind == PrefixMiss::Kind::kNone) return;
    has_miss_ = true;
    dispatcher_.Post([this_service = &service_, request = request_, miss = started.miss] {
      this_service->Explain(request, miss);
    });
  }
  void OnChunk(const v1::GenerateChunk& chunk) override {
    const auto explained =
        chunk.finish_reason() == v1::FINISH_REASON_UNSPECIFIED ? std::nullopt : TakeExplanation();
    if (explained.has_value()) {
      v1::GenerateChunk with_miss = chunk;
      *with_miss.mutable_prefix_miss() = *explained;
      Write(with_miss);
    } else {
      Write(chunk);
    }
    const auto fresh = static_cast<uint32_t>(chunk.token_ids_size());
    if (fresh > 0) {
      dispatcher_.Post([this_service = &service_, fresh] { this_service->OnTokens(fresh); });
    }
  }
  void OnDone(const absl::Status& status) override {
    dispatcher_.Post([this_service = &service_, request = request_, status] {
      this_service->OnRequestDone(request, status);
    });
  }
  bool IsCancelled() const override { return request_->cancelled; }

 private:
  // The owner had all the answer's time for it; an answer never waits.
  std::optional<v1::PrefixMiss> TakeExplanation() {
    if (!has_miss_) return std::nullopt;
    return request_->explained.TakeWithin(absl::ZeroDuration());
  }
  void Write(const v1::GenerateChunk& chunk) {
    if (!request_->stream.Write(chunk)) request_->cancelled = true;
  }

  bool has_miss_ = false;
  transport::Dispatcher& dispatcher_;
  RankService& service_;
  const std::shared_ptr<PendingRequest> request_;
};

// A broken collective names no culprit; the step channel or the gang's watch will in a moment.
void AwaitBlame(const absl::Status& failed) {
  if (ReasonOf(failed).code() == reasons::kRankExited)
    absl::SleepFor(absl::FromChrono(kBlameLimit));
}

absl::Status Blamed(absl::Status failed) {
  AwaitBlame(failed);
  return failed;
}

}  // namespace

// A line that is no failure.
void RankProcess::Say(const std::string& line) const {
  const std::string whole = absl::StrCat("rankd: rank ", spec_.rank(), ": ", line, "\n");
  const ssize_t written = write(STDERR_FILENO, whole.data(), whole.size());
  (void)written;
}

void RankProcess::TellCold(const BootedRank& rank) {
  const ColdWorker* cold = rank.engine->cold_worker();
  if (cold == nullptr) return;
  dispatcher_.Post([this, cold] {
    service_.SetColdFigures([cold](v1::KvCacheDisk& disk) { FillKvCacheDisk(*cold, disk); });
  });
}

BatchTraits RankProcess::StartLeading(BootedRank& rank) {
  BatchTraits traits = ServingTraitsOf(spec_, rank);
  traits.queued_requests_max = QueuedRequestsMax(spec_);
  // Blocks on disk would lack the recurrent layers' state.
  if (traits.state_snapshots.has_value()) return traits;
  auto worker =
      StartColdWorker(spec_, rank, [this](ColdEvent event) { cold_events_.Put(std::move(event)); });
  if (worker == nullptr) return traits;
  traits.cold = ColdTraitsOf(spec_.world_size(), worker->layout().content_bytes);
  rank.engine->SetColdWorker(std::move(worker));
  TellCold(rank);
  return traits;
}

void RankProcess::StartFollowing(BootedRank& rank) {
  if (rank.config.has_state()) return;  // as rank 0
  rank.engine->SetColdWorker(StartColdWorker(spec_, rank, [this, &rank](const ColdEvent& event) {
    Report report;
    if (event.kind == ColdEvent::Kind::kOff) {
      report = {ReportKind::kColdOff, event.text, 0, 0};
      Say(absl::StrCat("no KV blocks on disk: ", event.text));
    } else if (event.kind == ColdEvent::Kind::kLoaded) {
      report = {ReportKind::kColdLoaded, "", event.id, event.blocks};
    } else {
      return;  // rank 0 goes by its own
    }
    rank.link->follower()->Tell(report).IgnoreError();
  }));
  TellCold(rank);
}

absl::Status RankProcess::Lead(BootedRank& rank) {
  if (rank.link->leader() != nullptr) {
    follower_watch_ = std::thread([this] { WatchFollowers(); });
    follower_watch_.detach();
  }
  ServingLoop serving(*rank.engine, StartLeading(rank), HooksFor(rank));
  while (!mailbox_.closed()) {
    // New requests join between two steps; while nothing runs, the first one is waited for.
    auto request = serving.idle() ? mailbox_.Take() : mailbox_.TakeWithin(absl::ZeroDuration());
    for (; request.has_value(); request = mailbox_.TakeWithin(absl::ZeroDuration())) {
      Take(rank, serving, *std::move(request));
    }
    if (serving.idle()) continue;
    const auto ran = serving.RunStep();
    if (!ran.ok()) {
      AwaitBlame(ran.status());
      return ran.status();
    }
    if (*ran || serving.idle()) continue;
    request = mailbox_.TakeWithin(absl::FromChrono(kNothingToRunPause));
    if (request.has_value()) Take(rank, serving, *std::move(request));
  }
  // The last stage would else write to a rank that has gone.
  serving.FinishSteps().IgnoreError();
  rank.engine->Announce(StepKind::kStop).IgnoreError();
  return absl::OkStatus();
}

void RankProcess::Verify(BootedRank& rank, ServingLoop& serving,
                         const std::shared_ptr<PendingRequest>& request) {
  const absl::Status can = rank.link->CanVerify();
  const auto response = can.ok() ? TimeSums(rank, serving, *request->verify)
                                 : absl::StatusOr<v1::VerifyGroupResponse>(can);
  if (response.ok() || !can.ok()) {
    return dispatcher_.Post([this, request, response] { service_.OnVerified(request, response); });
  }
  if (stopping_) return;  // whoever waits has been told so
  AwaitBlame(response.status());
  Fail(response.status());  // and tells who waits
}

absl::StatusOr<v1::VerifyGroupResponse> RankProcess::TimeSums(
    BootedRank& rank, ServingLoop& serving, const v1::VerifyGroupRequest& request) {
  const absl::Status idle = serving.FinishSteps();
  if (!idle.ok()) return idle;
  const auto now = [this] { return dispatcher_.Now(); };
  return TimeSumsWithin(
      kVerifyShare, request, now,
      [&](const v1::VerifyGroupRequest& part) -> absl::StatusOr<v1::VerifyGroupResponse> {
        if (stopping_) return absl::CancelledError("the rank is stopping");
        const absl::Status told = rank.engine->AnnounceVerify(part);
        if (!told.ok()) return told;
        const auto guard = watchdog_.Watch(kTimedSums, kVerifyLimit);
        return rank.link->Verify(VerifyRequestOf(VerifyStepOf(part)));
      });
}

void RankProcess::Take(BootedRank& rank, ServingLoop& serving,
                       std::shared_ptr<PendingRequest> request) {
  if (request->verify.has_value()) return Verify(rank, serving, request);
  GenerationJob job = std::move(request->job);
  serving.Add(std::move(job), std::make_shared<StreamListener>(dispatcher_, service_, request));
}

ServingLoop::Hooks RankProcess::HooksFor(const BootedRank& rank) {
  ServingLoop::Hooks hooks;
  hooks.new_text = [text = rank.text, bytes_of = TokenBytesOf(rank.text)] {
    auto stream = std::make_shared<text::StreamDecoder>(
        text->tokenizer.NewStream(/*skip_special_tokens=*/true));
    return TextStream{[stream](int32_t id) { return stream->Push(id); },
                      [stream] { return stream->Finish(); }, bytes_of};
  };
  hooks.on_counts = [this](ServingCounts counts) {
    dispatcher_.Post([this, counts] {
      service_.SetPreempted(counts.preempted);
      service_.SetKvCacheUsed(counts.kv_cache_used_percent / 100.0);
      service_.SetCounts(counts.running, counts.waiting);
    });
  };
  hooks.on_drafted = [this](uint32_t drafted, uint32_t accepted) {
    dispatcher_.Post([=, this] { service_.OnDrafted(drafted, accepted); });
  };
  hooks.on_model_drafted = [this](uint32_t drafted, uint32_t accepted) {
    dispatcher_.Post([=, this] { service_.OnModelDrafted(drafted, accepted); });
  };
  hooks.drafter = rank.drafter.get();
  hooks.on_drafter_failed = [this](const absl::Status& why) {
    Say(absl::StrCat("no drafts of the draft model any more: ", why.message()));
    dispatcher_.Post([this, why] { service_.SetDraftModelOff(std::string(why.message())); });
  };
  hooks.on_decode_step_us = [this](double step_us) {
    dispatcher_.Post([this, step_us] { service_.OnDecodeTimed(step_us); });
  };
  hooks.take_cold_events = [this] {
    std::vector<ColdEvent> events;
    while (auto event = cold_events_.TakeWithin(absl::ZeroDuration())) {
      events.push_back(*std::move(event));
    }
    return events;
  };
  hooks.on_cold_off = [this](const std::string& why) {
    Say(absl::StrCat("no KV blocks on disk any more: ", why));
  };
  hooks.observer = &recorder_;
  // A pure pipeline sums nothing: what its first stage waits for is the others' work.
  if (spec_.tp() > 1 && rank.link->tells_observer()) {
    hooks.waited_in_step = [this] { return recorder_.last_wait(); };
  }
  hooks.world_size = spec_.world_size();
  return hooks;
}

void RankProcess::WatchGang(GangLink& link) {
  recorder_.ForgetTimings();
  dispatcher_.Post([this] {
    service_.SetTimings([this](v1::RankStatus& status) { recorder_.FillTimings(status); });
  });
  GangWatchOptions options;
  options.rank = spec_.rank();
  options.world_size = spec_.world_size();
  options.knows_waits = link.tells_observer();
  options.limits.unmeasured = std::chrono::milliseconds(spec_.step_timeout_ms());
  // Who waits for a GPU rests too, and a GPU that was idle may take seconds to have its memory
  // back.
  if (rank_->device == EngineDevice::kGpu) {
    options.limits.resting = options.limits.standing;
  }
  // What its worker does is no work of this process.
  if (rank_->worker.has_value()) {
    options.limits.resting = options.limits.standing = options.limits.unmeasured;
  }
  GangWatch::Hooks hooks;
  hooks.on_stall = [this](const Stall& stall) {
    // An end that was asked for stops everything in its own way.
    if (stopping_) return;
    Fail(ReasonStatus(absl::StatusCode::kDeadlineExceeded, reasons::kRankStalled, stall.what),
         &stall);
  };
  hooks.on_progress = [this] { watchdog_.Touch(); };
  hooks.bytes_moved = [&link] { return link.bytes_moved(); };
  gang_watch_ = std::make_unique<GangWatch>(options, recorder_.board(), link.TakeWatchLines(),
                                            std::move(hooks));
}

void RankProcess::WatchWorker(pid_t worker) {
  std::thread([this, worker] {
    const absl::Status ended = WorkerProcess::AwaitEnd(worker);
    // Who runs a step with it says so first, and knows better whose fault it is.
    absl::SleepFor(absl::FromChrono(kBlameLimit * 2));
    if (!ended.ok() && !stopping_) Fail(ended);
  }).detach();
}

void RankProcess::WatchFollowers() {
  const auto on_cold = [this](uint32_t rank, const Report& report) {
    ColdEvent event;
    event.kind =
        report.kind == ReportKind::kColdOff ? ColdEvent::Kind::kOff : ColdEvent::Kind::kLoaded;
    event.rank = rank;
    event.id = report.cold_load;
    event.blocks = report.cold_blocks;
    event.text = report.text;
    cold_events_.Put(std::move(event));
  };
  while (!stopping_) {
    const absl::Status status =
        link_.load()->leader()->WaitForLoss(std::chrono::milliseconds(1000), on_cold);
    if (!status.ok() && !stopping_) Fail(status);
  }
}

namespace {

// What rank 0 orders of a cold tier that this rank has none of.
absl::Status RefuseCold(StepFollower& follower, const ColdOrders& orders) {
  absl::Status told = follower.Tell({ReportKind::kColdOff, "it is off on this node", 0, 0});
  for (const ColdLoad& load : orders.loads) {
    if (told.ok()) told = follower.Tell({ReportKind::kColdLoaded, "", load.id, 0});
  }
  return told;
}

}  // namespace

absl::Status RankProcess::FollowLeader(BootedRank& rank) {
  StartFollowing(rank);
  while (true) {
    // A step may come while the one before is computed; where none does, that one ends.
    if (rank.engine->steps_in_flight() > 0 && !rank.link->follower()->AwaitStep(kNextStepPause)) {
      const absl::Status finished = rank.engine->FinishFollowed();
      if (!finished.ok()) return Blamed(finished);
    }
    const auto step = rank.link->follower()->Receive();
    if (!step.ok()) return step.status();
    const absl::Status status =
        step->kind == StepKind::kForward ? rank.engine->Follow(*step) : FollowOrder(rank, *step);
    if (!status.ok()) return Blamed(status);
    if (step->kind == StepKind::kStop) return absl::OkStatus();
  }
}

absl::Status RankProcess::FollowOrder(BootedRank& rank, const Step& step) {
  const absl::Status finished = rank.engine->FinishFollowed();
  if (!finished.ok() || step.kind == StepKind::kStop) return finished;
  if (step.kind == StepKind::kVerify) {
    const auto guard = watchdog_.Watch(kTimedSums, kVerifyLimit);
    return rank.link->Verify(VerifyRequestOf(step)).status();
  }
  if (step.kind != StepKind::kCold) return rank.engine->Follow(step);
  const auto carried = rank.engine->FollowCold(step.cold);
  if (!carried.ok()) return carried.status();
  return *carried ? absl::OkStatus() : RefuseCold(*rank.link->follower(), step.cold);
}

void RankProcess::Fail(const absl::Status& why, const Stall* verdict) {
  const bool first = termination_message_.Say(why);
  if (first) {
    GangLink* link = link_.load();
    // A verdict is rank 0's own, or it is rank 0 that has stalled.
    if (link != nullptr && link->follower() != nullptr && verdict == nullptr) {
      link->follower()->Tell({ReportKind::kFailed, std::string(why.message())}).IgnoreError();
    }
    const auto stalled_rank = verdict != nullptr ? verdict->rank : std::nullopt;
    dispatcher_.Post([this, reason = ReasonOf(why), stalled_rank, code = ExitCodeOf(why)] {
      service_.SetFailure(reason, stalled_rank);
      service_.Stop(kFarewellLimit / 2);
      _exit(code);
    });
  }
  // The owner thread ends the process as soon as the watchers have been told; or else this one
  // does.
  absl::SleepFor(absl::FromChrono(kFarewellLimit * (first ? 2 : 4)));
  _exit(ExitCodeOf(why));
}

}  // namespace macrame::runtime::engine
