#pragma once

// Continuous batching: which tokens of which sequences the gang's next step runs. Pure: requests,
// results and `now` in, the next step out; the same calls give the same steps. Rank 0 only.
//
// Each step has the next token of every running answer, and prompt tokens as far as the step's time
// budget allows (StepCost learns what steps cost), in chunks. Among prompts: higher priority first,
// then the one with the least left, so a short prompt passes a long one; the one that came first
// has a share of each step for itself. At least one chunk of the smallest size goes along in each
// step, however long the answers take. A prompt that has all to itself may go in larger chunks,
// which a GPU computes faster: who comes meanwhile waits for the end of one.
//
// A request is started when a place is free and the blocks of its prompt and one more are there,
// counting cached ones that can give way. Who comes next: RequestQueue. Up to kBypassesMax requests
// may pass one whose blocks are not there. When a running sequence needs a block and none is left,
// the one of lowest standing is preempted: its full blocks stay cached as long as they can, and it
// goes back to the queue, before others of its level, with the tokens it has. Standing is the time
// of arrival, moved forward by `aging_interval` for each level of priority: it never changes, so
// whoever stands highest is never preempted and ends, and so do all.
//
// A prompt whose next block a running sequence is just computing waits for it and takes it from the
// cache, so that requests with a common beginning, sent at once, compute it once.
//
// With a cold tier (cold/cold_tier.h) a prompt that goes on in blocks on disk waits for them, up to
// a limit, and takes them like cached ones; others go on meanwhile.
//
// Steps may be ordered before earlier ones are done (steps_in_flight_max, for pipelines): answers
// are then spread over the steps, and chunks of a prompt follow one another.
//
// Where tokens are chosen on the device (chooses_tokens), two steps may be in flight with the same
// answers: an answer goes on in step n + 1 while its token of step n is not known. Its sequence
// holds a place for that token, which OnStepDone fills in. Only a request with a `choice` does so;
// one that needs the host for each token is in a step only when all its tokens are known. While
// such requests are more than a few, no step is given ahead: they would have every other step only.
// Nor does one whose next tokens can be guessed: drafts come behind tokens that are known.
// An answer that ends with a token that is not known beforehand has run that token too, in vain:
// that row is ignored. What ends it for its length is known, and runs no further. A block is
// offered to the index only when all its tokens are known, and no state of recurrent layers is kept
// behind a token that is not: there an answer waits for its token.
//
// While no prompt is computed, tokens that may follow an answer's next one run along in the same
// step, as many as are expected to pay by what StepCost knows: what PromptLookup finds, or what a
// draft model made of an order (PlanModelDrafts) if that is likelier right. Each of them counts
// when it is the token that is then chosen; what the others wrote into the cache is overwritten,
// and no block that they reach is offered to the index before. So drafts change when a token comes,
// never which.
//
// A model with recurrent layers goes on behind a cached prefix only where the layers' state is
// kept: state_cache.h says which states are, and chunks of prompts end where one is to be. A
// rejected draft could not be taken back, so nothing is drafted, and blocks on disk would lack the
// state.
//
// A request for hidden states (an embedding) is a prompt without an answer: it ends with its last
// token. One that wants those of all positions takes nothing from the cache.
//
// What ended is told in the closed_slots of the next step; when nothing runs, it waits for one.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "proto/monotonic_time.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/serving/cache/block_pool.h"
#include "runtime/serving/cache/state_cache.h"
#include "runtime/serving/cold/cold_tier.h"
#include "runtime/serving/draft_planner.h"
#include "runtime/serving/request_queue.h"
#include "runtime/serving/step_cost.h"

