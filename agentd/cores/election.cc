#include "agentd/cores/election.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/check.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

// SkipTerms leaves out at most so many.
constexpr uint64_t kTermsSkipped = 1000;

uint32_t ToMs(Duration duration) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

std::string Describe(const FencePair& fence) {
  if (fence.coordinator.value().empty()) return "no coordinator";
  return absl::StrCat("coordinator ", ShortId(fence.coordinator), " in term ", fence.term.value());
}

}  // namespace

v1::Fence ToProto(const FencePair& fence) {
  v1::Fence proto;
  proto.set_term(fence.term.value());
  proto.set_coordinator_id(fence.coordinator.value());
  return proto;
}

FencePair FromProto(const v1::Fence& fence) {
  return {Term(fence.term()), NodeId(fence.coordinator_id())};
}

Election::Election(NodeId self, ElectionOptions options, std::optional<GrantRecord> record,
                   std::function<uint64_t()> random, MonotonicTime now)
    : self_(std::move(self)),
      options_(options),
      random_(std::move(random)),
      started_(now),
      live_{self_},
      all_{self_} {
  MACRAME_CHECK(options_.renew_interval * 2 <= options_.lease);
  MACRAME_CHECK(options_.clock_drift_percent < 50);
  if (!record.has_value()) return;
  granted_ = record->granted;
  granted_machine_ = record->machine;
  highest_term_ = granted_.term;
  // How much of it has run is not known, so all of it is taken to be ahead. What this node granted
  // to itself ended with the process that held it.
  if (granted_.coordinator != self_) granted_until_ = now + record->lease;
}

// --- what is asked -------------------------------------------------------------------------------

std::optional<FencePair> Election::Leading(MonotonicTime now) const {
  if (role_ != Role::kCoordinator || broken_ || now >= leads_until_) return std::nullopt;
  return mine_;
}

bool Election::HoldsLeaseOf(const NodeId& node, MonotonicTime now) const {
  if (!Leading(now).has_value()) return false;
  if (node == self_) return true;
  const auto lease = leases_.find(node);
  return lease != leases_.end() && now < lease->second;
}

std::optional<FencePair> Election::Coordinator(MonotonicTime now) const {
  if (const auto leading = Leading(now); leading.has_value()) return leading;
  if (LeasedToOther(self_, now)) return granted_;
  return std::nullopt;
}

absl::Status Election::CheckFence(const FencePair& fence) const {
  if (broken_) {
    return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kStateUnreadable,
                        "this node could not write its grant to disk and takes no orders",
                        self_.value());
  }
  if (fence == granted_ && !fence.coordinator.value().empty()) return absl::OkStatus();
  if (fence < granted_) {
    return ReasonStatus(
        absl::StatusCode::kFailedPrecondition, reasons::kStaleTerm,
        absl::StrCat("an order of ", Describe(fence),
                     " was refused: this node has granted its lease to ", Describe(granted_)),
        self_.value());
  }
  return ReasonStatus(absl::StatusCode::kUnavailable, reasons::kNoCoordinator,
                      absl::StrCat("an order of ", Describe(fence),
                                   " was refused: this node has not granted it its lease yet"),
                      self_.value());
}

// Whether anyone but `asker` may count on this node now.
bool Election::LeasedToOther(const NodeId& asker, MonotonicTime now) const {
  if (Leading(now).has_value()) return asker != self_;
  return granted_.coordinator != asker && granted_.coordinator != self_ && now < granted_until_;
}

bool Election::IsOfTwin(const v1::Fence& fence) const {
  return fence.coordinator_id() == granted_.coordinator.value() && !granted_machine_.empty() &&
         !fence.machine().empty() && fence.machine() != granted_machine_;
}

bool Election::LeasedToOther(const v1::Fence& asker, MonotonicTime now) const {
  return LeasedToOther(NodeId(asker.coordinator_id()), now) ||
         (IsOfTwin(asker) && now < granted_until_);
}

