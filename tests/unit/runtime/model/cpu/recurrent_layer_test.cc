// Layers with a state on a CPU against their definitions, token after token in double precision:
// the gated delta rule in both ways of storing it, and a state space; of one rank and of each of
// several, for sequences that are cut into steps.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/cpu/recurrent.h"
#include "tests/unit/runtime/model/family_model.h"
#include "tests/unit/runtime/model/split_ranks.h"

namespace macrame::runtime::engine {
namespace {

using Numbers = std::vector<double>;
using Floats = std::vector<float>;

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

Floats RandomFloats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> between(-2.0F, 2.0F);
  Floats floats(count);
  for (float& number : floats) number = between(random);
  return floats;
}

// One sequence in one layer.
class PlainLayer {
 public:
  PlainLayer(const Model& model, int layer)
      : files_(*model.files),
        traits_(model.config.recurrent),
        is_space_(traits_.rule == RecurrenceRule::kStateSpace),
        norm_eps_(model.config.rms_norm_eps),
        prefix_("model.layers." + std::to_string(layer) + "." + traits_.module + "."),
        matrix_(static_cast<size_t>(traits_.value_heads * traits_.value_dim * traits_.key_dim)) {}

  // What the layer gives for the sequence's next token: all value heads, before out_proj.
  Numbers Next(const Floats& x);

 private:
  // What is projected of a token, by kind.
  struct Token {
    Numbers q, k, v, z, b, a;
  };
  Numbers Read(const std::string& name) const {
    const StoredTensor& stored = *files_.Find(prefix_ + name);
    Floats floats(stored.bytes / 4);
    std::memcpy(floats.data(), stored.data, stored.bytes);
    return {floats.begin(), floats.end()};
  }
  Numbers Project(const std::string& map, const Floats& x) const;
  Token Split(const Floats& x) const;
  Numbers Channels(const Token& token) const;
  void Convolve(Token& token);
  void Measure(Numbers& keys, double factor) const;
  Numbers Gated(const Numbers& given, const Token& token) const;

  const WeightFiles& files_;
  const RecurrentTraits traits_;
  const bool is_space_;
  const double norm_eps_;
  const std::string prefix_;
  Numbers matrix_;
  std::vector<Numbers> inputs_;  // of the convolution, of all tokens
};

Numbers PlainLayer::Project(const std::string& map, const Floats& x) const {
  const Numbers weight = Read(map + ".weight");
  Numbers out(weight.size() / x.size());
  if (files_.Find(prefix_ + map + ".bias") != nullptr) out = Read(map + ".bias");
  for (size_t row = 0; row < out.size(); ++row) {
    for (size_t i = 0; i < x.size(); ++i) out[row] += weight[row * x.size() + i] * x[i];
  }
  return out;
}

PlainLayer::Token PlainLayer::Split(const Floats& x) const {
  Token token;
  // The next `count` numbers of what a map gave.
  const auto take = [](const Numbers& from, size_t& at, int count, Numbers& to) {
    const auto begin = from.begin() + static_cast<ptrdiff_t>(at);
    to.insert(to.end(), begin, begin + count);
    at += static_cast<size_t>(count);
  };
  const int keys = traits_.key_heads * traits_.key_dim, heads = traits_.value_heads;
  const int values = heads * traits_.value_dim, group = traits_.group();
  size_t at = 0;
  if (is_space_) {
    const Numbers all = Project("in_proj", x);
    take(all, at, values, token.z);
    take(all, at, values, token.v);
    take(all, at, keys, token.k);
    take(all, at, keys, token.q);
    take(all, at, heads, token.a);
  } else if (traits_.by_key_head) {
    const Numbers all = Project("in_proj_qkvz", x), gates = Project("in_proj_ba", x);
    size_t gate = 0;
    for (int head = 0; head < traits_.key_heads; ++head) {
      take(all, at, traits_.key_dim, token.q);
      take(all, at, traits_.key_dim, token.k);
      take(all, at, group * traits_.value_dim, token.v);
      take(all, at, group * traits_.value_dim, token.z);
      take(gates, gate, group, token.b);
      take(gates, gate, group, token.a);
    }
  } else {
    const Numbers all = Project("in_proj_qkv", x);
    take(all, at, keys, token.q);
    take(all, at, keys, token.k);
    take(all, at, values, token.v);
    token.z = Project("in_proj_z", x);
    token.b = Project("in_proj_b", x);
    token.a = Project("in_proj_a", x);
  }
  return token;
}

// In the order in which the convolution's weights are stored.
Numbers PlainLayer::Channels(const Token& token) const {
  Numbers all;
  const Numbers* order[] = {&token.q, &token.k, &token.v};
  if (is_space_) std::swap(order[0], order[2]);
  for (const Numbers* part : order) all.insert(all.end(), part->begin(), part->end());
  return all;
}

void PlainLayer::Convolve(Token& token) {
  inputs_.push_back(Channels(token));
  const Numbers weight = Read("conv1d.weight");
  const size_t channels = inputs_[0].size(), taps = static_cast<size_t>(traits_.taps);
  Numbers out(channels, 0.0);
  if (traits_.taps_bias) out = Read("conv1d.bias");
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t tap = 0; tap < taps && tap < inputs_.size(); ++tap) {
      out[channel] +=
          weight[channel * taps + taps - 1 - tap] * inputs_[inputs_.size() - 1 - tap][channel];
    }
    out[channel] *= Sigmoid(out[channel]);
  }
  Numbers* order[] = {&token.q, &token.k, &token.v};
  if (is_space_) std::swap(order[0], order[2]);
  size_t at = 0;
  for (Numbers* part : order) {
    for (double& number : *part) number = out[at++];
  }
}

