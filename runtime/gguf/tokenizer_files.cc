#include "runtime/gguf/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/gguf/word_cuts.h"
#include "runtime/text/tokenizer.h"

namespace macrame::runtime::gguf {
namespace {

using nlohmann::json;

// tokenizer.ggml.token_type
enum TokenKind : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5 };

// Thrown inside this file only.
struct Fault {
  std::string message;
};

constexpr std::array<std::string_view, 15> kAnswerEnds = {
    "<|im_end|>",    "<|eot_id|>",    "<|eom_id|>",      "<|end|>",
    "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|return|>",
    "<|call|>",      "<turn|>",       "[EOS]",           "[e~[",
    "<|eom|>",       "[|endofturn|]", "<|end_of_turn|>"};

size_t Letters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0U) != 0x80U;
  }));
}

class Builder {
 public:
  explicit Builder(const GgufModel& model) : model_(model) {
    const auto* tokens = model.Texts("tokenizer.ggml.tokens");
    const auto* kinds = model.Integers("tokenizer.ggml.token_type");
    if (tokens == nullptr || tokens->empty()) {
      throw Fault{"the metadata has no tokenizer.ggml.tokens"};
    }
    if (kinds != nullptr && kinds->size() != tokens->size()) {
      throw Fault{"tokenizer.ggml.token_type and tokenizer.ggml.tokens are not of one length"};
    }
    tokens_ = tokens;
    kinds_ = kinds;
    for (size_t i = 0; i < tokens->size(); ++i) {
      if (!ids_.emplace((*tokens)[i], i).second) {
        throw Fault{
            absl::StrCat("token ", i, ", '", absl::CHexEscape((*tokens)[i]), "', is there twice")};
      }
    }
  }

  std::map<std::string, std::string> Files() {
    const std::string kind = model_.Text("tokenizer.ggml.model").value_or("none");
    json tokenizer = {{"version", "1.0"},
                      {"truncation", nullptr},
                      {"padding", nullptr},
                      {"added_tokens", AddedTokens()}};
    if (kind == "gpt2") {
      AddByteLevel(tokenizer);
    } else if (kind == "llama") {
      AddSentencePiece(tokenizer, MergesOfScores());
    } else if (kind == "gemma4") {
      AddSentencePiece(tokenizer, ListedMerges());
    } else {
      throw Fault{absl::StrCat("tokenizer.ggml.model is '", absl::CHexEscape(kind),
                               "'; gpt2, llama and gemma4 are known")};
    }
    CheckOtherKeys();
    tokenizer["post_processor"] = PostProcessor();
    return {{"tokenizer.json", tokenizer.dump()},
            {"tokenizer_config.json", Config().dump(1)},
            {"generation_config.json", GenerationConfig().dump(1)}};
  }

 private:
  int64_t KindOf(size_t id) const { return kinds_ == nullptr ? int64_t{kNormal} : (*kinds_)[id]; }

  std::optional<size_t> Id(const std::string& key) const {
    const auto id = model_.Integer(absl::StrCat("tokenizer.ggml.", key));
    if (!id.has_value() || *id < 0 || *id == UINT32_MAX) return std::nullopt;
    if (static_cast<uint64_t>(*id) >= tokens_->size()) {
      throw Fault{absl::StrCat("tokenizer.ggml.", key, " is ", *id, ", which is no token")};
    }
    return static_cast<size_t>(*id);
  }

  json AddedTokens() const {
    json added = json::array();
    for (size_t i = 0; i < tokens_->size(); ++i) {
      const int64_t kind = KindOf(i);
      if (kind != kControl && kind != kUserDefined && kind != kUnknown) continue;
      added.push_back({{"id", i},
                       {"content", (*tokens_)[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kind != kUserDefined}});
    }
    return added;
  }

  json Vocabulary() const {
    json vocabulary = json::object();
    for (size_t i = 0; i < tokens_->size(); ++i) vocabulary[(*tokens_)[i]] = i;
    return vocabulary;
  }

  static json Model(json vocabulary, json merges) {
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", std::move(vocabulary)},
            {"merges", std::move(merges)}};
  }

