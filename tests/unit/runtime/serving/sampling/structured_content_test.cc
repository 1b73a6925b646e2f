// When an answer's tokens are held to a structure and when they are free, told with a structure
// that is a list of texts.

#include "runtime/serving/sampling/structured_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "runtime/serving/sampling/row_sampling.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Text = std::vector<int32_t>;
constexpr size_t kVocabulary = 12;
constexpr int32_t kThink = 7, kLine = 8, kLines = 9, kCall = 10, kOther = 11;

// One of a few texts, to its end.
class FakeConstraint : public TokenConstraint {
 public:
  explicit FakeConstraint(std::vector<Text> texts) : texts_(std::move(texts)) {}

  std::unique_ptr<TokenConstraint> Fork() const override {
    return std::make_unique<FakeConstraint>(*this);
  }
  absl::Status Mask(std::span<const int32_t> ahead, std::span<float> logits) override {
    Text said = said_;
    said.insert(said.end(), ahead.begin(), ahead.end());
    const std::set<int32_t> next = NextOf(said);
    if (next.empty()) return absl::InternalError("a text that has no place");
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!next.contains(static_cast<int32_t>(i))) {
        logits[i] = -std::numeric_limits<float>::infinity();
      }
    }
    return absl::OkStatus();
  }
  absl::Status Take(int32_t token) override {
    if (!NextOf(said_).contains(token)) return absl::InternalError("a token that has no place");
    said_.push_back(token);
    return absl::OkStatus();
  }
  size_t Admitted(std::span<const int32_t> tokens) override {
    Text said = said_;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!NextOf(said).contains(tokens[i])) return i;
      said.push_back(tokens[i]);
    }
    return tokens.size();
  }
  bool is_over() const override {
    return std::find(texts_.begin(), texts_.end(), said_) != texts_.end();
  }

 private:
  std::set<int32_t> NextOf(const Text& said) const {
    std::set<int32_t> next;
    for (const Text& text : texts_) {
      const bool begins =
          text.size() > said.size() && std::equal(said.begin(), said.end(), text.begin());
      if (begins) next.insert(text[said.size()]);
    }
    return next;
  }

  std::vector<Text> texts_;
  Text said_;
};

StructurePlan PlanOf(std::vector<Text> texts) {
  StructurePlan plan;
  plan.constraint = std::make_shared<const FakeConstraint>(std::move(texts));
  plan.think_open = kThink;
  plan.line_ends = {kLine, kLines};
  plan.call_openers = {kCall};
  return plan;
}

// The tokens that have a place behind `ahead`; all of them where the row is free.
std::vector<int32_t> Places(const StructuredContent& content, const Text& ahead = {}) {
  std::vector<float> logits(kVocabulary, 1.0F);
  const auto held = content.Mask(ahead, logits);
  EXPECT_TRUE(held.ok()) << held.status();
  std::vector<int32_t> places;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) places.push_back(static_cast<int32_t>(i));
  }
  EXPECT_EQ(held.value_or(false), places.size() < kVocabulary);
  return places;
}

void TakeAll(StructuredContent& content, const Text& tokens, bool is_content = true) {
  for (const int32_t token : tokens) {
    const absl::Status taken = content.Take(token, is_content);
    EXPECT_TRUE(taken.ok()) << taken;
  }
}

TEST(StructuredContentTest, WithoutAStructureEverythingIsFree) {
  StructuredContent content({}, true);
  EXPECT_FALSE(content.has_structure());
  EXPECT_EQ(Places(content).size(), kVocabulary);
  TakeAll(content, {kThink, kOther, kCall});
  EXPECT_EQ(content.Admitted(Text{1, 2, 3}), 3u);
  EXPECT_FALSE(content.is_over());
}

TEST(StructuredContentTest, AnAnswerBeginsWithTheStructureReasoningOrACall) {
  StructuredContent content(PlanOf({{1, 2}, {3}}), true);
  EXPECT_THAT(Places(content), ElementsAre(1, 3, kThink, kCall));
  TakeAll(content, {1});
  EXPECT_THAT(Places(content), ElementsAre(2)) << "once it began nothing else has a place";
  EXPECT_FALSE(content.is_over());
  TakeAll(content, {2});
  EXPECT_TRUE(content.is_over());
}

