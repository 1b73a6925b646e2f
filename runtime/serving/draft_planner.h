#pragma once

// What a draft model is to do before each step of the gang: for which answers it drafts, how many
// tokens, and what of its own KV cache is for whom. Pure; a part of the BatchScheduler.
//
// An answer's drafts are worth it as long as tokens come the faster for them: what the draft
// model's passes and the further rows of the step cost, by measure, against the tokens that the
// answer's own rate of right drafts lets expect (DraftGate). So it is off by itself for an answer
// that it guesses badly, and while so many answers run that rows cost more than they gain.
//
// The draft model keeps KV of its own, of bounded size: a slot for each answer that it drafts for.
// What it lacks of an answer it computes in chunks, one before a step, if what is left of the
// answer can be expected to gain more than that takes. What it ran and was not chosen is
// overwritten. Where blocks run out, the answer whose last turn is longest ago
// loses its own if it runs no more; else the one that they don't suffice for.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "proto/monotonic_time.h"
#include "runtime/model/step/forward_step.h"
#include "runtime/serving/draft_gate.h"
#include "runtime/serving/request_queue.h"
#include "runtime/serving/step_cost.h"

namespace macrame::runtime::engine {

// Tokens of one pass of the draft model that catch up on what it lacks, all answers together.
inline constexpr uint32_t kDraftChunkTokens = 128;
// What it lacks of an answer up to here is run together with the first token that is drafted.
inline constexpr uint32_t kDraftLagMax = 8;
// Of an answer that may go on for longer, what is reckoned with when its prompt is to be computed.
inline constexpr uint32_t kDraftOutlookTokens = 256;
// Of the step budget, since measured steps scatter.
inline constexpr double kPlannedShare = 0.9;
// How many times as long as without drafts a step may be that is beyond the budget anyway.
inline constexpr double kLongerMax = 2.0;

struct DraftModelTraits {
  uint32_t blocks_total = 0;   // of the draft model's KV cache; 0: there is no draft model
  uint32_t positions_max = 0;  // of one answer; for longer ones nothing is drafted
  int32_t vocab_size = 0;      // ids beyond it it can't read
  bool is_unpriced = false;    // costs don't count, only how often it is right: for tests
};

struct DraftOrder {
  struct Part {
    RequestId id = 0;
    uint32_t slot = 0;
    uint32_t begin = 0;             // position of the first of `tokens`
    std::vector<int32_t> tokens{};  // of the sequence, to be run; never empty
    uint32_t count = 0;             // to draft behind them; 0: the slot only catches up
    uint32_t blocks_before = 0;     // of the slot's table
    std::vector<int32_t> blocks{};  // to be added to it, in order, as positions reach them
  };
  std::vector<uint32_t> closed_slots{};
  std::vector<Part> parts{};
  bool empty() const { return parts.empty(); }
};

struct DraftsMade {
  // One pass of the draft model: what was in it, and how long it took.
  struct Pass {
    StepWork work;
    Duration took{};
  };
  std::vector<std::vector<int32_t>> tokens{};  // by part of the order; as many as were asked for
  std::vector<Pass> passes{};
};

class DraftPlanner {
 public:
  // An answer that the next step goes on with.
  struct Answer {
    RequestId id = 0;
    std::span<const int32_t> tokens;  // the sequence so far
    uint32_t room = 0;                // tokens that may be chosen behind the next one
    double other_rate = 0.0;          // how likely another draft's first token is right; 0: none
  };
  // The step as it is without drafts.
  struct Base {
    StepWork work;
    const StepCost* cost = nullptr;
    // Times that this long passes before an answer's next token: more than one in a pipeline
    // that is not full.
    double rounds = 1.0;
    Duration budget{};             // of a step
    uint32_t steps_in_flight = 1;  // at most: an answer takes part in one of so many orders
  };

  DraftPlanner(const DraftModelTraits& traits, uint32_t draft_tokens_max);

  bool is_on() const { return traits_.blocks_total > 0; }
  // From here on nothing is drafted: the draft model failed.
  void TurnOff();

  DraftOrder Plan(const std::vector<Answer>& answers, const Base& base);
  void OnDrafted(const DraftOrder& order, DraftsMade made);

  // What was drafted for an answer at just this length; empty: nothing.
  std::span<const int32_t> DraftOf(RequestId id, size_t tokens) const;
  // How likely each of its drafts is right, if those before it are.
  double RateOf(RequestId id) const;
  // A draft that was verified, those before it being right.
  void OnVerified(RequestId id, bool is_right);
  // The answer is over.
  void Leave(RequestId id);

  // Aborts when something contradicts another thing; for tests.
  void CheckInvariants() const;

 private:
  struct State {
    DraftGate gate;
    std::optional<uint32_t> slot{};
    std::vector<int32_t> blocks{};
    uint32_t told = 0;            // of the blocks, those in the slot's table: in use
    uint32_t sure = 0;            // positions of the slot that hold the sequence's tokens
    std::vector<int32_t> tail{};  // what stands behind them: drafts that were run
    uint64_t used = 0;            // when, in orders
    std::vector<int32_t> draft{};
    size_t draft_at = 0;      // the sequence's length that it is for
    double draft_rate = 0.0;  // how likely each of it is right, as reckoned with
  };
  struct Member {
    const Answer* answer = nullptr;
    State* state = nullptr;
    uint32_t lag = 0;
    uint32_t most = 0;   // tokens to draft at most
    double rate = 0.0;   // reckoned with
    uint32_t count = 0;  // of tokens that pay
  };
  // Costs and gains of one order, in microseconds and expected tokens.
  struct Sum {
    double tokens = 0.0;
    double us = 0.0;
    double Rate() const { return us > 0.0 ? tokens / us : 0.0; }
  };

  State& StateOf(const Answer& answer);
  bool CanRead(const Answer& answer, State& state) const;
  void Settle(const Answer& answer, State& state) const;
  std::vector<Member> Members(const std::vector<Answer>& answers);
  // How many tokens for each member pay; what comes of it.
  Sum Reckon(std::vector<Member*>& members, const Base& base) const;
  bool PaysToCatchUp(Member& member, const Base& base, double likely) const;
  void PlanChunk(Member& member, const Base& base, DraftOrder& order);
  bool IsOld(const State& state) const;
  bool Cover(State& state, uint32_t positions);
  bool AddPart(Member& member, uint32_t tokens, DraftOrder& order);
  // Once in a while, for one whose drafts don't pay as far as is known.
  void PlanTry(Member& member, const Base& base, DraftOrder& order);
  void Release(State& state);
  double PassUs(const StepWork& work) const;

  DraftModelTraits traits_;
  const uint32_t draft_tokens_max_;
  StepCost cost_;        // of the draft model's passes that draft
  StepCost chunk_cost_;  // of those that catch up
  double usual_rate_ = kDraftRateFirst;
  std::map<RequestId, std::unique_ptr<State>> states_;
  std::vector<int32_t> free_blocks_;  // the last one is given next
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> closed_slots_;
  uint32_t slots_ = 0;
  uint64_t orders_ = 0;
  uint32_t steps_in_flight_ = 1;  // of the last order
};

}  // namespace macrame::runtime::engine
