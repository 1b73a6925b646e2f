// Feed-forwards and experts of a CPU against plain loops in double precision: every gate that
// families have, routers with their corrections and scales, experts that all tokens take, and the
// parts of ranks, which add up to the whole.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "runtime/model/cpu/feed.h"
#include "tests/unit/runtime/model/compressed_model.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;
using Numbers = std::vector<double>;
using Floats = std::vector<float>;
using Gate = std::function<double(double gate, double up)>;
using Score = std::function<double(double)>;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double Silu(double gate, double up) { return gate * Sigmoid(gate) * up; }
double Gelu(double gate, double up) {
  const double inner = std::sqrt(2.0 / M_PI) * (gate + 0.044715 * gate * gate * gate);
  return 0.5 * gate * (1.0 + std::tanh(inner)) * up;
}
double SquaredRelu(double, double up) { return up > 0 ? up * up : 0.0; }
Gate Clamped(double limit, double alpha) {
  return [=](double gate, double up) {
    const double g = std::min(gate, limit);
    return g * Sigmoid(alpha * g) * (std::clamp(up, -limit, limit) + 1.0);
  };
}
Gate Limited(double limit) {
  return [=](double gate, double up) {
    return Silu(std::min(gate, limit), std::clamp(up, -limit, limit));
  };
}

Floats RandomFloats(size_t count, float range) {
  std::mt19937 random(6);
  std::uniform_real_distribution<float> between(-range, range);
  Floats floats(count);
  for (float& number : floats) number = between(random);
  return floats;
}

struct Router {
  Score score;                // of what the router gives
  bool is_share = false;      // of all experts' sum, where not of the chosen ones'
  bool is_normalized = true;  // weights of the chosen ones add up to one
  double scale = 1.0, divisor = 1.0;
};

// A layer's second half, from the tensors that its needs name.
class PlainFeeds {
 public:
  PlainFeeds(const Model& model, const LayerNeeds& needs, Gate gate)
      : files_(*model.files), needs_(needs), gate_(std::move(gate)) {}

  Numbers Feed(const FeedNeeds& feed, const Numbers& x) const {
    const Numbers up = Apply(feed.up, x);
    const Numbers gate = feed.gate.module.empty() ? up : Apply(feed.gate, x);
    Numbers inner;
    for (size_t i = 0; i < up.size(); ++i) inner.push_back(gate_(gate[i], up[i]));
    return Apply(feed.down, inner);
  }

  Numbers Experts(const Router& router, const Numbers& x, const Numbers& seen, int active) const {
    Numbers scores = Apply(*needs_.router, seen), out(x.size(), 0.0);
    for (double& score : scores) score = router.score(score / router.divisor);
    Numbers ranks = scores;
    if (!needs_.score_bias.name.empty()) {
      const Numbers bias = Read(needs_.score_bias.name);
      for (size_t i = 0; i < ranks.size(); ++i) ranks[i] += bias[i];
    }
    std::vector<size_t> order(ranks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return ranks[a] > ranks[b]; });
    order.resize(static_cast<size_t>(active));
    double sum = 0;
    for (const size_t expert : order) sum += scores[expert];
    if (router.is_share) sum = std::accumulate(scores.begin(), scores.end(), 0.0);
    const double whole = router.is_share || router.is_normalized ? sum : 1.0;
    for (const size_t expert : order) {
      double weight = scores[expert] / whole * router.scale;
      if (needs_.beside.has_value()) weight *= Read(needs_.beside->expert_scales.name)[expert];
      const Numbers given = Feed(needs_.experts[expert], x);
      for (size_t i = 0; i < out.size(); ++i) out[i] += weight * given[i];
    }
    if (!needs_.shared.has_value()) return out;
    const Numbers given = Feed(*needs_.shared, x);
    const auto& gate = needs_.shared_router;
    const double weight = gate.has_value() ? Sigmoid(Apply(*gate, x)[0]) : 1.0;
    for (size_t i = 0; i < out.size(); ++i) out[i] += weight * given[i];
    return out;
  }

 private:
  Numbers Read(const std::string& name) const {
    const StoredTensor& stored = *files_.Find(name);
    Floats floats(stored.bytes / 4);
    std::memcpy(floats.data(), stored.data, stored.bytes);
    return {floats.begin(), floats.end()};
  }
  // Of a stack the expert's own map; of maps in one tensor its rows.
  Numbers Apply(const LinearNeed& map, const Numbers& x) const {
    const Numbers weight = Read(map.module + ".weight");
    const auto rows = static_cast<size_t>(map.rows), columns = static_cast<size_t>(map.columns);
    const size_t first =
        static_cast<size_t>(map.expert) * rows + static_cast<size_t>(map.first_row);
    Numbers out(rows, 0.0);
    const Numbers bias = map.bias ? Read(map.module + ".bias") : Numbers();
    for (size_t row = 0; row < rows; ++row) {
      const double* own = weight.data() + (first + row) * columns;
      out[row] = std::inner_product(x.begin(), x.end(), own, map.bias ? bias[first + row] : 0.0);
    }
    return out;
  }

  const WeightFiles& files_;
  const LayerNeeds& needs_;
  const Gate gate_;
};