std::set<NodeId> Election::Electorate() const {
  if (options_.consistency == Consistency::kAvailable) return live_;
  return listed_.empty() ? all_ : listed_;
}

size_t Election::VotesNeeded() const {
  const size_t majority = MajorityOf(Electorate().size());
  const bool first = options_.consistency == Consistency::kQuorum && listed_.empty();
  return first ? std::max(majority, options_.first_members) : majority;
}

size_t Election::CountListed(const std::set<NodeId>& nodes) const {
  return static_cast<size_t>(std::count_if(
      listed_.begin(), listed_.end(), [&](const NodeId& node) { return nodes.contains(node); }));
}

void Election::NoteMinority(MonotonicTime now) {
  if (CountListed(live_) * 2 >= listed_.size()) {
    minority_since_.reset();
  } else if (!minority_since_.has_value()) {
    minority_since_ = now;
  }
}

bool Election::HasWaited(MonotonicTime now) const {
  return minority_since_.has_value() && now - *minority_since_ >= options_.minority_wait;
}

// Whether these voters may elect at all; that they are enough of the electorate is another matter.
bool Election::MayElect(const std::set<NodeId>& voters, MonotonicTime now) const {
  if (listed_.empty()) return true;
  if (options_.consistency == Consistency::kQuorum) return listed_.contains(self_);
  return HasWaited(now) || CountListed(voters) * 2 >= listed_.size();
}

std::optional<Election::Minority> Election::InMinority(MonotonicTime now) const {
  Minority minority{CountListed(live_), listed_.size(), std::nullopt};
  if (options_.consistency == Consistency::kQuorum) {
    if (listed_.empty()) minority = {live_.size(), VotesNeeded(), std::nullopt};
    if (minority.live >= VotesNeeded()) return std::nullopt;
    return minority;
  }
  if (!minority_since_.has_value() || HasWaited(now)) return std::nullopt;
  minority.until = *minority_since_ + options_.minority_wait;
  return minority;
}

size_t Election::VotesHeld(MonotonicTime now) const {
  size_t votes = 0;
  for (const NodeId& node : Electorate()) {
    const auto lease = leases_.find(node);
    if (node == self_ || (lease != leases_.end() && now < lease->second)) ++votes;
  }
  return votes;
}

// Of all nodes, whatever their state: what the other half is compared with.
uint32_t Election::LeasesHeld(MonotonicTime now) const {
  uint32_t held = 1;
  for (const auto& [node, until] : leases_) held += node != self_ && now < until;
  return now < raised_until_ ? std::max(held, raised_with_) : held;
}

Duration Election::UsableLease() const {
  return options_.lease * (100 - options_.clock_drift_percent) / 100;
}

MonotonicTime Election::LeaseEnd(MonotonicTime sent_at) const { return sent_at + UsableLease(); }

bool Election::IsFresh(const NodeId& node, MonotonicTime now) const {
  const auto lease = leases_.find(node);
  return lease != leases_.end() && now < lease->second - UsableLease() + options_.fresh_for;
}

MonotonicTime Election::FirstStale(MonotonicTime now) const {
  MonotonicTime first = now + options_.fresh_for;
  for (const auto& [node, until] : leases_) {
    const bool is_asked = live_.contains(node) || beside_.contains(node);
    if (is_asked) first = std::min(first, until - UsableLease() + options_.fresh_for);
  }
  return first;
}

Duration Election::RoundTimeout() const {
  const Duration grown = options_.round_timeout * (1 << std::clamp(lost_rounds_ - 1, 0, 4));
  return std::max(options_.round_timeout, std::min(grown, options_.round_timeout_max));
}

Duration Election::Jitter() const {
  return options_.election_jitter * (1 << std::clamp(lost_rounds_ - 1, 0, 4));
}

// Who counts in the majority that a sitting coordinator must hold: its electors, who granted since,
// and who has been live for long enough to have been asked several times.
std::set<NodeId> Election::Sitting(MonotonicTime now) {
  if (options_.consistency == Consistency::kQuorum) return Electorate();
  for (const auto& [node, since] : live_since_) {
    if (now - since >= options_.joining_grace) sitting_.insert(node);
  }
  std::erase_if(sitting_, [this](const NodeId& node) { return !live_.contains(node); });
  return sitting_;
}

