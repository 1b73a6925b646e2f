#include "agentd/metrics/request_meter.h"

#include <algorithm>
#include <utility>

#include "agentd/metrics/metric_names.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace {

namespace m = metrics;

double Seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::duration<double>>(duration).count();
}

bool HasText(const v1::GenerateChunk& chunk) {
  return !chunk.text().empty() || !chunk.reasoning().empty() || chunk.tool_calls_size() > 0;
}

const char* FinishName(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "abort";
  }
}

}  // namespace

RequestMeter::RequestMeter(std::shared_ptr<MetricRegistry> registry,
                           std::shared_ptr<LatencyHistory> latencies, std::string model,
                           MonotonicTime now)
    : registry_(std::move(registry)),
      latencies_(std::move(latencies)),
      model_({std::move(model)}),
      begun_(now),
      last_token_(now) {}

void RequestMeter::OnBeginAgain() {
  tokens_ = generated_tokens();
  repeated_ = tokens_;
  last_.Clear();
}

void RequestMeter::TakeTokens(uint64_t tokens, MonotonicTime now) {
  if (repeated_ > 0) {
    const uint64_t again = std::min(tokens, repeated_);
    repeated_ -= again;
    tokens -= again;
    if (tokens == 0) {
      last_token_ = now;
      return;
    }
    // Those that are new came together with some that were counted.
    last_token_ += (now - last_token_) * again / (again + tokens);
  }
  if (tokens_ == 0) {
    registry_->Observe(m::kVllmFirstToken, model_, Seconds(now - begun_));
    latencies_->Observe(model_[0], Latency::kFirstToken, Seconds(now - begun_), 1, now);
    --tokens;
    ++tokens_;
    last_token_ = now;
  }
  if (tokens == 0) return;
  // Tokens that come together took the same time each.
  const double each = Seconds(now - last_token_) / static_cast<double>(tokens);
  registry_->Observe(m::kVllmInterToken, model_, each, tokens);
  registry_->Observe(m::kVllmPerOutputToken, model_, each, tokens);
  latencies_->Observe(model_[0], Latency::kInterToken, each, tokens, now);
  tokens_ += tokens;
  last_token_ = now;
}

void RequestMeter::OnChunk(const v1::GenerateChunk& chunk, MonotonicTime now) {
  if (chunk.has_progress()) return;
  if (chunk.prompt_tokens() > 0 && !std::exchange(has_prompt_, true)) {
    prompt_tokens_ = chunk.prompt_tokens();
    computed_prompt_tokens_ =
        prompt_tokens_ - std::min<uint64_t>(prompt_tokens_, chunk.cached_tokens());
    const auto prompt = static_cast<double>(prompt_tokens_);
    registry_->Count(m::kVllmPromptTokens, model_, prompt);
    registry_->Count(m::kVllmPrefixQueries, model_, prompt);
    registry_->Count(m::kVllmPrefixHits, model_, chunk.cached_tokens());
    registry_->Observe(m::kVllmRequestPromptTokens, model_, prompt);
  }
  uint64_t tokens = static_cast<uint64_t>(chunk.token_ids_size());
  // A part of a character was held back, or an agent of another version sent no ids.
  if (tokens == 0 && HasText(chunk)) tokens = 1;
  if (tokens > 0) TakeTokens(tokens, now);
  if (chunk.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
  last_.set_finish_reason(chunk.finish_reason());
  last_.set_completion_tokens(chunk.completion_tokens());
  last_.set_prefill_ms(chunk.prefill_ms());
  last_.set_decode_ms(chunk.decode_ms());
}

uint64_t RequestMeter::generated_tokens() const {
  return std::max<uint64_t>(tokens_, last_.completion_tokens());
}

void RequestMeter::OnDone(const absl::Status& status, MonotonicTime now) {
  const bool began = has_prompt_ || tokens_ > 0;
  if (!status.ok() && !absl::IsCancelled(status)) {
    registry_->Count(m::kRequestFailures, {ReasonOf(status).code()});
  }
  if (!began) return;
  const bool is_whole = status.ok() && last_.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  const uint64_t generated = is_whole ? last_.completion_tokens() : tokens_;
  registry_->Count(m::kVllmGenerationTokens, model_, static_cast<double>(generated));
  registry_->Observe(m::kVllmEndToEnd, model_, Seconds(now - begun_));
  if (status.ok() || absl::IsCancelled(status)) {
    const char* finish = status.ok() ? FinishName(last_.finish_reason()) : "abort";
    registry_->Count(m::kVllmRequestSuccess, {model_[0], finish});
  }
  if (!is_whole || generated == 0) return;  // an embedding has no tokens
  registry_->Observe(m::kVllmRequestGenerationTokens, model_, static_cast<double>(generated));
  registry_->Observe(m::kVllmPrefillTime, model_, last_.prefill_ms() / 1000);
  registry_->Observe(m::kVllmDecodeTime, model_, last_.decode_ms() / 1000);
}

}  // namespace macrame::agentd
