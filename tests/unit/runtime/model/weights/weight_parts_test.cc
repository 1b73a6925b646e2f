// What a rank of a tensor split loads is the part that weight_needs.h names, number by number, in
// every form in which weights are stored: rows or columns of the whole map, biases once, and the
// same numbers for kernels and for MLX.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/kernels/matmul.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using Floats = std::vector<float>;

Floats FloatsOf(const mx::array& given) {
  mx::array plain = mx::contiguous(mx::astype(given, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

struct Loaded {
  size_t rows = 0, columns = 0;
  Floats numbers;
  std::optional<Floats> bias;
};

Loaded Load(WeightLoader& loader, const LinearNeed& need) {
  const Linear linear = loader.LoadLinear(need);
  Loaded loaded{linear.view().rows, linear.view().columns, {}, {}};
  std::vector<int32_t> rows;
  for (size_t row = 0; row < loaded.rows; ++row) rows.push_back(static_cast<int32_t>(row));
  loaded.numbers.resize(loaded.rows * loaded.columns);
  if (!loaded.numbers.empty()) {
    kernels::GatherRows(linear.view(), rows.data(), rows.size(), loaded.numbers.data());
  }
  if (linear.bias().has_value()) loaded.bias = FloatsOf(*linear.bias());
  return loaded;
}

// The part of the whole map that a need names.
Loaded PartOf(const Loaded& whole, const LinearNeed& need, int tp_rank) {
  const bool by_rows = need.split == Split::kRows, by_columns = need.split == Split::kColumns;
  const Range rows = by_rows ? need.part : Range{0, static_cast<int>(whole.rows)};
  const Range columns = by_columns ? need.part : Range{0, static_cast<int>(whole.columns)};
  Loaded part{static_cast<size_t>(rows.size()), static_cast<size_t>(columns.size()), {}, {}};
  for (int row = rows.begin; row < rows.end; ++row) {
    const float* own = whole.numbers.data() + static_cast<size_t>(row) * whole.columns;
    part.numbers.insert(part.numbers.end(), own + columns.begin, own + columns.end);
  }
  if (whole.bias.has_value() && !(by_columns && tp_rank > 0)) {
    part.bias.emplace(whole.bias->begin() + rows.begin, whole.bias->begin() + rows.end);
  }
  return part;
}

// What tells maps of a layer apart.
std::string KeyOf(const LinearNeed& need) {
  return need.module + " " + need.own_module + " " + std::to_string(need.expert) + " " +
         std::to_string(need.first_row);
}

class Parts {
 public:
  explicit Parts(const Model& model) : model_(model) {}

  void ExpectSplit(const std::vector<int>& widths, bool dealt) {
    const int layers = model_.config.layer_count;
    const ShardPlace all = PlacesOf({1}, layers)[0];
    std::map<std::string, int> seen;
    for (const ShardPlace& place : PlacesOf(widths, layers, dealt)) {
      WeightLoader own(model_.files, model_.config, place, EngineDevice::kCpu, [](uint64_t) {});
      WeightLoader whole(model_.files, model_.config, all, EngineDevice::kCpu, [](uint64_t) {});
      for (int layer = 0; layer < layers; ++layer) {
        ExpectLayer(NeedsOfLayer(model_.config, all, layer), whole,
                    NeedsOfLayer(model_.config, place, layer), own, place);
      }
      Expect(EmbeddingNeed(model_.config, all), whole, EmbeddingNeed(model_.config, place), own,
             place);
      Expect(HeadNeed(model_.config, all), whole, HeadNeed(model_.config, place), own, place);
    }
  }

 private:
  static void Expect(const LinearNeed& all, WeightLoader& whole, const LinearNeed& mine,
                     WeightLoader& own, const ShardPlace& place) {
    const Loaded loaded = Load(own, mine);
    const Loaded expected = PartOf(Load(whole, all), mine, place.tp_rank);
    SCOPED_TRACE(mine.module + ", expert " + std::to_string(mine.expert) + ", rank " +
                 std::to_string(place.tp_rank));
    ASSERT_EQ(loaded.rows, expected.rows);
    ASSERT_EQ(loaded.columns, expected.columns);
    ASSERT_EQ(loaded.numbers, expected.numbers);
    if (mine.bias) {
      ASSERT_EQ(loaded.bias, expected.bias);
    }
  }

  void ExpectLayer(const LayerNeeds& all, WeightLoader& whole, const LayerNeeds& mine,
                   WeightLoader& own, const ShardPlace& place) {
    std::map<std::string, const LinearNeed*> maps;
    for (const LinearNeed* need : LinearsOf(all, *model_.files)) maps[KeyOf(*need)] = need;
    for (const LinearNeed* need : LinearsOf(mine, *model_.files)) {
      Expect(*maps.at(KeyOf(*need)), whole, *need, own, place);
    }
    const auto wholes = VectorsOf(all), parts = VectorsOf(mine);
    ASSERT_EQ(wholes.size(), parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto vector = own.LoadVector(*parts[i]);
      ASSERT_EQ(vector.has_value(), !parts[i]->name.empty());
      const Range part = parts[i]->part;
      if (!vector.has_value() || part.size() == 0) continue;
      const Floats from = FloatsOf(*whole.LoadVector(VectorNeed{wholes[i]->name, wholes[i]->size}));
      ASSERT_EQ(FloatsOf(*vector), Floats(from.begin() + part.begin, from.begin() + part.end))
          << parts[i]->name;
    }
  }

  const Model& model_;
};

void ExpectParts(const std::map<std::string, std::string>& files) {
  SCOPED_TRACE(files.at("config.json"));
  const Model model(files);
  Parts parts(model);
  for (const std::vector<int>& widths : {std::vector<int>{1, 1}, {5, 2, 1}, {1, 30}}) {
    parts.ExpectSplit(widths, /*dealt=*/false);
    if (model.config.experts.count > 0) parts.ExpectSplit(widths, /*dealt=*/true);
  }
}

class WeightPartsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(WeightPartsTest, EachRankLoadsItsPartOfTheWhole) {
  for (const int bits : {0, 3, 8}) ExpectParts(FamilyModel({GetParam(), bits}));
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, WeightPartsTest, ::testing::ValuesIn(FamilyNames()), NameOf);

json AsFp8(const std::string& name) {
  json config = FamilyConfig({name});
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {40, 48}}};
  return config;
}

json WithExpertsAs(const std::string& name, const std::string& layout) {
  json config = FamilyConfig({name});
  config["test_experts"] = layout;
  return config;
}

ModelShape GptOss(bool blocks) {
  ModelShape shape;
  shape.architecture = "gpt_oss";
  shape.mxfp4 = true;
  shape.blocks = blocks;
  shape.experts = 5;
  shape.inner = 96;
  shape.biases = true;
  return shape;
}

TEST(WeightPartsTest, InEveryFormOfStorage) {
  ExpectParts(ModelOfConfig(AsFp8("glm4_moe groups")));
  ExpectParts(ModelOfConfig(AsFp8("olmo2")));
  for (const char* layout : {"fused", "turned"}) {
    ExpectParts(ModelOfConfig(WithExpertsAs("qwen3_vl_moe", layout)));
  }
  for (const char* name : {"glm4_moe", "phi3", "qwen3_5"}) {
    ExpectParts(SymmetricModel(name, /*packed=*/true));
  }
  for (const bool blocks : {false, true}) ExpectParts(RandomModel(GptOss(blocks)));
  ExpectParts(ModelOfConfig(CompressedConfig()));
  ModelShape latent;
  latent.architecture = "deepseek_v32";
  latent.latent = 64;
  latent.query_latent = 96;
  latent.index_top = 3;
  for (const bool by_head : {false, true}) {
    latent.by_head = by_head;
    ExpectParts(RandomModel(latent));
  }
}

// Of 8-bit floats: each number times its block's scale, rounded to bfloat16.
TEST(WeightPartsTest, EightBitFloatsAreTheirNumbersTimesTheScale) {
  const Model model(FamilyModel({"phi3 fp8"}));
  const ShardPlace whole{0, 2};
  WeightLoader loader(model.files, model.config, whole, EngineDevice::kCpu, [](uint64_t) {});
  const LayerNeeds needs = NeedsOfLayer(model.config, whole, 1);
  for (const LinearNeed* need : LinearsOf(needs, /*is_by_head=*/false)) {
    const StoredTensor& stored = *model.files->Find(need->module + ".weight");
    const StoredTensor& scales = *model.files->Find(need->module + ".weight_scale_inv");
    const Loaded loaded = Load(loader, *need);
    ASSERT_EQ(loaded.numbers.size(), static_cast<size_t>(need->rows * need->columns));
    for (size_t i = 0; i < loaded.numbers.size(); ++i) {
      const size_t row = static_cast<size_t>(need->first_row) + i / loaded.columns;
      const size_t column = i % loaded.columns;
      const int bits = std::to_integer<int>(stored.data[row * loaded.columns + column]);
      const int exponent = bits >> 3 & 15, mantissa = bits & 7;
      double number =
          exponent == 0 ? mantissa / 512.0 : (1 + mantissa / 8.0) * std::exp2(exponent - 7);
      if ((bits & 128) != 0) number = -number;
      float scale = 0;
      const size_t across = (loaded.columns + 39) / 40;
      std::memcpy(&scale, scales.data + 4 * (row / 48 * across + column / 40), 4);
      // Half of the last of eight bits.
      ASSERT_NEAR(loaded.numbers[i], number * scale, std::fabs(number * scale) / 256)
          << need->module << " " << row << ", " << column;
    }
  }
}

Floats Unpacked(const StackedLinear& stack) {
  if (!stack.scales.has_value()) return FloatsOf(stack.weight);
  return FloatsOf(mx::dequantize(stack.weight, *stack.scales, stack.biases, stack.traits.group_size,
                                 stack.traits.bits, MlxModeOf(stack.traits)));
}

// All experts in one array, as MLX takes them, against each as kernels read it.
void ExpectStacks(const std::map<std::string, std::string>& files) {
  SCOPED_TRACE(files.at("config.json"));
  const Model model(files);
  for (const ShardPlace& place : PlacesOf({2, 1}, model.config.layer_count)) {
    WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
    const LayerNeeds needs = NeedsOfLayer(model.config, place, 1);
    ASSERT_FALSE(needs.experts.empty());
    for (LinearNeed FeedNeeds::*map : {&FeedNeeds::gate, &FeedNeeds::up, &FeedNeeds::down}) {
      std::vector<const LinearNeed*> maps;
      Floats expected, biases;
      bool has_bias = false;
      for (const FeedNeeds& expert : needs.experts) {
        maps.push_back(&(expert.*map));
        const Loaded own = Load(loader, expert.*map);
        expected.insert(expected.end(), own.numbers.begin(), own.numbers.end());
        has_bias = own.bias.has_value();
        if (has_bias) biases.insert(biases.end(), own.bias->begin(), own.bias->end());
      }
      const StackedLinear stack = loader.LoadStacked(maps);
      const Floats numbers = Unpacked(stack);
      ASSERT_EQ(numbers.size(), expected.size());
      for (size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_NEAR(numbers[i], expected[i], 1e-6) << maps[0]->module << " " << i;
      }
      ASSERT_EQ(stack.bias.has_value(), has_bias) << maps[0]->module;
      if (has_bias) {
        EXPECT_EQ(FloatsOf(*stack.bias), biases);
      }
    }
  }
}

TEST(WeightPartsTest, StacksOfExpertsHaveTheSameNumbers) {
  for (const int bits : {0, 4, 6}) ExpectStacks(FamilyModel({"minimax_m2", bits}));
  ExpectStacks(ModelOfConfig(AsFp8("glm4_moe groups")));
  ExpectStacks(SymmetricModel("glm4_moe", /*packed=*/true));
  for (const char* layout : {"fused", "turned"}) {
    ExpectStacks(ModelOfConfig(WithExpertsAs("qwen3_vl_moe", layout)));
  }
  for (const bool blocks : {false, true}) ExpectStacks(RandomModel(GptOss(blocks)));
}

// Maps of latent attention that stand by head, and those cut out of kv_b.
TEST(WeightPartsTest, MapsByHeadHaveTheSameNumbers) {
  ModelShape shape;
  shape.architecture = "deepseek_v3";
  shape.latent = 64;
  for (const int bits : {0, 4}) {
    for (const bool by_head : {true, false}) {
      shape.bits = bits;
      shape.by_head = by_head;
      const Model model(shape);
      for (const ShardPlace& place : PlacesOf({2, 1}, 2)) {
        WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
        const LayerNeeds needs = NeedsOfLayer(model.config, place, 1);
        const LatentNeeds& latent = *needs.latent;
        ASSERT_EQ(loader.IsStoredByHead(latent), by_head);
        const int heads = KvHeadsOf(model.config, place.slices()).size();
        for (const LinearNeed* need : {&latent.embed_q, &latent.unembed_out, &latent.kv_b}) {
          if ((need == &latent.kv_b) == by_head) continue;
          const StackedLinear stack =
              by_head ? loader.LoadHeads(*need) : loader.LoadHeadsFrom(*need, heads);
          ASSERT_EQ(stack.weight.shape(0), heads);
          const Floats numbers = Unpacked(stack), expected = Load(loader, *need).numbers;
          ASSERT_EQ(numbers.size(), expected.size()) << need->module;
          for (size_t i = 0; i < numbers.size(); ++i) ASSERT_NEAR(numbers[i], expected[i], 1e-6);
        }
      }
    }
  }
}

// What is told as it is read adds up to what was said to be needed, of each place.
TEST(WeightPartsTest, ProgressEndsAtWhatIsNeeded) {
  for (const char* name : {"gemma4", "nemotron_h experts", "glm4_moe groups"}) {
    const Model model(FamilyModel({name, 4}));
    const int layers = model.config.layer_count;
    std::vector<ShardPlace> places = PlacesOf({2, 1}, layers);
    ShardPlace first{0, 1}, last{layers - 1, layers};
    first.has_head = last.embeds = false;
    places.insert(places.end(), {first, last});
    for (const ShardPlace& place : places) {
      uint64_t told = 0;
      WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu,
                          [&](uint64_t bytes) { told += bytes; });
      NoRankSums alone;
      const CpuModel loaded(model.config, place, loader, alone,
                            {.blocks_total = 1, .context_length = 32});
      EXPECT_EQ(told, loader.BytesNeeded()) << name << " of layers " << place.layer_begin;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
