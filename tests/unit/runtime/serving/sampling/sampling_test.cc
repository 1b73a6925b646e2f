#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <random>

#include "proto/reasons.h"
#include "runtime/kernels/token_weights.h"
#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/sampling/row_sampling.h"
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

// Chi-square over the tokens that are expected often enough: as good as their number, within four
// of its standard deviations.
void ExpectProportions(const std::vector<float>& logits, const SamplingTraits& traits,
                       const std::vector<double>& shares) {
  constexpr int kDraws = 40'000;
  const auto counts = Draw(logits, traits, kDraws);
  double sum = 0.0, rare = 0.0;
  int terms = 0, rare_count = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto found = counts.find(static_cast<int32_t>(i));
    const int count = found == counts.end() ? 0 : found->second;
    const double expected = shares[i] * kDraws;
    if (expected < 8.0) {
      rare += expected;
      rare_count += count;
      continue;
    }
    sum += (count - expected) * (count - expected) / expected;
    ++terms;
  }
  EXPECT_NEAR(sum, terms - 1, 4.0 * std::sqrt(2.0 * terms));
  EXPECT_NEAR(rare_count, rare, 4.0 * std::sqrt(rare) + 1.0);
}

TEST(SamplerTest, SharesAreThoseOfTheSoftmax) {
  std::mt19937 random(11);
  for (const float spread : {0.3F, 2.0F}) {
    for (const double temperature : {0.6, 1.5}) {
      std::normal_distribution<float> normal(2.0F, spread);
      std::vector<float> logits(200);
      for (float& logit : logits) logit = normal(random);
      std::vector<double> weights;
      double sum = 0.0;
      for (const float logit : logits) {
        sum += weights.emplace_back(std::exp((double{logit} - 2.0) / temperature));
      }
      const auto shares = [&](double lowest, double of) {
        std::vector<double> kept;
        for (const double weight : weights) kept.push_back(weight < lowest ? 0.0 : weight / of);
        return kept;
      };
      SCOPED_TRACE(testing::Message() << "spread " << spread << ", temperature " << temperature);
      ExpectProportions(logits, {.temperature = temperature, .seed = 21}, shares(0.0, sum));
      // The likeliest that hold 0.8 of it, by plain sums.
      std::vector<double> order = weights;
      std::sort(order.rbegin(), order.rend());
      double held = 0.0;
      size_t last = 0;
      while ((held += order[last]) < 0.8 * sum) ++last;
      ExpectProportions(logits, {.temperature = temperature, .top_p = 0.8, .seed = 22},
                        shares(order[last], held));
      uint32_t top_k = 50;
      while (order[top_k - 1] < 1.0001 * order[top_k]) ++top_k;  // no equals on both sides
      held = 0.0;
      for (size_t i = 0; i < top_k; ++i) held += order[i];
      ExpectProportions(logits, {.temperature = temperature, .top_k = top_k, .seed = 23},
                        shares(order[top_k - 1], held));
    }
  }
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
  EXPECT_EQ(tokens({.top_p = 0.499}), (Tokens{1}));
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

// The choice by its definition, without a shortcut: what SampleToken has to give.
int32_t PlainSample(const std::vector<float>& logits, const SamplingTraits& traits,
                    uint64_t position) {
  struct Candidate {
    uint32_t distance;
    int32_t token;
    uint64_t weight;
  };
  const kernels::DrawNumbers numbers =
      kernels::NumbersOf(traits.temperature, traits.top_p, traits.min_p, traits.seed, position);
  float highest = -kInf;
  for (const float logit : logits) highest = logit > highest ? logit : highest;
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    const uint32_t distance = kernels::DistanceOf(highest, logits[i], numbers.scale);
    candidates.push_back({distance, static_cast<int32_t>(i), kernels::WeightAt(distance)});
  }
  const auto total = [&] {
    uint64_t sum = 0;
    for (const Candidate& candidate : candidates) sum += candidate.weight;
    return sum;
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  if (traits.top_k > 0 && traits.top_k < candidates.size()) candidates.resize(traits.top_k);
  const uint64_t wanted = kernels::ShareOf(total(), numbers.top_p);
  uint64_t sum = 0;
  size_t kept = 0;
  while (sum < wanted) sum += candidates[kept++].weight;
  candidates.resize(kept);
  std::erase_if(candidates, [&](const Candidate& c) { return c.distance > numbers.farthest; });
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  uint64_t left = kernels::ShareOf(total(), numbers.draw);
  for (const Candidate& candidate : candidates) {
    if (left < candidate.weight) return candidate.token;
    left -= candidate.weight;
  }
  ADD_FAILURE() << "the draw falls behind the last token";
  return -1;
}

class RandomRows {
 public:
  explicit RandomRows(uint32_t seed) : random_(seed) {}

  std::vector<float> Logits(size_t size) {
    std::vector<float> logits(size);
    std::normal_distribution<float> normal(0.0F, Any({0.0F, 0.01F, 1.0F, 3.0F, 10.0F}));
    for (float& logit : logits) logit = normal(random_) + 5.0F;
    if (Pick(4) == 0) {  // many that are equal
      for (float& logit : logits) logit = std::round(logit * 2.0F) / 2.0F;
    }
    if (Pick(3) == 0) {  // a grammar's mask
      for (float& logit : logits) logit = Pick(3) == 0 ? logit : -kInf;
    }
    if (Pick(8) == 0) logits[Pick(size)] = kNan;
    logits[Pick(size)] = Any({0.0F, 5.0F, 12.0F, 30.0F});
    return logits;
  }
  // Nothing stands out; some are masked, some equal.
  std::vector<float> FlatLogits(size_t size) {
    std::vector<float> logits(size);
    std::normal_distribution<float> normal(0.0F, Any({0.0F, 0.01F, 0.3F, 1.0F, 2.0F}));
    for (float& logit : logits) logit = normal(random_);
    if (Pick(4) == 0) {
      for (float& logit : logits) logit = std::round(logit * 8.0F) / 8.0F;
    }
    if (Pick(4) == 0) {
      for (float& logit : logits) logit = Pick(3) > 0 ? logit : -kInf;
    }
    logits[Pick(size)] = 1.0F;
    return logits;
  }
  SamplingTraits Traits() {
    SamplingTraits traits;
    traits.temperature = Any({0.0, 1e-3, 0.3, 0.8, 0.8, 1.0, 2.5, 100.0});
    traits.top_k = Any({0u, 0u, 1u, 2u, 5u, 40u, 700u});
    traits.top_p = Any({1.0, 1.0, 1e-6, 0.1, 0.5, 0.9, 0.95, 0.999999});
    traits.min_p = Any({0.0, 0.0, 1e-9, 0.01, 0.05, 0.5, 1.0});
    traits.seed = random_();
    return traits;
  }
  size_t Pick(size_t count) { return random_() % count; }

 private:
  template <typename T>
  T Any(std::initializer_list<T> of) {
    return *(of.begin() + Pick(of.size()));
  }
  std::mt19937_64 random_;
};

TEST(SamplerTest, ShortcutsGiveTheTokenOfThePlainWay) {
  RandomRows rows(1);
  for (int i = 0; i < 6000; ++i) {
    const auto logits = rows.Logits(1 + rows.Pick(i % 20 == 0 ? 20000 : 1500));
    for (int j = 0; j < 4; ++j) {
      const SamplingTraits traits = rows.Traits();
      const uint64_t position = rows.Pick(100000);
      ASSERT_EQ(*SampleToken(logits, traits, position), PlainSample(logits, traits, position))
          << "row " << i << " of " << logits.size() << ": temperature " << traits.temperature
          << ", top_k " << traits.top_k << ", top_p " << traits.top_p << ", min_p " << traits.min_p
          << ", seed " << traits.seed;
    }
  }
}

TEST(SamplerTest, EveryTokenOfAFlatRowIsDrawnWhereItStands) {
  // Each token's share is a hundredth of a thousandth: the sums' last bits count.
  const std::vector<float> logits(100'000, 1.0F);
  for (uint64_t position = 0; position < 300; ++position) {
    for (const double top_p : {1.0, 0.5}) {
      const SamplingTraits traits{.temperature = 0.7, .top_p = top_p, .seed = 9};
      ASSERT_EQ(*SampleToken(logits, traits, position), PlainSample(logits, traits, position));
    }
  }
}

TEST(SamplerTest, FlatRowsGiveTheTokenOfThePlainWay) {
  RandomRows rows(2);
  for (int i = 0; i < 200; ++i) {
    const auto logits = rows.FlatLogits(6000 + rows.Pick(20000));
    for (int j = 0; j < 3; ++j) {
      SamplingTraits traits = rows.Traits();
      traits.top_k = 0;
      traits.min_p = j == 2 ? traits.min_p : 0.0;
      const uint64_t position = rows.Pick(100000);
      ASSERT_EQ(*SampleToken(logits, traits, position), PlainSample(logits, traits, position))
          << "row " << i << " of " << logits.size() << ": temperature " << traits.temperature
          << ", top_p " << traits.top_p << ", min_p " << traits.min_p << ", seed " << traits.seed;
    }
  }
}

// Sixteen rows of a step: of some requests one, of others a few with drafts that are right or not.
TEST(RowSamplingTest, TokensAreThoseOfOneRowAfterTheOtherOnAnyNumberOfThreads) {
  constexpr size_t kRows = 16, kWidth = 5000;
  RandomRows random(3);
  std::vector<std::unique_ptr<kernels::ThreadPool>> pools;
  for (const int threads : {1, 2, 3, 5}) {
    pools.push_back(std::make_unique<kernels::ThreadPool>(threads));
  }
  for (int round = 0; round < 40; ++round) {
    std::vector<float> logits;
    std::vector<RowSampling> rows(kRows);
    std::vector<std::optional<int32_t>> expected(kRows);
    bool counts = true;
    for (size_t row = 0; row < kRows; ++row) {
      const auto own = round % 2 == 0 ? random.FlatLogits(kWidth) : random.Logits(kWidth);
      logits.insert(logits.end(), own.begin(), own.end());
      RowSampling& how = rows[row];
      const bool rests = row > 0 && rows[row - 1].draft.has_value();
      how.traits = rests ? rows[row - 1].traits : random.Traits();
      how.position = rests ? rows[row - 1].position + 1 : random.Pick(100000);
      how.is_wanted = rests ? rows[row - 1].is_wanted : random.Pick(8) > 0;
      if (!rests) counts = how.is_wanted;
      const int32_t token = *SampleToken(own, how.traits, how.position);
      if (counts) expected[row] = token;
      if (random.Pick(3) > 0 && row + 1 < kRows) how.draft = random.Pick(3) > 0 ? token : token + 1;
      counts = counts && (!how.draft.has_value() || *how.draft == token);
    }
    std::vector<kernels::ThreadPool*> by = {nullptr};
    for (const auto& pool : pools) by.push_back(pool.get());
    for (kernels::ThreadPool* pool : by) {
      const auto tokens = SampleRows(logits, rows, pool);
      ASSERT_EQ(tokens.size(), kRows);
      for (size_t row = 0; row < kRows; ++row) {
        ASSERT_EQ(tokens[row].ok(), expected[row].has_value())
            << "round " << round << " row " << row;
        if (!expected[row].has_value()) continue;
        ASSERT_EQ(tokens[row]->token, *expected[row]) << "round " << round << " row " << row;
      }
    }
  }
}

TEST(RowSamplingTest, ADeviceChoosesByTemperatureTopKTopPAndMinPAlone) {
  EXPECT_TRUE(CanChooseOnDevice({}));
  const SamplingTraits traits{
      .temperature = 0.7, .top_k = 20, .top_p = 0.8, .min_p = 0.1, .seed = 3};
  const RowSampling row{.traits = traits, .position = 41};
  EXPECT_TRUE(CanChooseOnDevice(row));
  EXPECT_EQ(
      ChoiceOf(row),
      (RowChoice{
          .temperature = 0.7, .top_k = 20, .top_p = 0.8, .min_p = 0.1, .seed = 3, .position = 41}));
  EXPECT_FALSE(CanChooseOnDevice({.traits = {.temperature = 1.0, .typical_p = 0.9}}));
  EXPECT_TRUE(CanChooseOnDevice({.traits = {.typical_p = 0.9}})) << "greedy";
  EXPECT_FALSE(CanChooseOnDevice({.top_logprobs = 0}));
  const LogitsProcessor none({}, 0, {}, {}), penalised({.presence_penalty = 1.0}, 0, {}, {});
  LogitsProcessor begins({}, 1, {7}, {});
  EXPECT_TRUE(CanChooseOnDevice({.processor = &none}));
  EXPECT_FALSE(CanChooseOnDevice({.processor = &penalised}));
  EXPECT_FALSE(CanChooseOnDevice({.processor = &begins})) << "it must not end yet";
  begins.Take(1);
  EXPECT_TRUE(CanChooseOnDevice({.processor = &begins}));
  const StructuredContent structure({}, true);
  EXPECT_FALSE(CanChooseOnDevice({.structure = &structure}));
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
  EXPECT_EQ(stops.found(), "lo");
}

TEST(StopMatcherTest, TellsTheFirstThatIsWholeAndTheLongestThatEndsThere) {
  StopMatcher stops({"\n", "\n\nHuman:", "x"});
  EXPECT_EQ(stops.Push("hello"), "hello");
  EXPECT_EQ(stops.found(), "");
  EXPECT_EQ(stops.Push("\n\nHuman: x"), "");
  EXPECT_EQ(stops.found(), "\n");
  StopMatcher nested({"man:", "Human:"});
  EXPECT_EQ(nested.Push("a Human: b"), "a ");
  EXPECT_EQ(nested.found(), "Human:");
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
