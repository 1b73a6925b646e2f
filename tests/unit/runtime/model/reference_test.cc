// Logits of models of random sizes and traits against a decoder in double precision: of our CPU
// kernels, of MLX's graph, and of ranks of a tensor split.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "runtime/model/cpu/sparse_index.h"
#include "tests/unit/runtime/model/reference_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

// The tokens that RunRank runs.
std::vector<int32_t> Tokens(int vocabulary) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) tokens.push_back(i * i * 7 % vocabulary);
  return tokens;
}

// The largest difference, as a part of the largest logit.
double Distance(const std::vector<float>& ours, const std::vector<double>& expected) {
  EXPECT_EQ(ours.size(), expected.size());
  double largest = 0, distance = 0;
  for (const double logit : expected) largest = std::max(largest, std::fabs(logit));
  for (size_t i = 0; i < std::min(ours.size(), expected.size()); ++i) {
    const double off = std::fabs(ours[i] - expected[i]);
    distance = std::isnan(off) ? 1e30 : std::max(distance, off);
  }
  EXPECT_GT(largest, 0.1) << "logits that say something";
  return distance / largest;
}

// Weights of few bits are multiplied with rounded inputs on a CPU. Packed floats, whose sizes lie
// far apart, are rounded more in sums, by MLX too.
double BoundOf(const ModelShape& shape) {
  if (shape.bits != 0 || shape.mxfp4) return 5e-3;
  return shape.mode.empty() ? 1e-5 : 5e-5;
}

void ExpectIsTheReference(const ModelShape& shape) {
  const auto written = RandomModel(shape);
  SCOPED_TRACE(written.at("config.json"));
  const Model model(written);
  const ReferenceModel reference(json::parse(written.at("config.json")), *model.files);
  const std::vector<double> expected = reference.Logits(Tokens(shape.vocab));
  NoRankSums alone;
  const ShardPlace whole = PlacesOf({1}, shape.layers)[0];
  EXPECT_LT(Distance(RunRank<CpuModel>(model, whole, alone), expected), BoundOf(shape));
  EXPECT_LT(Distance(RunRank<Decoder>(model, whole, alone), expected), BoundOf(shape));
  EXPECT_LT(Distance(RunSplit<CpuModel>(model, {2, 1}), expected), BoundOf(shape));
}

int Pick(std::mt19937& random, const std::vector<int>& of) {
  return of[std::uniform_int_distribution<size_t>(0, of.size() - 1)(random)];
}
bool Coin(std::mt19937& random) { return Pick(random, {0, 1}) == 1; }

json RandomRope(std::mt19937& random) {
  json more = {{"rope_theta", Pick(random, {100, 10000, 1000000})}};
  const int kind = Pick(random, {0, 1, 2});
  if (kind == 1) more["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.5}};
  if (kind == 2) {
    more["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", Pick(random, {16, 64})}};
  }
  return more;
}

ModelShape RandomShape(std::mt19937& random) {
  ModelShape shape;
  shape.layers = Pick(random, {1, 2, 3});
  shape.hidden = Pick(random, {32, 64, 160});
  shape.inner = Pick(random, {32, 96, 352});
  shape.kv_heads = Pick(random, {1, 2, 3});
  shape.heads = shape.kv_heads * Pick(random, {1, 2, 5});
  shape.head_dim = Pick(random, {16, 32, 64});
  shape.vocab = Pick(random, {17, 101, 256});
  shape.tied = Coin(random);
  shape.more = RandomRope(random);
  shape.more["rms_norm_eps"] = Coin(random) ? 1e-6 : 0.1;
  return shape;
}

class ReferenceTest : public ::testing::TestWithParam<int> {
 protected:
  std::mt19937 random_{static_cast<uint32_t>(GetParam())};
};

TEST_P(ReferenceTest, DenseModels) {
  ModelShape shape = RandomShape(random_);
  shape.architecture = std::vector<std::string>{"llama", "qwen3", "mistral"}[GetParam() % 3];
  shape.biases = shape.architecture == "llama" && Coin(random_);
  if (shape.architecture == "mistral") {
    shape.more["sliding_window"] = Pick(random_, {1, 5, 32, 44});
  }
  ExpectIsTheReference(shape);
}

TEST_P(ReferenceTest, QuantisedModels) {
  ModelShape shape = RandomShape(random_);
  shape.bits = Pick(random_, {2, 3, 4, 5, 6, 8});
  shape.head_dim = Pick(random_, {32, 64});  // whole groups
  ExpectIsTheReference(shape);
}

