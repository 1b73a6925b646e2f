// The small parts of scheduling over many seeds: who comes next, what a step is taken to cost, and
// what may be drafted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/serving/draft_gate.h"
#include "runtime/serving/prompt_lookup.h"
#include "runtime/serving/request_queue.h"
#include "runtime/serving/step_cost.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using Random = std::mt19937_64;

constexpr Duration kAging = seconds(10);
constexpr MonotonicTime kStart{seconds(1000)};

std::string KeyOf(uint64_t number) { return "key " + std::to_string(number); }

// A queue and what waits in it, as a caller knows it.
class QueueRun {
 public:
  explicit QueueRun(uint64_t seed) : random(seed) {}

  void Come(const std::string& key, int32_t priority = 0, bool was_preempted = false) {
    const WaitingRequest request{++last_, key, priority, now, last_, was_preempted};
    queue.Arrived(key);
    queue.Push(request);
    waiting.push_back(request);
  }
  // It leaves the queue and is over at once, after `tokens` were computed for it.
  void Serve(RequestId id, uint64_t tokens) {
    const auto at = std::find_if(waiting.begin(), waiting.end(),
                                 [id](const WaitingRequest& one) { return one.id == id; });
    ASSERT_NE(at, waiting.end());
    queue.Remove(id);
    queue.Served(at->key, tokens);
    queue.Left(at->key);
    served[at->key] += tokens;
    waiting.erase(at);
  }
  size_t CountOf(const std::string& key) const {
    return static_cast<size_t>(
        std::count_if(waiting.begin(), waiting.end(),
                      [&key](const WaitingRequest& one) { return one.key == key; }));
  }
  const WaitingRequest& Of(RequestId id) const {
    return *std::find_if(waiting.begin(), waiting.end(),
                         [id](const WaitingRequest& one) { return one.id == id; });
  }

  Random random;
  RequestQueue queue{kAging};
  std::vector<WaitingRequest> waiting;  // in the order of arrival
  std::map<std::string, uint64_t> served;
  MonotonicTime now = kStart;

 private:
  RequestId last_ = 0;
};

TEST(RequestQueueProperty, KeysThatAlwaysWaitShareWithinOneRequest) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    QueueRun run(seed);
    const uint64_t keys = 2 + run.random() % 4;
    constexpr uint64_t kTokensMax = 5000;
    // One asks by many small requests, another by few large ones.
    const auto tokens_of = [&](const std::string& key) {
      return key == KeyOf(0) ? 50 : 1 + run.random() % kTokensMax;
    };
    for (int step = 0; step < 2000; ++step) {
      for (uint64_t key = 0; key < keys; ++key) {
        while (run.CountOf(KeyOf(key)) < 2 + key * 3) run.Come(KeyOf(key));
      }
      const RequestId next = run.queue.Candidates(run.now).front();
      run.Serve(next, tokens_of(run.Of(next).key));
      if (HasFatalFailure()) return;
      run.now += std::chrono::milliseconds(1);
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (uint64_t key = 0; key < keys; ++key) {
      least = std::min(least, run.served[KeyOf(key)]);
      most = std::max(most, run.served[KeyOf(key)]);
    }
    EXPECT_LE(most - least, kTokensMax) << "seed " << seed;
  }
}

// Whoever pauses, whatever others were served meanwhile, has its share from then on and no more.
TEST(RequestQueueProperty, APauseSavesNothingUpAndCostsNothing) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    QueueRun run(seed);
    constexpr uint64_t kTokens = 100;
    const auto serve = [&run](int requests, const std::vector<std::string>& keys) {
      for (int i = 0; i < requests; ++i) {
        for (const std::string& key : keys) {
          while (run.CountOf(key) < 2) run.Come(key);
        }
        run.Serve(run.queue.Candidates(run.now).front(), kTokens);
      }
    };
    serve(static_cast<int>(run.random() % 50), {"a", "b"});
    while (run.CountOf("b") > 0) {
      const auto b = std::find_if(run.waiting.begin(), run.waiting.end(),
                                  [](const WaitingRequest& one) { return one.key == "b"; });
      run.Serve(b->id, kTokens);
    }
    serve(static_cast<int>(10 + run.random() % 100), {"a"});
    const uint64_t a = run.served["a"], b = run.served["b"];
    serve(40, {"a", "b"});
    const auto gained_a = static_cast<int64_t>(run.served["a"] - a);
    const auto gained_b = static_cast<int64_t>(run.served["b"] - b);
    EXPECT_LE(std::abs(gained_a - gained_b), static_cast<int64_t>(3 * kTokens)) << "seed " << seed;
  }
}

