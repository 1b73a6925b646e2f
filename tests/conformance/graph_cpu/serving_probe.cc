// Answers of a model through rankd's serving path, by the graph of a GPU on MLX's CPU device.
//
//   serving_probe <RUNS.json >ANSWERS.json
//
// RUNS: {"folder": MODEL, "context": positions of a request, "sequences": how many the cache has
// memory for, "runs": [{"blocks": KV blocks that may be used, "chunk": most tokens of a prompt in a
// step, "requests": [{"prompt": [ids], "max_tokens": N, "arrival": step}]}]}. Requests come in the
// order of their arrival; when nothing is left to do, the next one comes at once. Each run has a
// cache of its own.
//
// ANSWERS: an array, for each run {"answers": [{"tokens": [ids], "cached_tokens": N}], "steps": N,
// "running_most": N, "preemptions": N}. Greedy; exit 1 with a sentence where anything fails.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "proto/serving_limits.h"
#include "runtime/process/rank_boot.h"
#include "runtime/serving/serving_loop.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

class Heard : public RequestListener {
 public:
  void OnChunk(const v1::GenerateChunk& chunk) override {
    tokens.insert(tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    cached = std::max(cached, chunk.cached_tokens());
  }
  void OnDone(const absl::Status& status) override { end = status; }
  bool IsCancelled() const override { return false; }

  std::vector<int32_t> tokens;
  uint32_t cached = 0;
  absl::Status end = absl::UnknownError("it has not ended");
};

void Expect(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

std::unique_ptr<BootedRank> Boot(const json& call, Watchdog& watchdog) {
  v1::LaunchSpec spec;
  spec.set_world_size(1);
  spec.set_tp(1);
  spec.set_pp(1);
  spec.set_context_length(call.at("context"));
  spec.set_concurrent_sequences(call.at("sequences"));
  spec.set_kv_bits(16);
  spec.mutable_model()->set_path(call.at("folder").get<std::string>());
  BootOptions options;
  options.needs_text = false;
  options.types.device = EngineDevice::kMlxCpu;
  auto rank = BootRank(spec, watchdog, options);
  Expect(rank.status());
  return *std::move(rank);
}

GenerationJob JobOf(const json& request, uint32_t context) {
  GenerationJob job;
  job.prompt = request.at("prompt").get<std::vector<int32_t>>();
  job.limits.prompt_tokens = static_cast<uint32_t>(job.prompt.size());
  job.limits.max_tokens = request.at("max_tokens");
  job.limits.context_length = context;
  job.sampling.temperature = 0.0;
  return job;
}

json Serve(ForwardEngine& engine, const json& run) {
  BatchTraits traits = TraitsOf(engine.limits());
  traits.blocks_total = std::min<uint32_t>(traits.blocks_total, run.at("blocks"));
  traits.chunk_tokens_max = run.at("chunk");
  traits.chunk_tokens_min = std::min(traits.chunk_tokens_min, traits.chunk_tokens_max);
  if (engine.limits().state_snapshots > 0) {
    traits.state_snapshots = static_cast<uint32_t>(engine.limits().state_snapshots);
  }
  ServingCounts last;
  uint32_t running_most = 0;
  ServingLoop::Hooks hooks;
  hooks.new_text = [] {
    return TextStream{[](int32_t) { return std::string("x"); }, [] { return std::string(); }};
  };
  hooks.on_counts = [&](const ServingCounts& counts) {
    running_most = std::max(running_most, counts.running);
    last = counts;
  };
  ServingLoop serving(engine, traits, hooks);
  std::vector<std::shared_ptr<Heard>> heard;
  const json& requests = run.at("requests");
  int steps = 0;
  while (heard.size() < requests.size() || !serving.idle()) {
    while (heard.size() < requests.size() &&
           (serving.idle() || requests[heard.size()].at("arrival") <= steps)) {
      heard.push_back(std::make_shared<Heard>());
      serving.Add(JobOf(requests[heard.size() - 1], traits.context_length), heard.back());
    }
    Expect(serving.RunStep().status());
    ++steps;
  }
  Expect(serving.FinishSteps());
  json answers = json::array();
  for (const auto& one : heard) {
    Expect(one->end);
    answers.push_back({{"tokens", one->tokens}, {"cached_tokens", one->cached}});
  }
  return {{"answers", answers},
          {"steps", steps},
          {"running_most", running_most},
          {"preemptions", last.preempted.preemptions}};
}

int Run() {
  const json call = json::parse(std::cin);
  Watchdog watchdog([](const std::string&, std::chrono::milliseconds) {});
  const auto rank = Boot(call, watchdog);
  json results = json::array();
  for (const json& run : call.at("runs")) {
    results.push_back(Serve(*rank->engine, run));
    // What ended last is told with the next step: slots of a run are unknown to the next one.
    ForwardStep closing;
    for (uint32_t slot = 0; slot < kAnsweredAtOnceMax; ++slot) closing.closed_slots.push_back(slot);
    Expect(rank->engine->Run(closing).status());
  }
  std::printf("%s\n", results.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main() {
  try {
    return macrame::runtime::engine::Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "serving_probe: %s\n", error.what());
    return 1;
  }
}
