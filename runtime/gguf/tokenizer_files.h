#pragma once

// tokenizer.json and its neighbours out of a GGUF model's metadata, for the code that loads every
// other model's tokenizer. Pure.
//
//   tokenizer.ggml.model "gpt2"    byte-level BPE; tokenizer.ggml.pre names how text is cut into
//                                  words first, and the known names stand in a table (word_cuts.h)
//   tokenizer.ggml.model "llama"   SentencePiece BPE: merges follow from the tokens' scores, the
//                                  way transformers derives them (LlamaConverter)
//   tokenizer.ggml.model "gemma4"  the same with merges that are listed
//
// The tokens that end an answer are those that the metadata names and control tokens whose spelling
// says so ("<|im_end|>", "<|eot_id|>", …), as in llama.cpp.
//
// Errors: TOKENIZER_INVALID, with the key; its remedy names --tokenizer.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/gguf/gguf_file.h"

namespace macrame::runtime::gguf {

// What stands in each file, by its name: tokenizer.json, tokenizer_config.json,
// generation_config.json. The last one has the tokens that end an answer and the file's sampling
// settings (general.sampling.*). It asks for greedy answers only where the file's temperature is 0.
// tokenizer.ggml.suppress_tokens is left out: nothing here keeps a model from choosing a token.
absl::StatusOr<std::map<std::string, std::string>> TokenizerFiles(const GgufModel& model);

// Loads the tokenizer in `folder` and holds it against the model's own list of tokens: each id must
// be spelled as there, and none may be left over.
absl::Status CheckTokenizer(const GgufModel& model, const std::string& folder);

}  // namespace macrame::runtime::gguf
