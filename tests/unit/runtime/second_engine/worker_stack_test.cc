// A model in a worker's place: what goes to it and what comes back, step by step, with a worker
// that counts instead of computing (fake_worker.py).

#include "runtime/second_engine/worker_stack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "proto/reasons.h"
#include "tests/unit/runtime/second_engine/fake_python.h"

namespace macrame::runtime::engine {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kVocabulary = 3072;

// Started, connected and loaded; null where that fails.
std::unique_ptr<WorkerStack> Loaded(const std::string& mode = "") {
  auto stack = WorkerStack::Start(FakePython(mode), "no script");
  EXPECT_TRUE(stack.ok()) << stack.status();
  if (!stack.ok()) return nullptr;
  WorkerPlace place;
  place.folder = "/models/m";
  place.positions = 4096;
  EXPECT_TRUE((*stack)->Connect(place).ok());
  EXPECT_TRUE((*stack)->Load([](uint64_t, uint64_t) {}).ok());
  return *std::move(stack);
}

ForwardStep StepOf(uint32_t slot, uint32_t begin, std::vector<int32_t> tokens,
                   LogitRows rows = LogitRows::kLast) {
  ForwardStep step;
  step.segments.push_back(
      {.slot = slot, .begin = begin, .tokens = std::move(tokens), .logit_rows = rows});
  return step;
}

// The token that each row of logits names.
std::vector<int> Answers(WorkerStack& stack, int rows) {
  std::vector<int32_t> numbers(static_cast<size_t>(rows));
  for (int i = 0; i < rows; ++i) numbers[static_cast<size_t>(i)] = i;
  mlx::core::array logits = stack.Logits(stack.Embed({}), numbers);
  logits.eval();
  EXPECT_EQ(logits.size(), static_cast<size_t>(rows) * kVocabulary);
  std::vector<int> answers;
  for (int row = 0; row < rows; ++row) {
    const float* begin = logits.data<float>() + static_cast<ptrdiff_t>(row) * kVocabulary;
    answers.push_back(static_cast<int>(std::max_element(begin, begin + kVocabulary) - begin));
  }
  return answers;
}

// By fake_worker.py's definition.
int Follower(const std::vector<int32_t>& held) {
  int sum = 0;
  for (const int32_t token : held) sum += token;
  const int last = static_cast<int>(held.size()) - 1;
  return 100 + (31 * held.back() + 7 * last + sum) % 2900;
}

TEST(WorkerStack, SequencesInSlotsStayApartWhateverTheOrder) {
  const auto stack = Loaded();
  ASSERT_NE(stack, nullptr);
  std::mt19937_64 random(7);
  std::map<uint32_t, std::vector<int32_t>> held;
  for (int i = 0; i < 120; ++i) {
    ForwardStep step;
    std::vector<int> expected;
    for (uint32_t slot = 0; slot < 4; ++slot) {
      if (!held[slot].empty() && random() % 6 == 0) {  // its sequence ends
        step.closed_slots.push_back(slot);
        held[slot].clear();
      }
      if (random() % 3 == 0) continue;
      Segment segment;
      segment.slot = slot;
      segment.begin = static_cast<uint32_t>(held[slot].size());
      segment.logit_rows = static_cast<LogitRows>(random() % 3);
      for (size_t count = 1 + random() % 3; count > 0; --count) {
        segment.tokens.push_back(static_cast<int32_t>(random() % kVocabulary));
        held[slot].push_back(segment.tokens.back());
        if (segment.logit_rows == LogitRows::kAll ||
            (segment.logit_rows == LogitRows::kLast && count == 1)) {
          expected.push_back(Follower(held[slot]));
        }
      }
      step.segments.push_back(std::move(segment));
    }
    const absl::Status begun = stack->Begin(step);
    ASSERT_TRUE(begun.ok()) << begun;
    if (expected.empty()) continue;
    ASSERT_EQ(Answers(*stack, static_cast<int>(expected.size())), expected) << "step " << i;
  }
}

TEST(WorkerStack, LoadingIsToldAndWhatItTook) {
  auto stack = WorkerStack::Start(FakePython(""), "no script");
  ASSERT_TRUE(stack.ok()) << stack.status();
  ASSERT_TRUE((*stack)->Connect({}).ok());
  std::vector<std::pair<uint64_t, uint64_t>> told;
  ASSERT_TRUE((*stack)
                  ->Load([&](uint64_t loaded, uint64_t total) { told.emplace_back(loaded, total); })
                  .ok());
  EXPECT_THAT(told, ElementsAre(std::pair<uint64_t, uint64_t>(500'000, 1'000'000)));
  EXPECT_EQ((*stack)->loaded().bytes, 1'000'000u);
  EXPECT_EQ((*stack)->loaded().vocab_size, kVocabulary);
  EXPECT_EQ((*stack)->buffer_bytes(), 0u) << "before the first step";
  int progress = 0;
  (*stack)->SetProgress([&] { ++progress; });
  ASSERT_TRUE((*stack)->Begin(StepOf(0, 0, {1, 2})).ok());
  EXPECT_EQ(progress, 1);
  EXPECT_EQ((*stack)->buffer_bytes(), 4'000'000u) << "what it holds beyond the weights";
}

// A token that the model does not have would be another one in silence, or end the worker.
TEST(WorkerStack, WhatTheModelCannotTakeIsNotSent) {
  const auto stack = Loaded();
  ASSERT_NE(stack, nullptr);
  for (const int32_t token : {-1, kVocabulary, INT32_MAX, INT32_MIN}) {
    const absl::Status begun = stack->Begin(StepOf(0, 0, {1, token}));
    EXPECT_TRUE(absl::IsInternal(begun)) << begun;
    EXPECT_THAT(std::string(begun.message()), HasSubstr(std::to_string(token)));
  }
  for (const LogitRows rows : {LogitRows::kHiddenLast, LogitRows::kHiddenAll}) {
    EXPECT_TRUE(absl::IsUnimplemented(stack->Begin(StepOf(0, 0, {1}, rows))));
  }
  ASSERT_TRUE(stack->Begin(StepOf(0, 0, {3, 4})).ok()) << "nothing of these reached it";
  EXPECT_THAT(Answers(*stack, 1), ElementsAre(Follower({3, 4})));
}

TEST(WorkerStack, WhatIsWrongWithTheModelComesWithItsOwnCode) {
  auto stack = WorkerStack::Start(FakePython("refuses"), "no script");
  ASSERT_TRUE(stack.ok()) << stack.status();
  ASSERT_TRUE((*stack)->Connect({}).ok());
  const absl::Status loaded = (*stack)->Load([](uint64_t, uint64_t) {});
  EXPECT_EQ(ReasonOf(loaded).code(), "MODEL_FORMAT_UNSUPPORTED") << loaded;
  EXPECT_EQ(ReasonOf(loaded).message(), "no such form of martian");
}

TEST(WorkerStack, AWorkerThatDoesNotComeUpSaysWhy) {
  const auto lacks = WorkerStack::Start(FakePython("lacks"), "no script");
  EXPECT_EQ(ReasonOf(lacks.status()).code(), "ENGINE_MISSING");
  EXPECT_EQ(ReasonOf(lacks.status()).remedy(), "install it");
  const auto exits = WorkerStack::Start(FakePython("exits"), "no script");
  EXPECT_EQ(ReasonOf(exits.status()).code(), "ENGINE_FAILED");
  EXPECT_THAT(ReasonOf(exits.status()).message(), HasSubstr("ended with code 3"));
  EXPECT_EQ(ReasonOf(WorkerStack::Start("/nowhere/python3", "").status()).code(), "ENGINE_MISSING");
}

TEST(WorkerStack, AContradictionWithTheWorkersCachesIsNamed) {
  const auto stack = Loaded();
  ASSERT_NE(stack, nullptr);
  ASSERT_TRUE(stack->Begin(StepOf(2, 0, {1, 2, 3})).ok());
  const absl::Status begun = stack->Begin(StepOf(2, 7, {4}));
  EXPECT_EQ(ReasonOf(begun).code(), "ENGINE_FAILED") << begun;
  EXPECT_THAT(ReasonOf(begun).message(),
              AllOf(HasSubstr("fake-python"), HasSubstr("slot 2 holds 3, not 7")));
}

// Alone there is no neighbour whose loss could be meant: it is the worker's own end.
TEST(WorkerStack, ItsEndWithinAStepIsToldAsOftenAsStepsAreTried) {
  const auto stack = Loaded("dies");
  ASSERT_NE(stack, nullptr);
  absl::Status begun;
  int steps = 0;
  for (; steps < 10 && begun.ok(); ++steps) begun = stack->Begin(StepOf(0, 0, {1}));
  EXPECT_EQ(steps, 6);
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(ReasonOf(begun).code(), "ENGINE_FAILED") << begun;
    EXPECT_THAT(ReasonOf(begun).message(), HasSubstr("was ended by signal 9"));
    begun = stack->Begin(StepOf(0, 0, {1}));
  }
}

// An answer of another version, or of a worker that lost its place: no numbers are taken from it.
TEST(WorkerStack, AnAnswerThatIsNoneIsNamed) {
  const auto ends = [](const std::string& mode) {
    auto stack = WorkerStack::Start(FakePython(mode), "no script");
    if (!stack.ok()) return stack.status();
    absl::Status status = (*stack)->Connect({});
    if (status.ok()) status = (*stack)->Load([](uint64_t, uint64_t) {});
    return status.ok() ? (*stack)->Begin(StepOf(0, 0, {1, 2})) : status;
  };
  ASSERT_TRUE(ends("").ok());
  for (const char* mode :
       {"on H say L {}", "on C say L {}", "on L say R {}", "on L say L []", "on L say L {}",
        "on L say L {\"vocab\":16777217}", "on L say L {\"vocab\":-5}",
        "on L say L {\"vocab\":\"3072\"}", "on S say R short", "on S say L {}"}) {
    const absl::Status ended = ends(mode);
    EXPECT_EQ(ReasonOf(ended).code(), "ENGINE_FAILED") << mode << ": " << ended;
    EXPECT_THAT(ReasonOf(ended).message(),
                AllOf(HasSubstr("fake-python"), HasSubstr("can't be read")))
        << mode;
  }
  EXPECT_THAT(ReasonOf(ends("on S say R 0123456789abcdef")).message(),
              HasSubstr("logits of a vocabulary of 3072"));
}

// With ranks beside it, an end that MLX's backend tells of is most likely a neighbour's.
TEST(WorkerStack, InAGangALinkThatFailsIsNotBlamedOnTheWorker) {
  const auto ends = [](const std::string& message, uint32_t world_size) {
    auto stack = WorkerStack::Start(
        FakePython("on S say E {\"code\":\"\",\"message\":\"" + message + "\"}"), "no script");
    EXPECT_TRUE(stack.ok()) << stack.status();
    WorkerPlace place;
    place.world_size = place.tp = world_size;
    EXPECT_TRUE((*stack)->Connect(place).ok());
    EXPECT_TRUE((*stack)->Load([](uint64_t, uint64_t) {}).ok());
    return ReasonOf((*stack)->Begin(StepOf(0, 0, {1})));
  };
  const std::string link = "[ring] Receiving from socket 7 failed";
  EXPECT_EQ(ends(link, 2).code(), "RANK_EXITED");
  EXPECT_THAT(ends(link, 2).message(),
              AllOf(HasSubstr("the link to a neighbouring rank failed"), HasSubstr(link)));
  EXPECT_EQ(ends(link, 1).code(), "ENGINE_FAILED") << "alone there is no link";
  EXPECT_EQ(ends("out of memory", 2).code(), "ENGINE_FAILED") << "its own";
}

}  // namespace
}  // namespace macrame::runtime::engine
