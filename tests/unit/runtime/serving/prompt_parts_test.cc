// Where in a chat the prefix cache ended, and why, in words.

#include "runtime/serving/prompt_parts.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <set>

namespace macrame::runtime::engine {
namespace {

// A template that writes each message as its number (from 100), its length in tokens of its own
// number, and an end; the answer opens with 7.
class Chat {
 public:
  explicit Chat(std::vector<std::pair<std::string, int>> messages) {
    for (const auto& [role, length] : messages) {
      v1::ChatMessage& message = messages_.emplace_back();
      message.set_role(role);
      lengths_.push_back(length);
    }
    prompt_ = *Render(static_cast<int>(messages_.size()));
    prompt_.push_back(7);
    prompt_.push_back(7);
  }
  absl::StatusOr<std::vector<int32_t>> Render(int count) const {
    if (refused.contains(count)) return absl::InvalidArgumentError("not like this");
    std::vector<int32_t> tokens = {1};
    for (int i = 0; i < count; ++i) {
      for (int n = 0; n < lengths_[static_cast<size_t>(i)]; ++n) tokens.push_back(100 + i);
    }
    if (closes) tokens.push_back(2);
    return tokens;
  }
  std::string At(uint32_t position) const {
    std::vector<const v1::ChatMessage*> messages;
    for (const v1::ChatMessage& message : messages_) messages.push_back(&message);
    return PartAt(messages, prompt_, position, [this](int count) {
      ++renders;
      return Render(count);
    });
  }
  std::set<int> refused;
  bool closes = false;
  mutable int renders = 0;

 private:
  std::vector<v1::ChatMessage> messages_;
  std::vector<int> lengths_;
  std::vector<int32_t> prompt_;
};

TEST(PromptParts, EachTokenLiesInItsMessage) {
  Chat chat({{"system", 10}, {"user", 5}, {"assistant", 1}, {"user", 20}});
  for (const bool closes : {false, true}) {
    chat.closes = closes;
    EXPECT_EQ(chat.At(1), "system message");
    EXPECT_EQ(chat.At(10), "system message");
    EXPECT_EQ(chat.At(11), "message 2 (user)");
    EXPECT_EQ(chat.At(15), "message 2 (user)");
    EXPECT_EQ(chat.At(16), "message 3 (assistant)");
    EXPECT_EQ(chat.At(17), "message 4 (user)");
    EXPECT_EQ(chat.At(36), "message 4 (user)");
    EXPECT_EQ(chat.At(37), "the opening of the answer");
  }
}

TEST(PromptParts, WhatATemplateRefusesMakesARange) {
  Chat chat({{"system", 10}, {"user", 5}, {"assistant", 1}, {"user", 20}});
  chat.refused = {1};  // a system message alone
  EXPECT_EQ(chat.At(3), "messages 1 to 2");
  EXPECT_EQ(chat.At(12), "messages 1 to 2");
  EXPECT_EQ(chat.At(16), "message 3 (assistant)");
  chat.refused = {1, 2, 3, 4};
  EXPECT_EQ(chat.At(3), "messages 1 to 4");
}

TEST(PromptParts, ALongChatIsRenderedAFewTimesOnly) {
  std::vector<std::pair<std::string, int>> messages(1000, {"user", 3});
  Chat chat(messages);
  EXPECT_EQ(chat.At(3 * 700 + 2), "message 701 (user)");
  EXPECT_LE(chat.renders, 11);
}

// The first and the last message of a part that was named; 0 and 0: the answer's opening.
std::pair<int, int> RangeOf(const std::string& part) {
  if (part == "the opening of the answer") return {0, 0};
  if (part == "system message") return {1, 1};
  int first = 0, last = 0;
  if (std::sscanf(part.c_str(), "messages %d to %d", &first, &last) == 2) return {first, last};
  EXPECT_EQ(std::sscanf(part.c_str(), "message %d (", &first), 1) << part;
  return {first, first};
}

// Whatever a template refuses, the message is among those that are named, and where it refuses
// nothing, it is the one; after a few renderings.
TEST(PromptParts, TheMessageIsAlwaysAmongThoseThatAreNamed) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::pair<std::string, int>> messages;
    std::vector<int> message_of = {1};  // by position; the first token is nobody's
    for (size_t i = 1 + random() % 12; i > 0; --i) {
      const int length = 1 + static_cast<int>(random() % 5);
      messages.emplace_back(messages.empty() ? "system" : "user", length);
      message_of.insert(message_of.end(), static_cast<size_t>(length),
                        static_cast<int>(messages.size()));
    }
    message_of.push_back(0);
    Chat chat(messages);
    chat.closes = random() % 2 == 0;
    const bool refuses = random() % 2 == 0;
    for (int count = 1; refuses && count <= static_cast<int>(messages.size()); ++count) {
      if (random() % 3 == 0) chat.refused.insert(count);
    }
    for (uint32_t position = 0; position < message_of.size(); ++position) {
      chat.renders = 0;
      const std::string part = chat.At(position);
      const auto [first, last] = RangeOf(part);
      const int right = message_of[position];
      if (chat.refused.empty()) {
        EXPECT_EQ(first, right) << part << " at " << position << ", seed " << seed;
        EXPECT_EQ(last, right) << part;
      } else if (right > 0) {
        EXPECT_LE(first, right) << part << " at " << position << ", seed " << seed;
        EXPECT_GE(last, right) << part << " at " << position << ", seed " << seed;
        EXPECT_LE(last, static_cast<int>(messages.size())) << part;
      }
      EXPECT_LE(chat.renders, 4) << "of " << messages.size();
    }
  }
}

