#pragma once

// Whether a model makes embeddings, and how: read from the files that sentence-transformers puts
// beside it (modules.json, 1_Pooling/config.json). Without them, from what else tells: a checkpoint
// that was saved without its head, or a tokenizer that ends every text with a token of its own,
// means the last position.

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime::engine {

// "mean", "last", "first"; empty for kNone.
std::string_view PoolingName(Pooling pooling);

// Sets what of `config` the folder of `files` says: pooling, has_head. MODEL_FORMAT_UNSUPPORTED for
// a model whose embeddings rankd would get wrong: it attends to what comes behind, has layers
// behind the pooling or code of its own. Reads a MiB at most of each file.
absl::Status ReadPooling(const WeightFiles& files, ModelConfig& config);

// What 1_Pooling/config.json says; an error's message names what is not implemented. Pure.
absl::StatusOr<Pooling> ParsePooling(std::string_view json);
// Whether tokenizer.json puts a token behind every text; its beginning is enough. Pure.
bool EndsTexts(std::string_view tokenizer_json);

}  // namespace macrame::runtime::engine
