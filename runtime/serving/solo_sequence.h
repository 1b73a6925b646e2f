#pragma once

// One sequence at a time over a ForwardEngine, without a scheduler: warm-up, `rankd --generate` and
// tests. The host chooses each token here, also where a step could: an answer's steps don't
// overlap. Rank 0's engine thread.

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/serving/answer.h"
#include "runtime/serving/forward_engine.h"

namespace macrame::runtime::engine {

class SoloSequence {
 public:
  // Uses slot 0 and the first blocks: nobody else may run steps meanwhile.
  explicit SoloSequence(ForwardEngine& engine) : engine_(engine) {}

  // Runs `tokens` at positions [begin, begin + tokens.size()), in chunks, and gives the logits
  // asked for as float32 rows of vocab_size. `begin` is 0, which starts anew, or where the last
  // call stopped. Tokens must fit the context. `keep_going` is asked between chunks; CANCELLED when
  // it says no.
  absl::StatusOr<std::vector<float>> Forward(std::span<const int32_t> tokens, int begin,
                                             LogitRows rows,
                                             const std::function<bool()>& keep_going);
  // Frees slot and blocks on all ranks.
  absl::Status Close();

 private:
  absl::Status AwaitOne(std::vector<float>& logits);

  ForwardEngine& engine_;
  int end_ = 0;  // positions that the slot holds
};

// Runs one job from beginning to end; the last chunk carries the finish reason. `cancelled` is
// looked at between steps. What ended it when that was an error.
absl::Status RunJob(const GenerationJob& job, ForwardEngine& engine, TextStream text,
                    const std::atomic<bool>& cancelled, const Answer::OnChunk& on_chunk);

}  // namespace macrame::runtime::engine