namespace macrame::runtime::engine {

inline constexpr uint32_t kBypassesMax = 8;
inline constexpr int32_t kPriorityMax = 100;  // and -100

struct BatchTraits {
  uint32_t blocks_total = 0;
  uint32_t context_length = 0;  // of any request; one always fits: context_length <= blocks * 32
  uint32_t sequences_max = 16;
  uint32_t queued_requests_max = 32;  // beside those for which a place is free
  uint32_t steps_in_flight_max = 1;
  // Tokens of requests with a `choice` are chosen by the step itself (LayerStack::chooses_tokens).
  // At most two steps are in flight then.
  bool chooses_tokens = false;
  // A sequence's blocks follow one another as far as they can (LayerStack::keeps_runs).
  bool keeps_runs = false;
  Duration step_budget = std::chrono::milliseconds(100);
  Duration step_budget_alone = std::chrono::milliseconds(1000);  // with chunk_tokens_alone
  uint32_t chunk_tokens_min = 16;   // a prompt's last chunk may be smaller
  uint32_t chunk_tokens_max = 512;  // prompt tokens of a step, all sequences together
  // Of a step that has one prompt and nothing else, while nobody waits; 0: as many as else.
  uint32_t chunk_tokens_alone = 0;
  double first_come_share = 0.25;  // of a step's prompt tokens, for the prompt that came first
  Duration aging_interval = std::chrono::seconds(30);
  bool shares_prefixes = true;    // a sequence may begin with what another one computed
  uint32_t draft_tokens_max = 0;  // of an answer in one step; 0: none
  // Rows of all answers of a step that has drafts: more of them would have other bits
  // (steady_rows.h). 0: any number.
  uint32_t draft_rows_max = 0;
  DraftModelTraits draft_model;  // none by default
  ColdTraits cold;               // none by default
  // Of a model with recurrent layers, which takes no drafts and no cold tier: how many of their
  // states are kept for reuse, under ids from 0 on. Unset: it has none.
  std::optional<uint32_t> state_snapshots{};
};

struct RequestSpec {
  RequestId id = 0;      // not that of a request that has not ended
  std::string key;       // whose it is: fairness is among keys
  int32_t priority = 0;  // higher first; within +-kPriorityMax
  std::vector<int32_t> prompt;
  uint32_t max_new_tokens = 0;  // 0: until the context is full
  uint32_t context_length = 0;  // prompt and answer together; 0: the traits'
  std::string salt;             // cached blocks are shared only under the same salt
  bool memory_only = false;     // what it computes is not offered to the cold tier, nor read there
  // kHiddenLast, kHiddenAll: the prompt's hidden states are wanted, and no answer.
  LogitRows rows = LogitRows::kLast;
  // How all its tokens are chosen where a step chooses them; `position` is that of the first.
  // Unset: its rows' logits are wanted.
  std::optional<RowChoice> choice{};
  // How many of the tokens may follow the answer so far, for drafts; unset: all may. Asked while
  // the request is there.
  std::function<size_t(std::span<const int32_t>)> admitted{};
  // It ends (kExpired) when its first step has not been ordered by then.
  std::optional<MonotonicTime> start_by{};
};

// How far a request is whose answer has not begun, or was interrupted.
struct PromptStanding {
  bool is_queued = false;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t computed_tokens = 0;  // of the prompt: cached, or in steps that were ordered

  bool operator==(const PromptStanding&) const = default;
};

struct RequestUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // of the prompt, taken from the cache at the first start
  uint32_t cold_tokens = 0;    // of those, read from disk
  uint32_t new_tokens = 0;     // with the end token
  uint32_t preemptions = 0;
  uint32_t recomputed_tokens = 0;  // run again after preemption
  Duration queued{};               // from arrival to the first step
  uint32_t draft_tokens = 0;       // run before they were chosen
  uint32_t accepted_tokens = 0;    // of these, the right ones
};

// Of all requests since the start.
struct PreemptionCounts {
  uint64_t preemptions = 0;
  uint64_t recomputed_tokens = 0;  // run again after preemption

  bool operator==(const PreemptionCounts&) const = default;
};

enum class EndReason : uint8_t { kFinished, kLength, kCancelled, kDisplaced, kExpired };

// What happened to requests, in order.
struct Effects {
  struct Started {
    RequestId id = 0;
    uint32_t cached_tokens = 0;
    uint32_t cold_tokens = 0;  // of those, read from disk
    Duration queued{};
    PrefixMiss miss;  // why no more was cached
  };
  struct Ended {
    RequestId id = 0;
    EndReason reason = EndReason::kFinished;
    RequestUsage usage;
  };
  std::vector<Started> started;
  std::vector<RequestId> preempted;
  std::vector<RequestId> resumed;
  // kDisplaced: a request that waited gave its place to another client's; answer QUEUE_FULL.
  // kExpired: its turn did not come in time; answer QUEUE_TIMEOUT.
  std::vector<Ended> ended;
};

// Whose a row of logits is, or a token that the step chooses: in the order of the segments that ask
// for them.
struct RowOwner {
  RequestId id = 0;
  uint32_t position = 0;   // of the token that is chosen from it, within the whole sequence
  bool is_chosen = false;  // by the step: there are no logits
  // The next row is the same request's and rests on this token being chosen here.
  std::optional<int32_t> draft{};
  bool is_of_model = false;  // the draft is a draft model's
};

// Whose some rows of hidden states are, which stand behind those of logits.
struct HiddenOwner {
  RequestId id = 0;
  uint32_t begin = 0;  // position of the first
  uint32_t count = 0;
  bool is_last = false;  // the request ends with them
  uint64_t order = 0;    // of the request's arrival
};

struct OrderedStep {
  uint64_t number = 0;  // rises by one
  ForwardStep step;
  std::vector<RowOwner> rows;
  std::vector<HiddenOwner> hidden;
  Duration predicted{};             // from measured steps; zero before any
  std::vector<RequestId> owners{};  // whose each segment is
};

