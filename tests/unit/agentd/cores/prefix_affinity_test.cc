#include "agentd/cores/prefix_affinity.h"

#include <gtest/gtest.h>

#include <string>

namespace macrame::agentd {
namespace {

v1::GenerateRequest Chat(const std::vector<std::string>& contents, const std::string& salt = "") {
  v1::GenerateRequest request;
  request.set_cache_salt(salt);
  request.mutable_tools()->set_tools_json("[\"edit\"]");
  for (size_t i = 0; i < contents.size(); ++i) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(i % 2 == 0 ? "user" : "assistant");
    message.set_content(contents[i]);
  }
  return request;
}

TEST(PrefixAffinity, AConversationThatGoesOnIsKnownUpToItsLastTurn) {
  PrefixMemory memory;
  EXPECT_EQ(memory.Matched(PromptSteps(Chat({"Hello"}))), 0u);
  const auto first = PromptSteps(Chat({"Hello"}));
  memory.Note(first);
  const auto second = PromptSteps(Chat({"Hello", "Hi", "And now?"}));
  EXPECT_EQ(memory.Matched(second), first.back().bytes);
  EXPECT_GT(second.back().bytes, first.back().bytes);
  const size_t tools_alone = first.front().bytes;
  EXPECT_EQ(memory.Matched(PromptSteps(Chat({"Good day"}))), tools_alone);
}

TEST(PrefixAffinity, TenantsAndOtherToolsShareNothing) {
  PrefixMemory memory;
  memory.Note(PromptSteps(Chat({"Hello"}, "ada")));
  EXPECT_EQ(memory.Matched(PromptSteps(Chat({"Hello"}, "bess"))), 0u);
  v1::GenerateRequest other = Chat({"Hello"}, "ada");
  other.mutable_tools()->set_tools_json("[\"read\"]");
  EXPECT_EQ(memory.Matched(PromptSteps(other)), 0u);
}

TEST(PrefixAffinity, LongTextsAreKnownInPieces) {
  v1::GenerateRequest text;
  text.set_prompt(std::string(3 * kStepBytes, 'a') + "one end");
  PrefixMemory memory;
  memory.Note(PromptSteps(text));
  text.set_prompt(std::string(3 * kStepBytes, 'a') + "another");
  EXPECT_EQ(memory.Matched(PromptSteps(text)), 3 * kStepBytes);
  v1::GenerateRequest ids;
  for (int i = 0; i < 5000; ++i) ids.add_prompt_token_ids(i);
  EXPECT_EQ(PromptSteps(ids).back().bytes, 20'000u);
}

TEST(PrefixAffinity, WhatIsRememberedIsBounded) {
  PrefixMemory memory;
  const auto first = PromptSteps(Chat({"the first"}));
  memory.Note(first);
  for (size_t i = 0; i < 2 * kStepsRemembered; ++i) {
    memory.Note(PromptSteps(Chat({"prompt " + std::to_string(i)})));
  }
  EXPECT_EQ(memory.Matched(first), first.front().bytes) << "all have the tools alone in common";
  v1::GenerateRequest huge;
  huge.set_prompt(std::string(2 * kStepsMax * kStepBytes, 'x'));
  EXPECT_EQ(PromptSteps(huge).size(), kStepsMax);
}

TEST(PrefixAffinity, WhoOnlyCountsTokensComputesNothing) {
  v1::GenerateRequest request = Chat({"Hello"});
  request.mutable_tokenize();
  EXPECT_TRUE(PromptSteps(request).empty());
}

}  // namespace
}  // namespace macrame::agentd
