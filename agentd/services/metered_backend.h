#pragma once

// An InferenceBackend that counts what passes through it (metrics/request_meter.h). Any thread, as
// the one behind it, which outlives it.

#include <memory>
#include <vector>

#include "agentd/gateway/inference_backend.h"
#include "agentd/metrics/metric_registry.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

class MeteredBackend : public InferenceBackend {
 public:
  // `clock` outlives all calls.
  MeteredBackend(InferenceBackend& behind, std::shared_ptr<MetricRegistry> registry,
                 const transport::Clock& clock);

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override { return behind_.ListModels(); }
  std::map<std::string, std::string> Aliases() override { return behind_.Aliases(); }

 private:
  InferenceBackend& behind_;
  const std::shared_ptr<MetricRegistry> registry_;
  const transport::Clock& clock_;
};

}  // namespace macrame::agentd
