#pragma once

// One answer in the making: takes the logits of each step, gives the next token and the text that
// may be sent, and says when the answer is over. Pure but for the decoder that it is given.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/sampling/sampler.h"
#include "runtime/serving/sampling/stop_matcher.h"

namespace macrame::runtime::engine {

// Tokens to text, piece by piece; Push may give nothing while a character is incomplete.
struct TextStream {
  std::function<std::string(int32_t)> push;
  std::function<std::string()> finish;
};

struct GenerationLimits {
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;      // 0: until the context is full
  uint32_t context_length = 0;  // prompt and answer together
  std::set<int32_t> end_tokens{};
};

class Generation {
 public:
  Generation(GenerationLimits limits, SamplingTraits sampling, std::vector<std::string> stops,
             TextStream text);

  struct Outcome {
    int32_t token = 0;
    std::string text;  // may be sent now; never holds a stop string or end token
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  // set: the answer is over
  };
  // Index of the next token within the whole sequence.
  uint64_t position() const { return uint64_t{limits_.prompt_tokens} + completion_tokens_; }
  const SamplingTraits& sampling() const { return sampling_; }
  // The next token was chosen. Not to be called after the answer is over.
  Outcome Take(int32_t token);
  // `logits` of the last position so far: chooses it, too.
  absl::StatusOr<Outcome> Next(std::span<const float> logits);

  uint32_t completion_tokens() const { return completion_tokens_; }

 private:
  std::string Flush();

  const GenerationLimits limits_;
  const SamplingTraits sampling_;
  StopMatcher stops_;
  TextStream text_;
  uint32_t completion_tokens_ = 0;  // with the end token
};

}  // namespace macrame::runtime::engine