// Lines come from clients, who may write anything; a line without end is looked at in part.
TEST(PromptParts, AnyLineIsLookedAtInBoundedTime) {
  std::mt19937_64 random(3);
  const std::vector<std::string> parts = {"0",    "a",   "-",       ":",   "2026-11-26", " ",
                                          "Jan ", "x-",  "billing", "f",   "/",          ".",
                                          "Mon",  "day", "\xff",    "12:3"};
  for (int round = 0; round < 200; ++round) {
    std::string line;
    const std::string& much = parts[random() % parts.size()];
    for (int i = 0; i < 3000; ++i) line += i % 50 < 40 ? much : parts[random() % parts.size()];
    const size_t at = random() % (line.size() + 10);
    const std::string part = VaryingPart(line, at);
    const bool is_known =
        part.empty() || part == "a billing header" || part == "a date or time" || part == "an id";
    EXPECT_TRUE(is_known) << part;
  }
}

TEST(PromptParts, ARolesWordsAreNotPrintedAsTheyAre) {
  Chat chat({{"us\x1b[31mer\n", 3}, {std::string(200, 'r'), 3}, {"", 3}});
  EXPECT_EQ(chat.At(1), "message 1 (us31mer)");
  EXPECT_EQ(chat.At(4), "message 2 (" + std::string(16, 'r') + ")");
  EXPECT_EQ(chat.At(7), "message 3 ()");
}

TEST(PromptParts, WhatChangesFromTurnToTurnIsNamed) {
  const auto varying = [](const std::string& line, const std::string& from) {
    return VaryingPart(line, line.find(from));
  };
  EXPECT_EQ(varying("x-anthropic-billing-header: cc_version=2.1.4; cch=9f3a1;", "9f3a1"),
            "a billing header");
  EXPECT_EQ(varying("Today's date is 2026-11-22.", "22."), "a date or time");
  EXPECT_EQ(varying("Today Date: 22 Nov 2026", "22"), "a date or time");
  EXPECT_EQ(varying("It is now 10:41:07 in Berlin", "07"), "a date or time");
  EXPECT_EQ(varying("session 123e4567-e89b-12d3-a456-426614174000 of the agent", "426"), "an id");
  EXPECT_EQ(varying("The value of 12 apples", "12"), "");
  EXPECT_EQ(varying("On 2026-11-22 the cat slept beside the other cat", "beside"), "");
  EXPECT_EQ(varying("You are helpful", "helpful"), "");
  EXPECT_EQ(VaryingPart("", 0), "");
}

}  // namespace
}  // namespace macrame::runtime::engine