  const WordCut& OwnWordCut() const {
    const std::string pre = model_.Text("tokenizer.ggml.pre").value_or("");
    if (const WordCut* cut = FindWordCut(pre); cut != nullptr) return *cut;
    std::string known;
    for (const WordCut& cut : WordCuts()) {
      absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(cut.pre));
    }
    throw Fault{
        absl::StrCat("tokenizer.ggml.pre is '", absl::CHexEscape(pre), "'; known are ", known)};
  }

  // What else changes how text is cut, and no file here says.
  void CheckOtherKeys() const {
    for (const char* key : {"remove_extra_whitespaces", "normalizer.lowercase",
                            "normalizer.strip_accents", "add_sep_token"}) {
      const std::string name = absl::StrCat("tokenizer.ggml.", key);
      if (model_.Flag(name).value_or(false)) {
        throw Fault{absl::StrCat(name, " is true, which is not implemented")};
      }
    }
    const auto* map = model_.Integers("tokenizer.ggml.precompiled_charsmap");
    if (map != nullptr && !map->empty()) {
      throw Fault{"tokenizer.ggml.precompiled_charsmap is not implemented"};
    }
  }

  void AddByteLevel(json& tokenizer) {
    const WordCut& cut = OwnWordCut();
    begins_with_bos_ = cut.begins_with_bos;
    const json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", cut.patterns.empty()}};
    json steps = json::array();
    const json digits = {{"type", "Digits"}, {"individual_digits", true}};
    if (cut.single_digits && cut.patterns.empty()) steps.push_back(digits);
    for (const std::string_view pattern : cut.patterns) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", std::string(pattern)}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    if (cut.single_digits && !cut.patterns.empty()) steps.push_back(digits);
    steps.push_back(byte_level);
    tokenizer["normalizer"] = cut.composes ? json::object({{"type", "NFC"}}) : json();
    tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
    tokenizer["decoder"] = byte_level;
    tokenizer["model"] = Model(Vocabulary(), ListedMerges());
    tokenizer["model"]["ignore_merges"] = cut.whole_words_first;
  }

  // "Ġ t": a blank between the two.
  json ListedMerges() const {
    const auto* merges = model_.Texts("tokenizer.ggml.merges");
    if (merges == nullptr) throw Fault{"the metadata has no tokenizer.ggml.merges"};
    json pairs = json::array();
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string& merge = (*merges)[i];
      const size_t blank = merge.find(' ', 1);
      const bool has_both = blank != std::string::npos && blank + 1 < merge.size();
      const std::string left = has_both ? merge.substr(0, blank) : "";
      const std::string right = has_both ? merge.substr(blank + 1) : "";
      if (ids_.count(left) == 0 || ids_.count(right) == 0 || ids_.count(left + right) == 0) {
        throw Fault{absl::StrCat("merge ", i,
                                 " of tokenizer.ggml.merges joins no two tokens to a "
                                 "third")};
      }
      pairs.push_back({left, right});
    }
    return pairs;
  }

  void AddSentencePiece(json& tokenizer, json merges) {
    const bool prefix = model_.Flag("tokenizer.ggml.add_space_prefix").value_or(true);
    begins_with_bos_ = true;
    json normalizers = json::array(), decoders = json::array();
    if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kBlank}});
    normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kBlank}});
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kBlank}}}, {"content", " "}});
    decoders.push_back(json::object({{"type", "ByteFallback"}}));
    decoders.push_back(json::object({{"type", "Fuse"}}));
    if (prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
    tokenizer["pre_tokenizer"] = nullptr;
    tokenizer["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
    tokenizer["model"] = Model(Vocabulary(), std::move(merges));
    tokenizer["model"]["byte_fallback"] = true;
    tokenizer["model"]["fuse_unk"] = true;
    for (size_t i = 0; i < tokens_->size(); ++i) {
      if (KindOf(i) == kUnknown) tokenizer["model"]["unk_token"] = (*tokens_)[i];
    }
  }

  // Each way to make a token of two others; the higher a token's score the sooner. Control tokens
  // are never made of letters.
  json MergesOfScores() const {
    const auto* scores = model_.Numbers("tokenizer.ggml.scores");
    if (scores == nullptr || scores->size() != tokens_->size()) {
      throw Fault{"tokenizer.ggml.scores does not have a score for each token"};
    }
    const auto is_none = [](double score) { return std::isnan(score); };
    if (std::any_of(scores->begin(), scores->end(), is_none)) {
      throw Fault{"tokenizer.ggml.scores has a score that is no number"};
    }
    struct Merge {
      std::string_view left, right;
      double score;
      size_t left_letters, right_letters;
      std::pair<size_t, size_t> ids;
    };
    std::vector<Merge> merges;
    for (size_t id = 0; id < tokens_->size(); ++id) {
      const std::string_view whole = (*tokens_)[id];
      if (KindOf(id) != kNormal && KindOf(id) != kUserDefined) continue;
      for (size_t cut = 1; cut < whole.size(); ++cut) {
        const auto left = ids_.find(whole.substr(0, cut)), right = ids_.find(whole.substr(cut));
        if (left == ids_.end() || right == ids_.end()) continue;
        merges.push_back({whole.substr(0, cut),
                          whole.substr(cut),
                          (*scores)[id],
                          Letters(whole.substr(0, cut)),
                          Letters(whole.substr(cut)),
                          {left->second, right->second}});
      }
    }
    std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
      if (a.score != b.score) return a.score > b.score;
      if (a.left_letters != b.left_letters) return a.left_letters > b.left_letters;
      if (a.right_letters != b.right_letters) return a.right_letters > b.right_letters;
      return a.ids < b.ids;
    });
    json pairs = json::array();
    for (const Merge& merge : merges) {
      pairs.push_back({std::string(merge.left), std::string(merge.right)});
    }
    return pairs;
  }

  // Puts the first token before every text, and the last one behind it, where the model wants it.
  json PostProcessor() const {
    const auto bos = Id("bos_token_id"), eos = Id("eos_token_id");
    const bool begins =
        bos.has_value() && model_.Flag("tokenizer.ggml.add_bos_token").value_or(begins_with_bos_);
    const bool ends =
        eos.has_value() && model_.Flag("tokenizer.ggml.add_eos_token").value_or(false);
    if (!begins && !ends) return nullptr;
    json special = json::object();
    const auto text = [](const char* id, int type) {
      return json::object({{"Sequence", {{"id", id}, {"type_id", type}}}});
    };
    const auto add = [&](json& list, size_t id) {
      const std::string& token = (*tokens_)[id];
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
      special[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
    };
    json single = json::array(), pair = json::array();
    if (begins) add(single, *bos), add(pair, *bos);
    single.push_back(text("A", 0));
    pair.push_back(text("A", 0));
    pair.push_back(text("B", 1));
    if (ends) add(single, *eos), add(pair, *eos);
    return {{"type", "TemplateProcessing"},
            {"single", std::move(single)},
            {"pair", std::move(pair)},
            {"special_tokens", std::move(special)}};
  }

  json Config() const {
    json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false}};
    for (const auto& [ours, theirs] :
         {std::pair{"bos_token", "bos_token_id"}, std::pair{"eos_token", "eos_token_id"},
          std::pair{"unk_token", "unknown_token_id"}, std::pair{"pad_token", "padding_token_id"}}) {
      if (const auto id = Id(theirs); id.has_value()) config[ours] = (*tokens_)[*id];
    }
    const auto chat_template = model_.Text("tokenizer.chat_template");
    if (!chat_template.has_value()) return config;
    const auto* names = model_.Texts("tokenizer.chat_templates");
    if (names == nullptr) {
      config["chat_template"] = *chat_template;
      return config;
    }
    json named = json::array({{{"name", "default"}, {"template", *chat_template}}});
    for (const std::string& name : *names) {
      const auto text = model_.Text(absl::StrCat("tokenizer.chat_template.", name));
      if (text.has_value()) named.push_back({{"name", name}, {"template", *text}});
    }
    config["chat_template"] = std::move(named);
    return config;
  }

  bool IsControl(std::string_view token) const {
    const auto found = ids_.find(token);
    return found != ids_.end() && KindOf(found->second) != kNormal;
  }

  json GenerationConfig() const {
    std::set<size_t> ends;
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      if (const auto id = Id(key); id.has_value()) ends.insert(*id);
    }
    for (const std::string_view end : kAnswerEnds) {
      const auto found = ids_.find(end);
      if (found != ids_.end() && KindOf(found->second) != kNormal) ends.insert(found->second);
    }
    // GLM's turns end with the name of who speaks next.
    for (const char* next : {"<|user|>", "<|observation|>"}) {
      if (IsControl("<|user|>") && IsControl("<|observation|>")) ends.insert(ids_.at(next));
    }
    // gpt-oss ends thoughts with the first of these, and answers with the others.
    if (IsControl("<|end|>") && IsControl("<|return|>") && IsControl("<|call|>")) {
      ends.erase(ids_.at("<|end|>"));
    }
    json config = {{"eos_token_id", ends}};
    if (const auto bos = Id("bos_token_id"); bos.has_value()) config["bos_token_id"] = *bos;
    for (const auto& [ours, theirs] : {std::pair{"temperature", "temp"},
                                       std::pair{"top_p", "top_p"}, std::pair{"min_p", "min_p"}}) {
      const auto value = model_.Number(absl::StrCat("general.sampling.", theirs));
      if (value.has_value() && std::isfinite(*value)) config[ours] = *value;
    }
    if (const auto top_k = model_.Integer("general.sampling.top_k"); top_k.has_value()) {
      config["top_k"] = *top_k;
    }
    const auto repeat = model_.Number("general.sampling.penalty_repeat");
    if (repeat.has_value() && std::isfinite(*repeat)) config["repetition_penalty"] = *repeat;
    // Without "do_sample" such a file asks for greedy answers. GGUF has no such key: there only a
    // temperature of 0 does.
    config["do_sample"] = config.value("temperature", 1.0) > 0.0;
    return config;
  }

  static constexpr char kBlank[] = "\xE2\x96\x81";  // U+2581, SentencePiece's blank

  const GgufModel& model_;
  const std::vector<std::string>* tokens_ = nullptr;
  const std::vector<int64_t>* kinds_ = nullptr;
  std::unordered_map<std::string_view, size_t> ids_;
  bool begins_with_bos_ = false;
};