TEST(StructuredContentTest, ReasoningIsFreeAndOneLinesEndMayStandBehindIt) {
  for (const int32_t line : {kLine, kLines}) {
    StructuredContent content(PlanOf({{1, 2}}), true);
    TakeAll(content, {kThink, kOther, 5}, /*is_content=*/false);
    EXPECT_FALSE(content.is_held());
    EXPECT_EQ(Places(content).size(), kVocabulary);
    TakeAll(content, {6}, /*is_content=*/true);  // the token that ended it
    EXPECT_THAT(Places(content), ElementsAre(1, kLine, kLines, kCall)) << "but no more reasoning";
    TakeAll(content, {line});
    EXPECT_THAT(Places(content), ElementsAre(1, kCall)) << "one is markup, a second one is not";
    TakeAll(content, {1, 2});
    EXPECT_TRUE(content.is_over());
  }
}

TEST(StructuredContentTest, APromptThatOpensReasoningLeavesTheBeginningFree) {
  StructuredContent content(PlanOf({{1}}), /*begins_with_content=*/false);
  EXPECT_EQ(Places(content).size(), kVocabulary);
  TakeAll(content, {kOther}, false);
  TakeAll(content, {kOther}, true);
  EXPECT_THAT(Places(content), ElementsAre(1, kLine, kLines, kCall));
}

TEST(StructuredContentTest, AnAnswerThatBecameACallIsFree) {
  StructuredContent opened(PlanOf({{1}}), true);
  TakeAll(opened, {kCall, kOther, 5, 5});
  EXPECT_EQ(Places(opened).size(), kVocabulary);
  EXPECT_FALSE(opened.is_over());
  // A call may be told by its text, while the structure still waits for the content.
  StructuredContent noted(PlanOf({{1}}), false);
  noted.NoteCall();
  TakeAll(noted, {kOther}, true);
  EXPECT_EQ(Places(noted).size(), kVocabulary);
  // What is within the structure is no call, whatever it looks like.
  StructuredContent within(PlanOf({{1, 2}}), true);
  TakeAll(within, {1});
  within.NoteCall();
  EXPECT_THAT(Places(within), ElementsAre(2));
}

TEST(StructuredContentTest, ATokenWithoutAPlaceIsAnError) {
  StructuredContent content(PlanOf({{1, 2}}), true);
  EXPECT_FALSE(content.Take(kOther, true).ok());
}

TEST(StructuredContentTest, RowsBehindDraftsAreHeldAsIfTheseHadBeenTaken) {
  StructuredContent content(PlanOf({{1, 2, 3}, {1, 4}}), true);
  EXPECT_THAT(Places(content, {1}), ElementsAre(2, 4));
  EXPECT_THAT(Places(content, {1, 2}), ElementsAre(3));
  EXPECT_EQ(Places(content, {kCall}).size(), kVocabulary) << "behind a call's opening";
  EXPECT_EQ(Places(content, {kThink, 5}).size(), kVocabulary) << "nobody knows whether it ended";
  TakeAll(content, {kThink}, false);
  TakeAll(content, {kOther}, true);
  EXPECT_THAT(Places(content, {kLine}), ElementsAre(1, kCall));
  EXPECT_THAT(Places(content, {kLine, 1}), ElementsAre(2, 4));
  EXPECT_THAT(Places(content), ElementsAre(1, kLine, kLines, kCall)) << "nothing was taken";
}

