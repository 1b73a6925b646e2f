#include "tests/sim/batch_sim.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/serving/batch_scheduler.h"
#include "tests/sim/fake_gang.h"

namespace macrame::runtime::engine {
namespace {

constexpr size_t kFaultsMax = 5;
constexpr size_t kChatsMax = 6;  // of recurrent models, that are mostly gone on with

class BatchSim {
 public:
  BatchSim(uint64_t seed, BatchBug bug, bool has_state)
      : random_(seed),
        chooses_(~seed),
        bug_(bug),
        traits_(WithChoices(has_state ? WithState(DrawTraits()) : DrawTraits())),
        answers_are_long_(Pick(0, 2) == 0),
        model_{answers_are_long_ || Pick(0, 1) == 0 ? 5000 : 97, Pick(0, 1) == 0},
        requests_left_(Pick(20, 80)),
        gap_us_max_(Pick(0, 2) == 0 ? 2000 : 60000),
        sharing_(has_state ? Pick(2, 4) : Pick(0, 4)),
        disks_(traits_.cold.ranks),
        disk_faults_(Pick(0, 3) == 0 ? 40 : 2),
        scheduler_(traits_),
        gang_(traits_.blocks_total, traits_.sequences_max, model_, traits_.state_snapshots) {}

  BatchSimReport Run() {
    // What any schedule that gets on needs, with room for preemption.
    uint64_t steps_max = 2000;
    while (report_.faults.empty() && (requests_left_ > 0 || !scheduler_.idle())) {
      if (requests_left_ > 0 && next_arrival_ <= now_) Arrive(steps_max);
      if (Pick(0, 30) == 0) CancelOne();
      ExpireLate();
      OrderSteps();
      scheduler_.CheckInvariants();
      if (report_.steps > steps_max) Fault("no end in sight");
      if (!GoOn()) break;
      scheduler_.CheckInvariants();
    }
    Finish();
    return report_;
  }

 private:
  struct Request {
    RequestSpec spec;
    std::vector<int32_t> answer;
    uint32_t hidden = 0;  // position behind the last hidden state that it got
    uint32_t context = 0;
    bool is_hidden() const { return spec.rows != LogitRows::kLast; }
    bool has_ended = false;
    bool was_cancelled = false;
    bool has_started = false;
  };
  struct InFlight {
    OrderedStep ordered;
    std::vector<int32_t> tokens;
    Duration took{};
    MonotonicTime done{};
  };

  bool IsEnd(int32_t token) const { return token % (answers_are_long_ ? 1000 : 89) == 0; }

  uint32_t Pick(uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random_);
  }

  BatchTraits DrawTraits() {
    BatchTraits traits;
    traits.context_length = Pick(2, 700);
    const uint32_t one = (traits.context_length + kBlockTokens - 1) / kBlockTokens;
    traits.blocks_total = one + (Pick(0, 3) == 0 ? 0 : Pick(0, 3 * one));
    traits.sequences_max = Pick(1, 9);
    traits.queued_requests_max = Pick(1, 30);
    traits.steps_in_flight_max = Pick(0, 1) == 0 ? 1 : Pick(2, 3);
    traits.step_budget = std::chrono::milliseconds(Pick(1, 60));
    traits.chunk_tokens_min = Pick(1, 20);
    traits.chunk_tokens_max = traits.chunk_tokens_min + Pick(0, 300);
    traits.first_come_share = Pick(0, 5) / 10.0;
    traits.aging_interval = std::chrono::milliseconds(Pick(5, 2000));
    traits.draft_tokens_max = Pick(0, 2) == 0 ? 0 : Pick(1, 40);
    traits.cold.ranks = Pick(0, 3);
    traits.cold.stores_per_step = Pick(1, 6);
    traits.cold.stores_at_once_max = Pick(1, 12);
    return traits;
  }

  // As for a model with recurrent layers.
  BatchTraits WithState(BatchTraits traits) {
    traits.draft_tokens_max = 0;
    traits.cold = {};
    if (Pick(0, 1) == 0) traits.blocks_total *= 4;
    if (Pick(0, 2) > 0) {
      traits.context_length += 300;
      traits.blocks_total += 10;
    }
    traits.state_snapshots = Pick(0, 9) == 0 ? 0 : Pick(0, 1) == 0 ? Pick(1, 3) : Pick(4, 20);
    return traits;
  }

