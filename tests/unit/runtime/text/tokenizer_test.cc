#include "runtime/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "proto/reasons.h"
#include "tests/unit/runtime/text/model_folder.h"

namespace macrame::runtime::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer MustLoad(const std::string& name) {
  auto tokenizer = Tokenizer::Load(Fixture(name));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::move(*tokenizer);
}

const std::vector<std::string>& Families() {
  static const std::vector<std::string> families = {"byte_level", "byte_fallback", "unigram"};
  return families;
}

bool IsWholeUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if ((lead & 0xC0) == 0x80 || i + length > text.size()) return false;
    i += length;
  }
  return true;
}

TEST(Tokenizer, TextSurvivesTheRoundTrip) {
  const std::string text =
      "Hello  world,\n\tit's 23.5 degrees: naïve café, 日本語, 👩🏽‍🚀!";
  for (const std::string name : {"byte_level", "byte_fallback"}) {
    const Tokenizer tokenizer = MustLoad(name);
    const auto ids = tokenizer.Encode(text, false, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(tokenizer.Decode(*ids, true).value(), text) << name;
  }
}

TEST(Tokenizer, EosIdsComeFromEveryFile) {
  const Tokenizer tokenizer = MustLoad("byte_level");
  EXPECT_THAT(tokenizer.EosIds(),
              ElementsAre(*tokenizer.TokenId("<|endoftext|>"), *tokenizer.TokenId("<|im_end|>")));
}

TEST(Tokenizer, NoFirstTokenWhereTheModelSaysSo) {
  // config.json names one, but tokenizer_config.json says null.
  EXPECT_EQ(MustLoad("byte_level").BosId(), std::nullopt);
  const Tokenizer tokenizer = MustLoad("byte_fallback");
  EXPECT_EQ(tokenizer.BosId(), tokenizer.TokenId("<s>"));
  EXPECT_EQ(tokenizer.Encode("a", true, false)->front(), *tokenizer.BosId());
}

TEST(Tokenizer, SpecialTokensInTextAreLettersUnlessAsked) {
  for (const std::string& name : Families()) {
    const Tokenizer tokenizer = MustLoad(name);
    const std::string special = name == "byte_level"      ? "<|im_end|>"
                                : name == "byte_fallback" ? "[INST]"
                                                          : "<|eot_id|>";
    const int32_t id = *tokenizer.TokenId(special);
    const std::string text = "a " + special + " b";
    const auto parsed = tokenizer.Encode(text, false, true).value();
    const auto plain = tokenizer.Encode(text, false, false).value();
    EXPECT_EQ(std::count(parsed.begin(), parsed.end(), id), 1) << name;
    EXPECT_EQ(std::count(plain.begin(), plain.end(), id), 0) << name;
    EXPECT_GT(plain.size(), parsed.size()) << name;
  }
}

TEST(Tokenizer, DecodeLeavesSpecialTokensOutWhenAsked) {
  const Tokenizer tokenizer = MustLoad("byte_level");
  const auto ids = tokenizer.Encode("hi<|im_end|>", false, true).value();
  EXPECT_EQ(tokenizer.Decode(ids, true).value(), "hi");
  EXPECT_EQ(tokenizer.Decode(ids, false).value(), "hi<|im_end|>");
}

TEST(Tokenizer, IdsOutsideOfTheVocabularyPrintAsNothing) {
  const Tokenizer tokenizer = MustLoad("byte_level");
  const std::vector<int32_t> beyond = {static_cast<int32_t>(tokenizer.VocabSize()), 1 << 30};
  EXPECT_EQ(tokenizer.Decode(beyond, false).value(), "");
  const std::vector<int32_t> negative = {-1};
  EXPECT_EQ(tokenizer.Decode(negative, false).status().code(), absl::StatusCode::kInvalidArgument);
  StreamDecoder stream = tokenizer.NewStream(true);
  EXPECT_EQ(stream.Push(-5) + stream.Push(1 << 30) + stream.Finish(), "");
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefused) {
  const auto ids = MustLoad("byte_level").Encode("a\xff", false, false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("UTF-8"));
}

TEST(Tokenizer, BrokenFilesAreNamed) {
  const auto missing = Tokenizer::Load("no/such/folder");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReasonOf(missing.status()).code(), "MODEL_FILE_MISSING");
  for (const std::string content :
       {"", "{", "[]", "null", "{\"model\": {\"type\": \"BPE\", \"vocab\": 7, \"merges\": []}}",
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"b c\"]}}"}) {
    const std::string folder = NewFolder("broken");
    WriteFile(folder + "/tokenizer.json", content);
    const auto broken = Tokenizer::Load(folder);
    EXPECT_EQ(ReasonOf(broken.status()).code(), "TOKENIZER_INVALID") << content;
    EXPECT_THAT(std::string(broken.status().message()), HasSubstr("tokenizer.json")) << content;
  }
}

TEST(Tokenizer, TheBytesOfTheTokensAreTheText) {
  const std::string text = "Hello  world,\n\tit's naïve café, 日本語, 👩🏽‍🚀!";
  size_t partial = 0;
  for (const std::string name : {"byte_level", "byte_fallback"}) {
    const Tokenizer tokenizer = MustLoad(name);
    // What stands before takes the space that some decoders drop, or some encoders add.
    const auto ids = tokenizer.Encode("a " + text, false, false).value();
    std::string bytes;
    for (const int32_t id : ids) {
      bytes += tokenizer.BytesOf(id);
      partial += IsWholeUtf8(tokenizer.BytesOf(id)) ? 0 : 1;
    }
    if (bytes[0] == ' ') bytes.erase(0, 1);
    EXPECT_EQ(bytes, "a " + text) << name;
  }
  EXPECT_GT(partial, 0u) << "some tokens are parts of characters";
}

