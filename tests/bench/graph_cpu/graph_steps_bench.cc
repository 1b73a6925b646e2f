// Decode steps of the graph of a GPU, on a GPU or on MLX's CPU device.
//
//   graph_steps_bench FOLDER STREAMS CONTEXT POOL STEPS [gpu]
//
// STREAMS sequences of CONTEXT tokens each decode greedily, with KV memory for POOL positions in
// all; as in serving, each step is given before the tokens of the one before are read. Prints
// {"median_ms": of a step, "prompt_ms": of the last sequence's prompt, "tokens": the first
// sequence's answer}. The prompts are those of compare_steps.py.

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

void Expect(const absl::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

double MillisecondsSince(steady_clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - begun).count();
}

std::vector<float> RowsOf(ForwardEngine& engine, const ForwardStep& step) {
  auto rows = engine.Run(step);
  Expect(rows.status());
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

int Measure(const std::string& folder, uint32_t streams, uint32_t context, uint32_t pool, int steps,
            EngineDevice device) {
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
  options.types.device = device;
  const auto rank = BootRank(spec, watchdog, options);
  if (!rank.ok()) throw std::runtime_error(rank.status().ToString());
  ForwardEngine& engine = *(*rank)->engine;
  const int vocabulary = engine.vocab_size();
  const uint32_t blocks_each = pool / streams / kBlockTokens;
  if (!engine.chooses_tokens()) throw std::runtime_error("its steps choose no tokens");
  std::vector<Sequence> sequences;
  double prompt_ms = 0;
  for (uint32_t slot = 0; slot < streams; ++slot) {
    Sequence sequence{slot};
    const auto begun = steady_clock::now();
    while (sequence.held < context) {
      std::vector<int32_t> tokens;
      for (uint32_t i = sequence.held; i < std::min(context, sequence.held + kChunk); ++i) {
        tokens.push_back(static_cast<int32_t>((i * i * 7 + i * 13 + slot * 31) %
                                              static_cast<uint32_t>(vocabulary)));
      }
      const auto rows = RowsOf(engine, {{}, {Take(sequence, std::move(tokens), blocks_each)}});
      sequence.next = LikeliestOf(rows.data(), vocabulary);
    }
    sequences.push_back(sequence);
    prompt_ms = MillisecondsSince(begun);
  }
  const auto decode = [&](bool is_known) {
    ForwardStep step;
    for (Sequence& sequence : sequences) {
      const auto row = static_cast<int32_t>(sequence.slot);
      step.segments.push_back(
          Take(sequence, {is_known ? sequence.next : TokenOfChosenRow(row)}, blocks_each));
      step.segments.back().logit_rows = LogitRows::kChosen;
    }
    Expect(engine.Submit(step));
  };
  std::vector<double> took;
  std::vector<int32_t> answer{sequences[0].next};
  decode(/*is_known=*/true);
  for (int i = 0; i < kStepsBefore + steps; ++i) {
    const auto begun = steady_clock::now();
    decode(/*is_known=*/false);
    const auto result = engine.Await();
    Expect(result.status());
    answer.push_back(result->chosen[0]);
    if (i >= kStepsBefore) took.push_back(MillisecondsSince(begun));
  }
  Expect(engine.Await().status());
  std::sort(took.begin(), took.end());
  const nlohmann::json result = {
      {"median_ms", took[took.size() / 2]}, {"prompt_ms", prompt_ms}, {"tokens", answer}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace macrame::runtime::engine

int main(int count, char** arguments) {
  using macrame::runtime::engine::EngineDevice;
  const bool is_gpu = count == 7 && std::string(arguments[6]) == "gpu";
  if (count != 6 && !is_gpu) {
    std::fprintf(stderr, "usage: %s FOLDER STREAMS CONTEXT POOL STEPS [gpu]\n", arguments[0]);
    return 2;
  }
  const auto number = [&](int i) {
    return static_cast<uint32_t>(std::strtoul(arguments[i], nullptr, 10));
  };
  try {
    return macrame::runtime::engine::Measure(arguments[1], number(2), number(3), number(4),
                                             static_cast<int>(number(5)),
                                             is_gpu ? EngineDevice::kGpu : EngineDevice::kMlxCpu);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
