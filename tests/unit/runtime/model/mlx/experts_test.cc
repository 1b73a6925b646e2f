// Experts and feed-forwards as MLX graphs: what CPU kernels give, for all families that have them;
// choices sorted or not; the parts of ranks, which add up to the whole; and how many primitives a
// GPU gets to do, counted on graphs that are built and not evaluated.

#include "runtime/model/mlx/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "mlx/primitives.h"
#include "runtime/model/cpu/feed.h"
#include "runtime/model/mlx/feed.h"
#include "tests/unit/fresh_folder.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using Floats = std::vector<float>;

// Above and below kSortedChoices where a token takes two.
constexpr int kFewRows = 9, kManyRows = 40;
static_assert(2 * kFewRows < kSortedChoices && 2 * kManyRows >= kSortedChoices);

Floats RandomFloats(size_t count) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> between(-2.0F, 2.0F);
  Floats floats(count);
  for (float& number : floats) number = between(random);
  return floats;
}

Floats FloatsOf(const mx::array& given) {
  mx::array plain = mx::contiguous(mx::astype(given, mx::float32));
  plain.eval();
  return {plain.data<float>(), plain.data<float>() + plain.size()};
}

WeightLoader LoaderOf(const Model& model, const ShardPlace& place, EngineDevice device) {
  return WeightLoader(model.files, model.config, place, device, [](uint64_t) {});
}

// Hidden states, and what a router sees of them.
struct Input {
  Input(int rows, int hidden)
      : rows(rows),
        x(RandomFloats(static_cast<size_t>(rows) * hidden)),
        seen(x.rbegin(), x.rend()),
        shape({rows, hidden}) {}
  int rows;
  Floats x, seen;
  mx::Shape shape;
  mx::array x_array() const { return mx::array(x.data(), shape, mx::float32); }
  mx::array seen_array() const { return mx::array(seen.data(), shape, mx::float32); }
};

// A layer's second half, or this rank's part of it.
Floats OnMlx(const Model& model, const ShardPlace& place, int layer, const Input& input) {
  WeightLoader loader = LoaderOf(model, place, EngineDevice::kMlxCpu);
  const LayerNeeds needs = NeedsOfLayer(model.config, place, layer);
  return FloatsOf(
      needs.router.has_value()
          ? MlxExperts(needs, model.config, loader).Apply(input.x_array(), input.seen_array())
          : MlxFeed(*needs.feed, model.config, loader).Apply(input.x_array()));
}

Floats OnKernels(const Model& model, int layer, const Input& input) {
  const ShardPlace place{0, model.config.layer_count};
  WeightLoader loader = LoaderOf(model, place, EngineDevice::kCpu);
  const LayerNeeds needs = NeedsOfLayer(model.config, place, layer);
  kernels::ThreadPool pool(1);
  CpuProducts products(pool);
  FeedWork work{pool, products};
  Floats out(input.x.size());
  const auto rows = static_cast<size_t>(input.rows);
  if (needs.router.has_value()) {
    CpuExperts(needs, model.config, loader)
        .Apply(input.x.data(), input.seen.data(), rows, work, out.data());
  } else {
    CpuFeed(*needs.feed, model.config, loader).Apply(input.x.data(), rows, work, out.data());
  }
  return out;
}

void ExpectNear(const Floats& given, const Floats& expected, double bound) {
  ASSERT_EQ(given.size(), expected.size());
  double largest = 0;
  for (const float number : expected) largest = std::max(largest, std::fabs(double{number}));
  ASSERT_GT(largest, 0.1);
  for (size_t i = 0; i < given.size(); ++i) {
    ASSERT_NEAR(given[i], expected[i], bound * largest) << i;
  }
}