  // Half of the gangs that can. Drawn apart from all else.
  BatchTraits WithChoices(BatchTraits traits) {
    traits.chooses_tokens =
        bug_ == BatchBug::kNone && traits.steps_in_flight_max <= 2 && chooses_() % 2 == 0;
    if (bug_ == BatchBug::kChosenOfAnother) {
      traits.steps_in_flight_max = 2;
      traits.chooses_tokens = true;
    }
    traits.keeps_runs = bug_ == BatchBug::kNone && chooses_() % 2 == 0;
    if (traits.draft_tokens_max > 0 && chooses_() % 2 == 0) {
      traits.draft_rows_max = 2 + static_cast<uint32_t>(chooses_() % 12);
    }
    return traits;
  }

  // Often the beginning of an earlier conversation, with or without its answer.
  std::vector<int32_t> DrawPrompt(uint32_t length_max) {
    std::vector<int32_t> prompt;
    if (!requests_.empty() && Pick(0, 4) < sharing_) {
      auto at = requests_.begin();
      std::advance(at, Pick(0, static_cast<uint32_t>(requests_.size()) - 1));
      if (traits_.state_snapshots.has_value() && Pick(0, 3) > 0) at = LateChat(at);
      prompt = at->second.spec.prompt;
      prompt.insert(prompt.end(), at->second.answer.begin(), at->second.answer.end());
      // A turn that goes on elsewhere; a few, where states of chats' ends are what is kept.
      const uint32_t kinds = traits_.state_snapshots.has_value() ? 5 : 2;
      if (Pick(0, kinds) == 0) prompt.resize(Pick(0, static_cast<uint32_t>(prompt.size())));
    }
    uint32_t more = Pick(0, 3) == 0 ? Pick(0, length_max) : Pick(0, 40);
    // A state stands behind a full block.
    if (traits_.state_snapshots.has_value() && prompt.empty()) more += Pick(0, 150);
    for (uint32_t i = 0; i < more; ++i) {
      prompt.push_back(static_cast<int32_t>(Pick(0, static_cast<uint32_t>(model_.vocabulary) - 1)));
    }
    if (prompt.size() > length_max) prompt.resize(length_max);
    if (prompt.empty()) prompt.push_back(1);
    return prompt;
  }

  // Few states are kept: one of the chats that ended last, if there is one.
  std::map<RequestId, Request>::iterator LateChat(std::map<RequestId, Request>::iterator other) {
    std::vector<std::map<RequestId, Request>::iterator> late;
    for (auto at = requests_.end(); at != requests_.begin() && late.size() < kChatsMax;) {
      if ((--at)->second.has_ended && at->second.has_started) late.push_back(at);
    }
    return late.empty() ? other : late[Pick(0, static_cast<uint32_t>(late.size()) - 1)];
  }

  void Arrive(uint64_t& steps_max) {
    --requests_left_;
    next_arrival_ = now_ + Duration(Pick(0, gap_us_max_));
    Request request;
    request.context = Pick(0, 3) == 0 ? Pick(2, traits_.context_length) : traits_.context_length;
    RequestSpec& spec = request.spec;
    spec.id = ++last_id_;
    spec.key = absl::StrCat("client-", Pick(0, 3));
    spec.priority = static_cast<int32_t>(Pick(0, 5)) / 3 - 1 + static_cast<int32_t>(Pick(0, 1));
    spec.salt = Pick(0, 3) == 0 ? spec.key : "";
    spec.context_length = request.context;
    spec.max_new_tokens = Pick(0, 2) == 0 || answers_are_long_ ? 0 : Pick(1, 150);
    if (bug_ == BatchBug::kNone && Pick(0, 7) == 0) {
      spec.rows = Pick(0, 1) == 0 ? LogitRows::kHiddenLast : LogitRows::kHiddenAll;
    }
    if (Pick(0, 3) == 0) spec.start_by = now_ + std::chrono::milliseconds(Pick(0, 800));
    if (chooses_() % 8 != 0) {
      spec.choice = RowChoice();
      spec.choice->position = 1000;
    }
    const uint32_t behind = request.is_hidden() ? 0 : 1;
    const bool is_short = answers_are_long_ && !traits_.state_snapshots.has_value();
    spec.prompt = DrawPrompt(std::min(request.context - behind, is_short ? 60 : 1000u));
    ++report_.requests;
    steps_max += 60 + 4 * uint64_t{request.context};
    const absl::StatusOr<Effects> effects = scheduler_.Add(spec, now_);
    if (!effects.ok()) {
      ++report_.refused;
      if (scheduler_.waiting() < traits_.queued_requests_max) Fault("refused with places left");
      return;
    }
    requests_.emplace(spec.id, std::move(request));
    Take(*effects);
  }