// The instant at which too few leases are left, if none is renewed.
void Election::RecomputeLeadsUntil(MonotonicTime now) {
  std::vector<MonotonicTime> ends;
  for (const NodeId& node : Sitting(now)) {
    const auto lease = leases_.find(node);
    if (node == self_) {
      ends.push_back(MonotonicTime::max());
    } else {
      ends.push_back(lease == leases_.end() ? MonotonicTime::min() : lease->second);
    }
  }
  std::sort(ends.begin(), ends.end(), std::greater<>());
  const size_t needed =
      options_.consistency == Consistency::kQuorum ? VotesNeeded() : MajorityOf(ends.size());
  leads_until_ = needed <= ends.size() ? ends[needed - 1] : MonotonicTime::min();
  leads_until_ = std::min(leads_until_, ListedUntil(now));
}

// When too few of the listed members lend themselves out: less than half of them don't lead on,
// just as they don't elect.
MonotonicTime Election::ListedUntil(MonotonicTime now) const {
  if (options_.consistency == Consistency::kQuorum || listed_.empty() || HasWaited(now)) {
    return MonotonicTime::max();
  }
  std::vector<MonotonicTime> ends;
  for (const NodeId& node : listed_) {
    const auto lease = leases_.find(node);
    if (node == self_) {
      ends.push_back(MonotonicTime::max());
    } else if (lease != leases_.end()) {
      ends.push_back(lease->second);
    }
  }
  std::sort(ends.begin(), ends.end(), std::greater<>());
  const size_t half = (listed_.size() + 1) / 2;
  return half <= ends.size() ? ends[half - 1] : MonotonicTime::min();
}

Duration Election::RandomPartOf(Duration whole) {
  const uint64_t count = static_cast<uint64_t>(whole.count());
  return count == 0 ? Duration{} : Duration(static_cast<int64_t>(random_() % count));
}

// --- what happens --------------------------------------------------------------------------------

ElectionEffects Election::OnTick(MonotonicTime now) {
  ElectionEffects effects;
  if (broken_) return effects;
  switch (role_) {
    case Role::kFollower:
      TickFollower(now, effects);
      break;
    case Role::kPreCandidate:
    case Role::kCandidate:
      if (now >= round_ends_) GiveUpRound(now, effects);
      break;
    case Role::kCoordinator:
      TickCoordinator(now, effects);
      break;
  }
  NoteObeyed(now, effects);
  return effects;
}

MonotonicTime Election::NextDue() const {
  switch (role_) {
    case Role::kFollower:
      // Its coordinator's lease runs out, or it stands.
      return stand_at_.has_value() ? std::max(*stand_at_, settled_at_) : granted_until_;
    case Role::kPreCandidate:
    case Role::kCandidate:
      return round_ends_;
    case Role::kCoordinator:
      return std::min(renew_at_, leads_until_);
  }
  return MonotonicTime();
}

void Election::TickFollower(MonotonicTime now, ElectionEffects& effects) {
  if (LeasedToOther(self_, now)) {
    stand_at_.reset();
    return;
  }
  if (!stand_at_.has_value()) {
    stand_at_ =
        std::max(now, started_ + options_.discovery_grace) + RandomPartOf(options_.election_jitter);
  }
  if (unable_ || resigned_ || now < settled_at_) return;
  if (now >= *stand_at_ && MayElect(live_, now)) BecomePreCandidate(now, effects);
}

