// Texts and grammars that nothing inside of a process could stop: each ends with a sentence and
// gives its memory back, however many come, and nothing else is refused for it.

#include "runtime/text/text_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/grammar.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMoreThanOnceWereTooMany = 9;
constexpr long kHeldMax = 64 << 20;

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of this process; 0 where the system has no such file.
long ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  long all = 0, resident = 0;
  statm >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// The byte-level fixture with a normaliser in front.
std::string FolderWithNormalizer(const std::string& name, const json& normalizer) {
  json tokenizer = json::parse(ReadWhole(Fixture("byte_level") + "/tokenizer.json"));
  tokenizer["normalizer"] = normalizer;
  const std::string folder = NewFolder(name);
  WriteFile(folder + "/tokenizer.json", tokenizer.dump());
  WriteFile(folder + "/chat_template.jinja",
            "{% for message in messages %}{{ message.content }}\n{% endfor %}");
  return folder;
}

// Notes that NFC takes apart into three signs, each of them four tokens of one byte.
std::string Notes(size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += "\xf0\x9d\x85\xa4";  // U+1D164
  return text;
}

// Each class is some hundred ranges of bytes.
std::string ClassesRegex(size_t count) {
  std::string regex;
  for (size_t i = 0; i < count; ++i) regex += "\\w";
  return regex;
}

class TextWorkerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    signal(SIGPIPE, SIG_IGN);
    ASSERT_TRUE(UseTextWorkers(MACRAME_RANKD).ok());
  }
};

std::string Prose(size_t bytes) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i)
    absl::StrAppend(&text, "Line ", i, " of the text.\n");
  return text;
}

TEST_F(TextWorkerTest, ALongTextHasTheSameTokensAsInThisProcess) {
  const auto tokenizer = Tokenizer::Load(Fixture("byte_level"));
  ASSERT_TRUE(tokenizer.ok());
  const std::string whole = Prose(1'000'000);
  const auto ids = tokenizer->Encode(whole, false, true);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*tokenizer->Decode(*ids, false), whole);
  const auto refused = tokenizer->Encode(whole, false, true, 100);
  EXPECT_EQ(ReasonOf(refused.status()).code(), "PROMPT_TOO_LONG");
}