  void CancelOne() {
    const RequestId id = Pick(1, static_cast<uint32_t>(std::max<uint64_t>(last_id_, 1)));
    const auto found = requests_.find(id);
    const bool is_there = found != requests_.end() && !found->second.has_ended;
    if (is_there) found->second.was_cancelled = true;
    const Effects effects = scheduler_.Cancel(id, now_);
    if (is_there != (effects.ended.size() == 1)) Fault(absl::StrCat("cancel of ", id));
    Take(effects);
  }

  bool IsLate(const Request& request) const {
    return !request.has_started && !request.has_ended && request.spec.start_by.has_value() &&
           *request.spec.start_by <= now_;
  }
  void ExpireLate() {
    size_t late = 0;
    for (const auto& [id, request] : requests_) late += IsLate(request) ? 1 : 0;
    const Effects effects = scheduler_.Expire(now_);
    if (effects.ended.size() != late) Fault(absl::StrCat(late, " are late"));
    for (const Effects::Ended& ended : effects.ended) {
      if (ended.reason != EndReason::kExpired || !IsLate(requests_.at(ended.id))) {
        Fault(absl::StrCat(ended.id, " is not late"));
      }
    }
    Take(effects);
  }

  void Take(const Effects& effects) {
    for (const Effects::Started& started : effects.started) {
      Request& request = requests_.at(started.id);
      if (std::exchange(request.has_started, true))
        Fault(absl::StrCat(started.id, " starts twice"));
      if (started.cached_tokens >= request.spec.prompt.size()) Fault("nothing left to compute");
      CheckMiss(request, started);
      if (started.cold_tokens > started.cached_tokens) Fault("more from disk than in all");
      report_.cached_tokens += started.cached_tokens;
      report_.cold_tokens += started.cold_tokens;
      report_.prompt_tokens += request.spec.prompt.size();
    }
    report_.preemptions += effects.preempted.size();
    for (const Effects::Ended& ended : effects.ended) {
      if (bug_ == BatchBug::kRequestForgotten && ended.id % 7 == 0) continue;
      TakeEnd(ended);
    }
  }

  void CheckMiss(const Request& request, const Effects::Started& started) {
    if (request.is_hidden()) {
      if (started.miss.kind != PrefixMiss::Kind::kNone) Fault("a miss where none counts");
      return;
    }
    const size_t wanted = BlockPool::PrefixBlocksMax(request.spec.prompt.size());
    const bool is_whole = started.cached_tokens == wanted * kBlockTokens;
    if (is_whole != (started.miss.kind == PrefixMiss::Kind::kNone)) Fault("a miss unexplained");
    if (!is_whole && (started.miss.position < started.cached_tokens ||
                      started.miss.position >= started.cached_tokens + kBlockTokens)) {
      Fault("a miss explained by another block");
    }
  }

