// From a request's fields to the job that the engine runs: each is honoured, or refused by name.

#include "runtime/serving/generation_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModel[] = "deploy/models/knot-5m-4bit";  // as the repository's root knows it
constexpr int kVocabulary = 4096;

class GenerationJobTest : public ::testing::Test {
 protected:
  GenerationJobTest() {
    auto text = LoadModelText(kModel);
    EXPECT_TRUE(text.ok()) << text.status();
    text_ = *std::move(text);
    request_.set_prompt("One two three");
  }
  absl::StatusOr<GenerationJob> Prepare() const {
    return PrepareJob(request_, *text_, kVocabulary, 512, 5, 0);
  }
  std::string Refused() const {
    const auto job = Prepare();
    EXPECT_EQ(ReasonOf(job.status()).code(), "BAD_REQUEST");
    return std::string(job.status().message());
  }

  std::shared_ptr<const ModelText> text_;
  v1::GenerateRequest request_;
};

TEST_F(GenerationJobTest, WithoutAnyFieldNothingIsDoneToTheLogits) {
  const auto job = Prepare();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->rules.repetition_penalty, 1.0);
  EXPECT_EQ(job->rules.presence_penalty, 0.0);
  EXPECT_EQ(job->rules.frequency_penalty, 0.0);
  EXPECT_TRUE(job->rules.biases.empty());
  EXPECT_FALSE(job->top_logprobs.has_value());
  EXPECT_EQ(job->limits.min_tokens, 0u);
  EXPECT_EQ(job->limits.end_tokens, text_->tokenizer.EosIds());
  EXPECT_EQ(job->sampling.typical_p, 1.0);
}

// Values take many times the bytes of their text.
TEST_F(GenerationJobTest, LargeAndDeepTemplateArgumentsAreRefusedBeforeTheyAreRead) {
  request_.clear_prompt();
  v1::ChatMessage& message = *request_.add_messages();
  message.set_role("user");
  message.set_content("x");
  request_.set_template_arguments_json(R"({"a": "]]}}[[[[", "b": [[["\"[["]]]})");
  EXPECT_TRUE(Prepare().ok()) << Prepare().status();
  request_.mutable_reasoning()->set_enabled(true);
  request_.set_template_arguments_json("{\"a\": " + std::string(60'000, '['));
  EXPECT_THAT(Refused(), HasSubstr("nested more than 100 levels deep"));
  std::string many = "{\"a\": [";
  for (int i = 0; i < 1'000'000; ++i) many += "{},";
  request_.set_template_arguments_json(many + "{}]}");
  EXPECT_THAT(Refused(), HasSubstr("more than 65536"));
}

TEST_F(GenerationJobTest, FieldsReachTheJob) {
  v1::Sampling& sampling = *request_.mutable_sampling();
  sampling.set_repetition_penalty(1.1);
  sampling.set_presence_penalty(-0.5);
  sampling.set_frequency_penalty(0.25);
  sampling.set_typical_p(0.9);
  (*sampling.mutable_logit_bias())[7] = -100.0F;
  (*sampling.mutable_logit_bias())[9] = 1.5F;
  request_.set_min_tokens(3);
  request_.add_stop_token_ids(11);
  request_.set_top_logprobs(0);
  const auto job = Prepare();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->rules.repetition_penalty, 1.1);
  EXPECT_EQ(job->rules.presence_penalty, -0.5);
  EXPECT_EQ(job->rules.frequency_penalty, 0.25);
  EXPECT_EQ(job->sampling.typical_p, 0.9);
  auto biases = job->rules.biases;
  std::sort(biases.begin(), biases.end());
  EXPECT_THAT(biases, ElementsAre(std::pair(7, -100.0F), std::pair(9, 1.5F)));
  EXPECT_EQ(job->limits.min_tokens, 3u);
  EXPECT_EQ(job->top_logprobs, 0u) << "logprobs without alternatives";
  std::set<int32_t> ends = text_->tokenizer.EosIds();
  ASSERT_FALSE(ends.empty());
  ends.insert(11);
  EXPECT_EQ(job->limits.end_tokens, ends);
  request_.set_ignore_eos(true);
  EXPECT_THAT(Prepare()->limits.end_tokens, ElementsAre(11));
}

TEST_F(GenerationJobTest, ATopPOfZeroIsGreedy) {
  request_.mutable_sampling()->set_temperature(0.8);
  request_.mutable_sampling()->set_top_p(0);
  const auto job = Prepare();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->sampling.temperature, 0);
  EXPECT_EQ(job->sampling.top_p, 1);
}