// However many of higher priority come, one that waits is at their level after an interval for each
// level, and then they can't all pass it.
TEST(RequestQueueProperty, NobodyIsPassedOverForEver) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    QueueRun run(seed);
    const auto behind = static_cast<int32_t>(run.random() % 5);
    run.Come("slow", -behind);
    const RequestId slow = run.waiting.front().id;
    run.Come("fast", 0);
    int steps = 0;
    while (run.queue.Candidates(run.now).front() != slow) {
      ASSERT_LT(run.now, kStart + kAging * (behind + 1) + seconds(2)) << "seed " << seed;
      while (run.CountOf("fast") < 5) run.Come("fast", 0);
      const RequestId next = run.queue.Candidates(run.now).front();
      if (next != slow) run.Serve(next, 10);
      run.now += std::chrono::milliseconds(100 + run.random() % 400);
      ++steps;
    }
    EXPECT_GE(run.now, kStart + kAging * behind) << "not before its age allows";
    EXPECT_TRUE(behind == 0 || steps > behind) << "others went first";
  }
}

// The whole order: no candidate is before one that the rules put in front of it.
TEST(RequestQueueProperty, CandidatesAreInOrder) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    QueueRun run(seed);
    for (int i = 0; i < 30; ++i) {
      run.Come(KeyOf(run.random() % 4), static_cast<int32_t>(run.random() % 4) - 2,
               run.random() % 5 == 0);
      run.now += seconds(run.random() % 5);
    }
    const std::vector<RequestId> order = run.queue.Candidates(run.now);
    ASSERT_EQ(order.size(), run.waiting.size());
    int32_t highest = INT32_MIN;
    for (const WaitingRequest& one : run.waiting) highest = std::max(highest, one.priority);
    const auto level = [&](const WaitingRequest& one) {
      const auto gained = static_cast<int32_t>((run.now - one.arrived) / kAging);
      return std::min(highest, one.priority + gained);
    };
    for (size_t i = 0; i + 1 < order.size(); ++i) {
      const WaitingRequest &a = run.Of(order[i]), &b = run.Of(order[i + 1]);
      EXPECT_GE(level(a), level(b));
      if (level(a) != level(b)) continue;
      EXPECT_GE(a.was_preempted, b.was_preempted);
      // Nobody was served anything yet: the arrival decides.
      if (a.was_preempted == b.was_preempted) {
        EXPECT_LT(a.order, b.order);
      }
    }
  }
}

TEST(RequestQueueProperty, WhoIsSentAwayIsTheLastOfTheLongestLine) {
  int sent = 0, kept = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    QueueRun run(seed);
    const size_t count = run.random() % 16;
    for (size_t i = 0; i < count; ++i) {
      run.Come(KeyOf(run.random() % 3), static_cast<int32_t>(run.random() % 3),
               run.random() % 4 == 0);
    }
    const std::string key = KeyOf(run.random() % 4);
    const auto priority = static_cast<int32_t>(run.random() % 3);
    const auto may_go = [&](const WaitingRequest& one) {
      return !one.was_preempted && one.priority <= priority &&
             run.CountOf(one.key) >= run.CountOf(key) + 2;
    };
    size_t longest = 0;
    for (const WaitingRequest& one : run.waiting) {
      if (may_go(one)) longest = std::max(longest, run.CountOf(one.key));
    }
    const std::optional<RequestId> gone = run.queue.Displaced(key, priority);
    ASSERT_EQ(gone.has_value(), longest > 0) << "seed " << seed;
    (gone.has_value() ? sent : kept) += 1;
    if (!gone.has_value()) continue;
    const WaitingRequest& one = run.Of(*gone);
    EXPECT_TRUE(may_go(one)) << "seed " << seed;
    EXPECT_EQ(run.CountOf(one.key), longest) << "seed " << seed;
    for (const WaitingRequest& other : run.waiting) {
      const bool is_later = other.key == one.key && other.order > one.order;
      EXPECT_FALSE(is_later && may_go(other)) << "a later one could have gone, seed " << seed;
    }
  }
  EXPECT_GT(sent, 20);
  EXPECT_GT(kept, 20);
}

