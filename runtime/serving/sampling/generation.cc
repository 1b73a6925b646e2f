#include "runtime/serving/sampling/generation.h"

#include <utility>

namespace macrame::runtime::engine {

Generation::Generation(GenerationLimits limits, SamplingTraits sampling,
                       std::vector<std::string> stops, TextStream text)
    : limits_(std::move(limits)),
      sampling_(sampling),
      stops_(std::move(stops)),
      text_(std::move(text)) {}

std::string Generation::Flush() {
  std::string out = stops_.Push(text_.finish());
  return out + stops_.Finish();
}

absl::StatusOr<Generation::Outcome> Generation::Next(std::span<const float> logits) {
  const auto token = SampleToken(logits, sampling_, position());
  if (!token.ok()) return token.status();
  return Take(*token);
}

Generation::Outcome Generation::Take(int32_t token) {
  ++completion_tokens_;
  Outcome outcome;
  outcome.token = token;
  if (limits_.end_tokens.contains(token)) {
    outcome.text = Flush();
    outcome.finish = v1::FINISH_REASON_STOP;
    return outcome;
  }
  outcome.text = stops_.Push(text_.push(token));
  if (stops_.stopped()) {
    outcome.finish = v1::FINISH_REASON_STOP;
  } else if ((limits_.max_tokens > 0 && completion_tokens_ >= limits_.max_tokens) ||
             position() >= limits_.context_length) {
    outcome.text += Flush();
    outcome.finish = stops_.stopped() ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
  }
  return outcome;
}

}  // namespace macrame::runtime::engine
