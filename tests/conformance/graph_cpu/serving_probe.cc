// Answers of a model through rankd's serving path, by the graph of a GPU on MLX's CPU device.
//
//   serving_probe <RUNS.json >ANSWERS.json
//
// RUNS: {"folder": MODEL, "draft": folder of its draft model or "", "cache": an empty folder,
// "kv_bits": of the KV cache, "context": positions of a request, "sequences": how many the cache
// has memory for, "runs":
// [{"blocks": KV blocks that may be used, "chunk": most tokens of a prompt in a step, "drafts":
// most tokens of a draft, "draft_model": whether it drafts, "disk": unset, or {"found": blocks that
// are there, "left": that are there afterwards}, "requests": [{"prompt": [ids], "max_tokens": N,
// "arrival": step}]}]}. Requests come in the order of their arrival; when nothing is left to do,
// the next one comes at once. Each run has a cache of its own; the disk stays.
//
// ANSWERS: {"steady_rows": tokens of a step whose bits are those of single ones, "runs": for each
// {"answers": [{"tokens": [ids], "cached_tokens": N, "cold_tokens": of these, N}], "steps": N,
// "running_most": N, "preemptions": N, "drafted": N, "accepted": N}}. Greedy; exit 1 with a
// sentence where anything fails.

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "proto/serving_limits.h"
#include "runtime/process/cold_boot.h"
#include "runtime/process/rank_boot.h"
#include "runtime/serving/mailbox.h"
#include "runtime/serving/serving_loop.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

class Heard : public RequestListener {
 public:
  void OnChunk(const v1::GenerateChunk& chunk) override {
    tokens.insert(tokens.end(), chunk.token_ids().begin(), chunk.token_ids().end());
    cached = std::max(cached, chunk.cached_tokens());
    cold = std::max(cold, chunk.cold_tokens());
  }
  void OnDone(const absl::Status& status) override { end = status; }
  bool IsCancelled() const override { return false; }

  std::vector<int32_t> tokens;
  uint32_t cached = 0;
  uint32_t cold = 0;
  absl::Status end = absl::UnknownError("it has not ended");
};

void Expect(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

constexpr auto kBlocksLimit = std::chrono::seconds(20);

v1::LaunchSpec SpecOf(const json& call) {
  v1::LaunchSpec spec;
  spec.set_world_size(1);
  spec.set_tp(1);
  spec.set_pp(1);
  spec.set_context_length(call.at("context"));
  spec.set_concurrent_sequences(call.at("sequences"));
  spec.set_kv_bits(call.at("kv_bits"));
  spec.mutable_model()->set_path(call.at("folder").get<std::string>());
  spec.set_kv_cache_folder(call.at("cache").get<std::string>());
  spec.set_kv_cache_disk_bytes(uint64_t{64} << 20);
  const auto draft = call.at("draft").get<std::string>();
  if (!draft.empty()) {
    spec.mutable_draft_model()->set_path(draft);
    spec.set_draft_model_unpriced(true);
  }
  return spec;
}

std::unique_ptr<BootedRank> Boot(const v1::LaunchSpec& spec, Watchdog& watchdog) {
  BootOptions options;
  options.needs_text = false;
  options.loads_draft_model = true;
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

// They are found and written beside steps.
void AwaitBlocks(const ColdWorker& worker, uint64_t blocks) {
  const auto limit = std::chrono::steady_clock::now() + kBlocksLimit;
  while (worker.counts().blocks < blocks) {
    if (std::chrono::steady_clock::now() > limit) {
      throw std::runtime_error("only " + std::to_string(worker.counts().blocks) + " of " +
                               std::to_string(blocks) + " blocks are on disk " +
                               worker.off_reason());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

json Serve(const v1::LaunchSpec& spec, BootedRank& rank, const json& run) {
  ForwardEngine& engine = *rank.engine;
  BatchTraits traits = ServingTraitsOf(spec, rank);
  traits.draft_tokens_max = run.at("drafts");
  traits.draft_rows_max = 0;
  traits.draft_model = {};
  traits.blocks_total = std::min<uint32_t>(traits.blocks_total, run.at("blocks"));
  traits.chunk_tokens_max = run.at("chunk");
  traits.chunk_tokens_min = std::min(traits.chunk_tokens_min, traits.chunk_tokens_max);
  ServingCounts last;
  uint32_t running_most = 0;
  ServingLoop::Hooks hooks;
  if (run.at("draft_model")) {
    traits.draft_model = rank.drafter->traits();
    hooks.drafter = rank.drafter.get();
    hooks.on_drafter_failed = [](const absl::Status& why) { Expect(why); };
  }
  const bool has_disk = run.contains("disk");
  if (has_disk) {
    const auto told = std::make_shared<Mailbox<ColdEvent>>();
    auto worker =
        StartColdWorker(spec, rank, [told](ColdEvent event) { told->Put(std::move(event)); });
    traits.cold = ColdTraitsOf(1, worker->layout().content_bytes);
    // Before anybody asks.
    AwaitBlocks(*worker, run.at("disk").at("found"));
    engine.SetColdWorker(std::move(worker));
    hooks.take_cold_events = [told] {
      std::vector<ColdEvent> events;
      while (auto event = told->TakeWithin(absl::ZeroDuration())) {
        events.push_back(*std::move(event));
      }
      return events;
    };
    hooks.on_cold_off = [](const std::string& why) { Expect(absl::InternalError(why)); };
  }
  uint32_t drafted = 0, accepted = 0;
  hooks.on_drafted = [&](uint32_t tokens, uint32_t right) {
    drafted += tokens;
    accepted += right;
  };
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
  if (has_disk) AwaitBlocks(*engine.cold_worker(), run.at("disk").at("left"));
  engine.SetColdWorker(nullptr);
  json answers = json::array();
  for (const auto& one : heard) {
    Expect(one->end);
    answers.push_back(
        {{"tokens", one->tokens}, {"cached_tokens", one->cached}, {"cold_tokens", one->cold}});
  }
  return {{"answers", answers},           {"steps", steps},
          {"running_most", running_most}, {"drafted", drafted},
          {"accepted", accepted},         {"preemptions", last.preempted.preemptions}};
}

int Run() {
  const json call = json::parse(std::cin);
  Watchdog watchdog([](const std::string&, std::chrono::milliseconds) {});
  const v1::LaunchSpec spec = SpecOf(call);
  const auto rank = Boot(spec, watchdog);
  json results = json::array();
  for (const json& run : call.at("runs")) {
    results.push_back(Serve(spec, *rank, run));
    // What ended last is told with the next step: slots of a run are unknown to the next one.
    ForwardStep closing;
    for (uint32_t slot = 0; slot < kAnsweredAtOnceMax; ++slot) closing.closed_slots.push_back(slot);
    Expect(rank->engine->Run(closing).status());
  }
  const json told{{"steady_rows", rank->steady_rows}, {"runs", results}};
  std::printf("%s\n", told.dump().c_str());
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
