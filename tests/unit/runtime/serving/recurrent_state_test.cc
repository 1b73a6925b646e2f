// What is reused of a model with recurrent layers, over a gang that holds each slot's state against
// the tokens before each segment (tests/sim/fake_gang.h).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <vector>

#include "runtime/serving/batch_scheduler.h"
#include "tests/sim/fake_gang.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::IsEmpty;

constexpr FakeModel kModel{50000, false};

std::vector<int32_t> Words(size_t count, int32_t seed) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = (seed * 7919 + static_cast<int32_t>(i)) % 50000;
  return tokens;
}

std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

BatchTraits Traits(uint32_t snapshots) {
  BatchTraits traits;
  traits.blocks_total = 2048;
  traits.context_length = 8192;
  traits.queued_requests_max = 64;
  traits.state_snapshots = snapshots;
  return traits;
}

class Served {
 public:
  explicit Served(const BatchTraits& traits)
      : core(traits),
        gang(traits.blocks_total, traits.sequences_max, kModel, traits.state_snapshots),
        steps_max_(traits.steps_in_flight_max) {}

  RequestId Add(std::vector<int32_t> prompt, uint32_t new_tokens) {
    RequestSpec spec;
    spec.id = ++last_id_;
    spec.key = "k";
    spec.prompt = prompt;
    spec.max_new_tokens = new_tokens;
    sequences[spec.id] = std::move(prompt);
    const auto effects = core.Add(std::move(spec), now_);
    EXPECT_TRUE(effects.ok()) << effects.status();
    return last_id_;
  }
  // False when there is nothing to do.
  bool Step() {
    while (flying_.size() < steps_max_) {
      NextStep next = core.Next(now_);
      Take(next.effects);
      core.CheckInvariants();
      if (!next.ordered.has_value()) break;
      last = next.ordered->step;
      for (const Segment& segment : last.segments) run += segment.tokens.size();
      flying_.push_back({std::move(*next.ordered), {}});
      flying_.back().second = gang.Run(last);
    }
    EXPECT_THAT(gang.faults(), IsEmpty());
    if (flying_.empty() || !gang.faults().empty()) return false;
    const auto [ordered, tokens] = std::move(flying_.front());
    flying_.erase(flying_.begin());
    now_ += std::chrono::milliseconds(10);
    std::vector<RowResult> results;
    for (size_t i = 0; i < tokens.size(); ++i) {
      results.push_back({tokens[i], false});
      if (!ended.contains(ordered.rows[i].id)) {
        sequences[ordered.rows[i].id].push_back(tokens[i]);
      }
    }
    Take(core.OnStepDone(ordered.number, results, std::chrono::milliseconds(10), now_));
    core.CheckInvariants();
    return true;
  }
  void Run() {
    for (int i = 0; i < 100000 && !core.idle(); ++i) ASSERT_TRUE(Step());
    ASSERT_TRUE(core.idle());
  }
  // One request alone; what of its prompt was cached.
  uint32_t Ask(std::vector<int32_t> prompt, uint32_t new_tokens) {
    const RequestId id = Add(std::move(prompt), new_tokens);
    Run();
    return started.at(id).cached_tokens;
  }
  void Cancel(RequestId id) { Take(core.Cancel(id, now_)); }

  BatchScheduler core;
  FakeGang gang;
  ForwardStep last;
  uint64_t run = 0;                                     // tokens, all requests together
  std::map<RequestId, std::vector<int32_t>> sequences;  // with the answers
  std::map<RequestId, Effects::Started> started;
  std::map<RequestId, Effects::Ended> ended;
  std::vector<RequestId> preempted;

 private:
  void Take(const Effects& effects) {
    for (const auto& one : effects.started) started[one.id] = one;
    for (const auto& one : effects.ended) ended[one.id] = one;
    preempted.insert(preempted.end(), effects.preempted.begin(), effects.preempted.end());
  }

  const size_t steps_max_;
  MonotonicTime now_{};
  std::vector<std::pair<OrderedStep, std::vector<int32_t>>> flying_;
  RequestId last_id_ = 0;
};

// What a next turn may find: all full blocks of what was run; an answer's last token was not.
uint32_t FullBlocks(size_t tokens) {
  return static_cast<uint32_t>((tokens - 1) / kBlockTokens * kBlockTokens);
}

