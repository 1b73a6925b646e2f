#include "agentd/services/metered_backend.h"

#include <utility>

#include "agentd/metrics/request_meter.h"

namespace macrame::agentd {

MeteredBackend::MeteredBackend(InferenceBackend& behind, std::shared_ptr<MetricRegistry> registry,
                               const transport::Clock& clock)
    : behind_(behind), registry_(std::move(registry)), clock_(clock) {}

std::shared_ptr<GenerateCall> MeteredBackend::StartGenerate(v1::GenerateRequest request,
                                                            ChunkCallback on_chunk,
                                                            DoneCallback on_done) {
  // No model runs: its ids are a prompt's, and no tokens that were generated.
  if (request.has_tokenize()) {
    return behind_.StartGenerate(std::move(request), std::move(on_chunk), std::move(on_done));
  }
  // The callbacks never come two at once. They may come when this object is gone.
  auto meter = std::make_shared<RequestMeter>(registry_, request.deployment(), clock_.Now());
  return behind_.StartGenerate(
      std::move(request),
      [meter, clock = &clock_, on_chunk = std::move(on_chunk)](const v1::GenerateChunk& chunk) {
        meter->OnChunk(chunk, clock->Now());
        on_chunk(chunk);
      },
      [meter, clock = &clock_, on_done = std::move(on_done)](const absl::Status& status) {
        meter->OnDone(status, clock->Now());
        on_done(status);
      });
}

}  // namespace macrame::agentd