  void TakeEnd(const Effects::Ended& ended) {
    Request& request = requests_.at(ended.id);
    if (std::exchange(request.has_ended, true)) Fault(absl::StrCat(ended.id, " ended twice"));
    if (ended.usage.prompt_tokens != request.spec.prompt.size() ||
        ended.usage.new_tokens != request.answer.size() ||
        ended.usage.accepted_tokens > ended.usage.draft_tokens) {
      Fault(absl::StrCat("the usage of ", ended.id, " is not what it got"));
    }
    report_.draft_tokens += ended.usage.draft_tokens;
    report_.accepted_tokens += ended.usage.accepted_tokens;
    report_.cancelled += ended.reason == EndReason::kCancelled ? 1 : 0;
    report_.displaced += ended.reason == EndReason::kDisplaced ? 1 : 0;
    report_.expired += ended.reason == EndReason::kExpired ? 1 : 0;
    if (request.was_cancelled != (ended.reason == EndReason::kCancelled)) Fault("a wrong reason");
    if (ended.reason == EndReason::kDisplaced && request.has_started) Fault("a started one left");
    CheckAnswer(ended.id, request, ended.reason);
  }

  // Against the same request alone.
  void CheckAnswer(RequestId id, const Request& request, EndReason reason) {
    if (request.is_hidden()) {
      const bool is_whole = request.hidden == request.spec.prompt.size();
      if (is_whole != (reason == EndReason::kFinished) && reason != EndReason::kCancelled) {
        Fault(absl::StrCat("request ", id, " has hidden states up to ", request.hidden));
      }
      return;
    }
    std::vector<int32_t> tokens = request.spec.prompt;
    for (const int32_t token : request.answer) {
      if (FakeNextToken(tokens, model_) != token) {
        Fault(absl::StrCat("request ", id, ": token ", tokens.size(), " is wrong"));
        return;
      }
      tokens.push_back(token);
    }
    const bool stops = !request.answer.empty() && IsEnd(request.answer.back());
    const bool full =
        tokens.size() == request.context || request.answer.size() == request.spec.max_new_tokens;
    if (stops != (reason == EndReason::kFinished) && reason != EndReason::kCancelled) {
      Fault(absl::StrCat("request ", id, " should have stopped, or should not"));
    }
    if (reason == EndReason::kLength && !full) Fault(absl::StrCat("request ", id, " is cut short"));
  }

  void OrderSteps() {
    while (in_flight_.size() < traits_.steps_in_flight_max) {
      NextStep next = scheduler_.Next(now_);
      Take(next.effects);
      CarryOut(next.cold);
      if (!next.ordered.has_value()) return;
      ++report_.steps;
      report_.overlapped_steps += in_flight_.empty() ? 0 : 1;
      report_.copied_blocks += next.ordered->step.copies.size();
      OrderedStep& ordered = *next.ordered;
      uint64_t tokens = 0;
      for (const Segment& segment : ordered.step.segments) {
        tokens += segment.tokens.size();
        report_.ahead_tokens += IsChosenRow(segment.tokens.back()) ? 1 : 0;
        Trace(segment.slot, segment.begin + (uint64_t{segment.tokens.size()} << 32));
        for (const BlockId block : segment.new_blocks) Trace(segment.slot, block);
        if (traits_.state_snapshots.has_value()) {
          Trace(static_cast<uint64_t>(segment.state_from), static_cast<uint64_t>(segment.state_to));
        }
      }
      const Duration took(500 + tokens * Pick(20, 200));
      const MonotonicTime begins = in_flight_.empty() ? now_ : in_flight_.back().done;
      Spoil(ordered.step);
      InFlight flying{std::move(ordered), {}, took, begins + took};
      if (bug_ == BatchBug::kStepsOutOfOrder && !held_back_.has_value() && Pick(0, 3) == 0 &&
          traits_.steps_in_flight_max > 1 && in_flight_.size() + 1 < traits_.steps_in_flight_max) {
        held_back_ = number_of(flying);
        in_flight_.push_back(std::move(flying));
        continue;
      }
      flying.tokens = gang_.Run(flying.ordered.step);
      in_flight_.push_back(std::move(flying));
      RunHeldBack();
      CheckGang();
    }
  }

  static uint64_t number_of(const InFlight& flying) { return flying.ordered.number; }

  void RunHeldBack() {
    if (!held_back_.has_value()) return;
    for (InFlight& flying : in_flight_) {
      if (number_of(flying) == *held_back_) flying.tokens = gang_.Run(flying.ordered.step);
    }
    held_back_.reset();
  }

