// Decode steps of the graph of a GPU on MLX's CPU device.
//
//   graph_steps_bench FOLDER STREAMS CONTEXT POOL STEPS
//
// STREAMS sequences of CONTEXT tokens each decode greedily, with KV memory for POOL positions in
// all. Prints {"median_ms": of a step, "tokens": the first sequence's answer}. The prompts are
// those of compare_steps.py.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/process/rank_boot.h"

namespace macrame::runtime::engine {
namespace {

using std::chrono::steady_clock;

constexpr int kStepsBefore = 3;  // that are not timed
constexpr uint32_t kChunk = 256;

struct Sequence {
  uint32_t slot = 0;
  uint32_t held = 0;
  int32_t next = 0;
};

// Rows that a step gives; throws what it ends with.
std::vector<float> RowsOf(ForwardEngine& engine, const ForwardStep& step) {
  auto rows = engine.Run(step);
  if (!rows.ok()) throw std::runtime_error(rows.status().ToString());
  return std::move(rows->numbers);
}

Segment Take(Sequence& sequence, std::vector<int32_t> tokens, uint32_t blocks_each) {
  Segment segment;
  segment.slot = sequence.slot;
  segment.begin = sequence.held;
  segment.logit_rows = LogitRows::kLast;
  const auto blocks_for = [](uint32_t positions) {
    return (positions + kBlockTokens - 1) / kBlockTokens;
  };
  const auto count = static_cast<uint32_t>(tokens.size());
  for (uint32_t i = blocks_for(sequence.held); i < blocks_for(sequence.held + count); ++i) {
    segment.new_blocks.push_back(static_cast<int32_t>(sequence.slot * blocks_each + i));
  }
  segment.tokens = std::move(tokens);
  sequence.held += count;
  return segment;
}

int32_t LikeliestOf(const float* row, int vocabulary) {
  return static_cast<int32_t>(std::max_element(row, row + vocabulary) - row);
}

int Measure(const std::string& folder, uint32_t streams, uint32_t context, uint32_t pool,
            int steps) {
  Watchdog watchdog([](const std::string&, std::chrono::milliseconds) {});
  v1::LaunchSpec spec;
  spec.set_world_size(1);
  spec.set_tp(1);
  spec.set_pp(1);
  spec.set_context_length(pool / streams);
  spec.set_concurrent_sequences(streams);
  spec.set_kv_bits(16);
  spec.mutable_model()->set_path(folder);
  BootOptions options;
  options.needs_text = false;
  options.types.device = EngineDevice::kMlxCpu;
  const auto rank = BootRank(spec, watchdog, options);
  if (!rank.ok()) throw std::runtime_error(rank.status().ToString());
  ForwardEngine& engine = *(*rank)->engine;
  const int vocabulary = engine.vocab_size();
  std::vector<Sequence> sequences;
  for (uint32_t slot = 0; slot < streams; ++slot) {
    Sequence sequence{slot};
    while (sequence.held < context) {
      std::vector<int32_t> tokens;
      for (uint32_t i = sequence.held; i < std::min(context, sequence.held + kChunk); ++i) {
        tokens.push_back(static_cast<int32_t>((i * i * 7 + i * 13 + slot * 31) %
                                              static_cast<uint32_t>(vocabulary)));
      }
      const auto rows =
          RowsOf(engine, {{}, {Take(sequence, std::move(tokens), pool / streams / kBlockTokens)}});
      sequence.next = LikeliestOf(rows.data(), vocabulary);
    }
    sequences.push_back(sequence);
  }
  std::vector<double> took;
  std::vector<int32_t> answer{sequences[0].next};
  for (int i = 0; i < kStepsBefore + steps; ++i) {
    const auto begun = steady_clock::now();
    ForwardStep step;
    for (Sequence& sequence : sequences) {
      step.segments.push_back(Take(sequence, {sequence.next}, pool / streams / kBlockTokens));
    }
    const auto rows = RowsOf(engine, step);
    for (size_t s = 0; s < sequences.size(); ++s) {
      sequences[s].next =
          LikeliestOf(rows.data() + s * static_cast<size_t>(vocabulary), vocabulary);
    }
    answer.push_back(sequences[0].next);
    const std::chrono::duration<double, std::milli> span = steady_clock::now() - begun;
    if (i >= kStepsBefore) took.push_back(span.count());
  }
  std::sort(took.begin(), took.end());
  const nlohmann::json result = {{"median_ms", took[took.size() / 2]}, {"tokens", answer}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int count, char** arguments) {
  if (count != 6) {
    std::fprintf(stderr, "usage: %s FOLDER STREAMS CONTEXT POOL STEPS\n", arguments[0]);
    return 2;
  }
  const auto number = [&](int i) {
    return static_cast<uint32_t>(std::strtoul(arguments[i], nullptr, 10));
  };
  try {
    return macrame::runtime::engine::Measure(arguments[1], number(2), number(3), number(4),
                                             static_cast<int>(number(5)));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
