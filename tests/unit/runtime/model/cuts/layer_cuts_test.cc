// What stages and ranks have of layers with a state and what they hand on, by labels: each row of
// the stored tensors and each number that travels is labelled with what it is, so that the order in
// which a rank finds them can be read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/model/config/model_config.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/family_model.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

struct Label {
  char kind;  // q, k, v, z, b, a; of a state space: its step is b
  int head, number;
  bool operator==(const Label&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Label& label) {
  return out << label.kind << label.head << "." << label.number;
}
using Labels = std::vector<Label>;

struct Block {
  char kind;
  int heads, each;
};

// All heads' rows of each kind, kind after kind.
Labels Rows(const std::vector<Block>& blocks, int first_head = 0) {
  Labels rows;
  for (const Block& block : blocks) {
    for (int head = 0; head < block.heads; ++head) {
      for (int i = 0; i < block.each; ++i) rows.push_back({block.kind, first_head + head, i});
    }
  }
  return rows;
}

json Changed(const std::string& name, const json& changes) {
  json config = FamilyConfig({name});
  (config.contains("text_config") ? config["text_config"] : config).update(changes);
  return config;
}

ModelConfig Read(const json& config) {
  const auto parsed = ParseModelConfig(config.dump(), "m");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.value_or(ModelConfig());
}

// The families' three ways of storing what projects into such a layer, by tensor.
std::map<std::string, Labels> StoredRows(const ModelConfig& config, const std::string& module) {
  const RecurrentTraits& traits = config.recurrent;
  const int keys = traits.key_heads, values = traits.value_heads, group = traits.group();
  const Block q{'q', keys, traits.key_dim}, k{'k', keys, traits.key_dim};
  const Block v{'v', values, traits.value_dim}, z{'z', values, traits.value_dim};
  const Block b{'b', values, 1}, a{'a', values, 1};
  if (traits.rule == RecurrenceRule::kStateSpace)
    return {{module + "in_proj", Rows({z, v, k, q, b})}};
  if (!traits.by_key_head) {
    return {{module + "in_proj_qkv", Rows({q, k, v})},
            {module + "in_proj_z", Rows({z})},
            {module + "in_proj_b", Rows({b})},
            {module + "in_proj_a", Rows({a})}};
  }
  Labels qkvz, ba;
  for (int head = 0; head < keys; ++head) {
    const auto add = [&](Labels& to, const Block& block, int first) {
      const Labels rows = Rows({block}, first);
      to.insert(to.end(), rows.begin(), rows.end());
    };
    add(qkvz, {'q', 1, traits.key_dim}, head);
    add(qkvz, {'k', 1, traits.key_dim}, head);
    add(qkvz, {'v', group, traits.value_dim}, head * group);
    add(qkvz, {'z', group, traits.value_dim}, head * group);
    add(ba, {'b', group, 1}, head * group);
    add(ba, {'a', group, 1}, head * group);
  }
  return {{module + "in_proj_qkvz", qkvz}, {module + "in_proj_ba", ba}};
}

// As the layers compute with them: of this rank's heads.
Labels Wanted(const ModelConfig& config, const RecurrentCut& cut) {
  const RecurrentTraits& traits = config.recurrent;
  const int keys = cut.heads.size(), group = traits.group(), first = cut.heads.begin;
  Labels all = Rows({{'q', keys, traits.key_dim}, {'k', keys, traits.key_dim}}, first);
  std::vector<Block> by_value = {{'v', keys * group, traits.value_dim},
                                 {'z', keys * group, traits.value_dim},
                                 {'b', keys * group, 1}};
  if (traits.rule == RecurrenceRule::kGatedDelta) by_value.push_back({'a', keys * group, 1});
  const Labels values = Rows(by_value, first * group);
  all.insert(all.end(), values.begin(), values.end());
  return all;
}

int Pick(std::mt19937& random, int lowest, int highest) {
  return std::uniform_int_distribution<int>(lowest, highest)(random);
}

json RandomSizes(std::mt19937& random, bool is_state_space) {
  const int keys = Pick(random, 1, 5), values = keys * Pick(random, 1, 4);
  const int key_dim = Pick(random, 1, 9), value_dim = Pick(random, 1, 9);
  if (is_state_space) {
    return {{"n_groups", keys},
            {"mamba_num_heads", values},
            {"ssm_state_size", key_dim},
            {"mamba_head_dim", value_dim}};
  }
  return {{"linear_num_key_heads", keys},
          {"linear_num_value_heads", values},
          {"linear_key_head_dim", key_dim},
          {"linear_value_head_dim", value_dim}};
}

class RecurrentCutTest : public ::testing::TestWithParam<std::string> {
 protected:
  ModelConfig RandomConfig() {
    return Read(Changed(GetParam(), RandomSizes(random_, GetParam() == "nemotron_h")));
  }
  static int LayerOf(const ModelConfig& config) {
    int layer = 0;
    while (!config.IsRecurrent(layer)) ++layer;
    return layer;
  }
  std::vector<ShardPlace> RandomPlaces(const ModelConfig& config) {
    std::vector<ShardPlace> places;
    const int ranks = Pick(random_, 1, 4);
    for (int rank = 0, begin = 0; rank < ranks; ++rank) {
      const int end = begin + Pick(random_, 1, 3);
      places.push_back({0, config.layer_count, ranks, rank, begin, end, 0});
      begin = end;
    }
    for (ShardPlace& place : places) place.slice_count = places.back().slice_end;
    return places;
  }
  std::mt19937 random_{11};
};

TEST_P(RecurrentCutTest, ARanksRowsAreWhatItComputesWith) {
  for (int round = 0; round < 100; ++round) {
    const ModelConfig config = RandomConfig();
    const int layer = LayerOf(config);
    const std::string module =
        "model.layers." + std::to_string(layer) + "." + config.recurrent.module + ".";
    const std::map<std::string, Labels> stored = StoredRows(config, module);
    for (const ShardPlace& place : RandomPlaces(config)) {
      const RecurrentCut cut = RecurrentCutOf(config, place.slices());
      const LayerNeeds needs = NeedsOfLayer(config, place, layer);
      Labels own;
      for (const LinearNeed& map : needs.recurrent->in) {
        const Labels& rows = stored.at(map.module);
        ASSERT_EQ(map.all_stored_rows(), static_cast<int>(rows.size())) << map.module;
        const auto begin = rows.begin() + map.first_row + map.part.begin;
        own.insert(own.end(), begin, begin + map.part.size());
      }
      ASSERT_EQ(own.size(), cut.projected());
      Labels ordered;
      for (const int row : ProjectedOrder(config, cut)) {
        ordered.push_back(own.at(static_cast<size_t>(row)));
      }
      ASSERT_EQ(ordered, Wanted(config, cut)) << "round " << round << ", rank " << place.tp_rank;
    }
  }
}

// Queries, keys and values of the rank's own heads; the stored order is the family's.
TEST_P(RecurrentCutTest, EachChannelIsOneRanksAndStandsWhereItIsRead) {
  for (int round = 0; round < 100; ++round) {
    const ModelConfig config = RandomConfig();
    const RecurrentTraits& traits = config.recurrent;
    const Block q{'q', traits.key_heads, traits.key_dim}, k{'k', traits.key_heads, traits.key_dim};
    const Block v{'v', traits.value_heads, traits.value_dim};
    const bool is_state_space = traits.rule == RecurrenceRule::kStateSpace;
    const Labels stored = is_state_space ? Rows({v, k, q}) : Rows({q, k, v});
    std::vector<int> seen(stored.size(), 0);
    for (const ShardPlace& place : RandomPlaces(config)) {
      const RecurrentCut cut = RecurrentCutOf(config, place.slices());
      Labels wanted = Wanted(config, cut);
      wanted.resize(cut.channels());
      Labels own;
      for (const int channel : ChannelsOf(config, cut)) {
        ++seen.at(static_cast<size_t>(channel));
        own.push_back(stored.at(static_cast<size_t>(channel)));
      }
      ASSERT_EQ(own, wanted) << "round " << round << ", rank " << place.tp_rank;
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

// Numbers of one sequence's state, in all of the place's layers that have one.
size_t StateFloats(const ModelConfig& config, const ShardPlace& place) {
  return RecurrentCutOf(config, place.slices()).floats() *
         static_cast<size_t>(RecurrentLayersOf(config, place));
}

// The parts of a state that ranks keep make up that of one.
TEST_P(RecurrentCutTest, StatesAddUpToTheWhole) {
  for (int round = 0; round < 100; ++round) {
    const ModelConfig config = RandomConfig();
    size_t parts = 0;
    for (const ShardPlace& place : RandomPlaces(config)) parts += StateFloats(config, place);
    const ShardPlace whole{0, config.layer_count};
    EXPECT_EQ(parts, StateFloats(config, whole));
    EXPECT_GT(parts, 0u);
    const int layer = LayerOf(config);
    ShardPlace one{layer, layer + 1};
    EXPECT_EQ(StateFloats(config, one) * static_cast<size_t>(RecurrentLayersOf(config, whole)),
              parts);
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Families, RecurrentCutTest,
                         ::testing::Values("qwen3_next", "qwen3_5", "nemotron_h"), NameOf);

TEST(RecurrentCutsTest, AModelWithoutSuchLayersHasNoState) {
  const ModelConfig config = Read(FamilyConfig({"olmo2"}));
  EXPECT_EQ(RecurrentLayersOf(config, {0, 2}), 0);
  EXPECT_EQ(RecurrentCutOf(config, {}).heads.size(), 0);
}

// What is handed on is read, and what is read is handed on, wherever a model is cut in two.
TEST(CarriedTest, StagesBehindACutFindAllThatTheyRead) {
  for (const std::string& name : FamilyNames()) {
    const ModelConfig config = Read(FamilyConfig({name}));
    for (int cut = 1; cut < config.layer_count; ++cut) {
      SCOPED_TRACE(name + " cut at " + std::to_string(cut));
      const CarriedRow row = CarriedInto(config, cut);
      std::set<int> read;
      for (int layer = cut; layer < config.layer_count; ++layer) {
        const bool attends = config.MixerOf(layer) == MixerKind::kAttention;
        if (attends && config.KvSourceOf(layer) < cut) read.insert(config.KvSourceOf(layer));
      }
      std::set<int> carried;
      int end = row.InputBegin(config.layer_count);
      EXPECT_EQ(row.InputBegin(cut), config.hidden_size * config.streams.count + row.weights);
      for (const CarriedRow::Kv& kv : row.kv) {
        carried.insert(kv.layer);
        EXPECT_EQ(kv.begin, end) << "side by side";
        end += 2 * kv.size();
        EXPECT_EQ(kv.heads.dim, config.HeadsOf(kv.layer).dim);
        ASSERT_NE(row.KvOf(kv.layer), nullptr);
        EXPECT_EQ(row.KvOf(kv.layer)->begin, kv.begin);
      }
      EXPECT_EQ(carried, read);
      EXPECT_EQ(row.width, end);
      EXPECT_EQ(row.KvOf(config.layer_count), nullptr);
      EXPECT_LE(row.width, CarriedWidthMax(config));
    }
    EXPECT_EQ(CarriedInto(config, config.layer_count).width, config.hidden_size)
        << name << ": behind the last layer the hidden state alone";
  }
}

TEST(CarriedTest, LayersOfTheKvCacheAreThoseThatMakeOrRead) {
  const ModelConfig gemma = Read(FamilyConfig({"gemma4"}));  // sources 0, 1, 2, 1, 2
  EXPECT_THAT(KvLayersOf(gemma, {0, 5}), ElementsAre(0, 1, 2));
  EXPECT_THAT(KvLayersOf(gemma, {0, 2}), ElementsAre(0, 1));
  EXPECT_THAT(KvLayersOf(gemma, {2, 4}), ElementsAre(1, 2));
  EXPECT_THAT(KvLayersOf(gemma, {4, 5}), ElementsAre(2));
  const CarriedRow middle = CarriedInto(gemma, 3);
  ASSERT_EQ(middle.kv.size(), 2u);
  EXPECT_EQ(middle.kv[0].layer, 1);
  EXPECT_EQ(middle.kv[1].layer, 2);
  EXPECT_EQ(middle.width, 64 + 2 * 32 + 2 * (2 * 32) + 2 * (2 * 48));
  EXPECT_EQ(CarriedWidthMax(gemma), std::max(64 + 4 * 32, middle.width));
  const ModelConfig hybrid = Read(FamilyConfig({"qwen3_5"}));
  EXPECT_THAT(KvLayersOf(hybrid, {0, 2}), ElementsAre(0)) << "the other has a state";
  EXPECT_THAT(KvLayersOf(hybrid, {1, 2}), ElementsAre());
}

}  // namespace
}  // namespace macrame::runtime::engine
