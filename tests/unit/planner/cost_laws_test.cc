// Laws of the memory and cost models, on models made from seeds: more never takes less.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "planner/chip_table.h"
#include "planner/cost_model.h"
#include "planner/expert_skew.h"
#include "planner/memory_model.h"
#include "planner/saturating.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

struct Picker {
  std::mt19937_64 random;
  uint32_t operator()(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  }
};

// Of every kind that there is: dense, mixtures, windows, states, latent keys, readers of others'.
v1::ModelDescription MakeModel(Picker& pick) {
  const uint32_t layers = pick(1, 12);
  v1::ModelDescription model = pick(0, 1) == 0 ? LargeModel("m", pick(1, 40) * kGiB, layers)
                                               : MixtureModel("m", pick(1, 40) * kGiB, layers);
  model.set_kv_heads(pick(1, 8));
  model.set_attention_heads(model.kv_heads() * pick(1, 6));
  model.set_head_dim(8 * pick(1, 32));
  model.set_tied_embeddings(pick(0, 1) == 0);
  if (pick(0, 2) == 0) model.set_dtype("float32");
  if (pick(0, 1) == 0) {
    model.mutable_quantization()->set_bits(pick(0, 1) == 0 ? 4 : 8);
    model.mutable_quantization()->set_group_size(32u << pick(0, 2));
  }
  switch (pick(0, 5)) {
    case 0:
      model.set_sliding_window(pick(1, 4096));
      model.set_full_attention_every(pick(0, 4));
      break;
    case 1:
      model.set_fixed_state_bytes(pick(1, 1 << 22));
      model.set_full_attention_every(4);
      break;
    case 2:
      model.set_kv_latent_width(pick(1, 700));
      break;
    case 3:
      model.set_kv_index_width(pick(1, 200));
      break;
    case 4:  // the last layers read the first ones' keys
      for (uint32_t i = 0; i < (layers + 1) / 2; ++i) model.add_attention_layers(i);
      break;
    default:
      model.set_residual_streams(pick(1, 4));
  }
  return model;
}

ServingLoad MakeLoad(Picker& pick) {
  ServingLoad load;
  load.context_tokens = pick(2, 20'000);
  load.sequences = pick(1, 24);
  load.kv_bits = pick(0, 2) * 8;
  load.strictness = static_cast<v1::Strictness>(pick(0, 2));
  return load;
}

constexpr ComputeKind kKinds[] = {ComputeKind::kGpu, ComputeKind::kCpu};

uint64_t SumOf(const v1::MemoryNeed& need) {
  return need.weights_bytes() + need.embedding_bytes() + need.head_bytes() + need.kv_cache_bytes() +
         need.state_bytes() + need.activation_bytes() + need.runtime_bytes() +
         need.headroom_bytes() + need.draft_bytes();
}

TEST(MemoryLaws, ItemsAddUpAndGrowWithTheRange) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    const v1::ModelDescription model = MakeModel(pick);
    const uint32_t of = pick(1, 12);
    const MemoryModel memory(model, MakeLoad(pick), {pick(1, of), of});
    const uint32_t layers = model.layer_count();
    for (const ComputeKind kind : kKinds) {
      for (uint32_t begin = 0; begin < layers; ++begin) {
        uint64_t before = 0;
        for (uint32_t end = begin; end <= layers; ++end) {
          const bool head = end == layers;
          const v1::MemoryNeed need = memory.Need(kind, begin, end, begin == 0, head);
          EXPECT_EQ(SumOf(need), need.total_bytes()) << need.ShortDebugString();
          EXPECT_EQ(need.total_bytes(), memory.NeedBytes(kind, begin, end, begin == 0, head));
          EXPECT_GE(need.total_bytes(), before) << begin << ".." << end;
          before = need.total_bytes();
          if (begin == 0) continue;
          EXPECT_LE(need.total_bytes(), memory.NeedBytes(kind, begin - 1, end, begin == 1, head));
        }
      }
    }
  }
}

TEST(MemoryLaws, NeedsGrowWithTheSliceAndTheLoad) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    const v1::ModelDescription model = MakeModel(pick);
    const ServingLoad load = MakeLoad(pick);
    const uint32_t of = pick(2, 16), width = pick(1, of - 1), layers = model.layer_count();
    const auto need = [&](const ServingLoad& with, Slice slice, ComputeKind kind) {
      return MemoryModel(model, with, slice, slice).NeedBytes(kind, 0, layers, true, true);
    };
    ServingLoad longer = load, more = load, safer = load;
    longer.context_tokens += pick(1, 5000);
    more.sequences += pick(1, 20);
    safer.strictness = v1::STRICTNESS_SAFE;
    const bool whole = model.experts() > 0 && pick(0, 1) == 0;
    for (const ComputeKind kind : kKinds) {
      const uint64_t now = need(load, {width, of, whole}, kind);
      EXPECT_LE(now, need(load, {width + 1, of, whole}, kind)) << "a wider slice";
      EXPECT_LE(now, need(longer, {width, of, whole}, kind)) << "a longer context";
      EXPECT_LE(now, need(more, {width, of, whole}, kind)) << "more sequences";
      EXPECT_LE(now, need(safer, {width, of, whole}, kind)) << "more left for estimates";
    }
  }
}

