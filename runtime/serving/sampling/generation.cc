#include "runtime/serving/sampling/generation.h"

#include <utility>

namespace macrame::runtime::engine {

Generation::Generation(GenerationLimits limits, SamplingTraits sampling,
                       std::vector<std::string> stops, TextStream text, const LogitRules& rules,
                       std::span<const int32_t> prompt)
    : limits_(std::move(limits)),
      sampling_(sampling),
      stops_(std::move(stops)),
      text_(std::move(text)),
      processor_(rules, limits_.min_tokens, limits_.end_tokens, prompt) {}

std::string Generation::Pass(const std::string& text) {
  decoded_bytes_ += text.size();
  return completion_tokens_ <= limits_.min_tokens ? text : stops_.Push(text);
}

std::string Generation::Flush() {
  std::string out = Pass(text_.finish());
  return out + stops_.Finish();
}

RowSampling Generation::SamplingOfNext(uint32_t ahead) const {
  RowSampling row;
  row.traits = sampling_;
  row.position = position() + ahead;
  if (processor_.changes_next()) row.processor = &processor_;
  return row;
}

absl::StatusOr<Generation::Outcome> Generation::Next(std::span<const float> logits) {
  const auto sampled = SampleRow(logits, SamplingOfNext());
  if (!sampled.ok()) return sampled.status();
  return Take(sampled->token);
}

Generation::Outcome Generation::Take(int32_t token) {
  Outcome outcome;
  outcome.token = token;
  outcome.text_begin = decoded_bytes_;
  Advance(token, outcome);
  outcome.at_stop_string = stops_.stopped();
  given_bytes_ += outcome.text.size();
  return outcome;
}

void Generation::Advance(int32_t token, Outcome& outcome) {
  ++completion_tokens_;
  processor_.Take(token);
  if (limits_.end_tokens.contains(token)) {
    outcome.text = Flush();
    outcome.finish = v1::FINISH_REASON_STOP;
    return;
  }
  outcome.text = Pass(text_.push(token));
  if (stops_.stopped()) {
    outcome.finish = v1::FINISH_REASON_STOP;
  } else if ((limits_.max_tokens > 0 && completion_tokens_ >= limits_.max_tokens) ||
             position() >= limits_.context_length) {
    outcome.text += Flush();
    outcome.finish = stops_.stopped() ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
  }
}

}  // namespace macrame::runtime::engine
