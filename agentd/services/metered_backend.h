#pragma once

// An InferenceBackend that counts what passes through it (metrics/request_meter.h). Any thread, as
// the one behind it, which outlives it.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agentd/cores/energy_ledger.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/metrics/latency_history.h"
#include "agentd/metrics/metric_registry.h"
#include "transport/dispatcher.h"

namespace macrame::agentd {

// What a request took so far, told so often while it goes on: tokens cost more while few answers
// share a step.
inline constexpr Duration kUseToldEach = std::chrono::seconds(5);

// What a request took from `begun` on.
struct UsedRequest {
  std::string fairness_key;  // as it was asked for (gateway/tenant.h)
  std::string deployment;
  TokensUsed tokens;
  MonotonicTime begun;
};

class MeteredBackend : public InferenceBackend {
 public:
  using OnUsed = std::function<void(UsedRequest)>;
  // `clock` outlives all calls. `on_used` is told of what requests take, on their callbacks'
  // threads; it may be empty.
  MeteredBackend(InferenceBackend& behind, std::shared_ptr<MetricRegistry> registry,
                 std::shared_ptr<LatencyHistory> latencies, const transport::Clock& clock,
                 OnUsed on_used = nullptr);

  std::shared_ptr<GenerateCall> StartGenerate(v1::GenerateRequest request, ChunkCallback on_chunk,
                                              DoneCallback on_done) override;
  std::vector<ServedModel> ListModels() override { return behind_.ListModels(); }
  std::map<std::string, std::string> Aliases() override { return behind_.Aliases(); }
  bool IsLooking() override { return behind_.IsLooking(); }

 private:
  InferenceBackend& behind_;
  const std::shared_ptr<MetricRegistry> registry_;
  const std::shared_ptr<LatencyHistory> latencies_;
  const transport::Clock& clock_;
  const std::shared_ptr<const OnUsed> on_used_;
};

}  // namespace macrame::agentd
