#include "runtime/gguf/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "proto/reasons.h"
#include "runtime/serving/generation_job.h"
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

nlohmann::json JsonOf(const std::string& folder, const std::string& name) {
  std::ifstream file(folder + "/" + name);
  return nlohmann::json::parse(file, nullptr, false);
}

// 300 words, the last ones with these spellings and kinds.
GgufWriter WithLastTokens(const std::vector<std::pair<std::string, int32_t>>& last) {
  GgufWriter writer = SmallModel("llama");
  const auto model = GgufModel::Open(WriteGguf("m.gguf", writer.Bytes()));
  std::vector<std::string> words = *(*model)->Texts("tokenizer.ggml.tokens");
  std::vector<int32_t> kinds(words.size(), 1);
  size_t at = words.size() - last.size();
  for (const auto& [word, kind] : last) {
    words[at] = word;
    kinds[at++] = kind;
  }
  return writer.Texts("tokenizer.ggml.tokens", words)
      .Texts("tokenizer.ggml.merges", {})
      .Integers("tokenizer.ggml.token_type", kinds);
}

// A model that goes on behind the end of its answer is the commonest fault of an import.
TEST(TokenizerFiles, AnAnswerEndsWithEachTokenThatSaysSo) {
  GgufWriter writer = WithLastTokens({{"<|eot_id|>", 3},
                                      {"<|end|>", 4},
                                      {"<|im_end|>", 1},
                                      {"<stop>", 3},
                                      {"<tool>", 3},
                                      {"<|endoftext|>", 3}});
  writer.Integer("tokenizer.ggml.eos_token_id", 297).Integer("tokenizer.ggml.eom_token_id", 298);
  const auto folder = FolderOf(writer);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(JsonOf(*folder, "generation_config.json")["eos_token_id"],
              ElementsAre(294, 295, 297, 298, 299))
      << "named, or spelled so; what is an ordinary word ends nothing";
  const auto tokenizer = text::Tokenizer::Load(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(tokenizer->EosIds(), testing::UnorderedElementsAre(294, 295, 297, 298, 299));
}

TEST(TokenizerFiles, AnIdThatMeansNoneIsNone) {
  GgufWriter writer = WithLastTokens({{"<a>", 3}, {"<b>", 3}});
  writer.Integer("tokenizer.ggml.eos_token_id", 299)
      .Integer("tokenizer.ggml.bos_token_id", UINT32_MAX)
      .Text("tokenizer.ggml.padding_token_id", "no number")
      .Flag("tokenizer.ggml.add_bos_token", true);
  const auto folder = FolderOf(writer);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const nlohmann::json config = JsonOf(*folder, "tokenizer_config.json");
  EXPECT_EQ(config["eos_token"], "<b>");
  EXPECT_FALSE(config.contains("bos_token"));
  EXPECT_FALSE(config.contains("pad_token"));
  EXPECT_FALSE(JsonOf(*folder, "generation_config.json").contains("bos_token_id"));
  EXPECT_THAT(*text::Tokenizer::Load(*folder)->Encode("e", true, false), testing::SizeIs(1));
}

TEST(TokenizerFiles, AByteLevelModelGetsTheFirstTokenThatItWants) {
  GgufWriter writer = WithLastTokens({{"<first>", 3}, {"<last>", 3}});
  writer.Integer("tokenizer.ggml.bos_token_id", 298).Integer("tokenizer.ggml.eos_token_id", 299);
  const auto ids = [&](const char* pre, std::optional<bool> adds) {
    writer.Text("tokenizer.ggml.pre", pre);
    if (adds.has_value()) writer.Flag("tokenizer.ggml.add_bos_token", *adds);
    const auto folder = FolderOf(writer);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *text::Tokenizer::Load(*folder)->Encode("e", true, false);
  };
  EXPECT_THAT(ids("qwen2", {}), testing::SizeIs(1)) << "by default none";
  EXPECT_THAT(ids("llama-bpe", {}), ElementsAre(298, testing::_));
  EXPECT_THAT(ids("llama-bpe", false), testing::SizeIs(1));
  EXPECT_THAT(ids("qwen2", true), ElementsAre(298, testing::_));
}

TEST(TokenizerFiles, SamplingThatTheModelAsksForIsKept) {
  GgufWriter writer = SmallModel("qwen3");
  writer.Number("general.sampling.temp", 0.5F)
      .Integer("general.sampling.top_k", 20)
      .Number("general.sampling.top_p", std::nanf(""))
      .Number("general.sampling.min_p", std::numeric_limits<float>::infinity());
  const auto folder = FolderOf(writer);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const nlohmann::json config = JsonOf(*folder, "generation_config.json");
  EXPECT_EQ(config["temperature"], 0.5);
  EXPECT_EQ(config["top_k"], 20);
  EXPECT_FALSE(config.contains("top_p")) << "what is no number is not asked for: " << config;
  EXPECT_FALSE(config.contains("min_p")) << config;
}

// What a request without sampling settings of its own gets.
TEST(TokenizerFiles, AnImportedModelSamplesAsItsFileAsks) {
  const auto defaults = [](const GgufWriter& writer) {
    const auto folder = FolderOf(writer);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return engine::ParseSamplingDefaults(JsonOf(*folder, "generation_config.json").dump());
  };
  const engine::SamplingTraits plain = defaults(SmallModel("qwen3"));
  const engine::SamplingTraits without_file = engine::ParseSamplingDefaults("");
  EXPECT_EQ(plain.temperature, without_file.temperature);
  EXPECT_EQ(plain.temperature, 1.0);
  EXPECT_EQ(plain.top_p, 1.0);
  EXPECT_EQ(plain.top_k, 0u);

  GgufWriter asks = SmallModel("qwen3");
  asks.Number("general.sampling.temp", 0.5F)
      .Number("general.sampling.top_p", 0.75F)
      .Number("general.sampling.min_p", 0.125F)
      .Integer("general.sampling.top_k", 20);
  const engine::SamplingTraits asked = defaults(asks);
  EXPECT_EQ(asked.temperature, 0.5);
  EXPECT_EQ(asked.top_p, 0.75);
  EXPECT_EQ(asked.min_p, 0.125);
  EXPECT_EQ(asked.top_k, 20u);

  GgufWriter top_k_alone = SmallModel("qwen3");
  top_k_alone.Integer("general.sampling.top_k", 20);
  EXPECT_EQ(defaults(top_k_alone).temperature, 1.0);
  EXPECT_EQ(defaults(top_k_alone).top_k, 20u);

  for (const float temperature : {0.0F, -1.0F}) {
    GgufWriter greedy = SmallModel("qwen3");
    greedy.Number("general.sampling.temp", temperature).Integer("general.sampling.top_k", 20);
    EXPECT_EQ(defaults(greedy).temperature, 0.0) << temperature;
  }
}

TEST(TokenizerFiles, SuppressedTokensAreLeftOut) {
  GgufWriter writer = SmallModel("qwen3");
  writer.Integers("tokenizer.ggml.suppress_tokens", {1, 2});
  const auto folder = FolderOf(writer);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_FALSE(JsonOf(*folder, "generation_config.json").contains("suppress_tokens"));
}

TEST(TokenizerFiles, NamedTemplatesStandBesideTheDefaultOne) {
  GgufWriter writer = SmallModel("llama");
  writer.Text("tokenizer.chat_template", "plain")
      .Text("tokenizer.chat_template.tool_use", "with tools")
      .Texts("tokenizer.chat_templates", {"tool_use", "missing"});
  const auto folder = FolderOf(writer);
  ASSERT_TRUE(folder.ok()) << folder.status();
  const nlohmann::json templates = JsonOf(*folder, "tokenizer_config.json")["chat_template"];
  ASSERT_EQ(templates.size(), 2u) << "one that is announced only is not there";
  EXPECT_EQ(templates[0]["name"], "default");
  EXPECT_EQ(templates[0]["template"], "plain");
  EXPECT_EQ(templates[1]["name"], "tool_use");
  EXPECT_EQ(templates[1]["template"], "with tools");
}

TEST(TokenizerFiles, MergesThatAreNoneAreNamedByTheirNumber) {
  for (const char* wrong : {"", " ", "t", "t ", " t", "th", "t  h", "t\th", "zz z"}) {
    GgufWriter writer = SmallModel("llama");
    writer.Texts("tokenizer.ggml.merges", {"t e", "e e", wrong});
    EXPECT_THAT(MessageOf(writer), HasSubstr("merge 2 of tokenizer.ggml.merges")) << wrong;
  }
}

TEST(TokenizerFiles, ListsThatAreMissingOrNotOfOneLengthAreNamed) {
  GgufWriter none = SmallModel("llama");
  none.Text("tokenizer.ggml.tokens", "no list");
  EXPECT_THAT(MessageOf(none), HasSubstr("has no tokenizer.ggml.tokens"));
  GgufWriter empty = SmallModel("llama");
  empty.Texts("tokenizer.ggml.tokens", {});
  EXPECT_THAT(MessageOf(empty), HasSubstr("has no tokenizer.ggml.tokens"));
  GgufWriter kinds = SmallModel("llama");
  kinds.Integers("tokenizer.ggml.token_type", {1, 1});
  EXPECT_THAT(MessageOf(kinds), HasSubstr("tokenizer.ggml.token_type and tokenizer.ggml.tokens"));
  GgufWriter merges = SmallModel("llama");
  merges.Integer("tokenizer.ggml.merges", 1);
  EXPECT_THAT(MessageOf(merges), HasSubstr("has no tokenizer.ggml.merges"));
}

// By them merges are put in order, and what is no number has no place in any.
TEST(TokenizerFiles, AScoreThatIsNoNumberIsRefused) {
  for (const float wrong : {std::nanf(""), -std::nanf("")}) {
    GgufWriter writer = SentencePiece();
    const auto model = GgufModel::Open(WriteGguf("m.gguf", writer.Bytes()));
    std::vector<float> scores((*model)->Texts("tokenizer.ggml.tokens")->size(), -1.0F);
    scores[scores.size() / 2] = wrong;
    writer.Numbers("tokenizer.ggml.scores", scores);
    EXPECT_THAT(MessageOf(writer), HasSubstr("tokenizer.ggml.scores"));
  }
}

// The folder's tokenizer against the model's list: the id that differs is told, with both
// spellings.
TEST(CheckTokenizer, SaysWhichTokenDiffers) {
  const auto folder = FolderOf(WithLastTokens({{"<a>", 3}, {"<b>", 3}}));
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto why_not = [&](const GgufWriter& writer) {
    const auto model = GgufModel::Open(WriteGguf("other.gguf", writer.Bytes()));
    const absl::Status checked = CheckTokenizer(**model, *folder);
    EXPECT_EQ(ReasonOf(checked).code(), "TOKENIZER_INVALID") << checked;
    EXPECT_THAT(ReasonOf(checked).remedy(), HasSubstr("--tokenizer"));
    return ReasonOf(checked).message();
  };
  EXPECT_THAT(why_not(WithLastTokens({{"<a>", 3}, {"<c\n>", 3}})),
              testing::AllOf(HasSubstr("its token 299 is '<c\\n>'"), HasSubstr("'<b>'")));
  GgufWriter fewer = SmallModel("llama");
  const auto model = GgufModel::Open(WriteGguf("m.gguf", fewer.Bytes()));
  std::vector<std::string> words = *(*model)->Texts("tokenizer.ggml.tokens");
  words.resize(298);
  fewer.Texts("tokenizer.ggml.tokens", words);
  EXPECT_THAT(why_not(fewer), HasSubstr("more than its 298 tokens"));
  words.resize(298);
  words.insert(words.end(), {"<a>", "<b>", "<padding>"});
  std::vector<int32_t> kinds(301, 1);
  GgufWriter more = SmallModel("llama");
  more.Texts("tokenizer.ggml.tokens", words).Integers("tokenizer.ggml.token_type", kinds);
  EXPECT_THAT(why_not(more), HasSubstr("'<padding>', the tokenizer's is missing"));
  kinds[300] = 5;
  more.Integers("tokenizer.ggml.token_type", kinds);
  const auto padded = GgufModel::Open(WriteGguf("padded.gguf", more.Bytes()));
  EXPECT_TRUE(CheckTokenizer(**padded, *folder).ok()) << "unused ones need not be there";
}

}  // namespace
}  // namespace macrame::runtime::gguf
