// Configs of every family that are wrong in one place: each field takes each of many values. What
// is refused is refused with a sentence that names the folder; of what is taken, all that is worked
// out from it is sane, for the whole model and for a rank's part of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "proto/reasons.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/config/rope.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/weights/weight_needs.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/model_fixture.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<json> HostileValues() {
  return {nullptr,
          true,
          false,
          "",
          "x",
          "yarn",
          -1,
          0,
          1,
          2,
          3,
          7,
          4096,
          1 << 24,
          (1 << 24) + 1,
          int64_t{1} << 31,
          int64_t{1} << 32,
          std::numeric_limits<int64_t>::max(),
          std::numeric_limits<int64_t>::min(),
          std::numeric_limits<uint64_t>::max(),
          0.5,
          -0.0,
          1e-9,
          1e300,
          json::array(),
          json::object(),
          json::array({1}),
          json::array({nullptr, "x"}),
          json::array({true, false}),
          {{"type", "yarn"}},
          {{"full_attention", 3}}};
}

// Pointers to all values, those inside of others too.
void AddPointers(const json& value, const json::json_pointer& at,
                 std::vector<json::json_pointer>& out) {
  if (!at.empty()) out.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) AddPointers(inner, at / key, out);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) AddPointers(value[i], at / i, out);
  }
}

void ExpectSaneRope(const RopeTraits& rope) {
  EXPECT_GT(rope.dims, 0);
  EXPECT_EQ(rope.dims % 2, 0);
  if (rope.dims > 4096) return;  // as the others, but a table of gigabytes
  const RopeTable table = MakeRopeTable(rope, 2048);
  ASSERT_EQ(table.frequencies.size(), static_cast<size_t>(rope.dims / 2));
  for (const float frequency : table.frequencies) ASSERT_TRUE(std::isfinite(frequency));
  EXPECT_TRUE(std::isfinite(table.magnitude) && std::isfinite(table.position_scale));
}

// Sizes that a place can have, with every part within its whole.
void ExpectSaneNeeds(const ModelConfig& config, const ShardPlace& place, int layer) {
  const LayerNeeds needs = NeedsOfLayer(config, place, layer);
  for (const LinearNeed* need : LinearsOf(needs, /*is_by_head=*/false)) {
    ASSERT_GT(need->rows, 0) << need->module;
    ASSERT_GT(need->columns, 0) << need->module;
    ASSERT_LE(need->first_row + int64_t{need->rows}, need->all_stored_rows()) << need->module;
    const int whole = need->split == Split::kRows ? need->rows : need->columns;
    if (need->split == Split::kNone) continue;
    ASSERT_TRUE(0 <= need->part.begin && need->part.begin <= need->part.end &&
                need->part.end <= whole)
        << need->module << ": [" << need->part.begin << ", " << need->part.end << ") of " << whole;
  }
  for (const VectorNeed* need : VectorsOf(needs)) {
    if (need->name.empty()) continue;
    ASSERT_GT(need->size, 0) << need->name;
    ASSERT_LE(need->part.end, need->size) << need->name;
  }
}

void ExpectSane(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.layer_count);
  ASSERT_GT(layers, 0u);
  for (const size_t count :
       {config.mixers.size(), config.has_feed.size(), config.has_experts.size(),
        config.rope_uses.size(), config.sliding_windows.size()}) {
    ASSERT_EQ(count, layers);
  }
  ExpectSaneRope(config.rope);
  if (config.local_rope.has_value()) ExpectSaneRope(*config.local_rope);
  ShardPlace whole{0, config.layer_count}, third{0, config.layer_count, 3, 1, 1, 2, 3};
  for (const ShardPlace& place : {whole, third}) {
    for (const int layer : {0, config.layer_count / 2, config.layer_count - 1}) {
      ExpectSaneNeeds(config, place, layer);
    }
  }
  EXPECT_GE(CarriedInto(config, config.layer_count / 2).width, config.hidden_size);
  if (RecurrentLayersOf(config, whole) > 0) {
    EXPECT_GT(RecurrentCutOf(config, whole.slices()).floats(), 0u);
  }
}

void ExpectRefusedWell(const absl::Status& status) {
  const v1::Reason reason = ReasonOf(status);
  EXPECT_THAT(reason.code(), AnyOf("MODEL_CONFIG_INVALID", "MODEL_FORMAT_UNSUPPORTED",
                                   "MODEL_ARCHITECTURE_UNKNOWN"));
  EXPECT_THAT(reason.message(), AllOf(StartsWith("m/config.json: "), Not(HasSubstr("json."))))
      << "words of ours that name the field";
}

