#include "agentd/services/metered_backend.h"

#include <utility>

#include "agentd/metrics/request_meter.h"

namespace macrame::agentd {
namespace {

// One request, told of in parts. One thread at a time.
class UseTeller {
 public:
  UseTeller(std::shared_ptr<const MeteredBackend::OnUsed> on_used, UsedRequest request)
      : on_used_(std::move(on_used)), request_(std::move(request)) {}

  void OnChunk(const RequestMeter& meter, MonotonicTime now) {
    if (now - request_.begun >= kUseToldEach) Tell(meter, now);
  }
  void Tell(const RequestMeter& meter, MonotonicTime now) {
    const TokensUsed all = {meter.computed_prompt_tokens(), meter.generated_tokens()};
    request_.tokens = {all.prompt - told_.prompt, all.generated - told_.generated};
    if (*on_used_ && request_.tokens.prompt + request_.tokens.generated > 0) (*on_used_)(request_);
    told_ = all;
    request_.begun = now;
  }

 private:
  const std::shared_ptr<const MeteredBackend::OnUsed> on_used_;
  UsedRequest request_;
  TokensUsed told_;
};

}  // namespace

MeteredBackend::MeteredBackend(InferenceBackend& behind, std::shared_ptr<MetricRegistry> registry,
                               std::shared_ptr<LatencyHistory> latencies,
                               const transport::Clock& clock, OnUsed on_used)
    : behind_(behind),
      registry_(std::move(registry)),
      latencies_(std::move(latencies)),
      clock_(clock),
      on_used_(std::make_shared<const OnUsed>(std::move(on_used))) {}

std::shared_ptr<GenerateCall> MeteredBackend::StartGenerate(v1::GenerateRequest request,
                                                            ChunkCallback on_chunk,
                                                            DoneCallback on_done) {
  // No model runs: its ids are a prompt's, and no tokens that were generated.
  if (request.has_tokenize()) {
    return behind_.StartGenerate(std::move(request), std::move(on_chunk), std::move(on_done));
  }
  // The callbacks never come two at once. They may come when this object is gone.
  const MonotonicTime begun = clock_.Now();
  auto meter = std::make_shared<RequestMeter>(registry_, latencies_, request.deployment(), begun);
  auto use = std::make_shared<UseTeller>(
      on_used_, UsedRequest{request.fairness_key(), request.deployment(), {}, begun});
  const auto take = [meter, use, clock = &clock_, on_chunk](const v1::GenerateChunk& chunk) {
    const MonotonicTime now = clock->Now();
    meter->OnChunk(chunk, now);
    use->OnChunk(*meter, now);
    on_chunk(chunk);
  };
  return behind_.StartGenerate(
      std::move(request), on_chunk.Behind(take, [meter] { meter->OnBeginAgain(); }),
      [meter, use, clock = &clock_, on_done = std::move(on_done)](const absl::Status& status) {
        const MonotonicTime now = clock->Now();
        meter->OnDone(status, now);
        use->Tell(*meter, now);
        on_done(status);
      });
}

}  // namespace macrame::agentd
