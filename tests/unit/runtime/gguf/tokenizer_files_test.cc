#include "runtime/gguf/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "proto/reasons.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"
#include "tests/unit/runtime/gguf/gguf_writer.h"

namespace macrame::runtime::gguf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The folder of the tokenizer that the metadata gives, or the reason why there is none.
absl::StatusOr<std::string> FolderOf(const GgufWriter& writer) {
  const std::string path = WriteGguf("m.gguf", writer.Bytes());
  const auto model = GgufModel::Open(path);
  if (!model.ok()) return model.status();
  const auto files = TokenizerFiles(**model);
  if (!files.ok()) return files.status();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  for (const auto& [name, text] : *files) std::ofstream(folder + "/" + name) << text;
  std::ofstream(folder + "/config.json") << "{}";
  if (auto status = CheckTokenizer(**model, folder); !status.ok()) return status;
  return folder;
}

std::string MessageOf(const GgufWriter& writer) {
  return std::string(FolderOf(writer).status().message());
}

// A SentencePiece vocabulary: the four control tokens, bytes, letters and what they make.
GgufWriter SentencePiece() {
  std::vector<std::string> words = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores = {0, 0, 0};
  std::vector<int32_t> kinds = {2, 3, 3};
  const char* digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    words.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
    scores.push_back(0);
    kinds.push_back(6);
  }
  const std::string blank = "\xE2\x96\x81";
  for (const std::string& word :
       {blank + "t", std::string("he"), blank + "the", blank, std::string("t"), std::string("h"),
        std::string("e"), std::string("n"), std::string("<"), std::string("s"), std::string(">"),
        std::string("s>")}) {
    scores.push_back(-static_cast<float>(words.size()));
    words.push_back(word);
    kinds.push_back(1);
  }
  GgufWriter writer = SmallModel("llama");
  return writer.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", words)
      .Numbers("tokenizer.ggml.scores", scores)
      .Integers("tokenizer.ggml.token_type", kinds)
      .Integer("tokenizer.ggml.bos_token_id", 1)
      .Integer("tokenizer.ggml.eos_token_id", 2);
}

TEST(TokenizerFiles, ByteLevelEncodesAndComesBack) {
  const auto folder = FolderOf(SmallModel("llama"));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto tokenizer = text::Tokenizer::Load(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->VocabSize(), 300u);
  EXPECT_THAT(tokenizer->EosIds(), ElementsAre(299));
  for (const char* text : {"the tea 42", "na\xC3\xAFve \xF0\x9F\x90\x8D!", "a\n\n b"}) {
    const auto ids = tokenizer->Encode(text, true, false);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*tokenizer->Decode(*ids, false), text);
  }
  EXPECT_EQ(tokenizer->Encode("te", true, false)->size(), 1u) << "a merge";
  EXPECT_THAT(*tokenizer->Encode("<|im_end|>", true, true), ElementsAre(299));
  const auto chat = text::ChatTemplate::Load(*folder);
  ASSERT_TRUE(chat.ok()) << chat.status();
  text::ChatPrompt prompt;
  prompt.messages_json = R"([{"role": "user", "content": "hi"}])";
  EXPECT_EQ(*chat->Render(prompt), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TokenizerFiles, EachPreIsTaken) {
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "starcoder"}) {
    GgufWriter writer = SmallModel("llama");
    writer.Text("tokenizer.ggml.pre", pre);
    const auto folder = FolderOf(writer);
    ASSERT_TRUE(folder.ok()) << pre << folder.status();
    const auto tokenizer = text::Tokenizer::Load(*folder);
    const std::string text = "It's 2026, isn't it?  \n\tYes.";
    EXPECT_EQ(*tokenizer->Decode(*tokenizer->Encode(text, false, false), false), text) << pre;
  }
  GgufWriter unknown = SmallModel("llama");
  unknown.Text("tokenizer.ggml.pre", "martian");
  EXPECT_THAT(MessageOf(unknown), HasSubstr("tokenizer.ggml.pre is 'martian'; known are gpt-2"));
  EXPECT_THAT(MessageOf(unknown), HasSubstr("give --tokenizer"));
}

TEST(TokenizerFiles, SentencePieceMergesFollowFromScores) {
  const auto folder = FolderOf(SentencePiece());
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto tokenizer = text::Tokenizer::Load(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ(tokenizer->BosId(), 1);
  const auto id = [&](const std::string& word) { return *tokenizer->TokenId(word); };
  const std::string blank = "\xE2\x96\x81";
  EXPECT_THAT(*tokenizer->Encode("the n", true, false),
              ElementsAre(1, id(blank + "the"), id(blank), id("n")));
  EXPECT_EQ(*tokenizer->Decode(*tokenizer->Encode("the n", false, false), true), "the n");
  EXPECT_THAT(*tokenizer->Encode("\xC3\xA9", false, false),
              ElementsAre(id(blank), id("<0xC3>"), id("<0xA9>")))
      << "what has no token becomes bytes";
  // A user who writes "<s>" has not written the control token.
  EXPECT_THAT(*tokenizer->Encode("<s>", false, false), ElementsAre(id(blank), id("<"), id("s>")));
}

TEST(TokenizerFiles, NoBosWhereTheModelWantsNone) {
  GgufWriter writer = SentencePiece();
  writer.Flag("tokenizer.ggml.add_bos_token", false).Flag("tokenizer.ggml.add_space_prefix", false);
  const auto folder = FolderOf(writer);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto tokenizer = text::Tokenizer::Load(*folder);
  EXPECT_THAT(*tokenizer->Encode("he", true, false), ElementsAre(*tokenizer->TokenId("he")));
}

TEST(TokenizerFiles, ContradictionsAreNamed) {
  GgufWriter merge = SmallModel("llama");
  merge.Texts("tokenizer.ggml.merges", {"t h", "zz zz"});
  EXPECT_THAT(MessageOf(merge), HasSubstr("merge 0 of tokenizer.ggml.merges joins no two tokens"));
  GgufWriter kind = SmallModel("llama");
  kind.Text("tokenizer.ggml.model", "t5");
  EXPECT_THAT(MessageOf(kind), HasSubstr("tokenizer.ggml.model is 't5'"));
  GgufWriter twice = SmallModel("llama");
  twice.Texts("tokenizer.ggml.tokens", {"a", "a"}).Integers("tokenizer.ggml.token_type", {1, 1});
  EXPECT_THAT(MessageOf(twice), HasSubstr("token 1, 'a', is there twice"));
  GgufWriter end = SmallModel("llama");
  end.Integer("tokenizer.ggml.eos_token_id", 300);
  EXPECT_THAT(MessageOf(end), HasSubstr("tokenizer.ggml.eos_token_id is 300"));
  GgufWriter bytes = SmallModel("llama");
  bytes.Text("tokenizer.chat_template", "\xFF");
  EXPECT_THAT(MessageOf(bytes), HasSubstr("not UTF-8"));
  GgufWriter scores = SentencePiece();
  scores.Numbers("tokenizer.ggml.scores", {1.0F});
  EXPECT_THAT(MessageOf(scores), HasSubstr("a score for each token"));
}

}  // namespace
}  // namespace macrame::runtime::gguf