TEST_F(TextWorkerTest, ALongChatHasTheSameTokensAsItsText) {
  const std::string folder = FolderWithNormalizer("long_chat", nullptr);
  const auto tokenizer = Tokenizer::Load(folder);
  const auto chat = ChatTemplate::Load(folder);
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  const std::string messages =
      json::array({{{"role", "user"}, {"content", Prose(900'000)}}}).dump();
  ChatPrompt prompt;
  prompt.messages_json = messages;
  const auto text = chat->Render(prompt);
  const auto ids = chat->EncodeChat(*tokenizer, prompt);
  ASSERT_TRUE(text.ok() && ids.ok()) << text.status() << ids.status();
  EXPECT_EQ(*ids, *tokenizer->Encode(*text, false, true));
}

TEST_F(TextWorkerTest, AControlTokenIsHiddenInALongTextToo) {
  const std::string folder = FolderWithNormalizer("long_forged", nullptr);
  const auto tokenizer = Tokenizer::Load(folder);
  const auto chat = ChatTemplate::Load(folder);
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  constexpr char kSpecial[] = "<|endoftext|>";
  const auto special = tokenizer->TokenId(kSpecial);
  ASSERT_TRUE(special.has_value());
  const std::string content = absl::StrCat(Prose(600'000), kSpecial, " and more");
  const std::string messages = json::array({{{"role", "user"}, {"content", content}}}).dump();
  ChatPrompt prompt;
  prompt.messages_json = messages;
  const auto ids = chat->EncodeChat(*tokenizer, prompt);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, *tokenizer->Encode(content + "\n", false, /*special_tokens_in_text=*/false));
  EXPECT_THAT(*ids, Not(::testing::Contains(*special)));
}

TEST_F(TextWorkerTest, ValuesBeyondNumberAreReadByAWorker) {
  const std::string folder = FolderWithNormalizer("many_values", nullptr);
  const auto tokenizer = Tokenizer::Load(folder);
  const auto chat = ChatTemplate::Load(folder);
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  std::string messages = R"([{"role":"user","content":"x","extra":[{})";
  for (int i = 0; i < 200'000; ++i) messages += ",{}";
  messages += "]}]";
  ChatPrompt prompt;
  prompt.messages_json = messages;
  const long before = ResidentBytes();
  const auto ids = chat->EncodeChat(*tokenizer, prompt);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, *tokenizer->Encode("x\n", false, false));
  EXPECT_LT(ResidentBytes() - before, 16 << 20);
}

TEST_F(TextWorkerTest, TextsThatANormalizerChokesOnEndAndOthersAreServed) {
  const auto tokenizer = Tokenizer::Load(FolderWithNormalizer("choking", {{"type", "NFC"}}));
  ASSERT_TRUE(tokenizer.ok());
  ASSERT_TRUE(tokenizer->Encode("at first", false, true).ok());
  const std::string choking = Notes(490'000);
  const long before = ResidentBytes();
  for (int i = 0; i < kMoreThanOnceWereTooMany; ++i) {
    const auto ids = tokenizer->Encode(choking, false, true);
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(ReasonOf(ids.status()).message(),
                AllOf(HasSubstr("send less at once"), Not(HasSubstr("restart"))));
  }
  EXPECT_LT(ResidentBytes() - before, kHeldMax);
  EXPECT_TRUE(tokenizer->Encode("and at last", false, true).ok());
  EXPECT_TRUE(tokenizer->Encode(Prose(600'000), false, true).ok());
}

TEST_F(TextWorkerTest, GrammarsThatTakeTooLongEndAndSchemasAreCompiled) {
  const auto tokenizer = Tokenizer::Load(Fixture("byte_level"));
  ASSERT_TRUE(tokenizer.ok());
  const auto engine = GrammarEngine::Make(*tokenizer);
  ASSERT_TRUE(engine.ok());
  const Grammar schema{GrammarKind::kJsonSchema,
                       R"({"type":"object","properties":{"a":{"type":"string","minLength":3}}})"};
  ASSERT_TRUE(engine->Compile(schema).ok());
  const long before = ResidentBytes();
  int refused = 0;
  for (int i = 0; i < kMoreThanOnceWereTooMany; ++i) {
    const auto matcher = engine->Compile(
        {GrammarKind::kRegex, absl::StrCat("x{", i + 1, "}", ClassesRegex(43'000))});
    if (matcher.ok()) continue;
    ++refused;
    EXPECT_EQ(ReasonOf(matcher.status()).code(), "STRUCTURE_REFUSED");
    EXPECT_THAT(ReasonOf(matcher.status()).message(), Not(HasSubstr("restart")));
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(ResidentBytes() - before, 2 * kHeldMax);
  EXPECT_TRUE(engine->Compile({GrammarKind::kJsonObject, ""}).ok());
  const Grammar another{GrammarKind::kJsonSchema,
                        R"({"type":"object","properties":{"b":{"type":"string","minLength":4}}})"};
  EXPECT_TRUE(engine->Compile(another).ok());
}

TEST_F(TextWorkerTest, AModelWhoseFilesWereChangedIsNotMixedWithTheLoadedOne) {
  const std::string folder = FolderWithNormalizer("changed", nullptr);
  const auto tokenizer = Tokenizer::Load(folder);
  ASSERT_TRUE(tokenizer.ok());
  WriteFile(folder + "/tokenizer_config.json", R"({"bos_token": "x"})");
  EXPECT_TRUE(tokenizer->Encode("a short text", false, true).ok());
  const auto ids = tokenizer->Encode(Prose(600'000), false, true);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(ids.status().message(), HasSubstr("load it again"));
}

TEST(IsTameTest, WhatPeopleWriteIsTame) {
  EXPECT_TRUE(IsTame(""));
  EXPECT_TRUE(IsTame(Prose(300'000)));
  EXPECT_TRUE(IsTame("Zalgo: e\xcc\x81\xcc\x82\xcc\x83"));
  std::string chinese;
  for (int i = 0; i < 20'000; ++i) chinese += i % 50 == 0 ? "\xe3\x80\x82" : "\xe5\xad\x97";
  EXPECT_TRUE(IsTame(chinese));
  std::string code;
  for (int i = 0; i < 3000; ++i)
    absl::StrAppend(&code, std::string(i % 80, ' '), "x[", i, "] = 0;\n");
  EXPECT_TRUE(IsTame(code));
}

TEST(IsTameTest, LongStretchesAndLongTextsAreNot) {
  std::string signs;
  for (int i = 0; i < 1000; ++i) signs += "\xf0\x9d\x85\xa5";  // U+1D165, which combines
  EXPECT_FALSE(IsTame(signs));
  EXPECT_FALSE(IsTame(Notes(10'000)));
  EXPECT_FALSE(IsTame("a" + std::string(10'000, ' ') + "b"));
  EXPECT_FALSE(IsTame(std::string(10'000, 'a')));
  EXPECT_FALSE(IsTame(Prose(4'000'000)));
  EXPECT_FALSE(IsTame("\xff"));
}

}  // namespace
}  // namespace macrame::runtime::text
