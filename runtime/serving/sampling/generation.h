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
#include "runtime/serving/sampling/logits_processor.h"
#include "runtime/serving/sampling/row_sampling.h"
#include "runtime/serving/sampling/sampler.h"
#include "runtime/serving/sampling/stop_matcher.h"

namespace macrame::runtime::engine {

// Tokens to text, piece by piece; Push may give nothing while a character is incomplete.
struct TextStream {
  std::function<std::string(int32_t)> push;
  std::function<std::string()> finish;
  // The bytes of any token, for logprobs; may be unset. Not of what was pushed: no state changes.
  std::function<std::string(int32_t)> bytes_of{};
};

struct GenerationLimits {
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;      // 0: until the context is full
  uint32_t context_length = 0;  // prompt and answer together
  std::set<int32_t> end_tokens{};
  // No end token before so many tokens, and no stop string is looked for in their text; max_tokens
  // and a full context end it nevertheless.
  uint32_t min_tokens = 0;
};

class Generation {
 public:
  // `prompt`: its tokens, where `rules` have a repetition penalty.
  Generation(GenerationLimits limits, SamplingTraits sampling, std::vector<std::string> stops,
             TextStream text, const LogitRules& rules = {}, std::span<const int32_t> prompt = {});

  struct Outcome {
    int32_t token = 0;
    std::string text;  // may be sent now; never holds a stop string or end token
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  // set: the answer is over
    uint64_t text_begin = 0;      // bytes of the answer's text before this token's
    bool at_stop_string = false;  // that is what ended it
  };
  // Index of the next token within the whole sequence.
  uint64_t position() const { return uint64_t{limits_.prompt_tokens} + completion_tokens_; }
  // How the next token is chosen, and that behind `ahead` more. Any thread, while nothing else is
  // called.
  RowSampling SamplingOfNext(uint32_t ahead = 0) const;
  // The next token was chosen. Not to be called after the answer is over.
  Outcome Take(int32_t token);
  // `logits` of the last position so far: chooses it, too.
  absl::StatusOr<Outcome> Next(std::span<const float> logits);

  uint32_t completion_tokens() const { return completion_tokens_; }
  // Of all outcomes so far.
  uint64_t given_bytes() const { return given_bytes_; }

 private:
  // Text of the decoder's: what of it may be sent.
  std::string Pass(const std::string& text);
  std::string Flush();
  void Advance(int32_t token, Outcome& outcome);

  const GenerationLimits limits_;
  const SamplingTraits sampling_;
  StopMatcher stops_;
  TextStream text_;
  LogitsProcessor processor_;
  uint32_t completion_tokens_ = 0;  // with the end token
  uint64_t decoded_bytes_ = 0;
  uint64_t given_bytes_ = 0;
};

}  // namespace macrame::runtime::engine