  // Makes the planted mistake, now and then.
  void Spoil(ForwardStep& step) {
    if (bug_ == BatchBug::kNone || Pick(0, 5) != 0) return;
    Segment& segment = step.segments.front();
    if (bug_ == BatchBug::kClosureForgotten && !step.closed_slots.empty()) {
      step.closed_slots.pop_back();
    }
    if (bug_ == BatchBug::kTokenSkipped && segment.tokens.size() > 1) {
      segment.tokens.erase(segment.tokens.begin());
      ++segment.begin;
    }
    for (Segment& any : step.segments) SpoilState(any);
    int32_t& last = segment.tokens.back();
    if (bug_ == BatchBug::kChosenOfAnother && last == TokenOfChosenRow(1)) --last;
    if (bug_ == BatchBug::kChosenOfAnother && last == TokenOfChosenRow(0)) --last;
    const auto held = gang_.held().find(segment.slot);
    if (bug_ == BatchBug::kDraftKept && held != gang_.held().end() &&
        segment.begin < held->second && step.closed_slots.empty()) {
      segment.begin = held->second;
    }
    if (bug_ != BatchBug::kUsedBlockGiven || segment.new_blocks.empty()) return;
    for (const auto& [slot, table] : gang_.tables()) {
      const bool is_closed = std::find(step.closed_slots.begin(), step.closed_slots.end(), slot) !=
                             step.closed_slots.end();
      if (slot != segment.slot && !is_closed) segment.new_blocks.back() = table.back();
    }
  }

  void SpoilState(Segment& segment) {
    if (bug_ == BatchBug::kStateNotKept) segment.state_to = kNoSnapshot;
    if (bug_ == BatchBug::kStateOfAnother && segment.state_from > 0) --segment.state_from;
    if (bug_ == BatchBug::kStateOverwritten && segment.state_to > 0) --segment.state_to;
  }

  void CheckGang() {
    for (const std::string& fault : gang_.faults()) Fault(fault);
  }

  // What the ranks do with orders of the cold tier, and when rank 0 hears of it.
  void CarryOut(const ColdOrders& orders) {
    for (const ColdFill& fill : orders.fills) Fill(fill);
    for (const ColdStore& store : orders.stores) Store(store);
    for (const BlockName& name : orders.drops) {
      for (auto& disk : disks_) disk.erase(name);
    }
    for (const ColdLoad& load : orders.loads) Load(load);
    CheckGang();
  }

  void Fill(const ColdFill& fill) {
    const auto staged = staged_.extract(fill.id);
    for (size_t i = 0; i < fill.blocks.size(); ++i) {
      if (staged.empty() || i >= staged.mapped().size()) {
        Fault("a fill with more than was read");
        return;
      }
      const bool swaps = bug_ == BatchBug::kColdBlockSwapped;
      gang_.WriteBlock(fill.blocks[i], staged.mapped()[swaps ? 0 : i]);
    }
  }

  void Store(const ColdStore& store) {
    if (gang_.ReadBlock(store.block) != store.content.tokens) Fault("stored under a wrong name");
    ColdEvent event;
    event.kind = ColdEvent::Kind::kStored;
    event.names.push_back(NameOf(store.content));
    for (size_t rank = 0; rank < disks_.size(); ++rank) {
      if (Pick(1, 100) > disk_faults_) {
        disks_[rank][event.names[0]] = store.content.tokens;
      } else if (rank == 0) {
        event.kind = ColdEvent::Kind::kRefused;
      }
    }
    cold_events_.emplace(now_ + Duration(Pick(100, 3000)), event);
  }

