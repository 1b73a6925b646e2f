// What rankd's steps take on this machine's CPU, and what the planner predicts of them: answers
// by the number that come about together, and a prompt's chunk.
//
//   steps_bench FOLDER [THREADS]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "planner/chip_table.h"
#include "planner/cost_model.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/model_files/model_description.h"
#include "runtime/process/rank_boot.h"
#include "runtime/serving/solo_sequence.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::steady_clock;

constexpr int kSteps = 9;  // the median of so many
constexpr int kChunk = 256;
constexpr uint32_t kPromptBlocks = 2;

double Ms(steady_clock::duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

// Each of `count` sequences gets its next token.
double DecodeMs(ForwardEngine& engine, uint32_t count) {
  std::vector<double> took;
  ForwardStep step;
  for (uint32_t slot = 0; slot < count; ++slot) {
    Segment segment;
    segment.slot = slot;
    segment.begin = 0;
    segment.tokens.assign(kPromptBlocks * kBlockTokens - kSteps, static_cast<int32_t>(slot + 5));
    for (uint32_t block = 0; block < kPromptBlocks; ++block) {
      segment.new_blocks.push_back(static_cast<int32_t>(slot * kPromptBlocks + block));
    }
    ForwardStep prompt;
    prompt.segments = {segment};
    if (!engine.Run(prompt).ok()) std::abort();
    segment.begin = static_cast<uint32_t>(segment.tokens.size());
    segment.tokens = {7};
    segment.new_blocks.clear();
    segment.logit_rows = LogitRows::kLast;
    step.segments.push_back(segment);
  }
  for (int i = 0; i < kSteps; ++i) {
    const auto begun = steady_clock::now();
    if (!engine.Run(step).ok()) std::abort();
    took.push_back(Ms(steady_clock::now() - begun));
    for (Segment& segment : step.segments) ++segment.begin;
  }
  ForwardStep close;
  for (uint32_t slot = 0; slot < count; ++slot) close.closed_slots.push_back(slot);
  if (!engine.Run(close).ok()) std::abort();
  std::sort(took.begin(), took.end());
  return took[kSteps / 2];
}

double ChunkMs(ForwardEngine& engine) {
  SoloSequence sequence(engine);
  const std::vector<int32_t> tokens(kChunk, 5);
  std::vector<double> took;
  for (int i = 0; i < 3; ++i) {
    const auto begun = steady_clock::now();
    if (!sequence.Forward(tokens, 0, LogitRows::kLast, [] { return true; }).ok()) std::abort();
    took.push_back(Ms(steady_clock::now() - begun));
  }
  if (!sequence.Close().ok()) std::abort();
  std::sort(took.begin(), took.end());
  return took[1];
}

double PredictedMs(const v1::ModelDescription& model, int threads, planner::StepLoad load) {
  v1::PlannerNode node;
  node.set_cpu_cores(static_cast<uint32_t>(threads));
  const planner::RankSpeed speed = planner::SpeedOf(node);
  const planner::CostParameters parameters;
  const planner::StepModel step(model, load, parameters);
  const uint32_t layers = model.layer_count();
  const double us = step.TimeOf(speed, 0, layers, {1, 1}).total_us() + step.HeadUs(speed, {1, 1}) +
                    step.OverheadUs(speed, 0, layers) + parameters.step_overhead_us;
  return us / 1e3;
}

int Measure(const std::string& folder, int threads) {
  const auto model = DescribeModel(folder);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  Watchdog watchdog([](const std::string&, std::chrono::milliseconds) {});
  v1::LaunchSpec spec;
  spec.set_world_size(1);
  spec.set_tp(1);
  spec.set_pp(1);
  spec.set_context_length(2 * kChunk);
  spec.set_concurrent_sequences(4);
  spec.mutable_model()->set_path(folder);
  BootOptions options;
  options.needs_text = false;
  options.threads = threads;
  const auto rank = BootRank(spec, watchdog, options);
  if (!rank.ok()) {
    std::fprintf(stderr, "%s\n", std::string(rank.status().message()).c_str());
    return 1;
  }
  std::printf("%d threads\n%-24s %12s %12s %8s\n", threads, "step", "measured, ms", "predicted, ms",
              "ratio");
  const auto print = [](const std::string& what, double measured, double predicted) {
    std::printf("%-24s %12.1f %12.1f %8.2f\n", what.c_str(), measured, predicted,
                measured / predicted);
  };
  for (const uint32_t answers : {1U, 2U, 4U, 8U, 16U}) {
    print(std::to_string(answers) + " answers", DecodeMs(*(*rank)->engine, answers),
          PredictedMs(*model, threads, {answers, 1, kPromptBlocks * 32.0, 0}));
  }
  print(std::to_string(kChunk) + " tokens of a prompt", ChunkMs(*(*rank)->engine),
        PredictedMs(*model, threads, {1, kChunk, kChunk / 2.0, 0}));
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s FOLDER [THREADS]\n", arguments[0]);
    return 2;
  }
  const int threads = count > 2 ? std::atoi(arguments[2])
                                : macrame::runtime::kernels::ThreadPool::UsableProcessors();
  return macrame::runtime::engine::Measure(arguments[1], std::max(1, threads));
}