TEST(MemoryLaws, RanksTogetherHoldAtLeastWhatOneWould) {
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    const v1::ModelDescription model = MakeModel(pick);
    const ServingLoad load = MakeLoad(pick);
    const uint32_t ranks = pick(2, 6), layers = model.layer_count();
    const MemoryModel whole(model, load), part(model, load, {1, ranks}, {1, ranks});
    for (const ComputeKind kind : kKinds) {
      const v1::MemoryNeed all = whole.Need(kind, 0, layers, true, true);
      const v1::MemoryNeed one = part.Need(kind, 0, layers, true, true);
      EXPECT_GE(one.weights_bytes() * ranks, all.weights_bytes());
      EXPECT_GE(one.embedding_bytes() * ranks, all.embedding_bytes());
      EXPECT_GE(one.kv_cache_bytes() * ranks, all.kv_cache_bytes());
      EXPECT_GE(one.state_bytes() * ranks, all.state_bytes());
      EXPECT_LE(one.weights_bytes(), all.weights_bytes());
      EXPECT_LE(one.kv_cache_bytes(), all.kv_cache_bytes());
    }
  }
}

TEST(MemoryLaws, StagesTogetherHoldEachLayerOnce) {
  for (uint64_t seed = 0; seed < 800; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    const v1::ModelDescription model = MakeModel(pick);
    const MemoryModel memory(model, MakeLoad(pick));
    const uint32_t layers = model.layer_count(), cut = pick(0, layers);
    for (const ComputeKind kind : kKinds) {
      const v1::MemoryNeed all = memory.Need(kind, 0, layers, true, true);
      const v1::MemoryNeed first = memory.Need(kind, 0, cut, true, cut == layers);
      const v1::MemoryNeed second = memory.Need(kind, cut, layers, cut == 0, true);
      EXPECT_EQ(first.weights_bytes() + second.weights_bytes(), all.weights_bytes());
      EXPECT_EQ(first.state_bytes() + second.state_bytes(), all.state_bytes());
      // Copies of keys that are read elsewhere are on both sides.
      EXPECT_GE(first.kv_cache_bytes() + second.kv_cache_bytes(), all.kv_cache_bytes());
      EXPECT_GE(first.head_bytes() + second.head_bytes(), all.head_bytes());
    }
  }
}

TEST(MemoryLaws, SumsStopAtTheLargestNumber) {
  EXPECT_EQ(SaturatingAdd(kBytesMax, 1), kBytesMax);
  EXPECT_EQ(SaturatingAdd(kBytesMax - 5, 5), kBytesMax);
  EXPECT_EQ(SaturatingMultiply(1ULL << 33, 1ULL << 31), kBytesMax);
  EXPECT_EQ(SaturatingMultiply(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_EQ(SaturatingMultiply(0, kBytesMax), 0u);
  EXPECT_EQ(SaturatingSubtract(4, 5), 0u);
  EXPECT_EQ(DivideRoundingUp(kBytesMax, 2), 1ULL << 63) << "no overflow while rounding";
  EXPECT_EQ(DivideRoundingUp(0, 7), 0u);
}

// ---- Time.

RankSpeed MakeSpeed(Picker& pick) {
  v1::PlannerNode node = Node("n", kGiB);
  constexpr const char* kChips[] = {"Apple M1", "Apple M4 Max", "NVIDIA L4", ""};
  node.set_chip(kChips[pick(0, 3)]);
  node.set_gpu_cores(pick(0, 1) * pick(1, 80));
  node.set_cpu_cores(pick(1, 64));
  return SpeedOf(node);
}

TEST(CostLaws, LongerRangesMoreTokensAndWiderSlicesTakeNoLessTime) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    const v1::ModelDescription model = MakeModel(pick);
    const RankSpeed speed = MakeSpeed(pick);
    const StepLoad load{pick(1, 16), pick(1, 64), 1.0 * pick(0, 5000), 0};
    StepLoad more = load, longer = load;
    more.sequences += 1;
    longer.positions += 100;
    const StepModel step(model, load, {}), with_more(model, more, {}), further(model, longer, {});
    const uint32_t layers = model.layer_count(), of = pick(2, 12), width = pick(1, of - 1);
    const Slice slice{width, of};
    const auto total = [&](const StepModel& one, uint32_t end, Slice cut) {
      return one.TimeOf(speed, 0, end, cut).total_us();
    };
    const double now = total(step, layers, slice);
    EXPECT_TRUE(std::isfinite(now) && now > 0);
    EXPECT_GE(now, total(step, layers - 1, slice)) << "a layer more";
    EXPECT_LE(now, total(step, layers, {width + 1, of}) * (1 + 1e-12)) << "a wider slice";
    EXPECT_LE(now, total(with_more, layers, slice) * (1 + 1e-12)) << "a sequence more";
    EXPECT_LE(now, total(further, layers, slice) * (1 + 1e-12)) << "more positions";
    EXPECT_LE(step.HeadUs(speed, slice), with_more.HeadUs(speed, slice) * (1 + 1e-12));
    EXPECT_LE(step.OverheadUs(speed, 0, layers), with_more.OverheadUs(speed, 0, layers));
    EXPECT_LE(step.MessageBytes(), with_more.MessageBytes());
  }
}