TEST(RequestQueueProperty, KeysThatComeOnceDoNotPileUpIntoAnAdvantage) {
  QueueRun run(1);
  run.Come("steady");
  run.queue.Served("steady", 1'000'000);
  for (uint64_t i = 0; i < 5000; ++i) {
    run.Come(KeyOf(i));
    run.Serve(run.waiting.back().id, 10);
  }
  // A newcomer starts level with who is active, so the arrival decides between them.
  run.Come("new");
  const std::vector<RequestId> order = run.queue.Candidates(run.now);
  EXPECT_EQ(run.Of(order.front()).key, "steady");
}

StepWork RandomWork(Random& random) {
  StepWork work;
  work.decode_tokens = static_cast<uint32_t>(random() % 16);
  work.prefill_tokens = random() % 3 == 0 ? 0 : static_cast<uint32_t>(random() % 512);
  work.attended = StepWork::Attended(random() % 8192, work.decode_tokens + work.prefill_tokens);
  return work;
}

// A machine with costs of its own.
double TrueUs(const StepWork& work) {
  return 3000.0 + 250.0 * work.decode_tokens + 90.0 * work.prefill_tokens +
         static_cast<double>(work.attended) / 200.0;
}

TEST(StepCostProperty, AChunkFitsItsBudgetAndOneMoreTokenWouldNot) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    StepCost cost(256);
    uint32_t seen = 128;
    for (int i = 0; i < 40; ++i) {
      const StepWork work = RandomWork(random);
      seen = std::max(seen, work.prefill_tokens);
      cost.Learn(work, Duration(static_cast<int64_t>(TrueUs(work))));
    }
    ASSERT_TRUE(cost.is_trusted());
    for (int i = 0; i < 200; ++i) {
      StepWork work = RandomWork(random);
      const auto begin = static_cast<uint32_t>(random() % 4096);
      const auto most = static_cast<uint32_t>(random() % 2048);
      const Duration budget(static_cast<int64_t>(random() % 200'000));
      const uint32_t tokens = cost.TokensWithin(work, begin, budget, most);
      ASSERT_LE(tokens, most);
      const auto with = [&](uint32_t more) {
        StepWork step = work;
        step.prefill_tokens += more;
        step.attended += StepWork::Attended(begin, more);
        return cost.Predict(step);
      };
      if (tokens > 0) {
        EXPECT_LE(with(tokens), budget);
      }
      const bool may_grow = tokens < most && work.prefill_tokens + tokens < 2 * seen;
      if (may_grow) {
        EXPECT_GE(with(tokens + 1), budget) << "seed " << seed;
      }
      EXPECT_LE(tokens, cost.TokensWithin(work, begin, budget + seconds(1), most))
          << "more time is never fewer tokens";
    }
  }
}

TEST(StepCostProperty, PredictsWhatItHasSeen) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    StepCost cost(256);
    for (int i = 0; i < 400; ++i) {
      const StepWork work = RandomWork(random);
      cost.Learn(work, Duration(static_cast<int64_t>(TrueUs(work))));
    }
    double off = 0.0;
    for (int i = 0; i < 100; ++i) {
      const StepWork work = RandomWork(random);
      const double predicted = static_cast<double>(cost.Predict(work).count());
      EXPECT_GE(predicted, 0.0);
      off += std::abs(predicted - TrueUs(work)) / TrueUs(work) / 100.0;
    }
    EXPECT_LT(off, 0.25) << "seed " << seed;
  }
}

TEST(StepCostProperty, StepsThatTakeNoTimeOrGoBackDoNotMakeItNegative) {
  StepCost cost(64);
  Random random(3);
  for (int i = 0; i < 200; ++i) cost.Learn(RandomWork(random), Duration(-5000 + (i % 2) * 5000));
  for (int i = 0; i < 50; ++i) EXPECT_GE(cost.Predict(RandomWork(random)).count(), 0);
}

TEST(DraftGateTest, AnAnswerThatIsNeverRightIsTriedEverMoreRarely) {
  DraftGate gate(kDraftRateFirst, 100);
  std::vector<uint32_t> tries;
  for (uint32_t tokens = 100; tokens < 20'000; ++tokens) {
    if (!gate.MayTry(tokens)) continue;
    tries.push_back(tokens);
    gate.OnTry(tokens);
    gate.OnVerified(false);
  }
  ASSERT_GT(tries.size(), 10u);
  EXPECT_EQ(tries[0], 100 + kTryPauseMin);
  for (size_t i = 1; i < tries.size(); ++i) {
    const uint32_t pause = tries[i] - tries[i - 1];
    EXPECT_EQ(pause, std::min(kTryPauseMin << (i - 1), kTryPauseMax)) << i;
  }
  EXPECT_LT(gate.rate(), kDraftRateMin);
  EXPECT_GE(gate.rate(), 0.0);
}

