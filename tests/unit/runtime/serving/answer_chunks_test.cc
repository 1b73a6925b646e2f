// What a client hears of an answer, chunk by chunk: the order of things, what the first and the
// last one carry, and how it ends from inside and from outside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "runtime/serving/answer.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kEnd = 1000;
constexpr char kCallOfF[] = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

// An answer whose tokens are these pieces of text, and its chunks.
class Told {
 public:
  explicit Told(std::vector<std::string> pieces) {
    text.push = [pieces](int32_t token) { return pieces[static_cast<size_t>(token)]; };
    text.finish = [] { return std::string(); };
    job.prompt = {1, 2, 3};
    job.limits.prompt_tokens = 3;
    job.limits.context_length = 1000;
    job.limits.end_tokens = {kEnd};
    job.shape.markup.dialect = std::make_shared<const markup::Dialect>(markup::ChooseDialect(
        "tools <tool_call> <think> </think>", [](std::string_view) { return false; }));
    job.shape.markup.tools = std::make_shared<const markup::ToolSet>("[]");
    count = static_cast<int32_t>(pieces.size());
  }
  Answer& answer() {
    if (!answer_.has_value()) {
      answer_.emplace(
          job, text, [this](const v1::GenerateChunk& chunk) { chunks.push_back(chunk); },
          std::chrono::steady_clock::now());
    }
    return *answer_;
  }
  // Whether it goes on.
  bool Take(int32_t token) {
    SampledToken sampled;
    sampled.token = token;
    const auto next = answer().Take(sampled);
    EXPECT_TRUE(next.ok()) << next.status();
    return next.ok() && next->has_value();
  }
  void TakeAll() {
    for (int32_t token = 0; token < count; ++token) {
      if (!Take(token)) return;
    }
    Take(kEnd);
  }
  // "think: …|say: …|call 0 f: …;", one for each part of each chunk.
  std::string Parts() const {
    std::string parts;
    for (const v1::GenerateChunk& chunk : chunks) {
      if (!chunk.reasoning().empty()) parts += "think " + chunk.reasoning() + "|";
      if (!chunk.text().empty()) parts += "say " + chunk.text() + "|";
      for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
        parts += "call " + std::to_string(call.index()) + " " + call.name() + call.arguments() +
                 (call.ended() ? ";" : "") + "|";
      }
    }
    return parts;
  }

  GenerationJob job;
  TextStream text;
  std::vector<v1::GenerateChunk> chunks;
  int32_t count = 0;

 private:
  std::optional<Answer> answer_;
};

// One token may hold several things. A chunk has reasoning, text and calls in this order, so what
// comes otherwise is in the next one.
TEST(AnswerChunks, ThingsAreToldInTheOrderInWhichTheyCame) {
  const std::string call = kCallOfF;
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"<think>a</think>b" + call + "c" + call},
       "think a|say b|call 0 f{\"a\": 1};|say c|"
       "call 1 f{\"a\": 1};|"},
      {{call + call}, "call 0 f{\"a\": 1};|call 1 f{\"a\": 1};|"},
      {{"<think>a", "b</think>", "c", "d"}, "think a|think b|say c|say d|"},
      {{"x" + call, "y"}, "say x|call 0 f{\"a\": 1};|say y|"},
      {{"<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", ": ", "1}", "}", "</tool_call>"},
       "call 0 f{\"a\"|call 0 : |call 0 1}|call 0 ;|"}};
  for (const auto& [pieces, parts] : cases) {
    Told told(pieces);
    told.TakeAll();
    EXPECT_EQ(told.Parts(), parts);
    for (const v1::GenerateChunk& chunk : told.chunks) {
      const bool has_begun = chunk.tool_calls_size() > 0 && !chunk.tool_calls(0).id().empty();
      EXPECT_EQ(has_begun, chunk.tool_calls_size() > 0 && !chunk.tool_calls(0).name().empty())
          << "a call's id and name come together";
    }
  }
}

// However an answer is cut into tokens, what its chunks tell together is the same.
TEST(AnswerChunks, TogetherTheyTellTheSameHoweverTheTextIsCut) {
  const std::string whole = std::string("<think>Hm, let me see.</think>\n\nWell. ") + kCallOfF +
                            " and " + kCallOfF + " done";
  std::string first_told;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < whole.size();) {
      const size_t size = seed == 0 ? whole.size() : 1 + random() % 9;
      pieces.push_back(whole.substr(at, size));
      at += size;
    }
    Told told(pieces);
    told.TakeAll();
    std::string reasoning, content;
    std::vector<std::string> calls;
    std::vector<int32_t> ids;
    for (const v1::GenerateChunk& chunk : told.chunks) {
      reasoning += chunk.reasoning();
      content += chunk.text();
      for (const v1::ToolCallDelta& call : chunk.tool_calls()) {
        if (!call.name().empty()) {
          EXPECT_EQ(call.index(), calls.size());
          calls.push_back(call.name());
        }
        ASSERT_LT(call.index(), calls.size());
        calls[call.index()] += call.arguments();
      }
      ids.insert(ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    }
    EXPECT_EQ(reasoning, "Hm, let me see.");
    EXPECT_EQ(content, "Well. and done") << "white space before a call is markup";
    EXPECT_THAT(calls, ElementsAre("f{\"a\": 1}", "f{\"a\": 1}"));
    std::vector<int32_t> all(pieces.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    EXPECT_EQ(ids, all) << "each token but the end's, once and in order";
    EXPECT_EQ(told.chunks.back().completion_tokens(), pieces.size() + 1);
  }
}