void Election::TickCoordinator(MonotonicTime now, ElectionEffects& effects) {
  // What ran out stays lost, even if the majority is smaller by now.
  if (now < leads_until_) RecomputeLeadsUntil(now);
  if (now >= leads_until_) {
    StepDown(MakeReason(reasons::kNoCoordinator,
                        absl::StrCat("the leases of a majority of ", Electorate().size(),
                                     " members could not be renewed in time"),
                        self_.value()),
             now, effects);
    return;
  }
  if (now < renew_at_) return;
  renew_at_ = now + options_.renew_interval;
  const size_t before = effects.size();
  AskAll(/*pre_vote=*/false, now, effects);
  // All have answered: nobody is asked before the first lease is not fresh any more.
  if (effects.size() == before) renew_at_ = std::max(renew_at_, FirstStale(now));
}

ElectionEffects Election::OnMembershipChanged(const std::set<NodeId>& live,
                                              const std::set<NodeId>& all, MonotonicTime now) {
  ElectionEffects effects;
  const std::set<NodeId> before = std::exchange(live_, live);
  live_.insert(self_);
  all_ = all;
  all_.insert(live_.begin(), live_.end());
  for (const NodeId& node : live_) {
    if (!before.contains(node)) live_since_[node] = now;
  }
  std::erase_if(live_since_, [this](const auto& item) { return !live_.contains(item.first); });
  NoteMinority(now);
  const bool joined = !std::includes(before.begin(), before.end(), live_.begin(), live_.end());
  if (joined && !ever_obeyed_) {
    settled_at_ =
        std::min(now + options_.settle, started_ + options_.discovery_grace + options_.settle_max);
  }
  if (broken_) return effects;
  if (role_ == Role::kCoordinator) {
    if (joined) renew_at_ = now;  // asked at once
    TickCoordinator(now, effects);
  } else if (role_ == Role::kCandidate) {
    WinIfMajority(now, effects);
  }
  NoteObeyed(now, effects);
  return effects;
}

ElectionEffects Election::OnMemberList(const std::set<NodeId>& listed, MonotonicTime now) {
  ElectionEffects effects;
  listed_ = listed;
  NoteMinority(now);
  if (broken_) return effects;
  if (role_ == Role::kCoordinator) {
    TickCoordinator(now, effects);
  } else if (role_ == Role::kCandidate) {
    WinIfMajority(now, effects);
  }
  NoteObeyed(now, effects);
  return effects;
}

ElectionEffects Election::OnLeaseRequest(const NodeId& from, const v1::LeaseRequest& request,
                                         MonotonicTime now) {
  ElectionEffects effects;
  const FencePair fence = FromProto(request.fence());
  const bool honest = fence.coordinator == from && from != self_ && fence.term.value() > 0 &&
                      fence.term.value() <= kTermMax && request.lease_ms() <= kLeaseMsMax;
  if (broken_ || !honest) {
    Answer(false, false, now, effects);
    return effects;
  }
  if (request.pre_vote()) {
    Answer(fence > granted_ && !LeasedToOther(request.fence(), now), false, now, effects);
    return effects;
  }
  highest_term_ = std::max(highest_term_, fence.term);
  if (request.lease_ms() == 0) {
    AnswerRelease(request.fence(), now, effects);
  } else if (fence == granted_ && !IsOfTwin(request.fence())) {
    RenewGrant(request, now, effects);
  } else if (fence <= granted_) {
    Answer(false, false, now, effects);
  } else {
    AnswerHigherPair(request, now, effects);
  }
  NoteObeyed(now, effects);
  return effects;
}

// It renews in time after all: no more asking to be elected in its place.
void Election::RenewGrant(const v1::LeaseRequest& request, MonotonicTime now,
                          ElectionEffects& effects) {
  BecomeFollower();
  lost_rounds_ = 0;
  granted_until_ = now + std::chrono::milliseconds(request.lease_ms());
  granted_electors_ = request.electors();
  // A grant of a version that did not write it down.
  if (granted_machine_.empty()) granted_machine_ = request.fence().machine();
  stand_at_.reset();
  Answer(true, request.wants_entries(), now, effects);
}