TEST(CostLaws, LayersOneByOneTakeAsLongAsAllTogetherForReading) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    const v1::ModelDescription model = MakeModel(pick);
    RankSpeed speed = MakeSpeed(pick);
    speed.flops = 0;  // reading alone
    const StepModel step(model, {pick(1, 8), 1, 1.0 * pick(0, 3000), 0}, {});
    double sum = 0;
    for (uint32_t i = 0; i < model.layer_count(); ++i) {
      sum += step.TimeOf(speed, i, i + 1, {}).total_us();
    }
    EXPECT_NEAR(sum, step.TimeOf(speed, 0, model.layer_count(), {}).total_us(), 1e-9 * sum);
  }
}

TEST(CostLaws, TheShareOfExpertsThatIsReadGrowsToAllOfThem) {
  for (const uint32_t experts : {2u, 8u, 128u, 1000u}) {
    for (const uint32_t active : {1u, 2u, experts / 2, experts, experts + 5}) {
      double before = 0;
      for (const double tokens : {1.0, 2.0, 7.5, 64.0, 4096.0}) {
        const double share = ExpertShareRead(experts, active, tokens);
        EXPECT_GE(share, before);
        EXPECT_LE(share, 1);
        before = share;
      }
      EXPECT_NEAR(ExpertShareRead(experts, active, 1),
                  std::min(1.0, static_cast<double>(active) / experts), 1e-12);
    }
    EXPECT_EQ(ExpertShareRead(experts, 0, 10), 0) << "none is chosen";
  }
  EXPECT_EQ(ExpertShareRead(0, 4, 10), 1) << "no experts: everything is read";
}

// ---- Whole experts on ranks.

TEST(SkewLaws, TheSlowestHolderNeverBeatsAnEvenShareNorTakesMoreThanAll) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Picker pick{std::mt19937_64(seed)};
    std::vector<ExpertHolder> holders;
    double count = 0, slowest = 0, largest = 0;
    for (uint32_t i = pick(1, 6); i > 0; --i) {
      holders.push_back({pick(0, 40), 0.25 * pick(1, 12)});
      count += holders.back().experts;
      slowest = std::max(slowest, holders.back().us);
      largest = std::max(largest, holders.back().us * holders.back().experts);
    }
    if (count == 0) continue;
    double before = 0;
    for (double draws = 0; draws <= count; draws += 0.5 * pick(1, 4)) {
      const double us = SlowestHolder(holders, draws);
      // From some draws on it is an estimate.
      const double error = draws > kExactDraws ? 0.01 : 1e-6;
      EXPECT_GE(us, largest * draws / count * (1 - 1e-9)) << draws << " draws";
      EXPECT_LE(us, std::min(largest, slowest * std::ceil(draws)) * (1 + error)) << draws;
      EXPECT_GE(us, before * (1 - error)) << draws << " draws";
      before = us;
    }
    EXPECT_NEAR(SlowestHolder(holders, count), largest, 1e-6 * largest);
    EXPECT_EQ(SlowestHolder(holders, -3), 0) << "none are drawn";
    EXPECT_NEAR(SlowestHolder(holders, count + 50), largest, 1e-6 * largest) << "no more than all";
    for (const uint32_t active : {0u, 1u, 3u, 500u}) {
      for (const double tokens : {0.0, 1.0, 30.0}) {
        const ExpertSkew skew = SkewOf(holders, active, tokens);
        EXPECT_GE(skew.read, 1 - 1e-9);
        EXPECT_GE(skew.work, 1 - 1e-9);
        EXPECT_TRUE(std::isfinite(skew.read) && std::isfinite(skew.work));
      }
    }
  }
  EXPECT_EQ(SkewOf({}, 2, 1).read, 1) << "nobody holds any";
}

}  // namespace
}  // namespace macrame::planner