Floats SumOfRanks(const Model& model, int layer, const std::vector<int>& widths, bool dealt,
                  const Input& input) {
  Floats sum(input.x.size(), 0.0F);
  for (const ShardPlace& place : PlacesOf(widths, model.config.layer_count, dealt)) {
    const Floats part = OnMlx(model, place, layer, input);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

void ExpectAsKernels(const std::map<std::string, std::string>& files, double bound = 2e-5) {
  SCOPED_TRACE(files.at("config.json"));
  const Model model(files);
  for (int layer = 0; layer < model.config.layer_count; ++layer) {
    const LayerNeeds needs = NeedsOfLayer(model.config, {0, model.config.layer_count}, layer);
    if (!needs.feed.has_value() && !needs.router.has_value()) continue;
    for (const int rows : {1, kFewRows, kManyRows}) {
      const Input input(rows, model.config.hidden_size);
      const Floats expected = OnKernels(model, layer, input);
      for (const std::vector<int>& widths : {std::vector<int>{1}, {1, 1}, {5, 2, 1}, {1, 30}}) {
        for (const bool dealt : {false, true}) {
          if (dealt && !needs.router.has_value()) continue;
          SCOPED_TRACE("layer " + std::to_string(layer) + ", rows " + std::to_string(rows) +
                       ", ranks " + std::to_string(widths.size()) + (dealt ? ", dealt" : ""));
          ExpectNear(SumOfRanks(model, layer, widths, dealt, input), expected, bound);
        }
      }
    }
  }
}

json Changed(const std::string& name, const json& changes) {
  json config = FamilyConfig({name});
  (config.contains("text_config") ? config["text_config"] : config).update(changes);
  return config;
}

TEST(MlxExpertsTest, FeedsGiveWhatKernelsGive) {
  for (const char* name : {"olmo2", "internlm3", "phi3", "gemma3", "nemotron_h feeds"}) {
    ExpectAsKernels(FamilyModel({name}));
  }
  // Gate and up of different formats are two products.
  json apart = FamilyConfig({"olmo2", 4});
  apart["quantization"]["model.layers.0.mlp.up_proj"] = {{"bits", 8}, {"group_size", 32}};
  ExpectAsKernels(ModelOfConfig(apart), 0.02);
}

TEST(MlxExpertsTest, ExpertsGiveWhatKernelsGive) {
  for (const char* name :
       {"olmoe", "qwen3_next", "glm4_moe", "glm4_moe groups", "dots1", "nemotron_h experts",
        "minimax_m3_vl", "gemma4_text experts", "qwen3_vl_moe turned"}) {
    ExpectAsKernels(FamilyModel({name}));
  }
  ExpectAsKernels(ModelOfConfig(Changed("olmoe", {{"norm_topk_prob", true}})));
  ExpectAsKernels(ModelOfConfig(Changed("dots1", {{"norm_topk_prob", false}})));
  ExpectAsKernels(ModelOfConfig(Changed("glm4_moe", {{"num_experts_per_tok", 1}})));
  ExpectAsKernels(ModelOfConfig(Changed("olmoe", {{"num_experts_per_tok", 5}})));
}

// Kernels round what they multiply with quantised weights; MLX does not.
TEST(MlxExpertsTest, QuantisedExpertsGiveWhatKernelsGive) {
  for (const int bits : {4, 8}) {
    for (const char* name : {"olmoe", "glm4_moe"}) ExpectAsKernels(FamilyModel({name, bits}), 0.02);
  }
  ModelShape shape;
  shape.architecture = "gpt_oss";
  shape.mxfp4 = shape.blocks = shape.biases = true;
  shape.experts = 5;
  shape.inner = 96;
  ExpectAsKernels(RandomModel(shape), 0.02);
}

// All rows together are sorted, each by itself is not.
TEST(MlxExpertsTest, SortedChoicesGiveWhatUnsortedOnesGive) {
  for (const int bits : {0, 4}) {
    for (const bool dealt : {false, true}) {
      const Model model(FamilyModel({"olmoe", bits}));
      const int hidden = model.config.hidden_size;
      const Input input(kManyRows, hidden);
      for (const ShardPlace& place : PlacesOf({1, 1}, model.config.layer_count, dealt)) {
        WeightLoader loader = LoaderOf(model, place, EngineDevice::kMlxCpu);
        const MlxExperts experts(NeedsOfLayer(model.config, place, 0), model.config, loader);
        const mx::array x = input.x_array();
        std::vector<mx::array> rows;
        for (int row = 0; row < kManyRows; ++row) {
          rows.push_back(experts.Apply(mx::slice(x, {row, 0}, {row + 1, hidden})));
        }
        ExpectNear(FloatsOf(experts.Apply(x)), FloatsOf(mx::concatenate(rows, 0)), 1e-5);
      }
    }
  }
}

// What one product gives is not changed by another one beside it.
TEST(MlxExpertsTest, JoinedGateAndUpGiveTheSameBits) {
  const Model model(FamilyModel({"olmo2", 4}));
  const ShardPlace place{0, model.config.layer_count};
  const Input input(kFewRows, model.config.hidden_size);
  WeightLoader loader = LoaderOf(model, place, EngineDevice::kMlxCpu);
  const FeedNeeds needs = *NeedsOfLayer(model.config, place, 0).feed;
  const mx::array x = input.x_array();
  const mx::array inner = MlxGated(Activation::kSilu, loader.LoadLinear(needs.gate).Apply(x),
                                   loader.LoadLinear(needs.up).Apply(x));
  EXPECT_EQ(OnMlx(model, place, 0, input), FloatsOf(loader.LoadLinear(needs.down).Apply(inner)));
}

// MLX writes what it compiles below TMPDIR.
class OwnTemporaryFolder {
 public:
  OwnTemporaryFolder() {
    const char* before = std::getenv("TMPDIR");
    if (before != nullptr) before_ = before;
    setenv("TMPDIR", FreshFolder().c_str(), 1);
  }
  ~OwnTemporaryFolder() {
    before_.has_value() ? setenv("TMPDIR", before_->c_str(), 1) : unsetenv("TMPDIR");
  }

 private:
  std::optional<std::string> before_;
};

// Where MLX finds a C++ compiler it fuses on a CPU too; elsewhere both are the same graph. What was
// compiled for some rows holds for others.
TEST(MlxExpertsTest, FusedFunctionsGiveWhatTheirOperationsGive) {
  const OwnTemporaryFolder folder;
  const Model model(FamilyModel({"minimax_m3_vl"}));
  const ShardPlace place = PlacesOf({1, 1}, model.config.layer_count, /*dealt=*/true)[0];
  WeightLoader loader = LoaderOf(model, place, EngineDevice::kGpu);
  const MlxExperts fused(NeedsOfLayer(model.config, place, 1), model.config, loader);
  for (const int rows : {kFewRows, kManyRows}) {
    const Input input(rows, model.config.hidden_size);
    ExpectNear(FloatsOf(fused.Apply(input.x_array(), input.seen_array())),
               OnMlx(model, place, 1, input), 1e-5);
  }
}

// A graph's primitives that a GPU runs: views take no time.
class Primitives {
 public:
  explicit Primitives(const mx::array& root) {
    std::vector<mx::array> left{root};
    while (!left.empty()) {
      const mx::array node = left.back();
      left.pop_back();
      if (!seen_.insert(node.id()).second || !node.has_primitive()) continue;
      for (const mx::array& sibling : node.siblings()) seen_.insert(sibling.id());
      names_.emplace_back(node.primitive().name());
      left.insert(left.end(), node.inputs().begin(), node.inputs().end());
    }
  }
  int Computed() const {
    static const std::set<std::string> views{"Broadcast", "BroadcastAxes", "ExpandDims", "Flatten",
                                             "Full",      "Reshape",       "Slice",      "Split",
                                             "Squeeze",   "Transpose",     "Unflatten"};
    return static_cast<int>(std::count_if(names_.begin(), names_.end(),
                                          [](const auto& name) { return !views.contains(name); }));
  }
  int Of(const std::string& part) const {
    return static_cast<int>(std::count_if(names_.begin(), names_.end(), [&](const auto& name) {
      return name.find(part) != std::string::npos;
    }));
  }
  std::string Names() const {
    std::string all;
    for (const std::string& name : names_) all += name + " ";
    return all;
  }

 private:
  std::unordered_set<std::uintptr_t> seen_;
  std::vector<std::string> names_;
};

// Of 16 experts a token takes 8, as a layer of Qwen3-MoE does of 128.
std::map<std::string, std::string> QwenMoe() {
  ModelShape shape;
  shape.architecture = "qwen3_moe";
  shape.bits = 4;
  shape.experts = 16;
  shape.inner = 64;
  shape.more = {{"num_experts_per_tok", 8}};
  return RandomModel(shape);
}

// The graph of a GPU over an input that is not computed yet; it must not be when it is built.
Primitives GraphOf(const Model& model, const ShardPlace& place, int layer, int rows) {
  WeightLoader loader = LoaderOf(model, place, EngineDevice::kGpu);
  const LayerNeeds needs = NeedsOfLayer(model.config, place, layer);
  const mx::array x =
      mx::negative(mx::ones({rows, model.config.hidden_size}, loader.activation_type()));
  mx::array out = x;
  if (needs.router.has_value()) {
    out = MlxExperts(needs, model.config, loader).Apply(x);
  } else {
    out = MlxFeed(*needs.feed, model.config, loader).Apply(x);
  }
  EXPECT_EQ(out.status(), mx::array::unscheduled);
  EXPECT_EQ(x.status(), mx::array::unscheduled) << "the graph was evaluated while it was built";
  EXPECT_TRUE(x.has_primitive());
  return Primitives(out);
}

// mlx-lm 0.32.2 has 15 for these experts with one row and 21 with eight, 4 for a feed-forward. `x`
// is one more.
constexpr int kOfInput = 1;

TEST(MlxExpertsTest, AGpuRunsFewPrimitivesALayer) {
  const Model model(QwenMoe());
  const ShardPlace whole{0, model.config.layer_count};
  const Primitives one = GraphOf(model, whole, 1, 1), eight = GraphOf(model, whole, 1, 8);
  EXPECT_LE(one.Computed() - kOfInput, 8) << one.Names();
  EXPECT_LE(eight.Computed() - kOfInput, 16) << eight.Names();
  EXPECT_EQ(one.Of("Sort"), 0) << one.Names();
  EXPECT_EQ(eight.Of("Sort"), 2) << eight.Names();
  const Primitives dense = GraphOf(model, whole, 0, 1);
  EXPECT_LE(dense.Computed() - kOfInput, 3) << dense.Names();
}

TEST(MlxExpertsTest, ScoresAndSharedExpertsAreFused) {
  const auto one_row = [](const char* name) {
    const Model model(FamilyModel({name, 4}));
    return GraphOf(model, {0, model.config.layer_count}, 1, 1);
  };
  // Scores with a bias, weights that are scaled, an expert of all tokens and the sum with it.
  const Primitives scored = one_row("glm4_moe");
  EXPECT_LE(scored.Computed() - kOfInput, 14) << scored.Names();
  // A gate of that expert besides.
  const Primitives gated = one_row("qwen3_next");
  EXPECT_LE(gated.Computed() - kOfInput, 13) << gated.Names();
}

TEST(MlxExpertsTest, WholeExpertsCostTwoPrimitivesMore) {
  const Model model(QwenMoe());
  for (const ShardPlace& place : PlacesOf({1, 1}, model.config.layer_count, /*dealt=*/true)) {
    for (const int rows : {1, 8, 256}) {
      const Primitives graph = GraphOf(model, place, 1, rows);
      EXPECT_LE(graph.Computed() - kOfInput, rows == 1 ? 10 : 18) << graph.Names();
    }
  }
}

// A mixture stored in bfloat16: its tensors alone that experts need.
std::map<std::string, std::string> HalfPrecisionMoe() {
  std::map<std::string, FixtureTensor> tensors;
  const std::string layer = "model.layers.0.";
  tensors[layer + "input_layernorm.weight"] = RandomTensor({64}, 1);
  tensors[layer + "mlp.gate.weight"] = RandomTensor({8, 64}, 2);
  tensors[layer + "mlp.switch_mlp.gate_proj.weight"] = RandomTensor({8, 96, 64}, 3);
  tensors[layer + "mlp.switch_mlp.up_proj.weight"] = RandomTensor({8, 96, 64}, 4);
  tensors[layer + "mlp.switch_mlp.down_proj.weight"] = RandomTensor({8, 64, 96}, 5);
  for (auto& [name, tensor] : tensors) {
    std::string halves;
    for (size_t i = 0; i < tensor.bytes.size(); i += 4) halves += tensor.bytes.substr(i + 2, 2);
    tensor = {"BF16", tensor.shape, halves};
  }
  const json config = {{"model_type", "qwen3_moe"},
                       {"num_hidden_layers", 1},
                       {"hidden_size", 64},
                       {"intermediate_size", 128},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"head_dim", 16},
                       {"vocab_size", 96},
                       {"rms_norm_eps", 1e-6},
                       {"max_position_embeddings", 128},
                       {"num_experts", 8},
                       {"num_experts_per_tok", 4},
                       {"moe_intermediate_size", 96},
                       {"norm_topk_prob", true}};
  return {{"config.json", config.dump()}, {"model.safetensors", Safetensors(tensors)}};
}

TEST(MlxExpertsTest, NothingLeavesTheActivationsType) {
  const Model model(HalfPrecisionMoe());
  for (const std::vector<int>& widths : {std::vector<int>{1}, {1, 1}}) {
    for (const ShardPlace& place : PlacesOf(widths, 1, /*dealt=*/true)) {
      for (const int rows : {1, kManyRows}) {
        WeightLoader loader = LoaderOf(model, place, EngineDevice::kMlxCpu);
        ASSERT_EQ(loader.activation_type(), mx::bfloat16);
        const MlxExperts experts(NeedsOfLayer(model.config, place, 0), model.config, loader);
        const mx::array out = experts.Apply(mx::ones({rows, 64}, mx::bfloat16));
        EXPECT_EQ(out.dtype(), mx::bfloat16);
        const Primitives graph(out);
        EXPECT_EQ(graph.Of("AsType"), 0) << graph.Names();
      }
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