struct NextStep {
  ColdOrders cold;                     // to be carried out before the step, also without one
  std::optional<OrderedStep> ordered;  // nothing: there is nothing to do before the next event
  Effects effects;
};

struct RowResult {
  int32_t token = 0;
  bool finished = false;  // the answer is over with this token
};

// Whether rows count, asked in order: one that rests on a draft only if that was right, and the row
// that it was made for counted.
class RowCheck {
 public:
  explicit RowCheck(const std::vector<RowOwner>& rows) : rows_(rows) {}
  // `results` of the rows before.
  bool Counts(size_t row, const std::vector<RowResult>& results) {
    rests_on_draft_ = row > 0 && rows_[row - 1].draft.has_value();
    counts_ = !rests_on_draft_ || (counts_ && !results[row - 1].finished &&
                                   results[row - 1].token == *rows_[row - 1].draft);
    return counts_;
  }
  bool rests_on_draft() const { return rests_on_draft_; }  // the row asked for last

 private:
  const std::vector<RowOwner>& rows_;
  bool counts_ = true;
  bool rests_on_draft_ = false;
};

class BatchScheduler {
 public:
  // Traits are checked; those of a launch are bounded before.
  explicit BatchScheduler(const BatchTraits& traits);
  ~BatchScheduler();

  // Into the queue. RESOURCE_EXHAUSTED (QUEUE_FULL), INVALID_ARGUMENT (BAD_REQUEST,
  // PROMPT_TOO_LONG).
  absl::StatusOr<Effects> Add(RequestSpec spec, MonotonicTime now);
  // Ended at once: the next step does without it. Ids that are not there are ignored.
  Effects Cancel(RequestId id, MonotonicTime now);
  // Ends those whose `start_by` is over and that never started; one that was preempted goes on.
  Effects Expire(MonotonicTime now);
  // Unset: its answer is under way, or it has ended.
  std::optional<PromptStanding> StandingOf(RequestId id) const;
  // What the draft model is to do before Next is asked; nothing where it would not pay.
  DraftOrder PlanModelDrafts();
  void OnModelDrafts(const DraftOrder& order, DraftsMade made);
  // The draft model failed: it is not asked again.
  void StopModelDrafts() { drafts_.TurnOff(); }
  NextStep Next(MonotonicTime now);
  // Of the oldest step that is not done: one result for each of its rows (those of requests that
  // ended meanwhile, and those that RowCheck does not count, are ignored), and how long the step
  // took, if that is known; in a pipeline, how long it kept the slowest stage.
  Effects OnStepDone(uint64_t number, const std::vector<RowResult>& results,
                     std::optional<Duration> measured, MonotonicTime now);

  // What the ranks' cold workers tell.
  void OnCold(const ColdEvent& event, MonotonicTime now) { cold_.On(event, now); }

  bool idle() const { return sequences_.empty(); }
  // Whether Next has something for the cold tier, requests or not.
  bool has_cold_orders() const { return cold_.has_orders(); }
  const ColdTier& cold() const { return cold_; }
  size_t running() const { return running_.size(); }
  size_t waiting() const { return queue_.size(); }
  size_t steps_in_flight() const { return in_flight_.size(); }
  const BlockPool& pool() const { return pool_; }
  const StateCache& states() const { return states_; }
  const StepCost& cost() const { return cost_; }
  const PreemptionCounts& preempted() const { return preempted_; }
  // Aborts when something contradicts another thing; slow, for tests.
  void CheckInvariants() const;

 private:
  struct Sequence;
  struct InFlight {
    uint64_t number;
    StepWork work;
    std::vector<RowOwner> rows;
    std::vector<uint64_t> orders;  // of arrival, of the rows' requests
    std::vector<HiddenOwner> hidden;
  };
  struct Plan;

  absl::Status CheckRequest(const RequestSpec& spec) const;
  Sequence* Find(RequestId id);
  void Accept(Sequence& sequence);
  // The next token of an answer, or the one that its place was held for.
  static void TakeToken(Sequence& sequence, int32_t token);

  // How many steps may be in flight now.
  uint32_t StepsAtOnce() const;
  // Whether it can go on behind a token that the step in flight is choosing.
  bool GoesAhead(Sequence& sequence) const;
  // Whether a step with its last token is likely to have drafts behind it.
  bool ExpectsDraft(Sequence& sequence) const;
  uint32_t PromisedBlocks() const;
  uint32_t BlocksToStart(const Sequence& sequence) const;
  bool StartIfFits(Sequence& sequence);
  void Admit(MonotonicTime now);
  bool AdmitOne(MonotonicTime now);

