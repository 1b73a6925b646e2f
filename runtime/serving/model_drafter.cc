#include "runtime/serving/model_drafter.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/model/load_layer_stack.h"
#include "runtime/model/step/slot_tables.h"
#include "runtime/serving/sampling/sampler.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::steady_clock;

ShardPlace WholePlace(const ModelConfig& config) {
  ShardPlace place;
  place.layer_end = config.layer_count;
  return place;
}

LayerStackOptions StackOptions(const DrafterOptions& options) {
  LayerStackOptions stack;
  stack.blocks_total = static_cast<int>(options.traits.blocks_total);
  stack.context_length = static_cast<int>(options.traits.positions_max);
  stack.threads = options.threads;
  return stack;
}

// As the planner of drafts reckons: what catches up on many tokens is like a prompt.
StepWork WorkOf(const ForwardStep& step) {
  StepWork work;
  for (const Segment& segment : step.segments) {
    const auto count = static_cast<uint32_t>(segment.tokens.size());
    const bool is_draft = segment.logit_rows != LogitRows::kNone;
    (is_draft ? work.decode_tokens : work.prefill_tokens) += count;
    work.attended += StepWork::Attended(segment.begin, count);
  }
  return work;
}

}  // namespace

ModelDrafter::ModelDrafter(const ModelConfig& config, WeightLoader& loader, Watchdog& watchdog,
                           const DrafterOptions& options)
    : config_(config),
      options_(options),
      watchdog_(watchdog),
      layers_(LoadLayerStack(config, WholePlace(config), loader, sums_, StackOptions(options))) {}

// The part's blocks go to the table as positions reach them.
Segment ModelDrafter::SegmentOf(const DraftOrder::Part& part, std::vector<int32_t> tokens,
                                Progress& progress) {
  Segment segment;
  segment.slot = part.slot;
  segment.begin = progress.position;
  progress.position += static_cast<uint32_t>(tokens.size());
  segment.tokens = std::move(tokens);
  segment.logit_rows = part.count > 0 ? LogitRows::kLast : LogitRows::kNone;
  while (progress.blocks * kBlockTokens < progress.position) {
    segment.new_blocks.push_back(part.blocks[progress.told++]);
    ++progress.blocks;
  }
  return segment;
}

absl::StatusOr<DraftsMade> ModelDrafter::Carry(const DraftOrder& order) {
  DraftsMade made;
  made.tokens.resize(order.parts.size());
  std::vector<Progress> progress;
  ForwardStep step;
  step.closed_slots = order.closed_slots;
  std::vector<size_t> asking;
  uint32_t deepest = 0;
  for (size_t i = 0; i < order.parts.size(); ++i) {
    const DraftOrder::Part& part = order.parts[i];
    progress.push_back({part.begin, part.blocks_before, 0});
    step.segments.push_back(SegmentOf(part, part.tokens, progress.back()));
    if (part.count > 0) asking.push_back(i);
    deepest = std::max(deepest, part.count);
  }
  absl::Status ran = RunPass(step, asking, made);
  for (uint32_t depth = 2; ran.ok() && depth <= deepest; ++depth) {
    step = {};
    std::erase_if(asking, [&](size_t i) { return order.parts[i].count < depth; });
    for (const size_t i : asking) {
      step.segments.push_back(SegmentOf(order.parts[i], {made.tokens[i].back()}, progress[i]));
    }
    ran = RunPass(step, asking, made);
  }
  if (!ran.ok()) return ran;
  return made;
}

absl::Status ModelDrafter::RunPass(const ForwardStep& step, const std::vector<size_t>& asking,
                                   DraftsMade& made) {
  const auto guard = watchdog_.Watch("a pass of the draft model", options_.pass_limit);
  const auto begun = steady_clock::now();
  try {
    const absl::Status good = layers_->Begin(step);
    if (!good.ok()) return good;
    std::vector<int32_t> tokens, rows;
    for (const Segment& segment : step.segments) {
      tokens.insert(tokens.end(), segment.tokens.begin(), segment.tokens.end());
      const auto last = static_cast<int32_t>(tokens.size()) - 1;
      if (segment.logit_rows == LogitRows::kLast) rows.push_back(last);
    }
    const mlx::core::array hidden = layers_->Run(layers_->Embed(tokens), step);
    if (rows.empty()) {
      Finish(hidden);
    } else {
      mlx::core::array logits = layers_->Logits(hidden, rows);
      Finish(logits);
      const auto width = static_cast<size_t>(config_.vocab_size);
      for (size_t row = 0; row < rows.size(); ++row) {
        const std::span<const float> of(logits.data<float>() + row * width,
                                        static_cast<size_t>(options_.token_end));
        const auto token = SampleToken(of, {}, 0);
        if (!token.ok()) return token.status();
        made.tokens[asking[row]].push_back(*token);
      }
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the system refused memory for the draft model");
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("the draft model: ", error.what()));
  }
  NoteBytes(step);
  const auto took = std::chrono::duration_cast<Duration>(steady_clock::now() - begun);
  made.passes.push_back({WorkOf(step), took});
  return absl::OkStatus();
}

void ModelDrafter::Finish(mlx::core::array result) const {
  std::vector<mlx::core::array> outputs{std::move(result)};
  layers_->AppendState(outputs);
  mlx::core::eval(outputs);
}

void ModelDrafter::NoteBytes(const ForwardStep& step) {
  for (const Segment& segment : step.segments) {
    for (const int32_t block : segment.new_blocks) {
      blocks_used_ = std::max(blocks_used_, static_cast<uint64_t>(block) + 1);
    }
  }
  bytes_ = blocks_used_ * layers_->block_bytes() + layers_->buffer_bytes();
}

}  // namespace macrame::runtime::engine
