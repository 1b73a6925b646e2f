// Rows of one step held against single ones, with layers that are made up.

#include "runtime/serving/steady_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "runtime/model/config/model_config.h"
#include "runtime/model/step/slot_tables.h"

namespace macrame::runtime::engine {
namespace {

namespace mx = mlx::core;

constexpr int kVocabulary = 64;

// Layers whose logits are a token's and its position's, but for the last bits of steps with more
// rows than `steady`, from position `from` on.
class Rounding : public LayerStack {
 public:
  Rounding(uint32_t steady, uint32_t from, bool keeps_runs)
      : steady_(steady), from_(from), keeps_runs_(keeps_runs) {}
  absl::Status Begin(const ForwardStep& step) override {
    const absl::Status good = tables_.Apply(step, kVocabulary);
    if (!good.ok() || step.segments.empty()) return good;
    begin_ = step.segments[0].begin;
    for (const BlockCopy& copy : step.copies) written_[copy.to] = written_.at(copy.from);
    // What stands before a segment must have been written.
    for (uint32_t at = 0; at < begin_; at += kBlockTokens) {
      EXPECT_TRUE(written_.contains(static_cast<int32_t>(at / kBlockTokens))) << "position " << at;
    }
    for (uint32_t at = begin_; at < begin_ + step.segments[0].tokens.size(); ++at) {
      written_[static_cast<int32_t>(at / kBlockTokens)] = true;
    }
    return absl::OkStatus();
  }
  mx::array Embed(std::span<const int32_t> ids) override {
    return mx::array(ids.data(), {static_cast<int>(ids.size())}, mx::int32);
  }
  bool keeps_runs() const override { return keeps_runs_; }
  mx::array Run(const mx::array& hidden, const ForwardStep&) override { return hidden; }
  mx::array Logits(const mx::array& hidden, std::span<const int32_t> rows) override {
    ++steps;
    const bool is_off = rows.size() > steady_ && begin_ >= from_;
    std::vector<float> logits;
    for (const int32_t row : rows) {
      const auto token = static_cast<float>(hidden.data<int32_t>()[row]);
      for (int i = 0; i < kVocabulary; ++i) {
        logits.push_back(token + static_cast<float>(i * 100 + static_cast<int>(begin_) + row));
      }
    }
    if (is_off) logits.back() = std::nextafter(logits.back(), 0.0F);
    return mx::array(logits.data(), {static_cast<int>(rows.size()), kVocabulary}, mx::float32);
  }
  mx::array Hidden(const mx::array& hidden, std::span<const int32_t>) override { return hidden; }
  void AppendState(std::vector<mx::array>&) const override {}
  mx::Dtype activation_type() const override { return mx::float32; }
  size_t stored_block_bytes() const override { return 0; }
  void ReadBlock(int32_t, std::span<std::byte>) const override {}
  void WriteBlock(int32_t, std::span<const std::byte>) override {}
  std::string kv_layout() const override { return "none"; }

  int steps = 0;

 private:
  const uint32_t steady_, from_;
  const bool keeps_runs_;
  SlotTables tables_{64, 2048};
  std::map<int32_t, bool> written_;  // by block
  uint32_t begin_ = 0;
};

struct Case {
  uint32_t steady = kSteadyRowsMax;
  uint32_t from = 0;
  bool keeps_runs = true;
  int context = 2048;
};

uint32_t Measure(const Case& made, int* steps = nullptr) {
  ModelConfig config;
  config.vocab_size = kVocabulary;
  config.hidden_size = 1;
  auto layers = std::make_unique<Rounding>(made.steady, made.from, made.keeps_runs);
  Rounding& seen = *layers;
  Watchdog watchdog([](const std::string&, std::chrono::milliseconds) {});
  v1::LaunchSpec spec;
  spec.set_world_size(1);
  spec.set_tp(1);
  spec.set_pp(1);
  const auto link = GangLink::Form(spec, WireType::kFloat32, [](const std::string&) {});
  EXPECT_TRUE(link.ok()) << link.status();
  ForwardLimits limits;
  limits.context_length = made.context;
  limits.blocks_total = BlocksFor(made.context);
  ForwardEngine engine(config, std::move(layers), **link, watchdog, limits);
  const auto steady = MeasureSteadyRows(engine);
  EXPECT_TRUE(steady.ok()) << steady.status();
  if (steps != nullptr) *steps = seen.steps;
  return steady.ok() ? *steady : 0;
}

TEST(SteadyRows, AreAsManyAsHaveTheBitsOfSingleOnes) {
  for (uint32_t steady = 1; steady <= kSteadyRowsMax + 1; ++steady) {
    EXPECT_EQ(Measure({steady}), std::min(steady, kSteadyRowsMax));
  }
}

TEST(SteadyRows, BehindALongPromptToo) {
  EXPECT_EQ(Measure({3, /*from=*/1024}), 3u);
  EXPECT_EQ(Measure({1, /*from=*/1024}), 1u);
}

TEST(SteadyRows, ALongPromptThatDoesNotFitIsLeftOut) {
  EXPECT_EQ(Measure({3, 1024, true, /*context=*/512}), kSteadyRowsMax);
  EXPECT_EQ(Measure({3, 1024, /*keeps_runs=*/false}), kSteadyRowsMax) << "nothing can be copied";
  EXPECT_EQ(Measure({kSteadyRowsMax, 0, true, /*context=*/40}), 1u) << "nothing fits";
}

TEST(SteadyRows, TakeAFewDozenSteps) {
  int steps = 0;
  Measure({}, &steps);
  EXPECT_LE(steps, 4 * static_cast<int>(kSteadyRowsMax));
}

}  // namespace
}  // namespace macrame::runtime::engine