absl::Status Invalid(const GgufModel& model, const std::string& message) {
  v1::Reason reason =
      MakeReason(reasons::kTokenizerInvalid, absl::StrCat(model.path(), ": ", message));
  reason.set_remedy("give --tokenizer the folder of the original model's tokenizer.json");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> TokenizerFiles(const GgufModel& model) {
  try {
    return Builder(model).Files();
  } catch (const Fault& fault) {
    return Invalid(model, fault.message);
  } catch (const json::exception&) {
    return Invalid(model, "a token or its chat template is not UTF-8");
  }
}

absl::Status CheckTokenizer(const GgufModel& model, const std::string& folder) {
  const auto tokenizer = text::Tokenizer::Load(folder);
  if (!tokenizer.ok()) return tokenizer.status();
  const auto* tokens = model.Texts("tokenizer.ggml.tokens");
  if (tokens == nullptr) return absl::OkStatus();  // nothing to hold it against
  const auto* kinds = model.Integers("tokenizer.ggml.token_type");
  for (size_t i = 0; i < tokens->size(); ++i) {
    const auto spelled = tokenizer->TokenAt(static_cast<int32_t>(i));
    const bool padding = kinds != nullptr && i < kinds->size() && (*kinds)[i] == kUnused;
    if (spelled == (*tokens)[i] || (padding && !spelled.has_value())) continue;
    return Invalid(
        model, absl::StrCat("its token ", i, " is '", absl::CHexEscape((*tokens)[i]),
                            "', the tokenizer's ",
                            spelled.has_value() ? absl::StrCat("'", absl::CHexEscape(*spelled), "'")
                                                : std::string("is missing")));
  }
  if (tokenizer->TokenAt(static_cast<int32_t>(tokens->size())).has_value()) {
    return Invalid(model,
                   absl::StrCat("the tokenizer has more than its ", tokens->size(), " tokens"));
  }
  return absl::OkStatus();
}

}  // namespace macrame::runtime::gguf