  // Each rank has its own part of it; what they share is written from rank 0's.
  void Load(const ColdLoad& load) {
    const bool is_late = Pick(1, 400) <= disk_faults_;
    for (uint32_t rank = 0; rank < disks_.size(); ++rank) {
      ColdEvent event;
      event.kind = ColdEvent::Kind::kLoaded;
      event.rank = rank;
      event.id = load.id;
      BlockName name = load.parent;
      std::vector<BlockTokens> read;
      for (size_t at = 0; at < load.tokens.size(); at += kBlockTokens) {
        BlockTokens tokens;
        std::copy_n(load.tokens.begin() + static_cast<std::ptrdiff_t>(at), kBlockTokens,
                    tokens.begin());
        name = ChildName(name, tokens);
        if (Pick(1, 200) <= disk_faults_) disks_[rank].erase(name);  // a bit flipped
        const auto found = disks_[rank].find(name);
        if (found == disks_[rank].end()) break;
        read.push_back(found->second);
      }
      event.blocks = static_cast<uint32_t>(read.size());
      if (bug_ == BatchBug::kColdTooMany) event.blocks = 99;
      const auto known = staged_.try_emplace(load.id, read);
      if (known.first->second.size() > read.size()) known.first->second = read;
      const uint32_t us = is_late ? 9'000'000 : Pick(200, 4000) * (disk_faults_ > 10 ? 40 : 1);
      cold_events_.emplace(now_ + Duration(us), event);
    }
  }

  bool HearOfCold() {
    bool heard = false;
    while (!cold_events_.empty() && cold_events_.begin()->first <= now_) {
      scheduler_.OnCold(cold_events_.begin()->second, now_);
      cold_events_.erase(cold_events_.begin());
      heard = true;
    }
    return heard;
  }

  // To the next event; false when nothing will ever happen again.
  bool GoOn() {
    if (HearOfCold()) return true;
    if (!cold_events_.empty()) {
      const MonotonicTime next = cold_events_.begin()->first;
      if ((in_flight_.empty() || next <= in_flight_.front().done) &&
          (requests_left_ == 0 || next <= next_arrival_)) {
        now_ = next;
        return true;
      }
    }
    if (in_flight_.empty()) {
      if (!cold_events_.empty()) {
        now_ = std::max(now_, next_arrival_);
        return true;
      }
      if (scheduler_.has_cold_orders()) Fault("orders that nobody takes");
      if (requests_left_ == 0) {
        if (!scheduler_.idle()) Fault("requests wait, and nothing runs");
        return false;
      }
      if (!scheduler_.idle()) Fault("requests wait, and nothing runs");
      now_ = std::max(now_, next_arrival_);
      return true;
    }
    const MonotonicTime done = in_flight_.front().done;
    if (requests_left_ > 0 && next_arrival_ <= done && next_arrival_ > now_) {
      now_ = next_arrival_;
      return true;
    }
    now_ = std::max(now_, done);
    RunHeldBack();
    StepDone();
    return true;
  }

  void StepDone() {
    InFlight done = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (bug_ == BatchBug::kResultsSwapped && done.tokens.size() > 1) {
      std::swap(done.tokens.front(), done.tokens.back());
    }
    if (done.tokens.size() != done.ordered.rows.size()) {
      Fault("rows and their owners differ in number");
      return;
    }
    std::vector<RowResult> results;
    RowCheck check(done.ordered.rows);
    for (size_t i = 0; i < done.tokens.size(); ++i) {
      const RowOwner& owner = done.ordered.rows[i];
      int32_t token = done.tokens[i];
      if (bug_ == BatchBug::kDraftTaken && owner.draft.has_value()) token = *owner.draft;
      Request& request = requests_.at(owner.id);
      const bool counts = check.Counts(i, results);
      results.push_back({token, IsEnd(token)});
      Trace(owner.id, static_cast<uint64_t>(token));
      if (request.has_ended && IsAhead(done.ordered, owner.id)) ++report_.vain_tokens;
      if (request.has_ended || !counts) continue;
      CheckChoice(done.ordered, owner, request);
      if (owner.position != request.spec.prompt.size() + request.answer.size()) {
        Fault(absl::StrCat("a token of ", owner.id, " for position ", owner.position));
      }
      request.answer.push_back(token);
    }
    for (const HiddenOwner& owner : done.ordered.hidden) TakeHidden(owner);
    Take(scheduler_.OnStepDone(done.ordered.number, results, done.took, now_));
  }