// Each head to the length one, times a factor.
void PlainLayer::Measure(Numbers& keys, double factor) const {
  const auto dim = static_cast<size_t>(traits_.key_dim);
  for (size_t begin = 0; begin < keys.size(); begin += dim) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += keys[begin + i] * keys[begin + i];
    for (size_t i = 0; i < dim; ++i) keys[begin + i] *= factor / std::sqrt(squares + 1e-6);
  }
}

Numbers PlainLayer::Next(const Floats& x) {
  Token token = Split(x);
  Convolve(token);
  const auto key_dim = static_cast<size_t>(traits_.key_dim);
  const auto value_dim = static_cast<size_t>(traits_.value_dim);
  if (!is_space_) {
    Measure(token.q, 1.0 / std::sqrt(static_cast<double>(key_dim)));
    Measure(token.k, 1.0);
  }
  const Numbers rates = Read("A_log"), biases = Read("dt_bias");
  const Numbers skip = is_space_ ? Read("D") : Numbers();
  Numbers out;
  for (size_t head = 0; head < static_cast<size_t>(traits_.value_heads); ++head) {
    double step = std::log1p(std::exp(token.a[head] + biases[head]));
    if (is_space_) {
      step = std::clamp(step, double{traits_.step_min}, double{traits_.step_max});
    }
    const double fade = std::exp(-std::exp(rates[head]) * step);
    const size_t key_head = head / static_cast<size_t>(traits_.group());
    const double* key = token.k.data() + key_head * key_dim;
    const double* query = token.q.data() + key_head * key_dim;
    for (size_t row = 0; row < value_dim; ++row) {
      double* memory = matrix_.data() + (head * value_dim + row) * key_dim;
      const double value = token.v[head * value_dim + row];
      double known = 0, given = 0;
      for (size_t i = 0; i < key_dim; ++i) known += fade * memory[i] * key[i];
      const double learnt = is_space_ ? step * value : Sigmoid(token.b[head]) * (value - known);
      for (size_t i = 0; i < key_dim; ++i) {
        memory[i] = fade * memory[i] + learnt * key[i];
        given += memory[i] * query[i];
      }
      out.push_back(given + (is_space_ ? skip[head] * value : 0.0));
    }
  }
  return Gated(out, token);
}

// Of a delta rule each head is normed and then gated; of a state space the heads of a key head are
// gated and then normed as one.
Numbers PlainLayer::Gated(const Numbers& given, const Token& token) const {
  const Numbers weight = Read("norm.weight");
  Numbers out = given;
  const auto gate = [&](size_t i) { return token.z[i] * Sigmoid(token.z[i]); };
  for (size_t i = 0; is_space_ && i < out.size(); ++i) out[i] *= gate(i);
  const auto width =
      static_cast<size_t>(traits_.value_dim) * static_cast<size_t>(is_space_ ? traits_.group() : 1);
  for (size_t begin = 0; begin < out.size(); begin += width) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += out[begin + i] * out[begin + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + norm_eps_);
    for (size_t i = 0; i < width; ++i) {
      out[begin + i] *= scale * weight[(begin + i) % weight.size()];
    }
  }
  for (size_t i = 0; !is_space_ && i < out.size(); ++i) out[i] *= gate(i);
  return out;
}

class RecurrentLayerTest : public ::testing::TestWithParam<std::string> {
 protected:
  RecurrentLayerTest() : model_(FamilyModel({GetParam()})) {
    while (!model_.config.IsRecurrent(layer_)) ++layer_;
  }