  // The answers that the next step goes on with, highest standing first.
  std::vector<Sequence*> ReadyAnswers() const;
  void PlanDecodes(Plan& plan);
  bool CoverForDecode(Plan& plan, Sequence& sequence);
  // Whether a step with these answers may have drafts, of those whose tokens are known.
  bool MayDraft(const std::vector<Sequence*>& ready) const;
  // Asks for the rows behind the segment's tokens up to `end` and its drafts.
  static void AskRows(Plan& plan, Sequence& sequence, Segment& segment, uint32_t end,
                      const std::vector<int32_t>& draft);
  static StepWork WorkOf(const std::vector<Sequence*>& ready);
  // How many tokens may be chosen behind the next one.
  static uint32_t RoomOf(const Sequence& sequence);
  // What may follow, and how likely each token is right if those before it are.
  void ChooseDraft(Sequence& sequence);
  // Drafts for the answers in `ready` that are expected to pay.
  void PlanDrafts(const std::vector<Sequence*>& ready);
  uint32_t CoverForDraft(Sequence& sequence, uint32_t tokens);
  // `waits_for_cache`: a prompt waits for one that is computing the same.
  void PlanPrefills(Plan& plan, bool waits_for_cache);
  // One more for a sequence's table.
  std::optional<BlockId> Allocate(Sequence& sequence);
  // Puts cached blocks behind those that a sequence has: themselves or, where it keeps a run that
  // they are no part of and there is room, copies.
  void TakeCached(Sequence& sequence, std::span<const BlockId> cached, uint32_t room);
  bool GoesOnBehind(const Sequence& sequence, std::span<const BlockId> cached) const;
  // The sources may change once the step that copies them is ordered.
  void OrderCopies(Plan& plan, Sequence& sequence);
  void TakeMoreOfCache(Sequence& sequence);
  // Whether its next blocks are on their way from disk; takes those that have come.
  bool AwaitsCold(Plan& plan, Sequence& sequence);
  void OfferCold(const Sequence& sequence, MonotonicTime now);
  bool ComputedByAnother(const Sequence& sequence) const;

  // What may be taken of the cache: all that matches or, with recurrent layers, up to the last
  // state.
  struct Cached {
    std::vector<BlockId> blocks;
    StateCache::NodeId state = 0;
  };
  static uint32_t CommonBlocks(const Sequence& other, const Sequence& sequence);
  Cached FindCached(const Sequence& sequence) const;
  std::vector<StateCache::NodeId> CachedPath(const Sequence& sequence) const;
  PrefixMiss ExplainMiss(const Sequence& sequence) const;
  // Whether the prompts that run are to leave a state where `sequence`, not opened yet, parts.
  void AskForStates(Sequence& sequence);
  // Whether it waits for a state that another prompt is going to leave.
  bool AwaitsState(const Sequence& sequence) const;
  // Where a sequence that is opened next keeps its state, for itself and those that wait.
  void PlanCuts(Sequence& sequence);
  // Where the state of one that is opened comes from.
  SnapshotId OpenState(Sequence& sequence);
  // Where the state behind the segment is left that ends at `end` and begins from `opened`.
  SnapshotId KeepState(Sequence& sequence, uint32_t end, SnapshotId opened);
  // Whether a prompt has all to itself.
  bool IsAlone() const;
  // How many prompt tokens the step has time for beside what is planned and reserved.
  uint32_t FittingTokens(const Plan& plan, const Sequence& sequence) const;
  // `tokens_min`: as many at least, whatever the time.
  void AddChunk(Plan& plan, Sequence& sequence, uint32_t tokens_min, bool waits_for_cache);
  // Which of the segment's rows a request for hidden states gets.
  static void AskHidden(Plan& plan, Sequence& sequence, Segment& segment);
  // How many of the next `tokens` the sequence has blocks for, after taking what it can get.
  uint32_t CoverForPrefill(Plan& plan, Sequence& sequence, uint32_t tokens);
  Sequence* LowestStanding(const Plan& plan);
  void AddSegment(Plan& plan, Sequence& sequence, uint32_t tokens);
  SnapshotId OpenSlot(Plan& plan, Sequence& sequence);
  NextStep Order(Plan& plan);

  void Preempt(Sequence& sequence, Effects& effects);
  void LeaveBlocks(Sequence& sequence);
  void End(Sequence& sequence, EndReason reason, MonotonicTime now, Effects& effects);

  const BatchTraits traits_;
  BlockPool pool_;
  RequestQueue queue_;
  StepCost cost_;
  ColdTier cold_;
  DraftPlanner drafts_;
  StateCache states_;
  absl::flat_hash_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;  // highest standing first
  std::deque<InFlight> in_flight_;
  std::vector<uint32_t> free_slots_;  // a heap, lowest first
  std::vector<uint32_t> closed_slots_;
  PreemptionCounts preempted_;
  uint64_t next_order_ = 0;
  uint64_t next_step_ = 0;
};

}  // namespace macrame::runtime::engine
