#pragma once

// The tokens of all rows of a step, on the threads that it was computed with. Chance comes from
// each row's own seed and position, so they are the same on any number of threads.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model/step/row_choice.h"
#include "runtime/serving/sampling/logits_processor.h"
#include "runtime/serving/sampling/logprobs.h"
#include "runtime/serving/sampling/sampler.h"
#include "runtime/serving/sampling/structured_content.h"

namespace macrame::runtime::engine {

// How the token of a row is chosen.
struct RowSampling {
  SamplingTraits traits{};
  uint64_t position = 0;
  // The next row is the same sequence's and counts only if this token is chosen here.
  std::optional<int32_t> draft{};
  bool is_wanted = true;
  // What is done to the row before; null: nothing. Outlives the choice. Of rows that rest on one
  // another, all have the same.
  const LogitsProcessor* processor = nullptr;
  std::optional<uint32_t> top_logprobs{};  // set: logprobs are wanted, and so many alternatives
  // What it is held to, behind the processor; null: nothing. As the processor.
  const StructuredContent* structure = nullptr;
};

// Whether a device can choose the row's token (model/mlx/row_chooser.h): temperature, top-k, top-p
// and min-p alone have a say, and no log probabilities are wanted.
bool CanChooseOnDevice(const RowSampling& how);

// How it is chosen there.
RowChoice ChoiceOf(const RowSampling& how);

struct SampledToken {
  int32_t token = 0;
  std::optional<ChosenLogprob> logprob{};  // where it was wanted
  bool is_held = false;                    // chosen among what the structure leaves
};

// Fewer logits are sampled on the calling thread: others would take as long to begin.
inline constexpr size_t kPooledLogitsMin = size_t{1} << 14;

// The token of one row; `ahead` are those of the sequence that the processor has not taken yet.
// Where there is a processor or a structure, the row is copied: each thread keeps one for that.
absl::StatusOr<SampledToken> SampleRow(std::span<const float> logits, const RowSampling& how,
                                       std::span<const int32_t> ahead = {});

// One result for each row; `logits` are as many for each. Rows that are not wanted, and rows behind
// a draft that was not chosen, are not looked at: their result is no answer (UNKNOWN). Rows of one
// sequence are looked at one after the other, since penalties count the tokens before. `pool` may
// be null.
std::vector<absl::StatusOr<SampledToken>> SampleRows(std::span<const float> logits,
                                                     std::span<const RowSampling> rows,
                                                     kernels::ThreadPool* pool);

}  // namespace macrame::runtime::engine
