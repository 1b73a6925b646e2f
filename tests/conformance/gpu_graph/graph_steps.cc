#include "tests/conformance/gpu_graph/graph_steps.h"

#include <algorithm>
#include <ctime>

#include "proto/check.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/load_layer_stack.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/model/weights/weight_loader.h"

namespace macrame::gpu_graph {

namespace mx = mlx::core;

using namespace runtime::engine;  // NOLINT: the rank's own values

namespace {

// How many steps of a shape come before the one that is counted, and in how many the least time is
// looked for: the first builds what later ones find.
constexpr int kStepsBefore = 2;
constexpr int kStepsTimed = 2;
constexpr int kPromptPart = 2048;

ModelConfig ConfigIn(const std::string& folder) {
  auto config = LoadModelConfig(folder);
  MACRAME_CHECK(config.ok()) << config.status().ToString();
  return *std::move(config);
}

ShardPlace PlaceOf(const ModelConfig& config, const std::string& place) {
  ShardPlace of{0, config.layer_count};
  if (place == "alone" || place == "narrow") return of;
  of = {0, config.layer_count, 2, 0, 0, 1, 2};
  of.whole_experts = place == "experts";
  return of;
}

double ProcessorMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

int LongestOf(const GraphModel& model) {
  const int most = kStepsBefore + kStepsTimed + 2;
  return std::max(model.context + most, model.chunk_at + most * model.chunk);
}

}  // namespace

std::vector<std::string> StepShapes() { return {"decode-1", "decode-8", "chunk", "mixed"}; }

CountedRank::CountedRank(const GraphModel& model, const std::string& folder,
                         const std::string& place)
    : model_(model), blocks_each_(BlocksFor(LongestOf(model)) + 1), config_(ConfigIn(folder)) {
  auto files = WeightFiles::Open(folder);
  MACRAME_CHECK(files.ok()) << files.status().ToString();
  const ShardPlace shard = PlaceOf(config_, place);
  const absl::Status good = CheckWeights(config_, shard, **files);
  MACRAME_CHECK(good.ok()) << good.ToString();
  WeightLoader loader(*files, config_, shard, EngineDevice::kGpu, [](uint64_t) {});
  LayerStackOptions options;
  options.blocks_total = blocks_each_ * kStreams;
  options.context_length = blocks_each_ * static_cast<int>(kBlockTokens);
  options.sequences_max = kStreams;
  options.state_snapshots = 2;
  if (place == "narrow") options.kv_bits = 8;
  stack_ = LoadLayerStack(config_, shard, loader, sums_, options);
}

Segment CountedRank::Take(Sequence& sequence, int tokens, bool gives_logits) {
  Segment segment;
  segment.slot = sequence.slot;
  segment.begin = static_cast<uint32_t>(sequence.held);
  segment.logit_rows = gives_logits ? LogitRows::kLast : LogitRows::kNone;
  for (int i = 0; i < tokens; ++i) {
    segment.tokens.push_back((sequence.held + i) % config_.vocab_size);
  }
  const int first = static_cast<int>(sequence.slot) * blocks_each_;
  for (int i = BlocksFor(sequence.held); i < BlocksFor(sequence.held + tokens); ++i) {
    segment.new_blocks.push_back(first + i);
  }
  sequence.held += tokens;
  return segment;
}

StepCount CountedRank::RunStep(const ForwardStep& step) {
  std::vector<int32_t> tokens, rows;
  for (const Segment& segment : step.segments) {
    tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
    if (segment.logit_rows == LogitRows::kLast) {
      rows.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
  }
  ResetWork();
  const double begun = ProcessorMs();
  const absl::Status good = stack_->Begin(step);
  MACRAME_CHECK(good.ok()) << good.ToString();
  const mx::array hidden = stack_->Run(stack_->Embed(tokens), step);
  std::vector<mx::array> outputs{rows.empty() ? hidden : stack_->Logits(hidden, rows)};
  std::vector<mx::array> state;
  stack_->AppendState(state);
  outputs.insert(outputs.end(), state.begin(), state.end());
  StepCount count;
  count.build_ms = ProcessorMs() - begun;
  count.early_evaluations = WorkSoFar().evaluations;
  mx::eval(outputs);
  count.work = WorkSoFar();
  // Keys and values have a dimension of all their positions; states of recurrent layers have none.
  const int positions = blocks_each_ * kStreams * static_cast<int>(kBlockTokens);
  std::erase_if(state, [&](const mx::array& array) {
    return std::none_of(array.shape().begin(), array.shape().end(),
                        [&](int size) { return size >= positions; });
  });
  // Else what is copied of them would count as nothing.
  MACRAME_CHECK(!model_.is_large || !state.empty())
      << model_.name << ": AppendState lists no array of " << positions << " positions";
  WatchState(state);
  return count;
}

void CountedRank::Restart(int sequences, int context) {
  ForwardStep closing;
  for (const Sequence& sequence : sequences_) closing.closed_slots.push_back(sequence.slot);
  MACRAME_CHECK(stack_->Begin(closing).ok()) << "open sequences are not closed";
  sequences_.clear();
  for (int i = 0; i < sequences; ++i) {
    Sequence sequence{static_cast<uint32_t>(i)};
    while (sequence.held < context) {
      RunStep({{}, {Take(sequence, std::min(kPromptPart, context - sequence.held), false)}});
    }
    sequences_.push_back(sequence);
  }
}

// `streams` sequences that decode, and, with a chunk, one more that is at its prompt.
StepCount CountedRank::Repeated(int streams, int chunk) {
  StepCount least;
  for (int i = 0; i < kStepsBefore + kStepsTimed; ++i) {
    ForwardStep step;
    for (int stream = 0; stream < streams; ++stream) {
      step.segments.push_back(Take(sequences_[static_cast<size_t>(stream)], 1, true));
    }
    if (chunk > 0) step.segments.push_back(Take(sequences_.back(), chunk, true));
    StepCount count = RunStep(step);
    if (i >= kStepsBefore) {
      const double before = i == kStepsBefore ? count.build_ms : least.build_ms;
      count.build_ms = std::min(before, count.build_ms);
      least = count;
    }
  }
  return least;
}

StepCount CountedRank::Count(const std::string& shape) {
  if (shape == "chunk") {
    Restart(1, model_.chunk_at);
    return Repeated(0, model_.chunk);
  }
  const int streams = shape == "decode-1" ? 1 : kStreams;
  Restart(streams, model_.context);
  if (shape != "mixed") return Repeated(streams, 0);
  sequences_.back() = {sequences_.back().slot, 0};
  ForwardStep closing;
  closing.closed_slots = {sequences_.back().slot};
  MACRAME_CHECK(stack_->Begin(closing).ok()) << "an open sequence is not closed";
  return Repeated(streams - 1, model_.chunk);
}

}  // namespace macrame::gpu_graph