class HostileConfigTest : public ::testing::TestWithParam<std::string> {
 protected:
  static json Config() {
    return GetParam() == "deepseek_v41" ? CompressedConfig() : FamilyConfig({GetParam(), 4});
  }
};

TEST_P(HostileConfigTest, EachValueInEachPlaceIsRefusedOrMakesSense) {
  const json whole = Config();
  std::vector<json::json_pointer> places;
  AddPointers(whole, json::json_pointer(), places);
  ASSERT_GT(places.size(), 10u);
  for (const json::json_pointer& place : places) {
    for (const json& value : HostileValues()) {
      json config = whole;
      config[place] = value;
      SCOPED_TRACE(place.to_string() + " = " + value.dump());
      const auto parsed = ParseModelConfig(config.dump(), "m");
      if (parsed.ok()) {
        ExpectSane(*parsed);
      } else {
        ExpectRefusedWell(parsed.status());
      }
      if (HasFailure()) return;  // one is enough to read
    }
  }
}

// Two to four places at once: what bounds let through together is sane too.
TEST_P(HostileConfigTest, SeveralValuesAtOnceAreRefusedOrMakeSense) {
  const json whole = Config();
  std::vector<json::json_pointer> places;
  AddPointers(whole, json::json_pointer(), places);
  std::mt19937 random(static_cast<uint32_t>(places.size()));
  const auto pick = [&](size_t below) {
    return std::uniform_int_distribution<size_t>(0, below - 1)(random);
  };
  std::vector<json> values = HostileValues();
  for (const int size : {4, 6, 8, 16, 64, 96, 128, 8192, 1 << 20, 1 << 23}) values.push_back(size);
  int taken = 0;
  for (int round = 0; round < 1500; ++round) {
    json config = whole;
    for (size_t changes = 2 + pick(3); changes > 0; --changes) {
      const json::json_pointer& place = places[pick(places.size())];
      // What an earlier change left no room for.
      if (config.contains(place)) config[place] = values[pick(values.size())];
    }
    SCOPED_TRACE(config.dump());
    const auto parsed = ParseModelConfig(config.dump(), "m");
    if (parsed.ok()) {
      ExpectSane(*parsed);
    } else {
      ExpectRefusedWell(parsed.status());
    }
    taken += parsed.ok() ? 1 : 0;
    if (HasFailure()) return;
  }
  EXPECT_GT(taken, 10) << "some are harmless";
}

// Nothing is read through a missing field either.
TEST_P(HostileConfigTest, EachMissingFieldIsNamedOrHasADefault) {
  const json whole = Config();
  std::vector<json::json_pointer> places;
  AddPointers(whole, json::json_pointer(), places);
  for (const json::json_pointer& place : places) {
    json config = whole, nulled = whole;
    json& around = config[place.parent_pointer()];
    if (!around.is_object()) continue;
    around.erase(place.back());
    SCOPED_TRACE(place.to_string());
    const auto parsed = ParseModelConfig(config.dump(), "m");
    if (parsed.ok()) {
      ExpectSane(*parsed);
    } else {
      ExpectRefusedWell(parsed.status());
    }
    nulled[place] = nullptr;
    const auto null = ParseModelConfig(nulled.dump(), "m");
    // Of Gemma 4 alone a null says something.
    if (place.back() == "final_logit_softcapping") continue;
    EXPECT_EQ(null.ok(), parsed.ok()) << "null counts as missing: " << null.status();
  }
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names = FamilyNames();
  names.push_back("deepseek_v41");
  return names;
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, HostileConfigTest, ::testing::ValuesIn(AllNames()), NameOf);

std::string Refusal(const std::string& text) {
  const auto parsed = ParseModelConfig(text, "m");
  return parsed.ok() ? "" : std::string(parsed.status().message());
}

TEST(HostileConfigsTest, WhatIsNoJsonObjectIsRefused) {
  for (const std::string text :
       {"", "null", "[]", "{", "{\"model_type\": \"llama\"", "\"llama\"", "{\"a\": \xFF}", "7"}) {
    EXPECT_THAT(Refusal(text), StartsWith("m/config.json is not a JSON object")) << text;
  }
  EXPECT_THAT(Refusal("{}"), HasSubstr("'model_type' is missing"));
  EXPECT_THAT(Refusal(R"({"model_type": 7})"), HasSubstr("'model_type' is missing"));
  EXPECT_THAT(Refusal(R"({"model_type": "bert"})"), HasSubstr("architecture 'bert'"));
}

