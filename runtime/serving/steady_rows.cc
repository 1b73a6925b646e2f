#include "runtime/serving/steady_rows.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "proto/check.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {
namespace {

// Of the prompts. MLX's attention for few rows reads 1,024 positions and more in parts, whose
// number depends on that of the rows (the same file, sdpa_vector_2pass).
constexpr uint32_t kShortPrompt = 2 * kBlockTokens;
constexpr uint32_t kLongPrompt = 34 * kBlockTokens;

// Spread over the vocabulary, none twice in a row.
std::vector<int32_t> Tokens(uint32_t begin, uint32_t count, int vocab_size) {
  std::vector<int32_t> tokens;
  for (uint32_t i = begin; i < begin + count; ++i) {
    tokens.push_back(static_cast<int32_t>((uint64_t{i} * 7919 + 13) % vocab_size));
  }
  return tokens;
}

class Trial {
 public:
  Trial(ForwardEngine& engine, uint32_t prompt, uint32_t most)
      : engine_(engine), prompt_(prompt), most_(most) {}

  absl::StatusOr<uint32_t> Run() {
    const absl::Status filled = Fill();
    if (!filled.ok()) return filled;
    std::vector<float> one_by_one;
    for (uint32_t i = 0; i < most_; ++i) {
      const auto row = Ask(prompt_ + i, 1);
      if (!row.ok()) return row.status();
      one_by_one.insert(one_by_one.end(), row->begin(), row->end());
    }
    uint32_t steady = 1;
    for (uint32_t rows = 2; rows <= most_; ++rows) {
      const auto together = Ask(prompt_, rows);
      if (!together.ok()) return together.status();
      MACRAME_CHECK(together->size() <= one_by_one.size())
          << together->size() << " numbers for " << rows << " rows";
      const size_t bytes = together->size() * sizeof(float);
      if (std::memcmp(together->data(), one_by_one.data(), bytes) != 0) break;
      steady = rows;
    }
    ForwardStep closing;
    closing.closed_slots = {0};
    const absl::Status closed = engine_.Run(closing).status();
    if (!closed.ok()) return closed;
    return steady;
  }

 private:
  // The prompt's first blocks are computed; where it is long, the others are copies of them, so
  // that it takes no longer.
  absl::Status Fill() {
    const absl::Status ran = engine_.Run(Next(0, kShortPrompt, LogitRows::kNone)).status();
    if (!ran.ok() || prompt_ == kShortPrompt) return ran;
    constexpr int kComputed = kShortPrompt / kBlockTokens;
    before_next_.closed_slots = {0};
    for (int block = kComputed; block < BlocksFor(static_cast<int>(prompt_)); ++block) {
      before_next_.copies.push_back({block % kComputed, block});
    }
    blocks_ = 0;
    return absl::OkStatus();
  }

  ForwardStep Next(uint32_t begin, uint32_t count, LogitRows rows) {
    ForwardStep step = std::exchange(before_next_, {});
    Segment& segment = step.segments.emplace_back();
    segment.begin = begin;
    segment.tokens = Tokens(begin, count, engine_.vocab_size());
    segment.logit_rows = rows;
    for (; blocks_ < BlocksFor(static_cast<int>(begin + count)); ++blocks_) {
      segment.new_blocks.push_back(blocks_);
    }
    return step;
  }

  absl::StatusOr<std::vector<float>> Ask(uint32_t begin, uint32_t count) {
    auto result = engine_.Run(Next(begin, count, count == 1 ? LogitRows::kLast : LogitRows::kAll));
    if (!result.ok()) return result.status();
    return std::move(result->numbers);
  }

  ForwardEngine& engine_;
  const uint32_t prompt_;
  const uint32_t most_;
  int blocks_ = 0;           // of the slot's table
  ForwardStep before_next_;  // what the next step does besides
};

}  // namespace

absl::StatusOr<uint32_t> MeasureSteadyRows(ForwardEngine& engine) {
  const ForwardLimits& limits = engine.limits();
  const auto fits = [&](uint32_t prompt) {
    const auto positions = static_cast<int>(prompt + kSteadyRowsMax);
    return positions <= limits.context_length && BlocksFor(positions) <= limits.blocks_total;
  };
  uint32_t steady = kSteadyRowsMax;
  for (const uint32_t prompt : {kShortPrompt, kLongPrompt}) {
    const bool is_long = prompt == kLongPrompt;
    if (steady < 2 || (is_long && !engine.layers().keeps_runs())) break;
    if (!fits(prompt)) return is_long ? steady : 1;
    const auto measured = Trial(engine, prompt, steady).Run();
    if (!measured.ok()) return measured.status();
    steady = *measured;
  }
  return steady;
}

}  // namespace macrame::runtime::engine