void Election::AnswerHigherPair(const v1::LeaseRequest& request, MonotonicTime now,
                                ElectionEffects& effects) {
  const FencePair fence = FromProto(request.fence());
  if (role_ == Role::kFollower && LeasedToOther(request.fence(), now)) {
    Answer(false, false, now, effects);
    return;
  }
  // 0: an older agent, which does not say; there the pair decides.
  if (role_ == Role::kCoordinator && request.electors() > 0 &&
      IsSmaller(request.electors(), fence, now)) {
    RaiseTerm(fence, now, effects);
    Answer(false, false, now, effects);
    return;
  }
  if (role_ == Role::kCoordinator) {
    StepDown(
        MakeReason(reasons::kStaleTerm, absl::StrCat("met ", Describe(fence), ", a higher pair"),
                   fence.coordinator.value()),
        now, effects);
  } else if (role_ != Role::kFollower) {
    GiveUpRound(now, effects);
  }
  Grant(request.fence(), std::chrono::milliseconds(request.lease_ms()), now, effects);
  granted_electors_ = request.electors();
  Answer(true, request.wants_entries(), now, effects);
}

v1::Fence Election::FenceOf(const FencePair& pair) const {
  v1::Fence fence = ToProto(pair);
  fence.set_machine(machine_);
  return fence;
}

void Election::AnswerRelease(const v1::Fence& fence, MonotonicTime now, ElectionEffects& effects) {
  const bool is_its_own = FromProto(fence) == granted_ && !IsOfTwin(fence);
  if (is_its_own) granted_until_ = now;
  Answer(is_its_own, false, now, effects);
}

void Election::Answer(bool granted, bool with_entries, MonotonicTime now,
                      ElectionEffects& effects) const {
  AnswerLease answer;
  answer.response.set_granted(granted);
  *answer.response.mutable_highest() = ToProto(granted_);
  if (!granted && granted_.coordinator != self_ && now < granted_until_) {
    answer.response.set_remaining_ms(ToMs(granted_until_ - now));
    answer.response.set_electors(granted_electors_);
  } else if (Leading(now).has_value() || now < raised_until_) {
    answer.response.set_electors(LeasesHeld(now));
  }
  answer.with_entries = with_entries;
  effects.emplace_back(std::move(answer));
}

void Election::Grant(const v1::Fence& fence, Duration lease, MonotonicTime now,
                     ElectionEffects& effects) {
  granted_ = FromProto(fence);
  granted_machine_ = fence.machine();
  effects.emplace_back(PersistGrant{{granted_, lease, granted_machine_}});
  granted_until_ = now + lease;
  highest_term_ = std::max(highest_term_, granted_.term);
  BecomeFollower();
  lost_rounds_ = 0;
  stand_at_.reset();
}

ElectionEffects Election::OnLeaseResponse(const SendLeaseRequest& asked,
                                          const v1::LeaseResponse& response, MonotonicTime now) {
  ElectionEffects effects;
  const FencePair fence = FromProto(asked.request.fence());
  const Term highest = FromProto(response.highest()).term;
  if (broken_ || highest.value() > kTermMax) return effects;
  highest_term_ = std::max(highest_term_, highest);
  const bool is_ours = fence == mine_;
  if (asked.request.pre_vote()) {
    if (role_ != Role::kPreCandidate || !is_ours) return effects;
    OnPreVote(asked.to, response.granted(), now, effects);
  } else if (asked.request.lease_ms() == 0) {
    return effects;
  } else if (role_ == Role::kCandidate && is_ours) {
    OnAnswerToCandidate(asked, response, now, effects);
  } else if (role_ == Role::kCoordinator && is_ours) {
    OnAnswerToCoordinator(asked, response, now, effects);
  } else if (response.granted()) {
    // A lease that came too late to be used: others need not wait for it to run out.
    v1::LeaseRequest release;
    *release.mutable_fence() = asked.request.fence();
    effects.emplace_back(SendLeaseRequest{asked.to, std::move(release), now});
  }
  NoteObeyed(now, effects);
  return effects;
}