TEST(StructuredContentTest, DraftsAreCutWhereTheyHaveNoPlace) {
  StructuredContent content(PlanOf({{1, 2, 3}}), true);
  const std::pair<Text, size_t> opening[] = {{{}, 0},
                                             {{1, 2, 3}, 3},
                                             {{1, 3}, 1},
                                             {{kOther}, 0},
                                             {{kLine, 1}, 0},
                                             {{kThink, kOther, kOther}, 3},
                                             {{kCall, 5, 5}, 3},
                                             {{1, kThink}, 1},
                                             {{1, 2, 3, 1}, 3}};
  for (const auto& [draft, admitted] : opening) {
    EXPECT_EQ(content.Admitted(draft), admitted) << testing::PrintToString(draft);
  }
  TakeAll(content, {kThink}, false);
  EXPECT_EQ(content.Admitted(Text{5, 5, 5}), 3u) << "reasoning is free";
  TakeAll(content, {kOther}, true);
  const std::pair<Text, size_t> behind[] = {
      {{kLine, 1, 2}, 3}, {{kLine, kLine}, 1}, {{kLines, kCall, 5}, 3}, {{kThink, 5}, 0}};
  for (const auto& [draft, admitted] : behind) {
    EXPECT_EQ(content.Admitted(draft), admitted) << testing::PrintToString(draft);
  }
}

TEST(StructuredContentTest, ACallThatMustBeMadeIsHeldBehindItsOpeningAndFreeBehindItsEnd) {
  StructurePlan plan = PlanOf({{1, 2}});
  plan.is_of_call = true;
  plan.call_openers.clear();
  plan.line_ends.clear();
  StructuredContent content(plan, true);
  EXPECT_TRUE(content.is_of_forced_call());
  EXPECT_FALSE(content.is_held()) << "its opening is put in the model's mouth first";
  TakeAll(content, {kCall}, false);
  content.NoteCall();
  TakeAll(content, {5}, true);  // the opening's last token
  EXPECT_THAT(Places(content), ElementsAre(1));
  TakeAll(content, {1, 2});
  EXPECT_FALSE(content.is_held());
  EXPECT_FALSE(content.is_over()) << "the answer goes on";
  TakeAll(content, {kOther, kOther});
}

TEST(StructuredContentTest, CallsOfItsOwnAreEachHeldFromTheirOpeningToTheirEnd) {
  StructurePlan plan = PlanOf({{1, 2}, {3}});
  plan.is_of_call = plan.awaits_calls = true;
  StructuredContent content(plan, true);
  EXPECT_FALSE(content.is_of_forced_call());
  TakeAll(content, {kOther, 1, 2});
  EXPECT_FALSE(content.is_held());
  TakeAll(content, {kCall}, /*is_content=*/false);
  EXPECT_FALSE(content.is_held()) << "what is said of calls in reasoning is none";
  for (const Text& call : {Text{1, 2}, Text{3}, Text{1, 2}}) {
    TakeAll(content, {kCall});
    EXPECT_THAT(Places(content), ElementsAre(1, 3)) << "each begins anew";
    TakeAll(content, call);
    EXPECT_FALSE(content.is_held());
    EXPECT_FALSE(content.is_over());
    TakeAll(content, {kOther});
  }
}

// Many plans, many answers: rows behind drafts are what they will be, and an answer that chooses
// among its places ends with one of the texts.
TEST(StructuredContentTest, WhateverIsChosenAmongThePlacesIsOneOfTheTexts) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<Text> texts(1 + random() % 3);
    for (size_t i = 0; i < texts.size(); ++i) {
      // No text is the beginning of another: the last token of each is its own.
      for (size_t j = random() % 4; j > 0; --j)
        texts[i].push_back(static_cast<int32_t>(random() % 3));
      texts[i].push_back(static_cast<int32_t>(3 + i));
    }
    const StructurePlan plan = PlanOf(texts);
    StructuredContent content(plan, true);
    Text taken, said;
    bool is_reasoning = false, is_call = false;
    for (int step = 0; step < 40 && !content.is_over() && !is_call; ++step) {
      const std::vector<int32_t> places = Places(content);
      ASSERT_FALSE(places.empty());
      const int32_t token = places[random() % places.size()];
      // The row behind this token, judged before it is taken.
      const bool was_held = content.is_held();
      const std::vector<int32_t> expected = was_held && token != kThink &&
                                                    content.Admitted(Text{token}) == 1 &&
                                                    std::none_of(texts.begin(), texts.end(),
                                                                 [&](const Text& text) {
                                                                   Text with = said;
                                                                   with.push_back(token);
                                                                   return text == with;
                                                                 })
                                                ? Places(content, {token})
                                                : std::vector<int32_t>();
      is_call = was_held && token == kCall;
      if (was_held && token == kThink) is_reasoning = true;
      const bool ends_reasoning = is_reasoning && !was_held && random() % 3 == 0;
      if (ends_reasoning) is_reasoning = false;
      TakeAll(content, {token}, /*is_content=*/!is_reasoning);
      if (!expected.empty()) {
        EXPECT_EQ(Places(content), expected) << "seed " << seed;
      }
      if (was_held && token < 7) said.push_back(token);
    }
    if (content.is_over()) {
      EXPECT_THAT(texts, ::testing::Contains(said)) << "seed " << seed;
    } else {
      EXPECT_TRUE(is_call || is_reasoning || said.empty()) << "seed " << seed;
    }
  }
}

