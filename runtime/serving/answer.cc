#include "runtime/serving/answer.h"

#include <utility>

namespace macrame::runtime::engine {
namespace {

using std::chrono::steady_clock;

double Ms(steady_clock::duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

}  // namespace

Answer::Answer(GenerationJob job, TextStream text, OnChunk on_chunk,
               steady_clock::time_point started)
    : job_(std::move(job)),
      bytes_of_(text.bytes_of),
      generation_(job_.limits, job_.sampling, job_.stops, std::move(text), job_.shape, job_.rules,
                  job_.prompt),
      on_chunk_(std::move(on_chunk)),
      started_(started) {}

void Answer::Send() {
  if (!begun_) {
    chunk_.set_prompt_tokens(static_cast<uint32_t>(job_.prompt.size()));
    chunk_.set_cached_tokens(cached_tokens_);
    chunk_.set_cold_tokens(cold_tokens_);
  }
  begun_ = true;
  on_chunk_(chunk_);
  chunk_.Clear();
}

void Answer::Finish(v1::FinishReason reason) {
  over_ = true;
  const auto now = steady_clock::now();
  chunk_.set_finish_reason(reason);
  chunk_.set_stop_string(generation_.stop_string());
  chunk_.set_completion_tokens(generation_.completion_tokens());
  chunk_.set_reasoning_tokens(generation_.reasoning_tokens());
  chunk_.set_draft_tokens(drafts_.tokens);
  chunk_.set_accepted_tokens(accepted_.tokens);
  chunk_.set_model_draft_tokens(drafts_.of_model);
  chunk_.set_model_accepted_tokens(accepted_.of_model);
  chunk_.set_prefill_ms(Ms(first_token_.value_or(now) - started_));
  chunk_.set_decode_ms(Ms(now - first_token_.value_or(now)));
  decode_step_us_ = DecodeStepUs(chunk_);
  Send();
}

RowSampling Answer::SamplingOfNext(uint32_t ahead) const {
  RowSampling row = generation_.SamplingOfNext(ahead);
  row.top_logprobs = job_.top_logprobs;
  return row;
}

absl::StatusOr<std::optional<int32_t>> Answer::Take(const absl::StatusOr<SampledToken>& sampled) {
  if (!first_token_.has_value()) first_token_ = steady_clock::now();
  if (!sampled.ok()) {
    over_ = true;
    return sampled.status();
  }
  const Generation::Outcome outcome = generation_.Take(sampled->token);
  if (!outcome.failed.ok()) {
    over_ = true;
    return outcome.failed;
  }
  if (!job_.limits.end_tokens.contains(outcome.token)) {
    chunk_.add_token_ids(outcome.token);
    // A token that was put in the model's mouth was not chosen by it. Of reasoning nothing is told.
    if (sampled->logprob.has_value() && outcome.token == sampled->token && outcome.is_content) {
      Hold(outcome, *sampled->logprob);
    }
  }
  for (const markup::MarkupEvent& event : outcome.events) Add(event);
  ReleaseLogprobs(outcome);
  if (outcome.finish != v1::FINISH_REASON_UNSPECIFIED) {
    Finish(outcome.finish);
    return std::optional<int32_t>();
  }
  // Tokens whose text is not certain yet wait for the next piece.
  if (HasNews()) Send();
  return std::optional<int32_t>(outcome.token);
}

bool Answer::HasNews() const {
  return !chunk_.text().empty() || !chunk_.reasoning().empty() || chunk_.tool_calls_size() > 0 ||
         chunk_.logprobs_size() > 0;
}

// A chunk holds reasoning, text and calls in this order: what came otherwise begins the next one.
void Answer::Add(const markup::MarkupEvent& event) {
  using Kind = markup::MarkupEvent::Kind;
  const bool has_calls = chunk_.tool_calls_size() > 0;
  if (event.kind == Kind::kReasoning) {
    if (has_calls || !chunk_.text().empty()) Send();
    chunk_.mutable_reasoning()->append(event.text);
    return;
  }
  if (event.kind == Kind::kContent) {
    if (has_calls) Send();
    chunk_.mutable_text()->append(event.text);
    return;
  }
  const int last = chunk_.tool_calls_size() - 1;
  const bool goes_on =
      event.kind != Kind::kCallBegin && has_calls && chunk_.tool_calls(last).index() == event.call;
  v1::ToolCallDelta& call = goes_on ? *chunk_.mutable_tool_calls(last) : *chunk_.add_tool_calls();
  call.set_index(event.call);
  if (event.kind == Kind::kCallBegin) {
    call.set_id(event.id);
    call.set_name(event.text);
  }
  if (event.kind == Kind::kArguments) call.mutable_arguments()->append(event.text);
  if (event.kind == Kind::kCallEnd) call.set_ended(true);
}

void Answer::Hold(const Generation::Outcome& outcome, const ChosenLogprob& logprob) {
  held_.push_back({outcome.text_begin, {outcome.token, logprob.logprob}, logprob.top});
}

// A token of which some text may be sent is told; one that is a stop string's, or behind it, or a
// call's, never.
void Answer::ReleaseLogprobs(const Generation::Outcome& outcome) {
  const bool is_over = outcome.finish != v1::FINISH_REASON_UNSPECIFIED;
  while (!held_.empty()) {
    const HeldLogprob& first = held_.front();
    const bool is_told = first.text_begin < generation_.given_bytes();
    if (!is_told && outcome.is_beyond_content) {
      held_.pop_front();
      continue;
    }
    const bool is_certain =
        is_told || (is_over && !outcome.at_stop_string) || held_.size() > kHeldLogprobsMax;
    if (!is_certain) return;
    v1::TokenLogprob& out = *chunk_.add_logprobs();
    AddTo(out, first.token);
    for (const TokenLogprob& other : first.top) AddTo(*out.add_top(), other);
    held_.pop_front();
  }
}

void Answer::AddTo(v1::TokenLogprob& out, const TokenLogprob& token) const {
  out.set_token_id(token.token);
  out.set_logprob(token.logprob);
  if (bytes_of_) out.set_text(bytes_of_(token.token));
}

absl::StatusOr<std::optional<int32_t>> Answer::Next(std::span<const float> logits) {
  return Take(SampleRow(logits, SamplingOfNext(0)));
}

void Answer::Cancel() {
  if (!over_) Finish(v1::FINISH_REASON_CANCELLED);
}

double DecodeStepUs(const v1::GenerateChunk& chunk) {
  if (chunk.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return 0;
  if (chunk.completion_tokens() < kTimedTokensMin) return 0;
  return chunk.decode_ms() * 1e3 / (chunk.completion_tokens() - 1);
}

}  // namespace macrame::runtime::engine
