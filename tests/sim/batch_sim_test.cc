// The batch scheduler under random load, from seeds. MACRAME_SIM_SEED=n runs one seed,
// MACRAME_SIM_SEEDS=n so many.

#include "tests/sim/batch_sim.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_join.h"

namespace macrame::runtime::engine {
namespace {

constexpr uint64_t kSeeds = 600;
constexpr uint64_t kSeedsWithState = 200;
constexpr uint64_t kSeedsOfABug = 60;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

TEST(BatchSim, EveryAnswerIsTheOneThatItsRequestGetsAlone) {
  const uint64_t only = FromEnvironment("MACRAME_SIM_SEED", 0);
  const uint64_t first = only == 0 ? 1 : only;
  const uint64_t last = only == 0 ? FromEnvironment("MACRAME_SIM_SEEDS", kSeeds) : only;
  BatchSimReport all;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const BatchSimReport report = RunBatchSim(seed);
    ASSERT_TRUE(report.faults.empty())
        << "MACRAME_SIM_SEED=" << seed << ": " << absl::StrJoin(report.faults, "; ");
    all.steps += report.steps;
    all.requests += report.requests;
    all.cancelled += report.cancelled;
    all.refused += report.refused;
    all.displaced += report.displaced;
    all.expired += report.expired;
    all.preemptions += report.preemptions;
    all.cached_tokens += report.cached_tokens;
    all.prompt_tokens += report.prompt_tokens;
    all.evictions += report.evictions;
    all.copied_blocks += report.copied_blocks;
    all.cold_tokens += report.cold_tokens;
    all.failed_loads += report.failed_loads;
    all.late_loads += report.late_loads;
    all.slower_loads += report.slower_loads;
    all.overlapped_steps += report.overlapped_steps;
    all.draft_tokens += report.draft_tokens;
    all.accepted_tokens += report.accepted_tokens;
    all.ahead_tokens += report.ahead_tokens;
    all.vain_tokens += report.vain_tokens;
  }
  std::cout << last - first + 1 << " seeds: " << all.requests << " requests (" << all.refused
            << " refused, " << all.displaced << " displaced, " << all.expired << " expired, "
            << all.cancelled << " cancelled), " << all.steps << " steps (" << all.overlapped_steps
            << " overlapped), " << all.preemptions << " preemptions, " << all.cached_tokens
            << " of " << all.prompt_tokens << " prompt tokens cached (" << all.cold_tokens
            << " from disk), " << all.evictions << " evictions, " << all.failed_loads << " failed, "
            << all.late_loads << " late and " << all.slower_loads << " loads not worth it, "
            << all.accepted_tokens << " of " << all.draft_tokens << " drafts accepted, "
            << all.ahead_tokens << " tokens run before they were known, " << all.vain_tokens
            << " of them in vain\n";
  if (only != 0) return;
  // The seeds went where the rules are.
  EXPECT_GT(all.preemptions, last);
  EXPECT_GT(all.cached_tokens, all.prompt_tokens / 10);
  EXPECT_GT(all.cancelled, last);
  EXPECT_GT(all.refused, last / 2);
  EXPECT_GT(all.displaced, last / 10);
  EXPECT_GT(all.expired, last / 10);
  EXPECT_GT(all.evictions, last);
  EXPECT_GT(all.copied_blocks, last / 2);
  EXPECT_GT(all.cold_tokens, all.cached_tokens / 50);
  EXPECT_GT(all.failed_loads, last / 10);
  EXPECT_GT(all.late_loads, 0u);
  EXPECT_GT(all.slower_loads, 0u);
  EXPECT_GT(all.overlapped_steps, all.steps / 20);
  EXPECT_GT(all.accepted_tokens, 10 * last);
  EXPECT_GT(all.draft_tokens - all.accepted_tokens, 10 * last);
  EXPECT_GT(all.ahead_tokens, 10 * last);
  EXPECT_GT(all.vain_tokens, last);
}

// Each slot's state stands for just the tokens before each segment, whatever happens.
TEST(BatchSim, RecurrentStatesAreThoseOfTheTokensBefore) {
  const uint64_t only = FromEnvironment("MACRAME_SIM_SEED", 0);
  const uint64_t first = only == 0 ? 1 : only;
  const uint64_t last = only == 0 ? FromEnvironment("MACRAME_SIM_SEEDS", kSeedsWithState) : only;
  BatchSimReport all;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const BatchSimReport report = RunBatchSim(seed, BatchBug::kNone, true);
    ASSERT_TRUE(report.faults.empty())
        << "MACRAME_SIM_SEED=" << seed << ": " << absl::StrJoin(report.faults, "; ");
    all.steps += report.steps;
    all.requests += report.requests;
    all.cancelled += report.cancelled;
    all.preemptions += report.preemptions;
    all.cached_tokens += report.cached_tokens;
    all.prompt_tokens += report.prompt_tokens;
    all.evictions += report.evictions;
    all.overlapped_steps += report.overlapped_steps;
    all.draft_tokens += report.draft_tokens;
    all.states_read += report.states_read;
    all.states_written += report.states_written;
    all.states_displaced += report.states_displaced;
    all.ahead_tokens += report.ahead_tokens;
  }
  std::cout << last - first + 1 << " seeds with recurrent layers: " << all.requests << " requests ("
            << all.cancelled << " cancelled), " << all.steps << " steps (" << all.overlapped_steps
            << " overlapped), " << all.preemptions << " preemptions, " << all.cached_tokens
            << " of " << all.prompt_tokens << " prompt tokens cached, " << all.evictions
            << " evictions, " << all.states_written << " states kept, " << all.states_read
            << " read, " << all.states_displaced << " displaced, " << all.ahead_tokens
            << " tokens run before they were known\n";
  if (only != 0) return;
  EXPECT_EQ(all.draft_tokens, 0u);
  EXPECT_GT(all.preemptions, last);
  EXPECT_GT(all.cancelled, last);
  EXPECT_GT(all.evictions, last);
  EXPECT_GT(all.overlapped_steps, all.steps / 20);
  EXPECT_GT(all.cached_tokens, all.prompt_tokens / 20);
  EXPECT_GT(all.states_read, 2 * last);
  EXPECT_GT(all.states_written, all.states_read);
  EXPECT_GT(all.states_displaced, last);
  EXPECT_GT(all.ahead_tokens, last);
}