json Changed(const std::string& name, const json& changes) {
  json config = FamilyConfig({name});
  (config.contains("text_config") ? config["text_config"] : config).update(changes);
  return config;
}

TEST(HostileConfigsTest, MarksOfLayersAreFlagsOrWholeNumbers) {
  for (const json& marks : {json::array({0, 1}), json::array({false, true})}) {
    const auto smol = ParseModelConfig(Changed("smollm3", {{"no_rope_layers", marks}}).dump(), "m");
    ASSERT_TRUE(smol.ok()) << smol.status();
    EXPECT_EQ(smol->rope_uses, (std::vector<RopeUse>{RopeUse::kNone, RopeUse::kGlobal}));
    const auto moe = ParseModelConfig(Changed("exaone_moe", {{"is_moe_layer", marks}}).dump(), "m");
    ASSERT_TRUE(moe.ok()) << moe.status();
    EXPECT_EQ(moe->has_experts, (std::vector<bool>{false, true}));
  }
  EXPECT_THAT(Refusal(Changed("smollm3", {{"no_rope_layers", {0, "no"}}}).dump()),
              HasSubstr("'no_rope_layers' holds \"no\", neither 0 nor 1"));
  EXPECT_THAT(Refusal(Changed("exaone_moe", {{"is_moe_layer", {0, 0.5}}}).dump()),
              HasSubstr("'is_moe_layer' holds 0.5"));
  EXPECT_THAT(Refusal(Changed("exaone_moe", {{"is_moe_layer", {0}}}).dump()),
              HasSubstr("'is_moe_layer' is not a list of 2"));
}

TEST(HostileConfigsTest, AYarnOfPairsThatTurnAlikeIsRefused) {
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}};
  for (const double theta : {1.0, 0.5}) {
    EXPECT_THAT(
        Refusal(Changed("olmo2", {{"rope_scaling", yarn}, {"rope_theta", theta}}).dump()),
        HasSubstr("rope scaling 'yarn': 'rope_theta' " + std::string(theta == 1 ? "1" : "0.5")));
  }
}

// Whoever copies a value that is nested a hundred thousand times needs as deep a stack.
TEST(HostileConfigsTest, NestedTooDeeplyIsRefused) {
  const size_t depth = 400'000;
  const std::string nested = std::string(depth, '[') + std::string(depth, ']');
  for (const std::string& name : AllNames()) {
    json config = name == "deepseek_v41" ? CompressedConfig() : FamilyConfig({name});
    config["extra"] = "HERE";
    std::string text = config.dump();
    text.replace(text.find("\"HERE\""), 6, nested);
    EXPECT_THAT(Refusal(text), HasSubstr("m/config.json is nested too deeply")) << name;
  }
  EXPECT_THAT(Refusal("{\"model_type\": " + nested + "}"), HasSubstr("nested too deeply"));
}

TEST(HostileConfigsTest, ALargeFileIsNotRead) {
  const std::string large = "{\"model_type\": \"" + std::string(size_t{1} << 20, 'x') + "\"}";
  const std::string folder = WriteFolder({{"config.json", large}});
  const auto loaded = LoadModelConfig(folder);
  EXPECT_EQ(ReasonOf(loaded.status()).code(), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr(folder + "/config.json is larger than 1048576 bytes"));
}

// A hang is what this test fails by: no program ever writes into the pipe.
TEST(HostileConfigsTest, APipeIsNotWaitedFor) {
  const std::string folder = WriteFolder({});
  const std::string path = folder + "/config.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto loaded = LoadModelConfig(folder);
  EXPECT_EQ(ReasonOf(loaded.status()).code(), "MODEL_CONFIG_INVALID");
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(path + " is a pipe, not a file"));
}

TEST(HostileConfigsTest, AMissingFileIsNamed) {
  const std::string folder = WriteFolder({});
  const auto loaded = LoadModelConfig(folder);
  EXPECT_TRUE(absl::IsNotFound(loaded.status()));
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr(folder + "/config.json can't be read"));
}

}  // namespace
}  // namespace macrame::runtime::engine
