// Maps that read the same input, loaded as one: the numbers of each, in their order, in every form
// of storage, and what is told of them; maps of different formats are left apart.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using Floats = std::vector<float>;
using Needs = std::vector<const LinearNeed*>;

Floats FloatsOf(const mx::array& given) {
  mx::array plain = mx::contiguous(mx::astype(given, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

struct MlxLoader {
  MlxLoader(const Model& model, const ShardPlace& place)
      : loader(model.files, model.config, place, EngineDevice::kMlxCpu,
               [this](uint64_t bytes) { told += bytes; }) {}
  uint64_t told = 0;
  WeightLoader loader;
};

// The joined map's numbers, its bias and what it makes of an input, against each map by itself.
void ExpectJoined(const Model& model, const ShardPlace& place, const Needs& needs) {
  SCOPED_TRACE(needs[0]->module + " on rank " + std::to_string(place.tp_rank));
  MlxLoader together(model, place), apart(model, place);
  const std::optional<Linear> joined = together.loader.LoadJoined(needs);
  if (std::any_of(needs.begin(), needs.end(),
                  [](const LinearNeed* need) { return need->part_rows() == 0; })) {
    EXPECT_FALSE(joined.has_value());
    return;
  }
  ASSERT_TRUE(joined.has_value());
  const int columns = needs[0]->columns;
  const mx::array x = mx::random::normal({3, columns}, mx::float32, 0.0F, 1.0F, mx::random::key(7));
  Floats numbers, biases;
  std::vector<mx::array> given;
  for (const LinearNeed* need : needs) {
    const Linear own = apart.loader.LoadLinear(*need);
    const Floats floats = FloatsOf(own.Floats());
    numbers.insert(numbers.end(), floats.begin(), floats.end());
    ASSERT_EQ(own.bias().has_value(), joined->bias().has_value());
    if (own.bias().has_value()) {
      const Floats bias = FloatsOf(*own.bias());
      biases.insert(biases.end(), bias.begin(), bias.end());
    }
    given.push_back(own.Apply(x));
  }
  EXPECT_EQ(FloatsOf(joined->Floats()), numbers);
  if (joined->bias().has_value()) {
    EXPECT_EQ(FloatsOf(*joined->bias()), biases);
  }
  EXPECT_EQ(FloatsOf(joined->Apply(x)), FloatsOf(mx::concatenate(given, -1)));
  EXPECT_EQ(together.told, apart.told);
}

void ExpectLayersJoin(const std::map<std::string, std::string>& files) {
  SCOPED_TRACE(files.at("config.json"));
  const Model model(files);
  for (const std::vector<int>& widths : {std::vector<int>{1}, {5, 2, 1}, {1, 30}}) {
    for (const ShardPlace& place : PlacesOf(widths, model.config.layer_count)) {
      const LayerNeeds needs = NeedsOfLayer(model.config, place, 0);
      ExpectJoined(model, place, {&needs.q, &needs.k, &needs.v});
      if (!needs.feed.has_value()) continue;
      ExpectJoined(model, place, {&needs.feed->gate, &needs.feed->up});
    }
  }
}

json AsFp8(const std::string& name) {
  json config = FamilyConfig({name});
  config["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {40, 48}}};
  return config;
}

TEST(JoinedMapsTest, HaveTheRowsOfEachInEveryFormOfStorage) {
  for (const char* name : {"olmo2", "seed_oss", "phi3"}) {
    for (const int bits : {0, 3, 4, 8}) ExpectLayersJoin(FamilyModel({name, bits}));
  }
  ExpectLayersJoin(ModelOfConfig(AsFp8("olmo2")));
  ExpectLayersJoin(SymmetricModel("phi3", /*packed=*/true));
  ExpectLayersJoin(SymmetricModel("phi3", /*packed=*/false));
}

Model WithOverrides(const json& overrides) {
  json config = FamilyConfig({"olmo2", 4});
  config["quantization"].update(overrides);
  return Model(ModelOfConfig(config));
}

bool Joins(const Model& model, EngineDevice device = EngineDevice::kMlxCpu) {
  uint64_t told = 0;
  const ShardPlace place = PlacesOf({1}, model.config.layer_count)[0];
  WeightLoader loader(model.files, model.config, place, device,
                      [&](uint64_t bytes) { told += bytes; });
  const LayerNeeds needs = NeedsOfLayer(model.config, place, 0);
  const bool joins = loader.LoadJoined({&needs.q, &needs.k, &needs.v}).has_value();
  EXPECT_EQ(told > 0, joins);
  return joins;
}

TEST(JoinedMapsTest, DifferentQuantisationsAreLeftApart) {
  const std::string key = "model.layers.0.self_attn.k_proj";
  EXPECT_TRUE(Joins(WithOverrides(json::object())));
  EXPECT_FALSE(Joins(WithOverrides({{key, {{"bits", 8}, {"group_size", 32}}}})));
  EXPECT_FALSE(Joins(WithOverrides({{key, {{"bits", 4}, {"group_size", 64}}}})));
  EXPECT_FALSE(Joins(WithOverrides({{key, false}})));
}

TEST(JoinedMapsTest, DifferentTypesAreLeftApart) {
  auto tensors = TinyLlama();
  const std::string name = "model.layers.0.self_attn.k_proj.weight";
  FixtureTensor& keys = tensors.at(name);
  std::string halves;
  for (size_t i = 0; i < keys.bytes.size(); i += 4) halves += keys.bytes.substr(i + 2, 2);
  keys = {"BF16", keys.shape, halves};
  const Model model(
      {{"config.json", TinyLlamaConfig()}, {"model.safetensors", Safetensors(tensors)}});
  EXPECT_FALSE(Joins(model));
}

TEST(JoinedMapsTest, KernelsThatReadInPlaceGetEachByItself) {
  EXPECT_FALSE(Joins(WithOverrides(json::object()), EngineDevice::kCpu));
}

TEST(JoinedMapsTest, MissingMapsAndSplitColumnsAreLeftApart) {
  const Model model(FamilyModel({"olmo2", 4}));
  const ShardPlace place = PlacesOf({1}, model.config.layer_count)[0];
  MlxLoader mlx(model, place);
  const LayerNeeds needs = NeedsOfLayer(model.config, place, 0);
  const LinearNeed none;
  EXPECT_FALSE(mlx.loader.LoadJoined({&needs.q, &none}).has_value());
  // What a rank's columns give is a sum over ranks, never a part of other rows.
  EXPECT_FALSE(mlx.loader.LoadJoined({&needs.o, &needs.o}).has_value());
  EXPECT_EQ(mlx.told, 0U);
}

// All experts' gates and what goes up of them, in one array.
void ExpectExpertsJoin(const std::map<std::string, std::string>& files) {
  SCOPED_TRACE(files.at("config.json"));
  const Model model(files);
  for (const ShardPlace& place : PlacesOf({2, 1}, model.config.layer_count)) {
    MlxLoader together(model, place), apart(model, place);
    const LayerNeeds needs = NeedsOfLayer(model.config, place, 1);
    Needs gates, ups;
    for (const FeedNeeds& expert : needs.experts) {
      gates.push_back(&expert.gate);
      ups.push_back(&expert.up);
    }
    const auto joined = together.loader.LoadStackedJoined({gates, ups});
    ASSERT_TRUE(joined.has_value());
    const StackedLinear gate = apart.loader.LoadStacked(gates), up = apart.loader.LoadStacked(ups);
    const auto expect = [&](const std::optional<mx::array>& whole,
                            const std::optional<mx::array>& first,
                            const std::optional<mx::array>& second) {
      ASSERT_EQ(whole.has_value(), first.has_value());
      if (!whole.has_value()) return;
      EXPECT_EQ(whole->dtype(), first->dtype());
      EXPECT_EQ(FloatsOf(*whole), FloatsOf(mx::concatenate({*first, *second}, 1)));
    };
    expect(joined->weight, gate.weight, up.weight);
    expect(joined->scales, gate.scales, up.scales);
    expect(joined->biases, gate.biases, up.biases);
    expect(joined->bias, gate.bias, up.bias);
    EXPECT_EQ(joined->traits, gate.traits);
    EXPECT_EQ(together.told, apart.told);
  }
}

TEST(JoinedMapsTest, ExpertsHaveTheRowsOfEach) {
  for (const int bits : {0, 4, 6}) ExpectExpertsJoin(FamilyModel({"minimax_m2", bits}));
  ExpectExpertsJoin(ModelOfConfig(AsFp8("glm4_moe groups")));
  ExpectExpertsJoin(SymmetricModel("glm4_moe", /*packed=*/true));
  for (const char* layout : {"fused", "turned"}) {
    json config = FamilyConfig({"qwen3_vl_moe"});
    config["test_experts"] = layout;
    ExpectExpertsJoin(ModelOfConfig(config));
  }
  for (const bool blocks : {false, true}) {
    ModelShape shape;
    shape.architecture = "gpt_oss";
    shape.mxfp4 = true;
    shape.blocks = blocks;
    shape.experts = 5;
    shape.inner = 96;
    shape.biases = true;
    ExpectExpertsJoin(RandomModel(shape));
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
