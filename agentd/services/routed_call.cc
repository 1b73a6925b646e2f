#include "agentd/services/routed_call.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agentd/cores/model_profile.h"
#include "proto/reasons.h"

namespace macrame::agentd {

namespace {

constexpr char kLimitWords[] =
    "The answer took longer than two hours, a rank that was lost meanwhile included. Ask for less "
    "text at once.";

void AddStep(CallRoute::Step step, CallRoute& route) {
  CallRoute::Step* last = route.steps.empty() ? nullptr : &route.steps.back();
  if (last != nullptr && !step.is_sent && !last->is_sent && last->code == step.code) {
    ++last->repetitions;
    return;
  }
  if (route.steps.size() == kRouteStepsMax) {
    route.steps.erase(route.steps.begin() + 1);
    ++route.dropped;
  }
  route.steps.push_back(std::move(step));
}

}  // namespace

bool IsWorthAnotherTry(const absl::Status& status) {
  const std::string code = ReasonOf(status).code();
  return code == reasons::kNotReady || code == reasons::kEntryUnreachable ||
         code == reasons::kModelNotLoaded;
}

bool IsLossOfGang(const absl::Status& status) {
  const std::string code = ReasonOf(status).code();
  return code == reasons::kGangLostNode || code == reasons::kRankExited ||
         code == reasons::kRankKilled || code == reasons::kRankStalled ||
         code == reasons::kEngineFailed || code == reasons::kPeerLost ||
         code == reasons::kCollectiveFailed;
}

RoutedCall::RoutedCall(transport::Dispatcher& dispatcher, EntryTable& entries, Send send,
                       v1::GenerateRequest request, ChunkCallback on_chunk, DoneCallback on_done,
                       Duration moved_on_grace)
    : dispatcher_(dispatcher),
      entries_(entries),
      send_(std::move(send)),
      request_(std::move(request)),
      deployment_(request_.deployment()),
      on_done_(std::move(on_done)),
      moved_on_grace_(moved_on_grace),
      on_chunk_(std::move(on_chunk)) {}

void RoutedCall::Cancel() {
  dispatcher_.Post([self = shared_from_this()] {
    self->cancelled_ = true;
    self->handle_.Cancel();
  });
}

void RoutedCall::Start(const v1::ModelProfile* profile) {
  if (profile != nullptr) ApplyProfile(*profile, &request_);
  give_up_ = dispatcher_.Now() + kEntryWaitMax;
  limit_ = dispatcher_.Now() + kGenerateLimit;
  Try();
}

void RoutedCall::Try() {
  if (finished_) return;
  if (cancelled_) return Finish(absl::CancelledError("cancelled before it began"));
  if (prompt_.empty() && entries_.HasChoice(deployment_)) prompt_ = PromptSteps(request_);
  const absl::StatusOr<EntryTable::Entry> entry = entries_.Find(deployment_, prompt_);
  if (!entry.ok()) {
    // What was unloaded under an answer is not asked for anew.
    if (absl::IsNotFound(entry.status())) return Finish(lost_as_.ok() ? entry.status() : lost_as_);
    return Over(entry.status());
  }
  entry_ = *entry;
  if (entries_.IsDead(entry_.node)) {
    return Over(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kEntryUnreachable,
                             absl::StrCat("node ", ShortId(entry_.node), ", which answers for ",
                                          entry_.replica, ", is dead"),
                             entry_.node.value()));
  }
  request_.set_deployment(entry_.replica);
  entries_.NoteSent(entry_, prompt_);
  NoteSent();
  const uint64_t attempt = BeginAttempt();
  handle_ = send_(
      entry_.node, request_,
      [self = shared_from_this(), attempt](const v1::GenerateChunk& chunk) {
        self->TakeChunk(attempt, chunk);
      },
      [self = shared_from_this(), attempt](const absl::Status& status) {
        if (self->Attempt() == attempt) self->Over(status);
      });
}

uint64_t RoutedCall::BeginAttempt() {
  std::lock_guard<std::mutex> lock(mutex_);
  under_way_ = true;
  was_taken_ = false;
  return ++attempt_;
}

bool RoutedCall::EndAttempt() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(under_way_, false);
}

bool RoutedCall::EndAttemptUnlessAnswered() {
  std::lock_guard<std::mutex> lock(mutex_);
  return !has_answered_ && std::exchange(under_way_, false);
}

std::optional<uint64_t> RoutedCall::Attempt() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return under_way_ ? std::optional(attempt_) : std::nullopt;
}

bool RoutedCall::HasAnswered() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return has_answered_;
}

bool RoutedCall::WasTaken() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return under_way_ && was_taken_;
}

bool RoutedCall::BeginAgain() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!has_answered_) return true;
  if (!on_chunk_.can_begin_again()) return false;
  on_chunk_.BeginAgain();
  has_answered_ = false;
  return true;
}

void RoutedCall::TakeChunk(uint64_t attempt, const v1::GenerateChunk& chunk) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (attempt_ != attempt || !under_way_) return;
  was_taken_ = true;
  has_answered_ = has_answered_ || !chunk.has_progress();
  on_chunk_(chunk);
}

