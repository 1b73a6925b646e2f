#pragma once

// From a GenerateRequest to something that the engine can run.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "proto/monotonic_time.h"
#include "runtime/serving/chat_voice.h"
#include "runtime/serving/prompt_embedding.h"
#include "runtime/serving/sampling/generation.h"
#include "runtime/serving/structure/model_grammars.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace macrame::runtime::engine {

// The text side of a model, loaded on rank 0. Immutable after loading, any thread.
struct ModelText {
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template;
  absl::Status no_template;          // why chat_template is unset
  ChatVoice voice;                   // how it writes calls and reasoning, and wants them written
  SamplingTraits sampling_defaults;  // generation_config.json's; greedy when it does not sample
  double repetition_penalty = 1.0;   // generation_config.json's
  std::shared_ptr<const ModelGrammars> grammars{};  // for answers with a structure
  EmbeddingTraits embedding{};
};
absl::StatusOr<std::shared_ptr<const ModelText>> LoadModelText(
    const std::string& folder, const EmbeddingTraits& embedding = {});

// What generation_config.json says of sampling. Fields that are missing or malformed are left at:
// no file or "do_sample" true, temperature 1; else greedy. Pure.
SamplingTraits ParseSamplingDefaults(const std::string& generation_config_json);
// Its repetition_penalty, whether it samples or not; 1 where there is none of use. Pure.
double ParseRepetitionPenalty(const std::string& generation_config_json);

struct GenerationJob {
  std::string request_id;
  std::vector<int32_t> prompt;
  GenerationLimits limits;
  SamplingTraits sampling;
  LogitRules rules;
  std::optional<uint32_t> top_logprobs;  // set: logprobs are wanted, with so many alternatives
  std::vector<std::string> stops;
  AnswerShape shape;
  std::string fairness_key;  // see RequestSpec
  int32_t priority = 0;
  std::string cache_salt;
  bool memory_only = false;
  std::optional<EmbeddingPlan> embedding;  // set: the prompt's is wanted, and no answer
  bool wants_progress = false;             // while its prompt waits and is computed
  std::optional<Duration> queue_limit;     // from the engine's taking it to its first step
  bool wants_timings = false;              // in its last chunk, counted from:
  MonotonicTime received{};                // when it came to the rank
  MonotonicTime prepared{};                // and when it was handed to the engine
};

inline constexpr size_t kKeyBytesMax = 256;  // of a fairness key or a cache salt
inline constexpr int kStopTokenIdsMax = 128;

// Checks a request, renders and tokenises its prompt. `seed` counts when the request brings none.
// `local_unix_s` is the wall clock for templates that print the date. INVALID_ARGUMENT with
// BAD_REQUEST (tools for a template that takes none, a structure that can't be used),
// PROMPT_TOO_LONG, TEMPLATE_REFUSED; MODEL_HAS_NO_EMBEDDINGS or MODEL_HAS_NO_TEXT for what the
// model does not make, DIMENSIONS_TOO_MANY.
absl::StatusOr<GenerationJob> PrepareJob(const v1::GenerateRequest& request, const ModelText& text,
                                         int vocab_size, uint32_t context_length, uint64_t seed,
                                         int64_t local_unix_s);

// The first `count` messages of a request as its template renders them. `opens_answer`: with the
// opening of the assistant's turn behind them. `tokens_max`: see Tokenizer::Encode.
absl::StatusOr<std::vector<int32_t>> EncodeMessages(const v1::GenerateRequest& request, int count,
                                                    const ModelText& text, int64_t local_unix_s,
                                                    bool opens_answer, size_t tokens_max = 0);

// What TextStream::bytes_of asks of a model, with an answer for each token kept: the likeliest
// tokens are mostly the same. One thread; at most kTokensKeptMax tokens, some MiB.
std::function<std::string(int32_t)> TokenBytesOf(std::shared_ptr<const ModelText> text);
inline constexpr size_t kTokensKeptMax = 65536;

// The wall clock of this place, for PrepareJob: seconds since 1970 as if local time were UTC.
int64_t LocalUnixSeconds();

// BAD_REQUEST for an empty prompt or ids outside of the vocabulary, PROMPT_TOO_LONG when not even
// `behind` tokens would fit behind it.
absl::Status CheckPrompt(const std::vector<int32_t>& prompt, int vocab_size,
                         uint32_t context_length, uint32_t behind = 1);

}  // namespace macrame::runtime::engine
