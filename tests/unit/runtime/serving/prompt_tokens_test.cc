// Tokens that are told and not run: the same that an answer's prompt would have.

#include "runtime/serving/prompt_tokens.h"

#include <gtest/gtest.h>

#include "proto/reasons.h"

namespace macrame::runtime::engine {
namespace {

constexpr int kVocabulary = 4096;

class PromptTokensTest : public ::testing::Test {
 protected:
  PromptTokensTest() {
    auto text = LoadModelText("deploy/models/knot-5m-4bit");
    EXPECT_TRUE(text.ok()) << text.status();
    text_ = *std::move(text);
    request_.mutable_tokenize();
  }
  v1::GenerateChunk Told() const {
    const auto told = TellTokens(request_, *text_, kVocabulary, 0);
    EXPECT_TRUE(told.ok()) << told.status();
    return told.ok() ? *told : v1::GenerateChunk();
  }

  std::shared_ptr<const ModelText> text_;
  v1::GenerateRequest request_;
};

TEST_F(PromptTokensTest, AChatHasTheTokensOfItsAnswersPrompt) {
  v1::ChatMessage& message = *request_.add_messages();
  message.set_role("user");
  message.set_content("What is a card?");
  const auto job = PrepareJob(request_, *text_, kVocabulary, 512, 1, 0);
  ASSERT_TRUE(job.ok()) << job.status();
  const v1::GenerateChunk told = Told();
  EXPECT_EQ(std::vector<int32_t>(told.token_ids().begin(), told.token_ids().end()), job->prompt);
  EXPECT_EQ(told.prompt_tokens(), job->prompt.size());
  EXPECT_EQ(told.finish_reason(), v1::FINISH_REASON_STOP);

  request_.mutable_tokenize()->set_without_opening(true);
  EXPECT_LT(Told().prompt_tokens(), job->prompt.size());
}

TEST_F(PromptTokensTest, AChatMayEndWithAnAnswer) {
  request_.mutable_tokenize()->set_count_only(true);
  request_.mutable_tokenize()->set_without_opening(true);
  v1::ChatMessage& message = *request_.add_messages();
  message.set_role("user");
  message.set_content("What is a card?");
  const uint32_t question = Told().prompt_tokens();
  v1::ChatMessage& answer = *request_.add_messages();
  answer.set_role("assistant");
  answer.set_content("A piece of paper.");
  EXPECT_GT(Told().prompt_tokens(), question);
}

TEST_F(PromptTokensTest, TextComesBackAsItWas) {
  request_.set_prompt("One two, three cards.");
  const v1::GenerateChunk told = Told();
  ASSERT_GT(told.token_ids_size(), 2);
  v1::GenerateRequest& back = request_;
  back.clear_prompt();
  back.mutable_tokenize()->set_detokenize(true);
  *back.mutable_prompt_token_ids() = told.token_ids();
  EXPECT_EQ(Told().text(), "One two, three cards.");
}

TEST_F(PromptTokensTest, ACountHasNoIdsAndMayBeBeyondTheContext) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "word ";
  request_.set_prompt(text);
  request_.mutable_tokenize()->set_count_only(true);
  EXPECT_GE(Told().prompt_tokens(), 5000U);
  EXPECT_EQ(Told().token_ids_size(), 0);
}

TEST_F(PromptTokensTest, IdsOutsideOfTheVocabularyAreRefused) {
  request_.mutable_tokenize()->set_detokenize(true);
  for (const int32_t id : {-1, kVocabulary}) {
    request_.clear_prompt_token_ids();
    request_.add_prompt_token_ids(id);
    EXPECT_EQ(ReasonOf(TellTokens(request_, *text_, kVocabulary, 0).status()).code(),
              "BAD_REQUEST");
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