TEST(BatchSim, TheSameSeedGivesTheSameSteps) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const BatchSimReport first = RunBatchSim(seed);
    EXPECT_NE(first.trace, 0u);
    EXPECT_EQ(first.trace, RunBatchSim(seed).trace) << "seed " << seed;
    EXPECT_EQ(RunBatchSim(seed, BatchBug::kNone, true).trace,
              RunBatchSim(seed, BatchBug::kNone, true).trace);
  }
}

class PlantedBatchBug : public ::testing::TestWithParam<BatchBug> {};

TEST_P(PlantedBatchBug, IsFound) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= kSeedsOfABug; ++seed) {
    const bool has_state =
        GetParam() >= BatchBug::kStateNotKept && GetParam() <= BatchBug::kStateOverwritten;
    found += RunBatchSim(seed, GetParam(), has_state).faults.empty() ? 0 : 1;
  }
  EXPECT_GT(found, kSeedsOfABug / 10);
}

INSTANTIATE_TEST_SUITE_P(Bugs, PlantedBatchBug,
                         ::testing::Values(BatchBug::kUsedBlockGiven, BatchBug::kClosureForgotten,
                                           BatchBug::kTokenSkipped, BatchBug::kResultsSwapped,
                                           BatchBug::kStepsOutOfOrder, BatchBug::kRequestForgotten,
                                           BatchBug::kDraftTaken, BatchBug::kDraftKept,
                                           BatchBug::kColdBlockSwapped, BatchBug::kColdTooMany,
                                           BatchBug::kStateNotKept, BatchBug::kStateOfAnother,
                                           BatchBug::kStateOverwritten,
                                           BatchBug::kChosenOfAnother));

}  // namespace
}  // namespace macrame::runtime::engine
