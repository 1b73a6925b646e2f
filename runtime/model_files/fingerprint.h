#pragma once

// One short text for what a model is: equal on two nodes exactly when they hold the same model,
// without reading its gigabytes.

#include <string>

#include "absl/status/statusor.h"
#include "runtime/model/weights/weight_files.h"

namespace macrame::runtime {

// Tensors of which a few bytes are read, evenly over the sorted table, so that two trainings of one
// shape differ.
inline constexpr size_t kSampledTensorsMax = 64;
inline constexpr size_t kSampleBytes = 256;

// SHA-256 over config.json's values, the sorted table of tensors (name, type, shape) and the
// samples; the first 32 hex digits. How tensors are spread over files does not matter, nor do
// config.json's layout and the keys that tools stamp into it. MODEL_CONFIG_INVALID,
// MODEL_FILE_BROKEN.
absl::StatusOr<std::string> FingerprintOf(const std::string& config_json,
                                          const engine::WeightFiles& files);

// One short text for what shapes a model's prompts and answers beside its weights: the tokenizer,
// its special tokens, the chat template and generation_config.json, as far as they are there. Of
// small JSON files the values count, not their layout nor the stamps that tools leave. The first 32
// hex digits of a SHA-256. MODEL_FILE_BROKEN when a file can't be read.
absl::StatusOr<std::string> TextDigestOf(const std::string& folder);

// Both as one, "WEIGHTS.TEXT": two nodes have the same model exactly when this is equal.
std::string JoinedFingerprint(const std::string& weights, const std::string& text);

}  // namespace macrame::runtime