  static const Segment& SegmentOf(const OrderedStep& ordered, RequestId id) {
    const auto at = std::find(ordered.owners.begin(), ordered.owners.end(), id);
    return ordered.step.segments[static_cast<size_t>(at - ordered.owners.begin())];
  }
  static bool IsAhead(const OrderedStep& ordered, RequestId id) {
    return IsChosenRow(SegmentOf(ordered, id).tokens.back());
  }
  // Chance comes from the position that the choice names.
  void CheckChoice(const OrderedStep& ordered, const RowOwner& owner, const Request& request) {
    const Segment& segment = SegmentOf(ordered, owner.id);
    if (owner.is_chosen != (segment.logit_rows == LogitRows::kChosen)) Fault("another row");
    if (owner.is_chosen && !request.spec.choice.has_value()) Fault("a choice that nobody named");
    if (owner.is_chosen && segment.choice.position != 1000 + request.answer.size()) {
      Fault(absl::StrCat("a token is chosen for position ", segment.choice.position));
    }
  }

  // All positions in their order, from the first, or the last alone.
  void TakeHidden(const HiddenOwner& owner) {
    Request& request = requests_.at(owner.id);
    if (request.has_ended) return;
    const bool is_all = request.spec.rows == LogitRows::kHiddenAll;
    const bool fits = is_all ? owner.begin == 0 || owner.begin == request.hidden
                             : owner.begin + 1 == request.spec.prompt.size() && owner.count == 1;
    if (!fits) Fault(absl::StrCat("hidden states of ", owner.id, " from ", owner.begin));
    request.hidden = owner.begin + owner.count;
    if (owner.is_last != (request.hidden == request.spec.prompt.size())) Fault("a wrong last row");
  }

  void Finish() {
    for (const auto& [id, request] : requests_) {
      if (!report_.faults.empty()) break;
      if (!request.has_ended) Fault(absl::StrCat("request ", id, " never ended"));
    }
    if (report_.faults.empty() && scheduler_.pool().available() != traits_.blocks_total) {
      Fault("blocks are in use and nothing runs");
    }
    if (scheduler_.states().kept() > scheduler_.states().snapshots()) Fault("too many states");
    report_.states_read = gang_.states_read();
    report_.states_written = gang_.states_written();
    report_.states_displaced = scheduler_.states().displaced();
    report_.evictions = scheduler_.pool().evictions();
    report_.failed_loads = scheduler_.cold().counts().failed_loads;
    report_.late_loads = scheduler_.cold().counts().late_loads;
    report_.slower_loads = scheduler_.cold().counts().slower_loads;
  }

  void Fault(const std::string& what) {
    if (report_.faults.size() < kFaultsMax) report_.faults.push_back(what);
  }
  void Trace(uint64_t a, uint64_t b) {
    report_.trace = (report_.trace ^ a ^ (b * 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    report_.trace ^= report_.trace >> 31;
  }

  std::mt19937_64 random_;
  std::mt19937_64 chooses_;  // who chooses tokens
  const BatchBug bug_;
  const BatchTraits traits_;
  const bool answers_are_long_;  // and few end before their length: blocks run out
  const FakeModel model_;
  uint32_t requests_left_;
  const uint32_t gap_us_max_;
  const uint32_t sharing_;                               // of 5
  std::vector<std::map<BlockName, BlockTokens>> disks_;  // by rank
  const uint32_t disk_faults_;                           // in a hundred
  std::map<uint64_t, std::vector<BlockTokens>> staged_;  // what all ranks have of a load
  std::multimap<MonotonicTime, ColdEvent> cold_events_;
  BatchScheduler scheduler_;
  FakeGang gang_;
  MonotonicTime now_{};
  MonotonicTime next_arrival_{};
  RequestId last_id_ = 0;
  std::map<RequestId, Request> requests_;
  std::deque<InFlight> in_flight_;
  std::optional<uint64_t> held_back_;
  BatchSimReport report_;
};

}  // namespace

BatchSimReport RunBatchSim(uint64_t seed, BatchBug bug, bool has_state) {
  return BatchSim(seed, bug, has_state).Run();
}

}  // namespace macrame::runtime::engine
