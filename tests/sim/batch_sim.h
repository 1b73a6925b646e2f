#pragma once

// The batch scheduler over a FakeGang, everything drawn from one seed: few blocks, prompts that
// begin alike, clients, salts, priorities, cancels, limits of the queue, steps of random duration,
// one to three steps in flight, in some of which the gang chooses tokens itself, a disk behind each
// of one to three ranks that loses blocks and takes its time. After every event the scheduler's
// invariants are checked; at the end every request has ended exactly once, with the answer that it
// gets alone.

#include <cstdint>
#include <string>
#include <vector>

namespace macrame::runtime::engine {

// Mistakes between the scheduler and the gang, or such as a scheduler could make, which the checks
// have to find.
enum class BatchBug {
  kNone,
  kUsedBlockGiven,    // a block that another sequence uses is handed out, as if it had been freed
  kClosureForgotten,  // the gang is not told that a slot is closed
  kTokenSkipped,      // a segment leaves out its first token
  kResultsSwapped,    // two rows of a step get each other's tokens
  kStepsOutOfOrder,   // the gang runs the second of two steps in flight first
  kRequestForgotten,  // a request's end is not passed on
  kDraftTaken,        // a draft is taken for what the model chose
  kDraftKept,         // what was run behind a wrong draft is gone on from
  kColdBlockSwapped,  // a block from disk is filled with another's content
  kColdTooMany,       // a rank says that it has read more than it has
  kStateNotKept,      // a state that is to be kept is not
  kStateOfAnother,    // a slot is opened from another state than it should be
  kStateOverwritten,  // a state is left where another one is
  kChosenOfAnother,   // an answer goes on with what the step before chose for another
};

struct BatchSimReport {
  std::vector<std::string> faults;  // empty: all well
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;
  uint64_t displaced = 0;
  uint64_t expired = 0;
  uint64_t preemptions = 0;
  uint64_t cached_tokens = 0;
  uint64_t prompt_tokens = 0;
  uint64_t evictions = 0;
  uint64_t copied_blocks = 0;  // of a cached prefix, into a run
  uint64_t cold_tokens = 0;    // of the cached ones, from disk
  uint64_t failed_loads = 0;
  uint64_t late_loads = 0;
  uint64_t slower_loads = 0;
  uint64_t overlapped_steps = 0;  // ordered while another one was in flight
  uint64_t draft_tokens = 0;
  uint64_t accepted_tokens = 0;
  uint64_t ahead_tokens = 0;  // run before they were known
  uint64_t vain_tokens = 0;   // of these, behind an answer's end
  uint64_t states_read = 0;
  uint64_t states_written = 0;
  uint64_t states_displaced = 0;
  uint64_t trace = 0;  // hash of all steps and results
};

// `has_state`: the model has recurrent layers, of whose states up to 20 are kept; no disks, no
// drafts.
BatchSimReport RunBatchSim(uint64_t seed, BatchBug bug = BatchBug::kNone, bool has_state = false);

}  // namespace macrame::runtime::engine