// Conversations that go on in turns.
class Chats {
 public:
  Chats(Served& served, int count) : served_(served), turns_(static_cast<size_t>(count)) {
    for (int i = 0; i < count; ++i) turns_[static_cast<size_t>(i)] = Words(100, 100 + i);
  }
  // `drops`: how many tokens of its last answer a chat's template leaves out.
  void Send(size_t chat, size_t drops = 0) {
    std::vector<int32_t>& tokens = turns_[chat];
    if (ids_.contains(chat)) {
      tokens = served_.sequences.at(ids_[chat]);
      found_[chat] = FullBlocks(tokens.size());
      if (drops > 0) {
        found_[chat] = FullBlocks(prompts_[chat]);
        const auto answer = tokens.begin() + static_cast<std::ptrdiff_t>(prompts_[chat]);
        tokens.erase(answer, answer + static_cast<std::ptrdiff_t>(drops));
      }
    }
    tokens = tokens + Words(20, 1000 + ++words_);
    prompts_[chat] = tokens.size();
    ids_[chat] = served_.Add(tokens, 90);
  }
  // Whether the chat's last turn found all that it had left.
  bool FoundAll(size_t chat) { return Cached(chat) == found_[chat]; }
  uint32_t Cached(size_t chat) { return served_.started.at(ids_[chat]).cached_tokens; }

 private:
  Served& served_;
  std::vector<std::vector<int32_t>> turns_;
  std::map<size_t, RequestId> ids_;
  std::map<size_t, size_t> prompts_;
  std::map<size_t, uint32_t> found_;
  int words_ = 0;
};

TEST(RecurrentState, ANextTurnComputesItsNewTokensOnly) {
  Served served(Traits(8));
  Chats chats(served, 1);
  for (int turn = 0; turn < 8; ++turn) {
    chats.Send(0);
    served.Run();
    EXPECT_TRUE(turn == 0 || chats.FoundAll(0)) << "turn " << turn << ": " << chats.Cached(0);
  }
}

TEST(RecurrentState, AsManyChatsAsThereArePlacesFindWhatTheyHadInTurn) {
  for (const int count : {2, 4, 7, 8}) {
    Served served(Traits(8));
    Chats chats(served, count);
    for (int turn = 0; turn < 6; ++turn) {
      for (int i = 0; i < count; ++i) {
        const auto chat = static_cast<size_t>(i);
        chats.Send(chat);
        served.Run();
        EXPECT_TRUE(turn == 0 || chats.FoundAll(chat))
            << count << " chats, turn " << turn << " of " << chat << ": " << chats.Cached(chat);
      }
    }
  }
}

TEST(RecurrentState, AndAllAtOnceInAPipeline) {
  for (const uint32_t in_flight : {1, 3}) {
    BatchTraits traits = Traits(8);
    traits.steps_in_flight_max = in_flight;
    Served served(traits);
    Chats chats(served, 8);
    for (int turn = 0; turn < 5; ++turn) {
      for (size_t chat = 0; chat < 8; ++chat) chats.Send(chat);
      served.Run();
      for (size_t chat = 0; chat < 8; ++chat) {
        EXPECT_TRUE(turn == 0 || chats.FoundAll(chat))
            << "turn " << turn << " of " << chat << ": " << chats.Cached(chat);
      }
    }
  }
}

// Templates of models that reason leave that out of what was answered before.
TEST(RecurrentState, ATurnThatLeavesOutAPartOfTheAnswerFindsItsPrompt) {
  Served served(Traits(8));
  Chats chats(served, 8);
  for (int turn = 0; turn < 6; ++turn) {
    for (size_t chat = 0; chat < 8; ++chat) {
      chats.Send(chat, 10);
      served.Run();
      // In the first turns it comes out that answers are not what is gone on from.
      EXPECT_TRUE(turn < 3 || chats.FoundAll(chat))
          << "turn " << turn << " of " << chat << ": " << chats.Cached(chat);
    }
  }
}

TEST(RecurrentState, TheSamePromptAgainComputesItsEndOnly) {
  for (const size_t size : {320u, 321u, 340u}) {
    Served served(Traits(4));
    served.Ask(Words(size, 1), 5);
    EXPECT_EQ(served.Ask(Words(size, 1), 5), FullBlocks(size));
  }
}