void Election::OnPreVote(const NodeId& from, bool granted, MonotonicTime now,
                         ElectionEffects& effects) {
  if (!granted) return;
  pre_votes_.insert(from);
  const std::set<NodeId> electorate = Electorate();
  const auto votes = std::count_if(pre_votes_.begin(), pre_votes_.end(),
                                   [&](const NodeId& node) { return electorate.contains(node); });
  if (static_cast<size_t>(votes) >= VotesNeeded() && MayElect(pre_votes_, now)) {
    BecomeCandidate(now, effects);
  }
}

void Election::TakeLease(const SendLeaseRequest& asked) {
  if (asked.request.wants_entries()) entries_from_.insert(asked.to);
  MonotonicTime& lease = leases_[asked.to];
  lease = std::max(lease, LeaseEnd(asked.sent_at));
}

void Election::OnAnswerToCandidate(const SendLeaseRequest& asked, const v1::LeaseResponse& response,
                                   MonotonicTime now, ElectionEffects& effects) {
  if (response.granted()) {
    TakeLease(asked);
    WinIfMajority(now, effects);
  } else if (FromProto(response.highest()) > mine_) {
    GiveUpRound(now, effects);
  }
}

void Election::OnAnswerToCoordinator(const SendLeaseRequest& asked,
                                     const v1::LeaseResponse& response, MonotonicTime now,
                                     ElectionEffects& effects) {
  TickCoordinator(now, effects);  // it may have run out meanwhile
  if (role_ != Role::kCoordinator) return;
  if (response.granted()) {
    TakeLease(asked);
    if (now < leases_[asked.to]) sitting_.insert(asked.to);
    RecomputeLeadsUntil(now);
  } else {
    Meet(asked.to, FromProto(response.highest()), response.electors(), now, effects);
  }
}

ElectionEffects Election::OnGone(const NodeId& node, MonotonicTime now) {
  ElectionEffects effects;
  if (node == self_ || granted_.coordinator != node || now >= granted_until_) return effects;
  granted_until_ = now;
  if (!broken_) NoteObeyed(now, effects);
  return effects;
}

ElectionEffects Election::OnPersistFailed(MonotonicTime now) {
  ElectionEffects effects;
  if (role_ == Role::kCoordinator) {
    StepDown(MakeReason(reasons::kStateUnreadable, "the grant could not be written to disk",
                        self_.value()),
             now, effects);
  }
  broken_ = true;
  BecomeFollower();
  NoteObeyed(now, effects);
  return effects;
}

std::optional<GrantRecord> Election::Unsaved() const {
  if (!broken_) return std::nullopt;
  return GrantRecord{granted_, options_.lease, granted_machine_};
}

// Nobody was told of that grant, so it is one that was never used: it counts from now.
ElectionEffects Election::OnPersisted(MonotonicTime now) {
  ElectionEffects effects;
  if (!broken_) return effects;
  broken_ = false;
  if (granted_.coordinator != self_) granted_until_ = now + options_.lease;
  NoteObeyed(now, effects);
  return effects;
}

ElectionEffects Election::OnDiskTrouble(const std::optional<v1::Reason>& why, MonotonicTime now) {
  ElectionEffects effects;
  unable_ = why.has_value();
  if (!unable_ || broken_) return effects;
  if (role_ == Role::kCoordinator) {
    StepDown(*why, now, effects);
  } else if (role_ != Role::kFollower) {
    GiveUpRound(now, effects);
  }
  NoteObeyed(now, effects);
  return effects;
}

void Election::SkipTerms() {
  const uint64_t term =
      std::max(highest_term_, granted_.term).value() + 1 + random_() % kTermsSkipped;
  if (term < kTermMax) highest_term_ = Term(term);
  // Where another machine had the place meanwhile, it was given up.
  resigned_ = false;
}

ElectionEffects Election::Resign(MonotonicTime now) {
  ElectionEffects effects;
  if (role_ == Role::kCoordinator) {
    StepDown(MakeReason(reasons::kNodeLeft, "the coordinator is shutting down", self_.value()), now,
             effects);
  } else if (role_ != Role::kFollower) {
    GiveUpRound(now, effects);
  }
  resigned_ = true;
  NoteObeyed(now, effects);
  return effects;
}