TEST(AnswerChunks, TheFirstTellsOfThePromptAndTheLastOfTheAnswer) {
  Told told({"<think>a", "b</think>", "c", "d", "e"});
  told.answer().SetCachedTokens(32, 16);
  for (int i = 0; i < 5; ++i) told.answer().CountDrafted(/*is_of_model=*/i < 2);
  for (int i = 0; i < 3; ++i) told.answer().CountAccepted(/*is_of_model=*/i < 1);
  told.TakeAll();
  ASSERT_GT(told.chunks.size(), 2u);
  for (size_t i = 0; i < told.chunks.size(); ++i) {
    const v1::GenerateChunk& chunk = told.chunks[i];
    const bool is_first = i == 0, is_last = i + 1 == told.chunks.size();
    EXPECT_EQ(chunk.prompt_tokens(), is_first ? 3u : 0u);
    EXPECT_EQ(chunk.cached_tokens(), is_first ? 32u : 0u);
    EXPECT_EQ(chunk.cold_tokens(), is_first ? 16u : 0u);
    EXPECT_EQ(chunk.finish_reason(),
              is_last ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_UNSPECIFIED);
    EXPECT_EQ(chunk.completion_tokens(), is_last ? 6u : 0u);
    EXPECT_EQ(chunk.draft_tokens(), is_last ? 5u : 0u);
    EXPECT_EQ(chunk.accepted_tokens(), is_last ? 3u : 0u);
    EXPECT_EQ(chunk.model_draft_tokens(), is_last ? 2u : 0u);
    EXPECT_EQ(chunk.model_accepted_tokens(), is_last ? 1u : 0u);
  }
  EXPECT_EQ(told.chunks.back().reasoning_tokens(), 1u) << "the token that ends it within reasoning";
}

TEST(AnswerChunks, TokensWithoutTextWaitForSomethingToTell) {
  Told told({"", "<", "think>", "", "ok", "</thi", "nk>", "", "Yes"});
  std::vector<size_t> sizes;
  for (int32_t token = 0; token < told.count; ++token) {
    told.Take(token);
    sizes.push_back(told.chunks.size());
  }
  EXPECT_THAT(sizes, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2));
  EXPECT_THAT(told.chunks[0].token_ids(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(told.chunks[1].token_ids(), ElementsAre(5, 6, 7, 8));
}

TEST(AnswerChunks, CancellingEndsItOnceAndWhatComesThenIsNotTold) {
  Told early({"a"});
  early.answer().Cancel();
  ASSERT_THAT(early.chunks, SizeIs(1));
  EXPECT_EQ(early.chunks[0].finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(early.chunks[0].prompt_tokens(), 3u);
  EXPECT_EQ(early.chunks[0].completion_tokens(), 0u);
  early.answer().Cancel();
  EXPECT_THAT(early.chunks, SizeIs(1));

  Told late({"a", "b"});
  late.Take(0);
  late.Take(1);
  late.answer().Cancel();
  EXPECT_EQ(late.chunks.back().finish_reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(late.chunks.back().completion_tokens(), 2u);
  EXPECT_EQ(late.Parts(), "say a|say b|");

  Told over({"a"});
  over.TakeAll();
  const size_t told = over.chunks.size();
  over.answer().Cancel();
  EXPECT_EQ(over.chunks.size(), told) << "it had ended by itself";
}

TEST(AnswerChunks, AModelsErrorIsTheCallersToTell) {
  Told told({"a", "b"});
  told.Take(0);
  const size_t before = told.chunks.size();
  const auto failed = told.answer().Take(absl::InternalError("no logit is finite"));
  EXPECT_EQ(failed.status().message(), "no logit is finite");
  told.answer().Cancel();
  EXPECT_EQ(told.chunks.size(), before) << "it is over, and not cancelled";
}

TEST(AnswerChunks, TheStopStringThatEndedItIsNamedAndNotTold) {
  Told told({"one ", "tw", "o thr", "ee"});
  told.job.stops = {"two", "three"};
  told.TakeAll();
  EXPECT_EQ(told.Parts(), "say one|say  |");
  EXPECT_EQ(told.chunks.back().stop_string(), "two");
  EXPECT_EQ(told.chunks.back().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(told.chunks.back().completion_tokens(), 3u);
  Told without({"one"});
  without.job.stops = {"two"};
  without.TakeAll();
  EXPECT_EQ(without.chunks.back().stop_string(), "");
}

TEST(AnswerChunks, AnAnswerOfNothingIsOneChunk) {
  Told told({});
  told.TakeAll();
  ASSERT_THAT(told.chunks, SizeIs(1));
  EXPECT_EQ(told.chunks[0].finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(told.chunks[0].prompt_tokens(), 3u);
  EXPECT_EQ(told.chunks[0].completion_tokens(), 1u);
  EXPECT_THAT(told.chunks[0].token_ids(), IsEmpty()) << "the end token is none of the answer's";
}

TEST(AnswerChunks, AStepsTimeIsThatOfEnoughTokens) {
  v1::GenerateChunk chunk;
  chunk.set_decode_ms(70.0);
  chunk.set_completion_tokens(8);
  EXPECT_EQ(DecodeStepUs(chunk), 0.0) << "the answer goes on";
  chunk.set_finish_reason(v1::FINISH_REASON_LENGTH);
  EXPECT_DOUBLE_EQ(DecodeStepUs(chunk), 10'000.0) << "the first one was the prompt's";
  chunk.set_completion_tokens(kTimedTokensMin - 1);
  EXPECT_EQ(DecodeStepUs(chunk), 0.0);
}

}  // namespace
}  // namespace macrame::runtime::engine
