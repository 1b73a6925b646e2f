#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "proto/reasons.h"
#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/sampling/sampler.h"
#include "runtime/serving/sampling/stop_matcher.h"

namespace macrame::runtime::engine {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::map<int32_t, int> Draw(const std::vector<float>& logits, SamplingTraits traits, int draws) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[*SampleToken(logits, traits, i)];
  return counts;
}

TEST(SamplerTest, GreedyTakesTheHighestAndTheFirstOfEquals) {
  EXPECT_EQ(*SampleToken(std::vector<float>{0, 3, 3, -1}, {}, 0), 1);
  EXPECT_EQ(*SampleToken(std::vector<float>{kNan, -5, -4}, {}, 0), 2);
}

TEST(SamplerTest, LogitsThatAreNotFiniteAreAnError) {
  EXPECT_FALSE(SampleToken(std::vector<float>{kNan, kNan}, {}, 0).ok());
  EXPECT_FALSE(SampleToken(std::vector<float>{-kInf, -kInf}, {}, 0).ok());
  EXPECT_FALSE(SampleToken(std::vector<float>{0, kInf}, {}, 0).ok());
  EXPECT_FALSE(SampleToken({}, {}, 0).ok());
}

TEST(SamplerTest, DrawsInProportion) {
  const std::vector<float> logits{std::log(0.7F), std::log(0.2F), std::log(0.1F)};
  const auto counts = Draw(logits, {.temperature = 1.0, .seed = 5}, 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.7, 0.015);
  EXPECT_NEAR(counts.at(1) / 20000.0, 0.2, 0.015);
  EXPECT_NEAR(counts.at(2) / 20000.0, 0.1, 0.015);
}

TEST(SamplerTest, TemperatureSharpens) {
  const std::vector<float> logits{std::log(0.6F), std::log(0.4F)};
  const auto counts = Draw(logits, {.temperature = 0.5, .seed = 5}, 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.36 / (0.36 + 0.16), 0.015);
}

TEST(SamplerTest, FiltersKeepOnlyWhatTheyShould) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.5F), std::log(0.3F), std::log(0.1F)};
  const auto tokens = [&](SamplingTraits traits) {
    traits.temperature = 1.0;
    std::vector<int32_t> seen;
    for (const auto& [token, count] : Draw(logits, traits, 2000)) seen.push_back(token);
    return seen;
  };
  using Tokens = std::vector<int32_t>;
  EXPECT_EQ(tokens({}), (Tokens{0, 1, 2, 3}));
  EXPECT_EQ(tokens({.top_k = 1}), (Tokens{1}));
  EXPECT_EQ(tokens({.top_k = 3}), (Tokens{0, 1, 2}));  // equal ones by id
  EXPECT_EQ(tokens({.top_p = 0.5}), (Tokens{1}));
  EXPECT_EQ(tokens({.top_p = 0.6}), (Tokens{1, 2}));
  EXPECT_EQ(tokens({.min_p = 0.5}), (Tokens{1, 2}));
  EXPECT_EQ(tokens({.min_p = 1.0}), (Tokens{1}));
  // top-p counts on what top-k left: 0.5 of 0.8 is 0.625.
  EXPECT_EQ(tokens({.top_k = 2, .top_p = 0.62}), (Tokens{1}));
  EXPECT_EQ(tokens({.top_p = 1e-9}), (Tokens{1}));
}

TEST(SamplerTest, LargeVocabulariesTakeTheSameShortcut) {
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = -0.001F * static_cast<float>(i);
  for (const auto& [token, count] :
       Draw(logits, {.temperature = 1.0, .top_p = 0.3, .seed = 3}, 500)) {
    EXPECT_LT(token, 400);  // the first 354 or so hold 30 %
  }
}

TEST(SamplerTest, SeedAndPositionFixTheDraw) {
  const std::vector<float> logits(100, 0.0F);
  const SamplingTraits traits{.temperature = 1.0, .seed = 42};
  std::vector<int32_t> run;
  for (uint64_t i = 0; i < 50; ++i) run.push_back(*SampleToken(logits, traits, i));
  for (uint64_t i = 25; i < 50; ++i) EXPECT_EQ(*SampleToken(logits, traits, i), run[i]);
  EXPECT_NE(run[0], run[1]);
}