// A row that is held is chosen among its places however it is sampled; what is told of its
// likelihood is the model's own.
TEST(StructuredRowTest, EveryWayOfSamplingStaysWithinAndLogprobsAreTheModels) {
  StructuredContent content(PlanOf({{1, 2}, {4, 2}}), true);
  TakeAll(content, {kThink}, false);
  TakeAll(content, {kOther}, true);
  TakeAll(content, {kLine});
  std::mt19937_64 random(9);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(kVocabulary);
    for (float& logit : logits) logit = static_cast<float>(random() % 200) / 10.0F - 10.0F;
    if (round % 5 == 0) logits[kOther] = std::numeric_limits<float>::quiet_NaN();
    RowSampling how;
    how.traits.temperature = round % 3 == 0 ? 0.0 : 0.1 + static_cast<double>(random() % 30) / 10.0;
    how.traits.top_k = static_cast<uint32_t>(random() % 4);
    how.traits.top_p = 0.1 + static_cast<double>(random() % 10) / 10.0 * 0.9;
    how.traits.min_p = static_cast<double>(random() % 5) / 10.0;
    how.traits.seed = random();
    how.position = static_cast<uint64_t>(round);
    how.structure = &content;
    how.top_logprobs = 2;
    const auto sampled = SampleRow(logits, how);
    ASSERT_TRUE(sampled.ok()) << sampled.status();
    EXPECT_TRUE(sampled->is_held);
    EXPECT_THAT((std::vector<int32_t>{1, 4, kCall}), ::testing::Contains(sampled->token));
    if (how.traits.temperature == 0.0) {
      for (const int32_t other : {1, 4, kCall}) {
        EXPECT_GE(logits[static_cast<size_t>(sampled->token)], logits[static_cast<size_t>(other)]);
      }
    }
    ASSERT_TRUE(sampled->logprob.has_value());
    EXPECT_EQ(sampled->logprob->logprob, LogprobsOf(logits, sampled->token, 0).logprob);
    EXPECT_EQ(sampled->logprob->top.size(), 2u);
    how.structure = nullptr;
    EXPECT_FALSE(SampleRow(logits, how)->is_held);
  }
}

// Of rows of one sequence those behind a wrong draft are not looked at, and a structure's error is
// its row's alone.
TEST(StructuredRowTest, RowsStopAtTheFirstDraftThatIsNotChosen) {
  StructuredContent content(PlanOf({{1, 2, 3, 4}}), true);
  TakeAll(content, {1});
  std::vector<float> logits(4 * kVocabulary, 0.0F);
  std::vector<RowSampling> rows(4);
  for (RowSampling& row : rows) row.structure = &content;
  rows[0].draft = 2;
  rows[1].draft = 4;  // the structure says 3
  rows[3].structure = nullptr;
  const auto results = SampleRows(logits, rows, nullptr);
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(results[0]->token, 2);
  EXPECT_EQ(results[1]->token, 3);
  EXPECT_EQ(results[2].status().code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(results[3]->token, 0) << "another sequence's";
  rows[1].draft = 3;
  rows[2].draft = 4;
  rows[3].structure = &content;
  const auto all = SampleRows(logits, rows, nullptr);
  EXPECT_EQ(all[2]->token, 4);
  EXPECT_FALSE(all[3].ok()) << "nothing has a place behind the end";
  EXPECT_EQ(all[0]->token, 2);
}

}  // namespace
}  // namespace macrame::runtime::engine
