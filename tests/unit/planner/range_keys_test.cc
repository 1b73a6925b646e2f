// Ranges of layers have one key exactly when nothing but their place tells them apart.

#include "planner/range_keys.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "planner/memory_model.h"
#include "tests/unit/planner/test_models.h"

namespace macrame::planner {
namespace {

// What a stage of these layers is made of: how many of each kind, and the ends of the model.
using Made = std::tuple<std::multiset<std::tuple<uint64_t, uint64_t, uint64_t, bool>>, bool, bool>;

Made MadeOf(const v1::ModelDescription& model, uint32_t begin, uint32_t end) {
  Made made;
  for (uint32_t i = begin; i < end; ++i) {
    const int layer = static_cast<int>(i);
    std::get<0>(made).insert({model.layer_bytes(layer), model.layer_divisible_bytes(layer),
                              LayerExpertBytes(model, i), AttendsToAll(model, i)});
  }
  std::get<1>(made) = begin == 0;
  std::get<2>(made) = end == model.layer_count();
  return made;
}

// Of `kinds` different layers, in no order.
v1::ModelDescription Mixed(uint64_t seed, uint64_t kinds) {
  std::mt19937_64 random(seed);
  const auto layers = static_cast<uint32_t>(1 + random() % 24);
  v1::ModelDescription model = LargeModel("mixed", 24 * kGiB, layers);
  for (uint32_t i = 0; i < layers; ++i) {
    const uint64_t kind = random() % kinds;
    const int layer = static_cast<int>(i);
    model.set_layer_bytes(layer, 1000 + 100 * (kind / 2));
    model.set_layer_divisible_bytes(layer, 900 + kind % 2);
    model.add_layer_expert_bytes(kind % 3 == 0 ? 500 : 0);
  }
  if (seed % 2 == 0) {
    model.set_sliding_window(128);
    model.set_full_attention_every(3);
  }
  return model;
}

TEST(RangeKeys, AreTheSameForRangesThatAreMadeOfTheSame) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::ModelDescription model = Mixed(seed, 2);  // with the window up to four kinds
    const RangeKeys keys(model);
    std::map<Made, uint64_t> known;
    std::map<uint64_t, Made> of_key;
    for (uint32_t begin = 0; begin < model.layer_count(); ++begin) {
      for (uint32_t end = begin + 1; end <= model.layer_count(); ++end) {
        const Made made = MadeOf(model, begin, end);
        const uint64_t key = keys.Of(begin, end);
        EXPECT_EQ(known.emplace(made, key).first->second, key) << begin << ".." << end;
        EXPECT_EQ(of_key.emplace(key, made).first->second, made) << begin << ".." << end;
      }
    }
  }
}

TEST(RangeKeys, OfManyKindsNoTwoRangesAreTakenForEachOther) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const v1::ModelDescription model = Mixed(seed, 12);
    const RangeKeys keys(model);
    std::map<uint64_t, Made> of_key;
    for (uint32_t begin = 0; begin < model.layer_count(); ++begin) {
      for (uint32_t end = begin + 1; end <= model.layer_count(); ++end) {
        const Made made = MadeOf(model, begin, end);
        EXPECT_EQ(of_key.emplace(keys.Of(begin, end), made).first->second, made)
            << begin << ".." << end;
      }
    }
  }
}

TEST(RangeKeys, TheMostLayersOfFiveKindsDoNotRunIntoEachOther) {
  v1::ModelDescription model = LargeModel("deep", 1 << 30, 1024);
  for (int layer = 0; layer < 1024; ++layer) {
    // Long runs: the counts of the kinds become as large as they can.
    model.set_layer_bytes(layer, layer < 1020 ? 1000 : 1001 + static_cast<uint64_t>(layer - 1020));
  }
  const RangeKeys keys(model);
  std::map<uint64_t, Made> of_key;
  for (uint32_t begin = 0; begin < 1024; begin += 51) {
    for (uint32_t end = begin + 1; end <= 1024; end += end < 1000 ? 97 : 1) {
      const Made made = MadeOf(model, begin, end);
      EXPECT_EQ(of_key.emplace(keys.Of(begin, end), made).first->second, made)
          << begin << ".." << end;
    }
  }
}

}  // namespace
}  // namespace macrame::planner
