#pragma once

// One answer in the making: takes the logits of each step, gives the next token and the text that
// may be sent, and says when the answer is over. Pure but for the decoder that it is given.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "macrame/v1/rank.pb.h"
#include "runtime/serving/markup/answer_markup.h"
#include "runtime/serving/markup/steering.h"
#include "runtime/serving/sampling/logits_processor.h"
#include "runtime/serving/sampling/row_sampling.h"
#include "runtime/serving/sampling/sampler.h"
#include "runtime/serving/sampling/stop_matcher.h"
#include "runtime/serving/sampling/structured_content.h"

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

// What of the answer is content, reasoning and calls, what it is made to begin with, and what its
// content is held to.
struct AnswerShape {
  markup::MarkupTraits markup{};
  markup::SteeringPlan steering{};
  StructurePlan structure{};
  // Tokens that the decoder leaves out and that the markup is read by; may be null.
  std::shared_ptr<const std::map<int32_t, std::string>> shown_tokens{};
};

class Generation {
 public:
  // `prompt`: its tokens, where `rules` have a repetition penalty.
  Generation(GenerationLimits limits, SamplingTraits sampling, std::vector<std::string> stops,
             TextStream text, AnswerShape shape = {}, const LogitRules& rules = {},
             std::span<const int32_t> prompt = {});

  struct Outcome {
    int32_t token = 0;
    // Content that may be sent now; never holds a stop string or end token. Stop strings count in
    // content alone, not in reasoning or a call's arguments.
    std::string text;
    // The same among reasoning and calls, in order.
    std::vector<markup::MarkupEvent> events{};
    v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  // set: the answer is over
    uint64_t text_begin = 0;      // bytes of content before this token's
    bool at_stop_string = false;  // that is what ended it
    // The last event is none of content: no stop string reaches back over it.
    bool is_beyond_content = false;
    bool is_content = false;  // content before this token, and behind it
    absl::Status failed{};    // the structure can't be followed any further: the answer is over
  };
  // Index of the next token within the whole sequence.
  uint64_t position() const { return uint64_t{limits_.prompt_tokens} + completion_tokens_; }
  // How the next token is chosen, and that behind `ahead` more. Any thread, while nothing else is
  // called.
  RowSampling SamplingOfNext(uint32_t ahead = 0) const;
  // Whether a choice among the model's own logits has to be made anew, among those that the
  // structure leaves: reasoning ended with a draft before.
  bool MustChooseAnew(const SampledToken& sampled) const {
    return structure_.is_held() != sampled.is_held;
  }
  bool has_structure() const { return structure_.has_structure(); }
  // How many of the tokens may follow, as far as is known.
  size_t Admitted(std::span<const int32_t> tokens) const { return structure_.Admitted(tokens); }
  // The next token was chosen; the outcome's may be another one, where the shape has a say. Not to
  // be called after the answer is over.
  Outcome Take(int32_t chosen);
  // `logits` of the last position so far: chooses it, too.
  absl::StatusOr<Outcome> Next(std::span<const float> logits);

  uint32_t completion_tokens() const { return completion_tokens_; }
  // The one that ended the answer; empty: none did.
  const std::string& stop_string() const { return stops_.found(); }
  // Of all outcomes' text so far.
  uint64_t given_bytes() const { return given_bytes_; }
  uint32_t reasoning_tokens() const { return steering_.reasoning_tokens(); }

 private:
  std::string TextOf(int32_t token);
  // Through the stop strings.
  void Pass(const std::vector<markup::MarkupEvent>& events, Outcome& outcome);
  // What is held back, at the end.
  void Flush(bool is_cut, Outcome& outcome);
  void Advance(Outcome& outcome);

  const GenerationLimits limits_;
  const SamplingTraits sampling_;
  StopMatcher stops_;
  TextStream text_;
  LogitsProcessor processor_;
  markup::AnswerMarkup markup_;
  markup::Steering steering_;
  StructuredContent structure_;
  const std::shared_ptr<const std::map<int32_t, std::string>> shown_tokens_;
  uint32_t completion_tokens_ = 0;    // with the end token
  bool speaks_behind_calls_ = false;  // where nothing is to be said
  uint64_t content_bytes_ = 0;        // that reached the stop strings
  uint64_t given_bytes_ = 0;
};

}  // namespace macrame::runtime::engine