TEST_F(GenerationJobTest, WhatCannotBeIsRefusedByName) {
  const v1::GenerateRequest good = request_;
  request_.mutable_sampling()->set_repetition_penalty(0);
  EXPECT_THAT(Refused(), HasSubstr("repetition_penalty"));
  request_ = good;
  request_.mutable_sampling()->set_presence_penalty(3);
  EXPECT_THAT(Refused(), HasSubstr("presence_penalty"));
  request_ = good;
  request_.mutable_sampling()->set_typical_p(0);
  EXPECT_THAT(Refused(), HasSubstr("typical_p"));
  request_ = good;
  (*request_.mutable_sampling()->mutable_logit_bias())[kVocabulary] = 1.0F;
  EXPECT_THAT(Refused(), HasSubstr("logit_bias names token 4096"));
  request_ = good;
  request_.add_stop_token_ids(-1);
  EXPECT_THAT(Refused(), HasSubstr("stop_token_ids names token -1"));
  request_ = good;
  for (int i = 0; i <= kStopTokenIdsMax; ++i) request_.add_stop_token_ids(i);
  EXPECT_THAT(Refused(), HasSubstr("stop_token_ids has 129"));
  request_ = good;
  request_.set_max_tokens(4);
  request_.set_min_tokens(5);
  EXPECT_THAT(Refused(), HasSubstr("min_tokens"));
  request_ = good;
  request_.set_top_logprobs(21);
  EXPECT_THAT(Refused(), HasSubstr("top_logprobs"));
}

// A model that makes embeddings, or one that makes nothing else.
class EmbeddingJobTest : public GenerationJobTest {
 protected:
  void Load(const EmbeddingTraits& traits) { text_ = *LoadModelText(kModel, traits); }
  std::string CodeOf() const { return ReasonOf(Prepare().status()).code(); }
};

TEST_F(EmbeddingJobTest, TextTokensAndDimensionsReachTheJob) {
  Load({Pooling::kMean, true, 64, std::nullopt});
  EXPECT_FALSE(Prepare()->embedding.has_value()) << "it makes text, too";
  const std::vector<int32_t> tokens = Prepare()->prompt;
  request_.mutable_embedding()->set_dimensions(64);
  const auto job = Prepare();
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->prompt, tokens);
  EXPECT_EQ(job->embedding->dimensions, 64u);
  EXPECT_EQ(job->embedding->rows(), LogitRows::kHiddenAll);
  request_.mutable_embedding()->set_dimensions(65);
  EXPECT_EQ(CodeOf(), "DIMENSIONS_TOO_MANY");
  request_.mutable_embedding()->set_dimensions(0);
  request_.clear_prompt();
  for (int i = 0; i < 512; ++i) request_.add_prompt_token_ids(i);
  EXPECT_EQ(Prepare()->prompt.size(), 512u) << "the whole context";
  request_.add_prompt_token_ids(1);
  EXPECT_EQ(CodeOf(), "PROMPT_TOO_LONG");
}

TEST_F(EmbeddingJobTest, WhatAModelDoesNotMakeIsRefused) {
  request_.mutable_embedding();
  EXPECT_EQ(CodeOf(), "MODEL_HAS_NO_EMBEDDINGS");
  Load({Pooling::kLast, false, 64, std::nullopt});
  EXPECT_TRUE(Prepare().ok());
  request_.clear_embedding();
  EXPECT_EQ(CodeOf(), "MODEL_HAS_NO_TEXT");
}

TEST(RepetitionPenaltyDefaultTest, IsTheModelsOwn) {
  EXPECT_EQ(ParseRepetitionPenalty(""), 1.0);
  EXPECT_EQ(ParseRepetitionPenalty("{}"), 1.0);
  EXPECT_EQ(ParseRepetitionPenalty(R"({"repetition_penalty": 1.05})"), 1.05);
  EXPECT_EQ(ParseRepetitionPenalty(R"({"repetition_penalty": "much"})"), 1.0);
  EXPECT_EQ(ParseRepetitionPenalty(R"({"repetition_penalty": -1})"), 1.0);
}

}  // namespace
}  // namespace macrame::runtime::engine