// --- standing, winning, losing -------------------------------------------------------------------

void Election::Ask(const NodeId& to, bool pre_vote, Duration lease, MonotonicTime now,
                   ElectionEffects& effects) {
  if (to == self_) return;
  v1::LeaseRequest request;
  *request.mutable_fence() = FenceOf(mine_);
  request.set_lease_ms(ToMs(lease));
  request.set_pre_vote(pre_vote);
  if (!pre_vote) {
    asked_.insert(to);
    // A lease counts only together with what its granter holds, and an answer may be lost.
    request.set_wants_entries(!entries_from_.contains(to));
    request.set_electors(LeasesHeld(now));
  }
  effects.emplace_back(SendLeaseRequest{to, std::move(request), now});
}

void Election::AskAll(bool pre_vote, MonotonicTime now, ElectionEffects& effects) {
  for (const NodeId& node : live_) {
    if (pre_vote || !IsFresh(node, now)) Ask(node, pre_vote, options_.lease, now, effects);
  }
  if (pre_vote) return;
  for (const NodeId& node : beside_) {
    if (!live_.contains(node) && !IsFresh(node, now))
      Ask(node, pre_vote, options_.lease, now, effects);
  }
}

void Election::BecomeFollower() { role_ = Role::kFollower; }

// A pre-vote: it changes nothing anywhere, so a node that is half cut off disturbs no-one.
void Election::BecomePreCandidate(MonotonicTime now, ElectionEffects& effects) {
  MACRAME_CHECK(role_ == Role::kFollower);
  role_ = Role::kPreCandidate;
  mine_ = {Term(std::max(highest_term_, granted_.term).value() + 1), self_};
  pre_votes_ = {self_};
  round_ends_ = now + RoundTimeout();
  stand_at_.reset();
  if (VotesNeeded() <= 1) {
    BecomeCandidate(now, effects);
  } else {
    AskAll(/*pre_vote=*/true, now, effects);
  }
}

// With enough pre-votes; or as a coordinator that raises its term.
void Election::BecomeCandidate(MonotonicTime now, ElectionEffects& effects) {
  MACRAME_CHECK(role_ == Role::kPreCandidate || role_ == Role::kCoordinator);
  MACRAME_CHECK(mine_.coordinator == self_);
  role_ = Role::kCandidate;
  round_ends_ = now + RoundTimeout();
  leases_.clear();
  asked_.clear();
  entries_from_.clear();
  granted_ = mine_;
  granted_machine_ = machine_;
  highest_term_ = std::max(highest_term_, mine_.term);
  effects.emplace_back(PersistGrant{{mine_, options_.lease, machine_}});
  AskAll(/*pre_vote=*/false, now, effects);
  WinIfMajority(now, effects);
}

void Election::WinIfMajority(MonotonicTime now, ElectionEffects& effects) {
  std::set<NodeId> voters = {self_};
  for (const auto& [node, until] : leases_) {
    if (now < until) voters.insert(node);
  }
  if (VotesHeld(now) >= VotesNeeded() && MayElect(voters, now)) BecomeCoordinator(now, effects);
}

void Election::BecomeCoordinator(MonotonicTime now, ElectionEffects& effects) {
  MACRAME_CHECK(role_ == Role::kCandidate);
  role_ = Role::kCoordinator;
  lost_rounds_ = 0;
  sitting_ = Electorate();
  RecomputeLeadsUntil(now);
  renew_at_ = now + options_.renew_interval;
  effects.emplace_back(BecameCoordinator{mine_});
}

void Election::GiveBackLeases(MonotonicTime now, ElectionEffects& effects) {
  leases_.clear();
  for (const NodeId& node : std::exchange(asked_, {})) {
    v1::LeaseRequest release;
    *release.mutable_fence() = FenceOf(mine_);
    effects.emplace_back(SendLeaseRequest{node, std::move(release), now});
  }
}