TEST(Tokenizer, TheBytesOfATokenKeepItsSpace) {
  for (const std::string& name : Families()) {
    const Tokenizer tokenizer = MustLoad(name);
    size_t spaced = 0;
    for (size_t id = 0; id < tokenizer.VocabSize(); ++id) {
      const std::string spelled = tokenizer.TokenAt(static_cast<int32_t>(id)).value_or("");
      if (spelled.rfind("\u2581", 0) != 0 && spelled.rfind("\u0120", 0) != 0) continue;
      ++spaced;
      EXPECT_EQ(tokenizer.BytesOf(static_cast<int32_t>(id)).substr(0, 1), " ") << spelled;
    }
    EXPECT_GT(spaced, 0u) << name;
  }
}

TEST(Tokenizer, TheBytesOfSpecialAndUnknownTokens) {
  const Tokenizer tokenizer = MustLoad("byte_level");
  EXPECT_EQ(tokenizer.BytesOf(*tokenizer.TokenId("<|im_end|>")), "<|im_end|>");
  EXPECT_EQ(tokenizer.BytesOf(static_cast<int32_t>(tokenizer.VocabSize())), "");
  EXPECT_EQ(tokenizer.BytesOf(-1), "");
  const Tokenizer fallback = MustLoad("byte_fallback");
  EXPECT_EQ(fallback.BytesOf(*fallback.TokenId("<0xE6>")), "\xE6");
}

TEST(StreamDecoder, PiecesJoinToTheWholeText) {
  for (const std::string& name : Families()) {
    const Tokenizer tokenizer = MustLoad(name);
    const std::string text = " Lead, 日本語 👨‍👩‍👧‍👦 \n\n  it's  naïve; end ";
    const auto ids = tokenizer.Encode(text, true, true).value();
    for (const bool skip : {false, true}) {
      StreamDecoder stream = tokenizer.NewStream(skip);
      std::string joined;
      for (const int32_t id : ids) joined += stream.Push(id);
      joined += stream.Finish();
      EXPECT_EQ(joined, tokenizer.Decode(ids, skip).value()) << name;
    }
  }
}

TEST(StreamDecoder, EveryPieceIsWholeCharacters) {
  const Tokenizer tokenizer = MustLoad("byte_level");
  const auto ids = tokenizer.Encode("👩🏽‍🚀日本", false, false).value();
  StreamDecoder stream = tokenizer.NewStream(true);
  size_t silent = 0;
  for (const int32_t id : ids) {
    const std::string piece = stream.Push(id);
    silent += piece.empty();
    EXPECT_TRUE(IsWholeUtf8(piece));
    EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
  }
  EXPECT_GT(silent, 0u);
}

TEST(StreamDecoder, RandomIdsNeverHangItBack) {
  // Mostly broken UTF-8: nothing is promised but whole characters and that text keeps coming.
  std::mt19937 random(5);
  for (const std::string& name : Families()) {
    const Tokenizer tokenizer = MustLoad(name);
    StreamDecoder stream = tokenizer.NewStream(false);
    size_t since = 0;
    for (int i = 0; i < 2000; ++i) {
      const std::string piece = stream.Push(static_cast<int32_t>(random() % tokenizer.VocabSize()));
      EXPECT_TRUE(IsWholeUtf8(piece));
      since = piece.empty() ? since + 1 : 0;
      ASSERT_LT(since, 16u) << name;
    }
    EXPECT_TRUE(IsWholeUtf8(stream.Finish()));
  }
}

TEST(StreamDecoder, AnAnswerCutAnywhereEndsWithAWholeCharacter) {
  const std::string text = "Hi 👩🏽‍🚀 日本 \xEF\xBF\xBD 😀";
  for (const std::string& name : Families()) {
    const Tokenizer tokenizer = MustLoad(name);
    const auto ids = tokenizer.Encode(text, false, false).value();
    const std::string whole = tokenizer.Decode(ids, true).value();
    for (size_t count = 0; count <= ids.size(); ++count) {
      StreamDecoder stream = tokenizer.NewStream(true);
      std::string joined;
      for (size_t i = 0; i < count; ++i) joined += stream.Push(ids[i]);
      joined += stream.Finish();
      EXPECT_TRUE(whole.starts_with(joined)) << name << " " << count << ": " << joined;
    }
  }
}

TEST(StreamDecoder, ACutOffCharacterIsLeftOutAtTheEnd) {
  const Tokenizer tokenizer = MustLoad("byte_fallback");
  StreamDecoder stream = tokenizer.NewStream(true);
  EXPECT_EQ(stream.Push(*tokenizer.TokenId("<0xE6>")), "");
  EXPECT_EQ(stream.Push(*tokenizer.TokenId("<0x97>")), "");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Push(*tokenizer.TokenId("<0x41>")), "A");
}

TEST(StreamDecoder, OutlivesItsTokenizer) {
  auto tokenizer = std::make_unique<Tokenizer>(MustLoad("byte_level"));
  const auto ids = tokenizer->Encode("hello", false, false).value();
  StreamDecoder stream = tokenizer->NewStream(true);
  tokenizer.reset();
  std::string text;
  for (const int32_t id : ids) text += stream.Push(id);
  EXPECT_EQ(text + stream.Finish(), "hello");
}

TEST(Tokenizer, ManyThreadsMayUseOne) {
  const Tokenizer tokenizer = MustLoad("byte_level");
  const auto expected = tokenizer.Encode("The cluster has four nodes", false, false).value();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) {
        wrong += tokenizer.Encode("The cluster has four nodes", false, false).value() != expected;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace macrame::runtime::text
