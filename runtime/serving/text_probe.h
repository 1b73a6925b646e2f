#pragma once

// Whether a model's text files do what requests will ask of them: a folder whose tokenizer or chat
// template fails must not become ready and then fail each request. Rank 0, before its gang forms.
// Any thread; some milliseconds.

#include <string>

#include "absl/status/status.h"
#include "runtime/serving/generation_job.h"

namespace macrame::runtime::engine {

// Of each of the small JSON files beside the weights; the text library's own bound.
inline constexpr size_t kTextConfigBytesMax = size_t{16} << 20;

// generation_config.json and tokenizer_config.json, where they are there, hold a JSON object as
// Python reads it. MODEL_CONFIG_INVALID or TOKENIZER_INVALID names the file.
absl::Status CheckTextFiles(const std::string& folder);

// A short text is encoded and decoded, a short conversation rendered and encoded. A template that
// refuses the conversation with a message of its own is a model's right. TOKENIZER_INVALID names
// the file that fails, and what it fails with; so does a token that the model has no embedding of.
// `vocab_size`: rows of the embedding table; 0: not known.
absl::Status ProbeText(const std::string& folder, const ModelText& text, int vocab_size);

}  // namespace macrame::runtime::engine