  // Steps of two sequences, side by side; `counts[step]` tokens of each.
  void ExpectAsDefined(const ShardPlace& place, const std::vector<std::pair<int, int>>& counts) {
    WeightLoader loader(model_.files, model_.config, place, EngineDevice::kCpu, [](uint64_t) {});
    const LayerNeeds needs = NeedsOfLayer(model_.config, place, layer_);
    const CpuRecurrent layer(model_.config, place, *needs.recurrent, loader, 0);
    const RecurrentCut cut = RecurrentCutOf(model_.config, place.slices());
    CpuStates states(1, cut.floats(), 2, 0);
    const SlotStates::Opened opened[] = {{0, kNoSnapshot}, {1, kNoSnapshot}};
    states.Open(opened);
    PlainLayer first(model_, layer_), second(model_, layer_);
    const auto hidden = static_cast<size_t>(model_.config.hidden_size);
    uint32_t seed = 1;
    for (const auto& [one, other] : counts) {
      const size_t ones = static_cast<size_t>(one), rows = static_cast<size_t>(one + other);
      const Floats x = RandomFloats(rows * hidden, ++seed);
      const std::vector<RecurrentSegment> all = {{0, ones, 0}, {ones, rows - ones, 1}};
      Floats out(rows * cut.value_width());
      layer.Apply(x.data(), rows, all, states, work_, out.data());
      for (size_t row = 0; row < rows; ++row) {
        const auto begin = x.begin() + static_cast<ptrdiff_t>(row * hidden);
        const Floats token(begin, begin + static_cast<ptrdiff_t>(hidden));
        const Numbers expected = (row < ones ? first : second).Next(token);
        const size_t skipped =
            static_cast<size_t>(cut.heads.begin * model_.config.recurrent.group()) * cut.value_dim;
        for (size_t i = 0; i < cut.value_width(); ++i) {
          const double wanted = expected[skipped + i];
          ASSERT_NEAR(out[row * cut.value_width() + i], wanted, 1e-4 * (1 + std::fabs(wanted)))
              << "row " << row << ", number " << i;
        }
      }
    }
  }

  const Model model_;
  int layer_ = 0;
  kernels::ThreadPool pool_{2};
  CpuProducts products_{pool_};
  RecurrentWork work_{pool_, products_};
};

TEST_P(RecurrentLayerTest, TokensGiveWhatTheDefinitionSays) {
  ExpectAsDefined(PlacesOf({1}, model_.config.layer_count)[0], {{7, 4}, {1, 1}, {1, 9}, {2, 1}});
}

// Fewer tokens in a step than the convolution looks back.
TEST_P(RecurrentLayerTest, TokensOneByOneToo) {
  ExpectAsDefined(PlacesOf({1}, model_.config.layer_count)[0],
                  std::vector<std::pair<int, int>>(9, {1, 1}));
}

TEST_P(RecurrentLayerTest, RanksGiveTheirHeads) {
  for (const ShardPlace& place : PlacesOf({2, 1}, model_.config.layer_count)) {
    ExpectAsDefined(place, {{5, 3}, {1, 2}});
  }
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Families, RecurrentLayerTest,
                         ::testing::Values("qwen3_next", "qwen3_5", "qwen3_5_moe", "nemotron_h",
                                           "nemotron_h experts"),
                         NameOf);

TEST(CpuStatesTest, SnapshotsAreCopiesInAllLayers) {
  CpuStates states(2, 3, 2, 2);
  EXPECT_EQ(states.memory_bytes(), 0u) << "until one is used";
  const SlotStates::Opened fresh[] = {{0, kNoSnapshot}};
  states.Open(fresh);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(states.Layer(0, i / 3)[i % 3], 0.0F);
    states.Layer(0, i / 3)[i % 3] = static_cast<float>(i);
  }
  const SlotStates::Kept kept[] = {{0, 1}};
  states.Keep(kept);
  for (size_t i = 0; i < 6; ++i) states.Layer(0, i / 3)[i % 3] = -1.0F;
  const SlotStates::Opened again[] = {{1, 1}};
  states.Open(again);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(states.Layer(1, i / 3)[i % 3], static_cast<float>(i));
  EXPECT_EQ(states.memory_bytes(), 3 * 6 * sizeof(float));
  states.Open(fresh);
  EXPECT_EQ(states.Layer(0, 1)[2], 0.0F) << "what an earlier sequence left is gone";
  CpuStates none(0, 3, 2, 1);
  none.Open(fresh);
  none.Keep(kept);
  EXPECT_EQ(none.memory_bytes(), 0u) << "a stage without such layers";
}

}  // namespace
}  // namespace macrame::runtime::engine