TEST(SamplerTest, ChecksItsBounds) {
  EXPECT_TRUE(CheckSampling({}).ok());
  EXPECT_FALSE(CheckSampling({.temperature = -1}).ok());
  EXPECT_FALSE(CheckSampling({.temperature = std::nan("")}).ok());
  EXPECT_FALSE(CheckSampling({.top_p = 0}).ok());
  EXPECT_FALSE(CheckSampling({.top_p = 1.1}).ok());
  EXPECT_FALSE(CheckSampling({.min_p = 2}).ok());
}

TEST(StopMatcherTest, FindsStopsAcrossPieces) {
  StopMatcher stops({"END", "\n\n"});
  EXPECT_EQ(stops.Push("hello E"), "hello ");
  EXPECT_EQ(stops.Push("N"), "");
  EXPECT_EQ(stops.Push("d and EN"), "ENd and ");
  EXPECT_EQ(stops.Push("D more"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.Push("text"), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopMatcherTest, GivesBackWhatWasNoStop) {
  StopMatcher stops({"abcabd"});
  EXPECT_EQ(stops.Push("abcabc"), "abc");
  EXPECT_EQ(stops.Finish(), "abc");
}

TEST(StopMatcherTest, TheEarliestStopWins) {
  StopMatcher stops({"world", "lo"});
  EXPECT_EQ(stops.Push("hello world"), "hel");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopMatcherTest, EveryCutGivesTheSameText) {
  const std::string text = "one two two three two three four";
  const std::string stop = "two three f";
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      StopMatcher stops({stop});
      std::string out = stops.Push(text.substr(0, a));
      out += stops.Push(text.substr(a, b - a));
      out += stops.Push(text.substr(b));
      out += stops.Finish();
      EXPECT_EQ(out, "one two two three ") << a << " " << b;
    }
  }
}

TEST(StopMatcherTest, ChecksItsBounds) {
  EXPECT_TRUE(CheckStopStrings({"x"}).ok());
  EXPECT_FALSE(CheckStopStrings({""}).ok());
  EXPECT_FALSE(CheckStopStrings(std::vector<std::string>(17, "x")).ok());
  EXPECT_FALSE(CheckStopStrings({std::string(1025, 'x')}).ok());
}

// Tokens 0-25 are letters; "~" holds text back until the next token, as half a character would.
TextStream Letters() {
  return {[](int32_t token) { return std::string(1, static_cast<char>('a' + token)); },
          [] { return std::string("!"); }};
}

std::vector<float> Favour(int32_t token) {
  std::vector<float> logits(30, 0.0F);
  logits[static_cast<size_t>(token)] = 1.0F;
  return logits;
}

TEST(GenerationTest, EndsAtAnEndToken) {
  Generation generation({.prompt_tokens = 3, .context_length = 100, .end_tokens = {29}}, {}, {},
                        Letters());
  EXPECT_EQ(generation.Next(Favour(2))->text, "c");
  const auto last = generation.Next(Favour(29));
  EXPECT_EQ(last->finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(last->text, "!");  // what the decoder held
  EXPECT_EQ(generation.completion_tokens(), 2u);
}

TEST(GenerationTest, EndsAtMaxTokensAndAtAFullContext) {
  Generation bounded({.prompt_tokens = 3, .max_tokens = 2, .context_length = 100}, {}, {},
                     Letters());
  EXPECT_EQ(bounded.Next(Favour(0))->finish, v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(bounded.Next(Favour(1))->finish, v1::FINISH_REASON_LENGTH);
  Generation full({.prompt_tokens = 3, .context_length = 5}, {}, {}, Letters());
  EXPECT_EQ(full.Next(Favour(0))->finish, v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(full.Next(Favour(1))->finish, v1::FINISH_REASON_LENGTH);
}

TEST(GenerationTest, AStopStringEndsItWithoutItsText) {
  Generation generation({.prompt_tokens = 1, .context_length = 100}, {}, {"bc"}, Letters());
  EXPECT_EQ(generation.Next(Favour(0))->text, "a");
  EXPECT_EQ(generation.Next(Favour(1))->text, "");
  const auto last = generation.Next(Favour(2));
  EXPECT_EQ(last->text, "");
  EXPECT_EQ(last->finish, v1::FINISH_REASON_STOP);
}

}  // namespace
}  // namespace macrame::runtime::engine
