#pragma once

// A model's tokenizer: text to ids and back, with the very code that Hugging Face runs.
//
// A loaded Tokenizer never changes and may be used by any number of threads at once; a
// StreamDecoder belongs to one answer and one thread. Ids are int32_t everywhere, as MLX's arrays
// hold them.
//
// Encoding costs about a microsecond a token, decoding less. A text takes 10 s and memory in
// proportion to its bytes at the most, in a text worker if need be (text_worker.h); else, or beyond
// 32 MiB, it is refused (InvalidArgument). So is a tokenizer whose load takes more than a minute,
// or memory out of proportion to its file, or whose steps make thousands of bytes of one
// (TOKENIZER_INVALID). Texts are UTF-8; one that isn't is InvalidArgument.

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

// Of the C ABI, macrame_text.h.
struct MacrameTextTokenizerHandle;
struct MacrameTextStreamHandle;

namespace macrame::runtime::text {

struct TokenizerDeleter {
  void operator()(MacrameTextTokenizerHandle* handle) const;
};
struct StreamDeleter {
  void operator()(MacrameTextStreamHandle* handle) const;
};

// The text of one growing answer. Gives whole characters only: a token that ends in the middle of
// one is held back until the rest comes. All pieces and Finish() together are what Decode() gives
// for all the ids, without a character that the end cuts off; other bytes that are no UTF-8 come as
// U+FFFD.
class StreamDecoder {
 public:
  // Takes the next id and gives the text that is certain now, often none. An id that the vocabulary
  // doesn't have gives nothing.
  std::string Push(int32_t id);
  // Gives what is still held back, and begins anew.
  std::string Finish();

 private:
  friend class Tokenizer;
  explicit StreamDecoder(MacrameTextStreamHandle* handle) : handle_(handle) {}

  std::unique_ptr<MacrameTextStreamHandle, StreamDeleter> handle_;
};

class Tokenizer {
 public:
  // Reads tokenizer.json, tokenizer_config.json, special_tokens_map.json, generation_config.json
  // and config.json of `model_folder`; only the first must be there. TOKENIZER_INVALID when one
  // can't be used, MODEL_FILE_MISSING when tokenizer.json is missing.
  static absl::StatusOr<Tokenizer> Load(const std::string& model_folder);

  // `add_special_tokens`: what the tokenizer puts around every text, such as a first token. A
  // prompt from a chat template carries its own, so false there. `special_tokens_in_text`: whether
  // "<|im_end|>" in `text` is that token; false reads it as ten letters. False for everything that
  // a user wrote. `tokens_max`: PROMPT_TOO_LONG for a text that has more, where its bytes say so
  // before it is tokenised, else when four times as many have been counted; what lies between is
  // the caller's to judge. 0: any.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens,
                                              bool special_tokens_in_text,
                                              size_t tokens_max = 0) const;

  // Ids that the vocabulary doesn't have print as nothing; negative ones are InvalidArgument.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  StreamDecoder NewStream(bool skip_special_tokens) const;

  // The id of the token that is spelled so, e.g. "</think>".
  std::optional<int32_t> TokenId(std::string_view token) const;

  // How the token is spelled in the vocabulary, as its model's files write it; none for ids that
  // are not in it.
  std::optional<std::string> TokenAt(int32_t id) const;

  // The bytes that the id adds to a text that it does not begin, often no whole characters. Special
  // tokens as they are spelled; nothing for ids that print as nothing.
  std::string BytesOf(int32_t id) const;

  // Number of tokens, added ones too. A model's logits may be wider: its table is often padded.
  size_t VocabSize() const { return vocab_size_; }

  // Every id that ends an answer: all that tokenizer_config.json, special_tokens_map.json,
  // generation_config.json and config.json name. May be empty.
  const std::set<int32_t>& EosIds() const { return eos_ids_; }

  // The id that a text begins with; none for models that have none (Qwen).
  std::optional<int32_t> BosId() const { return bos_id_; }

 private:
  friend class ChatTemplate;
  friend class GrammarEngine;
  Tokenizer() = default;

  std::unique_ptr<MacrameTextTokenizerHandle, TokenizerDeleter> handle_;
  size_t vocab_size_ = 0;
  std::set<int32_t> eos_ids_;
  std::optional<int32_t> bos_id_;
};

}  // namespace macrame::runtime::text