TEST(DraftGateTest, WhatPaidIsTriedAgainSoon) {
  DraftGate gate(0.5, 0);
  for (uint32_t tokens = 32; tokens < 5000; tokens += 1024) gate.OnTry(tokens);
  gate.OnPaid(6000);
  EXPECT_FALSE(gate.MayTry(6000 + kTryPauseMin - 1));
  EXPECT_TRUE(gate.MayTry(6000 + kTryPauseMin));
  gate.OnTry(6000 + kTryPauseMin);
  EXPECT_TRUE(gate.MayTry(6000 + 2 * kTryPauseMin)) << "the pauses begin anew";
  for (int i = 0; i < 60; ++i) gate.OnVerified(true);
  EXPECT_GT(gate.rate(), 0.99);
  EXPECT_LE(gate.rate(), 1.0);
}

// What lookup ought to draft: a search through all of the sequence at each token.
class PlainLookup {
 public:
  void Take(int32_t token) {
    if (source_ > 0) source_ = tokens[source_] == token ? source_ + 1 : 0;
    tokens.push_back(token);
    if (source_ > 0 || tokens.size() < kLookupTokens) return;
    const auto last = tokens.end() - kLookupTokens;
    for (size_t end = tokens.size() - 1; end >= kLookupTokens && source_ == 0; --end) {
      const auto then = tokens.begin() + static_cast<std::ptrdiff_t>(end - kLookupTokens);
      if (std::equal(last, tokens.end(), then)) source_ = end;
    }
  }
  std::vector<int32_t> Draft(uint32_t count) const {
    std::vector<int32_t> draft;
    if (source_ == 0) return draft;
    std::vector<int32_t> all = tokens;
    for (uint32_t i = 0; i < count; ++i) {
      draft.push_back(all[source_ + i]);
      all.push_back(draft.back());
    }
    return draft;
  }

  std::vector<int32_t> tokens;

 private:
  size_t source_ = 0;
};

TEST(PromptLookupProperty, DraftsWhatASearchThroughAllOfItFinds) {
  size_t drafted = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    PromptLookup lookup;
    PlainLookup plain;
    const auto kinds = static_cast<int32_t>(2 + random() % 5);
    for (int step = 0; step < 400; ++step) {
      // Sometimes a piece of before again, sometimes anything.
      const size_t count = 1 + random() % 6;
      const size_t from = plain.tokens.empty() ? 0 : random() % plain.tokens.size();
      const bool repeats = !plain.tokens.empty() && random() % 2 == 0;
      for (size_t i = 0; i < count; ++i) {
        const int32_t token = repeats ? plain.tokens[from + i]
                                      : static_cast<int32_t>(random() % static_cast<size_t>(kinds));
        plain.Take(token);
      }
      lookup.Follow(plain.tokens, 10);
      const auto most = static_cast<uint32_t>(random() % 12);
      const std::vector<int32_t> draft = lookup.Draft(plain.tokens, most);
      ASSERT_EQ(draft, plain.Draft(most)) << "seed " << seed << " at " << plain.tokens.size();
      drafted += draft.size();
      for (uint32_t i = 0; i < 20; ++i) {
        EXPECT_TRUE(lookup.RateAt(i) >= 0.0 && lookup.RateAt(i) <= 1.0);
      }
    }
  }
  EXPECT_GT(drafted, 1000u);
}

TEST(PromptLookupProperty, BeyondItsBoundNothingIsDrafted) {
  PromptLookup lookup;
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < kFollowedTokensMax; ++i) tokens.push_back(static_cast<int32_t>(i % 5));
  for (uint32_t i = 0; i <= kFollowedTokensMax / kFollowedAtOnceMax; ++i) lookup.Follow(tokens, 0);
  EXPECT_THAT(lookup.Draft(tokens, 2),
              ElementsAre(static_cast<int32_t>(kFollowedTokensMax % 5),
                          static_cast<int32_t>((kFollowedTokensMax + 1) % 5)));
  tokens.push_back(static_cast<int32_t>(kFollowedTokensMax % 5));
  lookup.Follow(tokens, 0);
  EXPECT_TRUE(lookup.Draft(tokens, 2).empty());
}

}  // namespace
}  // namespace macrame::runtime::engine