void RoutedCall::NoteDead(const NodeId& node) {
  if (!Attempt().has_value() || entry_.node != node) return;
  Lost(ReasonStatus(
      absl::StatusCode::kUnavailable, reasons::kGangLostNode,
      absl::StrCat("node ", ShortId(node), ", which answered for ", entry_.replica, ", is dead"),
      node.value()));
}

void RoutedCall::NoteStateChanged() {
  const std::optional<uint64_t> attempt = Attempt();
  if (!attempt.has_value() || !entries_.HasMovedOn(entry_)) return;
  const auto cut = [this] {
    Lost(ReasonStatus(absl::StatusCode::kUnavailable, reasons::kGangLostNode,
                      absl::StrCat("epoch ", entry_.epoch, " of ", entry_.replica,
                                   ", which had this request, has ended")));
  };
  const bool has_time = HasAnswered() || entries_.MovesInOrder(entry_);
  const Duration grace = has_time ? std::max(moved_on_grace_, entries_.DrainTime()) : kMovedOnLook;
  // A call that is over by then need not be kept for it.
  dispatcher_.PostAfter(grace, [weak = weak_from_this(), attempt, cut, had_time = has_time] {
    const std::shared_ptr<RoutedCall> self = weak.lock();
    const bool is_same = self != nullptr && self->Attempt() == attempt;
    if (!is_same || !self->entries_.HasMovedOn(self->entry_)) return;
    // Its answer began meanwhile: it has the time that answers have.
    if (!had_time) {
      if (!self->EndAttemptUnlessAnswered()) return self->NoteStateChanged();
      self->entries_.NoteOver(self->entry_.replica, true);
    }
    cut();
  });
}

void RoutedCall::End(const absl::Status& why) {
  if (finished_) return;
  if (EndAttempt()) entries_.NoteOver(entry_.replica, false);
  const transport::CallHandle handle = std::exchange(handle_, transport::CallHandle());
  Finish(why);
  handle.Cancel();
}

void RoutedCall::EndUnlessSent(const absl::Status& why) {
  if (!finished_ && !Attempt().has_value()) End(why);
}

void RoutedCall::Lost(const absl::Status& why) {
  const transport::CallHandle handle = std::exchange(handle_, transport::CallHandle());
  Over(why);
  handle.Cancel();
}

void RoutedCall::Over(const absl::Status& status) {
  const bool is_on_the_way = !status.ok() && IsWorthAnotherTry(status);
  // A rank that took the request up and then stopped is lost as one that died is.
  const bool is_loss = (!status.ok() && IsLossOfGang(status)) || (is_on_the_way && WasTaken());
  const bool had_no_answer = is_loss || is_on_the_way;
  const MonotonicTime now = dispatcher_.Now();
  if (EndAttempt()) entries_.NoteOver(entry_.replica, had_no_answer);
  if (is_loss) give_up_ = now + kEntryWaitMax;
  if (is_loss && HasAnswered()) lost_as_ = status;
  // Who only waited in the queue of a rank that was told to stop has cost no gang.
  const bool counts = is_loss && (IsLossOfGang(status) || HasAnswered());
  if (counts && ++gangs_lost_ >= kGangsLostMax) return Finish(status);
  if (!had_no_answer || cancelled_ || now >= give_up_ || now >= limit_ || !BeginAgain()) {
    return Finish(status);
  }
  if (is_loss) EndAtLimit(now);
  NoteFailed(status);
  TryAgainSoon();
}

void RoutedCall::EndAtLimit(MonotonicTime now) {
  dispatcher_.PostAfter(limit_ - now, [weak = weak_from_this()] {
    const std::shared_ptr<RoutedCall> self = weak.lock();
    if (self != nullptr) self->End(absl::DeadlineExceededError(kLimitWords));
  });
}

void RoutedCall::TryAgainSoon() {
  const absl::StatusOr<EntryTable::Entry> other = entries_.Find(deployment_);
  const bool at_once = other.ok() && !other->failed_lately;
  dispatcher_.PostAfter(at_once ? Duration(0) : kEntryRetryPause,
                        [self = shared_from_this()] { self->Try(); });
}

CallRoute RoutedCall::Route() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return route_;
}

void RoutedCall::NoteSent() {
  if (!request_.timings()) return;
  CallRoute::Step step;
  step.at = dispatcher_.Now();
  step.is_sent = true;
  step.node_id = entry_.node.value();
  step.replica = entry_.replica;
  step.epoch = entry_.epoch;
  std::lock_guard<std::mutex> lock(mutex_);
  AddStep(std::move(step), route_);
}

void RoutedCall::NoteFailed(const absl::Status& status) {
  if (!request_.timings()) return;
  const v1::Reason reason = ReasonOf(status);
  CallRoute::Step step;
  step.at = dispatcher_.Now();
  step.node_id = reason.node_id();
  step.code = reason.code();
  std::lock_guard<std::mutex> lock(mutex_);
  AddStep(std::move(step), route_);
}

void RoutedCall::Finish(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  EndAttempt();
  on_done_(entries_.Told(deployment_, status));
  on_done_ = nullptr;
  ChunkCallback dropped;
  std::lock_guard<std::mutex> lock(mutex_);
  std::swap(dropped, on_chunk_);
}

}  // namespace macrame::agentd
