#include "runtime/serving/sampling/generation.h"

#include <utility>

#include "absl/strings/ascii.h"

namespace macrame::runtime::engine {
namespace {

using markup::MarkupEvent;

void AddContent(std::string text, Generation::Outcome& outcome) {
  if (text.empty()) return;
  outcome.text += text;
  outcome.events.push_back({MarkupEvent::Kind::kContent, 0, std::move(text), ""});
}

}  // namespace

Generation::Generation(GenerationLimits limits, SamplingTraits sampling,
                       std::vector<std::string> stops, TextStream text, AnswerShape shape,
                       const LogitRules& rules, std::span<const int32_t> prompt)
    : limits_(std::move(limits)),
      sampling_(sampling),
      stops_(std::move(stops)),
      text_(std::move(text)),
      processor_(rules, limits_.min_tokens, limits_.end_tokens, prompt),
      markup_(shape.markup),
      steering_(std::move(shape.steering)),
      structure_(shape.structure, markup_.is_content()),
      shown_tokens_(std::move(shape.shown_tokens)) {}

std::string Generation::TextOf(int32_t token) {
  if (shown_tokens_ != nullptr) {
    const auto shown = shown_tokens_->find(token);
    if (shown != shown_tokens_->end()) return text_.finish() + shown->second;
  }
  return text_.push(token);
}

void Generation::Pass(const std::vector<MarkupEvent>& events, Outcome& outcome) {
  const bool is_too_early_to_stop = completion_tokens_ <= limits_.min_tokens;
  for (const MarkupEvent& event : events) {
    if (stops_.stopped()) return;
    if (event.kind == MarkupEvent::Kind::kContent) {
      if (steering_.IsMuteAfter(markup_.calls_ended())) {
        // Blanks may stand between two calls.
        const bool is_blank = absl::StripAsciiWhitespace(event.text).empty();
        speaks_behind_calls_ = speaks_behind_calls_ || !is_blank;
        continue;
      }
      content_bytes_ += event.text.size();
      outcome.is_beyond_content = false;
      AddContent(is_too_early_to_stop ? event.text : stops_.Push(event.text), outcome);
      continue;
    }
    // A stop string does not reach over what is no content.
    AddContent(stops_.Finish(), outcome);
    outcome.is_beyond_content = true;
    outcome.events.push_back(event);
  }
}

void Generation::Flush(bool is_cut, Outcome& outcome) {
  Pass(markup_.Push(text_.finish()), outcome);
  Pass(markup_.Finish(is_cut), outcome);
  if (!stops_.stopped()) AddContent(stops_.Finish(), outcome);
}

RowSampling Generation::SamplingOfNext(uint32_t ahead) const {
  RowSampling row;
  row.traits = sampling_;
  row.position = position() + ahead;
  if (processor_.changes_next()) row.processor = &processor_;
  if (structure_.is_held()) row.structure = &structure_;
  return row;
}

absl::StatusOr<Generation::Outcome> Generation::Next(std::span<const float> logits) {
  const auto sampled = SampleRow(logits, SamplingOfNext());
  if (!sampled.ok()) return sampled.status();
  return Take(sampled->token);
}

Generation::Outcome Generation::Take(int32_t chosen) {
  const markup::Steering::Place place{markup_.is_reasoning(), markup_.is_before_content()};
  Outcome outcome;
  outcome.token = steering_.Choose(chosen, limits_.end_tokens.contains(chosen), place);
  outcome.text_begin = content_bytes_;
  outcome.is_content = markup_.is_content();
  Advance(outcome);
  outcome.is_content = outcome.is_content && markup_.is_content();
  outcome.at_stop_string = stops_.stopped();
  given_bytes_ += outcome.text.size();
  return outcome;
}

void Generation::Advance(Outcome& outcome) {
  ++completion_tokens_;
  processor_.Take(outcome.token);
  if (limits_.end_tokens.contains(outcome.token)) {
    Flush(/*is_cut=*/false, outcome);
    outcome.finish = v1::FINISH_REASON_STOP;
    return;
  }
  Pass(markup_.Push(TextOf(outcome.token)), outcome);
  if (markup_.calls_begun() > 0) structure_.NoteCall();
  outcome.failed =
      structure_.Take(outcome.token, structure_.is_of_forced_call() ? steering_.has_opened_call()
                                                                    : markup_.is_content());
  if (structure_.is_over()) Flush(/*is_cut=*/false, outcome);
  if (structure_.is_over() || stops_.stopped() || speaks_behind_calls_ ||
      steering_.EndsAfter(markup_.calls_ended())) {
    outcome.finish = v1::FINISH_REASON_STOP;
  } else if ((limits_.max_tokens > 0 && completion_tokens_ >= limits_.max_tokens) ||
             position() >= limits_.context_length) {
    Flush(/*is_cut=*/true, outcome);
    outcome.finish = stops_.stopped() ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH;
  }
}

}  // namespace macrame::runtime::engine