TEST_P(ReferenceTest, ModelsOfExperts) {
  ModelShape shape = RandomShape(random_);
  shape.architecture =
      std::vector<std::string>{"qwen3_moe", "mixtral", "qwen2_moe", "qwen3_moe"}[GetParam() % 4];
  shape.experts = Pick(random_, {2, 5, 8});
  shape.inner = 96;
  shape.biases = shape.architecture == "qwen2_moe";
  shape.shared_inner = shape.biases ? 64 : 0;
  shape.stacked = Coin(random_);
  if (shape.architecture != "mixtral") {
    shape.more["norm_topk_prob"] = Coin(random_);
    shape.more["num_experts_per_tok"] = Pick(random_, {1, 2});
  }
  ExpectIsTheReference(shape);
}

TEST_P(ReferenceTest, GptOss) {
  ModelShape shape = RandomShape(random_);
  shape.architecture = "gpt_oss";
  shape.layers = 2;
  shape.biases = true;
  shape.experts = Pick(random_, {2, 5});
  shape.inner = 96;
  shape.mxfp4 = Coin(random_);
  shape.more["swiglu_limit"] = Coin(random_) ? 7.0 : 0.5;
  shape.tied = false;
  ExpectIsTheReference(shape);
}

// Packed floats are multiplied as the floats that they are: bounds of floats hold.
TEST_P(ReferenceTest, PackedFloats) {
  ModelShape shape = RandomShape(random_);
  shape.mode = Coin(random_) ? "mxfp8" : "nvfp4";
  shape.head_dim = Pick(random_, {32, 64});  // whole groups
  ExpectIsTheReference(shape);
}

TEST_P(ReferenceTest, LatentAttention) {
  ModelShape shape = RandomShape(random_);
  shape.architecture = "deepseek_v3";
  shape.heads = Pick(random_, {1, 3, 4});
  shape.latent = Pick(random_, {32, 64});
  shape.query_latent = Coin(random_) ? 48 : 0;
  shape.nope = Pick(random_, {16, 32});
  shape.rope = Pick(random_, {16, 32});
  shape.value = Pick(random_, {16, 48});
  shape.by_head = Coin(random_);
  shape.experts = Coin(random_) ? 6 : 0;
  shape.inner = 96;
  ExpectIsTheReference(shape);
}

TEST_P(ReferenceTest, PositionsThatAnIndexerChooses) {
  ModelShape shape = RandomShape(random_);
  shape.architecture = "deepseek_v32";
  shape.heads = 3;
  shape.latent = 32;
  shape.query_latent = 48;
  shape.rope = 16;
  shape.value = 16;
  shape.inner = 96;
  shape.layers = 1;
  shape.index_top = Pick(random_, {1, 7, 40, 64});
  ExpectIsTheReference(shape);
}

// More positions than the indexer compares at once, in steps of several sizes.
TEST(ReferencesTest, AnIndexerChoosesAmongMorePositionsThanOneBatch) {
  ModelShape shape;
  shape.architecture = "deepseek_v32";
  shape.layers = 1;
  shape.hidden = 32;
  shape.heads = 2;
  shape.latent = shape.query_latent = 32;
  shape.nope = shape.rope = shape.value = 16;
  shape.inner = 32;
  shape.index_top = 40;
  shape.more["max_position_embeddings"] = 2048;
  const auto written = RandomModel(shape);
  const Model model(written);
  constexpr int kMany = static_cast<int>(kIndexKeysAtOnce) + 70;
  std::vector<int32_t> tokens;
  for (int i = 0; i < kMany; ++i) tokens.push_back((i * i * 7 + i) % shape.vocab);
  const std::vector<double> all =
      ReferenceModel(json::parse(written.at("config.json")), *model.files).Logits(tokens);
  const ShardPlace place{0, 1};
  WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
  NoRankSums alone;
  CpuModel ours(model.config, place, loader, alone,
                {.blocks_total = 40, .context_length = 1280, .threads = 2});
  int begin = 0;
  for (const int end : {700, 1000, kMany - 1, kMany}) {
    Segment segment;
    segment.begin = static_cast<uint32_t>(begin);
    segment.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    for (int block = BlocksFor(begin); block < BlocksFor(end); ++block) {
      segment.new_blocks.push_back(39 - block);
    }
    const ForwardStep step{{}, {segment}};
    ASSERT_TRUE(ours.Begin(step).ok());
    const mx::array states = ours.Run(ours.Embed(segment.tokens), step);
    const std::vector<int32_t> rows = {end - begin - 1};
    const mx::array logits = ours.Logits(states, rows);
    const auto last = all.begin() + static_cast<ptrdiff_t>(end - 1) * shape.vocab;
    EXPECT_LT(Distance({logits.data<float>(), logits.data<float>() + logits.size()},
                       {last, last + shape.vocab}),
              1e-4)
        << "position " << end - 1;
    begin = end;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ReferenceTest, ::testing::Range(0, 8));

}  // namespace
}  // namespace macrame::runtime::engine