TEST(RecurrentState, ACommonBeginningIsKeptWhereRequestsPart) {
  Served served(Traits(4));
  const std::vector<int32_t> system = Words(330, 1);  // ten blocks and some
  EXPECT_EQ(served.Ask(system + Words(100, 2), 4), 0u);
  const RequestId second = served.Add(system + Words(100, 3), 4);
  served.Run();
  EXPECT_EQ(served.started.at(second).cached_tokens, 0u);
  EXPECT_EQ(served.started.at(second).miss, (PrefixMiss{PrefixMiss::Kind::kState, 0}));
  EXPECT_EQ(DescribeMiss(served.started.at(second).miss),
            "cached, but without its recurrent state");
  const RequestId third = served.Add(system + Words(100, 4), 4);
  served.Run();
  EXPECT_EQ(served.started.at(third).cached_tokens, 320u);
  EXPECT_EQ(served.started.at(third).miss.kind, PrefixMiss::Kind::kDiffers);
  // A turn that parts further on.
  const RequestId fourth = served.Add(system + Words(60, 4) + Words(40, 6), 4);
  served.Run();
  EXPECT_EQ(served.started.at(fourth).cached_tokens, 320u);
  EXPECT_EQ(DescribeMiss(served.started.at(fourth).miss),
            "cached, but its recurrent state only up to token 320");
  // Requests that nobody asks again don't displace it.
  for (int i = 0; i < 30; ++i) served.Ask(Words(200, 100 + i), 40);
  EXPECT_EQ(served.Ask(system + Words(50, 5), 4), 320u);
}

TEST(RecurrentState, AShortCommonBeginningIsNotWorthAPlace) {
  Served served(Traits(4));
  const std::vector<int32_t> system = Words(40, 1);
  for (int i = 0; i < 4; ++i) {
    served.Ask(system + Words(100, 2 + i), 4);
    EXPECT_EQ(served.core.states().kept(), static_cast<uint32_t>(std::min(i + 1, 4)));
  }
}

TEST(RecurrentState, RequestsThatBeginAlikeAndComeAtOnceComputeItOnce) {
  for (const uint32_t in_flight : {1, 2}) {
    BatchTraits traits = Traits(8);
    traits.steps_in_flight_max = in_flight;
    Served served(traits);
    for (int i = 0; i < 4; ++i) served.Add(Words(640, 1) + Words(60, 2 + i), 1);
    served.Run();
    EXPECT_EQ(served.run, 640u + 4 * 60u);
  }
  // Several answers to one question.
  Served served(Traits(8));
  for (int i = 0; i < 4; ++i) served.Add(Words(650, 1), 1);
  served.Run();
  EXPECT_EQ(served.run, 650u + 3 * 10u);
}

TEST(RecurrentState, NobodyWaitsForAStateThatIsNotKept) {
  for (const uint32_t places : {0, 8}) {
    Served served(Traits(places));
    for (int i = 0; i < 4; ++i) served.Ask(Words(1000, 50 + i), 10);  // what steps take is known
    served.started.clear();
    served.run = 0;
    for (int i = 0; i < 3; ++i) served.Add(Words(100, 1) + Words(40, 2 + i), 3);
    ASSERT_TRUE(served.Step());
    EXPECT_EQ(served.started.size(), places == 0 ? 3u : 1u);
    served.Run();
    EXPECT_EQ(served.run, places == 0 ? 3 * 142u : 3 * 142u - 2 * 96u);
  }
}

TEST(RecurrentState, AChatIsNotDisplacedByAnswersThatRunForLong) {
  Served served(Traits(5));
  Chats chats(served, 1);
  for (int turn = 0; turn < 2; ++turn) {
    chats.Send(0);
    served.Run();
  }
  for (int i = 0; i < 4; ++i) served.Add(Words(100, 50 + i), 1500);
  served.Run();
  EXPECT_EQ(served.core.states().displaced(), 0u);
  chats.Send(0);
  served.Run();
  EXPECT_TRUE(chats.FoundAll(0)) << chats.Cached(0);
}

TEST(RecurrentState, ALongAnswerToAShortPromptDisplacesOneStateAtMost) {
  Served served(Traits(3));
  Chats chats(served, 3);
  for (size_t chat = 0; chat < 3; ++chat) {
    chats.Send(chat);
    served.Run();
  }
  const uint64_t before = served.core.states().displaced();
  served.Ask(Words(10, 7), 2000);
  EXPECT_EQ(served.core.states().displaced(), before + 1);
  chats.Send(2);
  served.Run();
  EXPECT_TRUE(chats.FoundAll(2)) << chats.Cached(2);
}