class FeedsTest : public ::testing::Test {
 protected:
  static constexpr size_t kRows = 9;
  FeedsTest() { mx::set_default_device(mx::Device::cpu); }

  // The sum of what ranks with these widths give, by row; `layer`'s feed-forward or experts.
  Floats SumOfRanks(const Model& model, int layer, const std::vector<int>& widths, bool dealt,
                    const Floats& x, const Floats& seen) {
    Floats sum(x.size(), 0.0F), part(x.size());
    for (const ShardPlace& place : PlacesOf(widths, model.config.layer_count, dealt)) {
      WeightLoader loader(model.files, model.config, place, EngineDevice::kCpu, [](uint64_t) {});
      const LayerNeeds needs = NeedsOfLayer(model.config, place, layer);
      if (needs.router.has_value()) {
        CpuExperts(needs, model.config, loader)
            .Apply(x.data(), seen.data(), kRows, work_, part.data());
      } else {
        CpuFeed(*needs.feed, model.config, loader).Apply(x.data(), kRows, work_, part.data());
      }
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    return sum;
  }

  void ExpectAsDefined(const json& config, int layer, const Gate& gate,
                       const std::optional<Router>& router = std::nullopt, float range = 2.0F) {
    SCOPED_TRACE(config.dump());
    const Model model(ModelOfConfig(config));
    const ShardPlace whole{0, model.config.layer_count};
    const LayerNeeds needs = NeedsOfLayer(model.config, whole, layer);
    ASSERT_EQ(needs.router.has_value(), router.has_value());
    const PlainFeeds plain(model, needs, gate);
    const auto hidden = static_cast<size_t>(model.config.hidden_size);
    const Floats x = RandomFloats(kRows * hidden, range), seen(x.rbegin(), x.rend());
    Numbers expected;
    for (size_t row = 0; row < kRows; ++row) {
      const auto begin = static_cast<ptrdiff_t>(row * hidden);
      const auto end = begin + static_cast<ptrdiff_t>(hidden);
      const Numbers own(x.begin() + begin, x.begin() + end);
      const Numbers looked_at(seen.begin() + begin, seen.begin() + end);
      const Numbers given =
          router.has_value() ? plain.Experts(*router, own, looked_at, model.config.experts.active)
                             : plain.Feed(*needs.feed, own);
      expected.insert(expected.end(), given.begin(), given.end());
    }
    double largest = 0;
    for (const double number : expected) largest = std::max(largest, std::fabs(number));
    ASSERT_GT(largest, 0.1);
    for (const std::vector<int>& widths : {std::vector<int>{1}, {1, 1}, {5, 2, 1}, {1, 30}}) {
      for (const bool dealt : {false, true}) {
        if (dealt && !router.has_value()) continue;
        const Floats sum = SumOfRanks(model, layer, widths, dealt, x, seen);
        for (size_t i = 0; i < sum.size(); ++i) {
          ASSERT_NEAR(sum[i], expected[i], 2e-5 * largest)
              << i << " of " << widths.size() << (dealt ? " ranks with whole experts" : " ranks");
        }
      }
    }
  }

  kernels::ThreadPool pool_{2};
  CpuProducts products_{pool_};
  FeedWork work_{pool_, products_};
};

json Changed(const std::string& name, const json& changes) {
  json config = FamilyConfig({name});
  (config.contains("text_config") ? config["text_config"] : config).update(changes);
  return config;
}

TEST_F(FeedsTest, GatesOfFeedsThatAllTokensTake) {
  ExpectAsDefined(FamilyConfig({"olmo2"}), 0, Silu);
  ExpectAsDefined(FamilyConfig({"internlm3"}), 1,
                  Silu);  // with biases, of which each is added once
  ExpectAsDefined(FamilyConfig({"phi3"}), 0, Silu);
  ExpectAsDefined(FamilyConfig({"gemma3"}), 0, Gelu);
  ExpectAsDefined(FamilyConfig({"nemotron_h feeds"}), 1, SquaredRelu);
  ExpectAsDefined(FamilyConfig({"minimax_m3_vl"}), 0, Clamped(1.5, 1.702));
  ExpectAsDefined(Changed("minimax_m3_vl", {{"swiglu_limit", 0.25}, {"swiglu_alpha", 3.0}}), 0,
                  Clamped(0.25, 3.0));
}

TEST_F(FeedsTest, RoutersByShares) {
  const Score power = [](double x) { return std::exp(x); };
  ExpectAsDefined(FamilyConfig({"olmoe"}), 0, Silu, Router{power, /*is_share=*/true});
  ExpectAsDefined(Changed("olmoe", {{"norm_topk_prob", true}}), 1, Silu, Router{power});
  // With a scale of each expert, and a router that looks at something else.
  ExpectAsDefined(FamilyConfig({"gemma4_text experts"}), 0, Gelu, Router{power});
  // Beside an expert of all tokens that is gated.
  ExpectAsDefined(FamilyConfig({"qwen3_next"}), 1, Silu, Router{power});
}

TEST_F(FeedsTest, RoutersByScoresOfTheirOwn) {
  ExpectAsDefined(FamilyConfig({"glm4_moe"}), 1, Silu, Router{Sigmoid, false, true, 1.5});
  ExpectAsDefined(Changed("dots1", {{"norm_topk_prob", false}}), 1, Silu,
                  Router{Sigmoid, false, false, 2.5});
  ExpectAsDefined(FamilyConfig({"nemotron_h experts"}), 1, SquaredRelu,
                  Router{Sigmoid, false, true, 1.5});
  ExpectAsDefined(FamilyConfig({"minimax_m3_vl"}), 1, Clamped(1.5, 1.702),
                  Router{Sigmoid, false, true, 2.0});
  // What one expert weighs alone is not made to add up to one.
  ExpectAsDefined(Changed("glm4_moe", {{"num_experts_per_tok", 1}}), 1, Silu,
                  Router{Sigmoid, false, false, 1.5});
}

TEST_F(FeedsTest, RoutersByTheRootOfTheirSoftplus) {
  const Score root = [](double x) { return std::sqrt(std::log1p(std::exp(x))); };
  ExpectAsDefined(CompressedConfig(), 0, Limited(10.0), Router{root, false, true, 1.5});
  ExpectAsDefined(CompressedConfig({{"swiglu_limit", 0.5}, {"gate_temp", 4.0}}), 2, Limited(0.5),
                  Router{root, false, true, 1.5, 4.0});
  ExpectAsDefined(CompressedConfig({{"scoring_func", "sigmoid"}, {"swiglu_limit", 0}}), 1, Silu,
                  Router{Sigmoid, false, true, 1.5});
}

// A row's bits are its own, whatever stands beside it.
TEST_F(FeedsTest, ARowsBitsDependOnTheRowAlone) {
  for (const char* name : {"glm4_moe groups", "qwen3_5_moe", "gemma4_text experts"}) {
    const Model model(FamilyModel({name, 4}));
    const ShardPlace whole{0, model.config.layer_count};
    WeightLoader loader(model.files, model.config, whole, EngineDevice::kCpu, [](uint64_t) {});
    const LayerNeeds needs = NeedsOfLayer(model.config, whole, 1);
    const CpuExperts experts(needs, model.config, loader);
    const auto hidden = static_cast<size_t>(model.config.hidden_size);
    const Floats x = RandomFloats(40 * hidden, 2.0F);
    Floats all(x.size()), alone(hidden);
    experts.Apply(x.data(), 40, work_, all.data());
    for (size_t row = 0; row < 40; ++row) {
      experts.Apply(x.data() + row * hidden, 1, work_, alone.data());
      const auto begin = all.begin() + static_cast<ptrdiff_t>(row * hidden);
      ASSERT_EQ(alone, Floats(begin, begin + static_cast<ptrdiff_t>(hidden))) << name << " " << row;
    }
  }
}

}  // namespace
}  // namespace macrame::runtime::engine