void Election::GiveUpRound(MonotonicTime now, ElectionEffects& effects) {
  BecomeFollower();
  raised_until_ = now;
  GiveBackLeases(now, effects);
  ++lost_rounds_;
  stand_at_ = now + options_.round_timeout / 4 + RandomPartOf(Jitter());
}

void Election::StepDown(v1::Reason why, MonotonicTime now, ElectionEffects& effects) {
  BecomeFollower();
  raised_until_ = now;
  effects.emplace_back(LostCoordination{mine_, std::move(why)});
  GiveBackLeases(now, effects);
  // A successor that is there already renews in this time.
  stand_at_ = now + options_.renew_interval * 3 / 2 + RandomPartOf(options_.election_jitter);
}

// Whether the half that this other coordinator leads is the one to give way. The leases that both
// count are of different nodes, for a node grants to one at a time.
bool Election::IsSmaller(uint32_t electors, const FencePair& fence, MonotonicTime now) const {
  if (options_.consistency == Consistency::kQuorum) return fence < mine_;
  const uint32_t own = LeasesHeld(now);
  return electors != own ? electors < own : fence < mine_;
}

// A coordinator heard of another one's pair. That a follower obeys a lower one may be long over; a
// coordinator itself knows.
void Election::Meet(const NodeId& teller, const FencePair& other, uint32_t electors,
                    MonotonicTime now, ElectionEffects& effects) {
  if (other.coordinator.value().empty()) return;
  if (other.coordinator == self_) {
    // Led by this node before its disk was replaced by an older one, or by a copy of it.
    if (other > mine_) RaiseTerm(other, now, effects);
    return;
  }
  const bool smaller = IsSmaller(electors, other, now);
  if (smaller && other > mine_) {
    RaiseTerm(other, now, effects);
  } else if (!smaller && (other > mine_ || teller == other.coordinator)) {
    StepDown(MakeReason(reasons::kStaleTerm,
                        absl::StrCat("met ", Describe(other), ", whom ", electors,
                                     " nodes obey; this one holds ", LeasesHeld(now), " leases"),
                        other.coordinator.value()),
             now, effects);
  }
}

// The same leases once more, under a term above the other half's. Who granted the pair that this
// node had leases it to nobody else meanwhile.
void Election::RaiseTerm(const FencePair& above, MonotonicTime now, ElectionEffects& effects) {
  highest_term_ = std::max({highest_term_, above.term, mine_.term});
  if (highest_term_.value() >= kTermMax) return;
  effects.emplace_back(LostCoordination{
      mine_,
      MakeReason(reasons::kStaleTerm,
                 absl::StrCat("met ", Describe(above), " of a smaller half; the term is raised"),
                 above.coordinator.value())});
  raised_with_ = LeasesHeld(now);
  raised_until_ = now + options_.lease;
  mine_ = {Term(highest_term_.value() + 1), self_};
  BecomeCandidate(now, effects);
}

void Election::CheckInvariants() const {
  MACRAME_CHECK(granted_.term <= highest_term_);
  MACRAME_CHECK(!leases_.contains(self_));
  if (role_ == Role::kFollower) return;
  MACRAME_CHECK(!broken_) << "who can't write its grants stands for nothing";
  MACRAME_CHECK(mine_.coordinator == self_);
  if (role_ == Role::kPreCandidate) {
    MACRAME_CHECK(granted_ < mine_) << "a pre-vote is for a term that nobody has";
  } else {
    MACRAME_CHECK(granted_ == mine_) << "who asks for leases has granted itself its own";
  }
}

void Election::NoteObeyed(MonotonicTime now, ElectionEffects& effects) {
  std::optional<FencePair> obeyed = Coordinator(now);
  if (obeyed == last_obeyed_) return;
  last_obeyed_ = obeyed;
  ever_obeyed_ |= obeyed.has_value();
  effects.emplace_back(ObeysChanged{std::move(obeyed)});
}

}  // namespace macrame::agentd