TEST(RecurrentState, WhoIsPreemptedGoesOnFromItsLastState) {
  BatchTraits traits = Traits(4);
  traits.blocks_total = 24;
  traits.context_length = 768;
  Served served(traits);
  const RequestId first = served.Add(Words(300, 1), 300);
  const RequestId second = served.Add(Words(150, 2), 300);
  while (served.preempted.empty()) ASSERT_TRUE(served.Step());
  EXPECT_EQ(served.preempted[0], second);
  // Before its blocks give way.
  served.Cancel(first);
  served.Run();
  const RequestUsage& usage = served.ended.at(second).usage;
  EXPECT_EQ(usage.new_tokens, 300u);
  EXPECT_GT(usage.preemptions, 0u);
  EXPECT_LE(usage.recomputed_tokens, 2 * kBlockTokens);
}

// What it computed again hangs on its own blocks, not on older ones that give way before.
TEST(RecurrentState, AChatThatWasComputedAgainStaysWhenOlderBlocksGiveWay) {
  BatchTraits traits = Traits(1);
  traits.blocks_total = 40;
  traits.context_length = 640;
  Served served(traits);
  const RequestId turn = served.Add(Words(200, 1), 30);
  served.Run();
  served.Ask(Words(200, 2), 2);  // takes the only place
  const RequestId next = served.Add(served.sequences.at(turn) + Words(20, 3), 60);
  served.Run();
  EXPECT_EQ(served.started.at(next).cached_tokens, 0u);
  // As many blocks as displace what is older.
  served.Ask(Words(20, 4), 570);
  served.Ask(Words(20, 5), 340);
  EXPECT_GT(served.core.pool().evictions(), 0u);
  const std::vector<int32_t>& tokens = served.sequences.at(next);
  const uint32_t full = FullBlocks(tokens.size()) / kBlockTokens;
  EXPECT_EQ(served.core.pool().index().Find("", tokens, full).size(), full);
}

// Within a step nobody knows which segment is first.
TEST(RecurrentState, WhatOneSegmentBeginsFromNoOtherOverwrites) {
  Served served(Traits(1));
  for (int i = 0; i < 4; ++i) served.Ask(Words(1000, 50 + i), 10);  // what steps take is known
  served.Ask(Words(320, 1), 5);
  const RequestId reader = served.Add(Words(320, 1) + Words(10, 2), 3);
  const RequestId writer = served.Add(Words(70, 3), 3);
  ASSERT_TRUE(served.Step());
  EXPECT_EQ(served.started.at(reader).cached_tokens, 320u);
  EXPECT_TRUE(served.started.contains(writer));
  ASSERT_EQ(served.last.segments.size(), 2u);
  for (const Segment& segment : served.last.segments) EXPECT_EQ(segment.state_to, kNoSnapshot);
  served.Run();
  // One alone may begin from a place and leave its state there.
  const RequestId next = served.Add(Words(320, 1) + Words(50, 4), 3);
  ASSERT_TRUE(served.Step());
  EXPECT_EQ(served.started.at(next).cached_tokens, 320u);
  EXPECT_EQ(served.last.segments[0].state_from, 0);
  EXPECT_EQ(served.last.segments[0].state_to, 0);
  served.Run();
}

// One that began from a place before may not overwrite what another begins from now.
TEST(RecurrentState, NorOneThatBeganFromItBefore) {
  Served served(Traits(1));
  for (int i = 0; i < 4; ++i) served.Ask(Words(1000, 50 + i), 10);
  served.Ask(Words(320, 1), 5);
  // Its last full block is reached in its second step.
  const RequestId before = served.Add(Words(320, 1) + Words(700, 2), 3);
  ASSERT_TRUE(served.Step());
  EXPECT_EQ(served.started.at(before).cached_tokens, 320u);
  const RequestId now = served.Add(Words(320, 1) + Words(10, 3), 3);
  while (!served.started.contains(now)) ASSERT_TRUE(served.Step());
  EXPECT_EQ(served.started.at(now).cached_tokens, 320u);
  served.Run();
}

TEST(RecurrentState, ACancelledPromptLeavesNothingHeld) {
  Served served(Traits(2));
  served.Ask(Words(320, 1), 4);
  const RequestId waiting = served.Add(Words(320, 1) + Words(2000, 2), 4);
  ASSERT_TRUE(served.Step());
  served.Cancel(waiting);
  served.core.CheckInvariants();
  EXPECT_EQ(served.Ask(Words(320, 1) + Words(50, 3), 4), 320u);
}

TEST(RecurrentStateDeathTest, DraftsOfSuchAModelAreABug) {
  BatchTraits traits = Traits(2);
  traits.draft_tokens_max = 4;
  EXPECT_DEATH(BatchScheduler core(traits), "drafts or blocks on disk");
}

}  // namespace
}  // namespace macrame::runtime::engine
