// Tokenizers that others wrote: one that explodes ends with a sentence, and a text takes no more
// than its share.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>

#include "proto/reasons.h"
#include "runtime/text/cancellation.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

json FixtureTokenizer(const std::string& name) {
  std::ifstream file(Fixture(name) + "/tokenizer.json");
  return json::parse(file);
}

absl::StatusOr<Tokenizer> LoadFrom(const json& tokenizer) {
  const std::string folder = NewFolder("tokenizer");
  WriteFile(folder + "/tokenizer.json", tokenizer.dump());
  return Tokenizer::Load(folder);
}

json Doubling(size_t times, const json& pattern) {
  const json one = {{"type", "Replace"}, {"pattern", pattern}, {"content", "aa"}};
  return std::vector<json>(times, one);
}

long PeakKilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(HostileTokenizer, StepsThatDoubleAreRefusedAtTheLoad) {
  const long before = PeakKilobytes();
  for (const json& pattern : {json{{"String", "a"}}, json{{"Regex", "a|b"}}, json{{"Regex", ""}}}) {
    for (const char* place : {"normalizer", "decoder"}) {
      json tokenizer = FixtureTokenizer("byte_fallback");
      const char* list = std::string(place) == "decoder" ? "decoders" : "normalizers";
      tokenizer[place] = {{"type", "Sequence"}, {list, Doubling(32, pattern)}};
      tokenizer["added_tokens"].push_back({{"id", 90000},
                                           {"content", "a"},
                                           {"single_word", false},
                                           {"lstrip", false},
                                           {"rstrip", false},
                                           {"normalized", true},
                                           {"special", false}});
      const auto loaded = LoadFrom(tokenizer);
      ASSERT_FALSE(loaded.ok()) << place << " " << pattern;
      EXPECT_EQ(ReasonOf(loaded.status()).code(), "TOKENIZER_INVALID");
      EXPECT_THAT(ReasonOf(loaded.status()).message(),
                  AllOf(HasSubstr("tokenizer.json is not a usable tokenizer"),
                        HasSubstr(std::string("its ") + place + " can make")));
    }
  }
  EXPECT_LT(PeakKilobytes() - before, 200'000);
}

// As Python reads it, by what is judged and by what computes alike: the last one counts.
TEST(HostileTokenizer, OfAStepThatIsWrittenTwiceTheLastOneIsJudged) {
  const auto load = [](const std::string& name, const std::string& before, const json& last) {
    json tokenizer = FixtureTokenizer("byte_fallback");
    tokenizer["normalizer"] = last;
    std::string text = tokenizer.dump();
    text.insert(1, "\"normalizer\": " + before + ", ");
    const std::string folder = NewFolder(name);
    WriteFile(folder + "/tokenizer.json", text);
    return Tokenizer::Load(folder);
  };
  const json none, wide = {{"type", "Sequence"}, {"normalizers", Doubling(32, {{"Regex", ""}})}};
  EXPECT_TRUE(load("twice", wide.dump(), none).ok());
  const auto refused = load("twice_wide", "null", wide);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(ReasonOf(refused.status()).message(), HasSubstr("normalizer"));
}

TEST(HostileTokenizer, ATextThatCannotFitIsRefusedByItsBytes) {
  const std::string text(30'000'000, 'a');
  for (const char* name : {"byte_level", "byte_fallback"}) {
    const auto tokenizer = Tokenizer::Load(Fixture(name));
    ASSERT_TRUE(tokenizer.ok());
    const auto began = std::chrono::steady_clock::now();
    const auto ids = tokenizer->Encode(text, true, true, 4096);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(ids.status()).code(), "PROMPT_TOO_LONG");
    EXPECT_THAT(ReasonOf(ids.status()).message(),
                AllOf(HasSubstr("30000000 bytes, at least "), HasSubstr("a context of 4096")));
  }
}

// No text that fits is refused: the longest tokens of the vocabulary, blanks and all.
TEST(HostileTokenizer, WhatFitsIsNotRefused) {
  for (const char* name : {"byte_level", "byte_fallback", "unigram"}) {
    const auto tokenizer = Tokenizer::Load(Fixture(name));
    ASSERT_TRUE(tokenizer.ok());
    for (size_t id = 0; id < tokenizer->VocabSize(); ++id) {
      std::string text;
      for (int i = 0; i < 50; ++i) text += tokenizer->BytesOf(static_cast<int32_t>(id));
      const auto whole = tokenizer->Encode(text, false, true);
      if (!whole.ok() || whole->empty()) continue;  // no text by itself
      const auto within = tokenizer->Encode(text, false, true, whole->size());
      ASSERT_TRUE(within.ok()) << name << " " << id << " " << within.status();
      EXPECT_EQ(*within, *whole);
    }
  }
}

TEST(HostileTokenizer, CountingEndsBeyondFourTimesTheContext) {
  const auto tokenizer = Tokenizer::Load(Fixture("unigram"));
  ASSERT_TRUE(tokenizer.ok());
  std::string text;
  for (int i = 0; i < 500'000; ++i) text += "a b ";
  const auto ids = tokenizer->Encode(text, true, true, 100);
  EXPECT_EQ(ReasonOf(ids.status()).code(), "PROMPT_TOO_LONG");
  EXPECT_THAT(ReasonOf(ids.status()).message(), HasSubstr("more than "));
}

TEST(HostileTokenizer, WhatNobodyWaitsForIsGivenUp) {
  const auto tokenizer = Tokenizer::Load(Fixture("unigram"));
  ASSERT_TRUE(tokenizer.ok());
  std::string text;
  for (int i = 0; i < 250'000; ++i) text += "a b ";
  {
    const std::atomic<bool> is_gone = true;
    const CancelledBy caller(is_gone);
    EXPECT_FALSE(tokenizer->Encode(text, true, true, 0).ok());
  }
  const auto ids = tokenizer->Encode(text, true, true, 0);
  EXPECT_TRUE(ids.ok()) << ids.status();
}

// Unknown words are one token each there, however long.
TEST(HostileTokenizer, AVocabularyOfWordsTakesAnyAmountOfBytes) {
  const json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", json::array()},
      {"pre_tokenizer", {{"type", "Whitespace"}}},
      {"model",
       {{"type", "WordLevel"}, {"vocab", {{"[UNK]", 0}, {"a", 1}}}, {"unk_token", "[UNK]"}}}};
  const auto loaded = LoadFrom(tokenizer);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto ids = loaded->Encode(std::string(100'000, 'x') + " a", false, false, 16);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->size(), 2u);
}

}  // namespace
}  // namespace macrame::runtime::text
