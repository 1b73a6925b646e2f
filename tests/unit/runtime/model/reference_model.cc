#include "tests/unit/runtime/model/reference_model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "proto/check.h"

namespace macrame::runtime::engine {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void AddScaled(std::vector<double>& to, const std::vector<double>& x, double by) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += by * x[i];
}

template <typename Number>
Number At(const std::byte* data, size_t index) {
  Number number{};
  std::memcpy(&number, data + index * sizeof(Number), sizeof(Number));
  return number;
}

std::vector<double> Unpacked(const StoredTensor& tensor) {
  std::vector<double> numbers;
  if (tensor.dtype == "F32") {
    for (size_t i = 0; i < tensor.bytes / 4; ++i) numbers.push_back(At<float>(tensor.data, i));
    return numbers;
  }
  MACRAME_CHECK(tensor.dtype == "BF16") << tensor.dtype;
  for (size_t i = 0; i < tensor.bytes / 2; ++i) {
    const uint32_t bits = uint32_t{At<uint16_t>(tensor.data, i)} << 16;
    float number = 0;
    std::memcpy(&number, &bits, sizeof(number));
    numbers.push_back(number);
  }
  return numbers;
}

// Number `index` of a stream of `bits` wide ones.
uint32_t BitsAt(const std::byte* data, size_t index, size_t bits) {
  uint32_t number = 0;
  for (size_t i = 0; i < bits; ++i) {
    const size_t at = index * bits + i;
    number |= (std::to_integer<uint32_t>(data[at / 8]) >> (at % 8) & 1U) << i;
  }
  return number;
}

double E4m3(uint32_t byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15U), mantissa = static_cast<int>(byte & 7U);
  const double number =
      std::ldexp(exponent == 0 ? mantissa : 8 + mantissa, std::max(1, exponent) - 10);
  return (byte & 128U) != 0 ? -number : number;
}

double E2m1(uint32_t bits) {
  constexpr double kSteps[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (bits & 8U) != 0 ? -kSteps[bits & 7U] : kSteps[bits & 7U];
}

// A number of MLX's modes with a byte for a scale.
double ByteScaled(const std::string& mode, uint32_t number, uint32_t scale) {
  if (mode == "nvfp4") return E2m1(number) * E4m3(scale);
  const double power = std::exp2(static_cast<double>(scale) - 127);
  return power * (mode == "mxfp8" ? E4m3(number) : E2m1(number));
}

}  // namespace

ReferenceModel::ReferenceModel(nlohmann::json config, const WeightFiles& files)
    : config_(std::move(config)),
      files_(files),
      architecture_(config_.at("model_type")),
      epsilon_(config_.value("rms_norm_eps", 1e-6)) {}

int ReferenceModel::Field(const char* key, int fallback) const {
  return config_.value(key, fallback);
}

double ReferenceModel::Number(const char* key, double fallback) const {
  return config_.value(key, fallback);
}

ReferenceModel::Vector ReferenceModel::Numbers(const std::string& tensor) const {
  const StoredTensor* stored = files_.Find(tensor);
  MACRAME_CHECK(stored != nullptr) << tensor;
  return Unpacked(*stored);
}

ReferenceModel::Matrix ReferenceModel::Map(const std::string& module, int index) const {
  const StoredTensor* stored = files_.Find(module + ".weight");
  MACRAME_CHECK(stored != nullptr) << module;
  const size_t axes = stored->shape.size();
  Matrix map{static_cast<size_t>(stored->shape[axes - 2]), 0, {}};
  const size_t first_row = static_cast<size_t>(index) * map.rows;
  const StoredTensor* scales = files_.Find(module + ".scales");
  if (scales == nullptr) {
    map.columns = static_cast<size_t>(stored->shape.back());
    const Vector all = Unpacked(*stored);
    const auto begin = all.begin() + static_cast<ptrdiff_t>(first_row * map.columns);
    map.numbers.assign(begin, begin + static_cast<ptrdiff_t>(map.rows * map.columns));
    return map;
  }
  const auto& quantization = config_.at("quantization");
  const size_t bits = quantization.at("bits"), group = quantization.at("group_size");
  map.columns = static_cast<size_t>(stored->shape.back()) * 32 / bits;
  const bool has_bytes = scales->dtype == "U8";
  const std::string mode = quantization.value("mode", "affine");
  const Vector factors = has_bytes ? Vector() : Unpacked(*scales);
  const Vector offsets = has_bytes ? Vector() : Numbers(module + ".biases");
  for (size_t i = 0; i < map.rows * map.columns; ++i) {
    const size_t at = first_row * map.columns + i;
    const uint32_t number = BitsAt(stored->data, at, bits);
    const auto byte = has_bytes ? std::to_integer<uint32_t>(scales->data[at / group]) : 0;
    map.numbers.push_back(has_bytes ? ByteScaled(mode, number, byte)
                                    : factors[at / group] * number + offsets[at / group]);
  }
  return map;
}

// Of Qwen2's maps, q, k and v have one.
bool ReferenceModel::HasBias(const std::string& module) const {
  const bool is_qkv =
      module.ends_with("q_proj") || module.ends_with("k_proj") || module.ends_with("v_proj");
  return Has(module + ".bias") && (architecture_ != "qwen2_moe" || is_qkv);
}

ReferenceModel::Vector ReferenceModel::Apply(const std::string& module, const Vector& x,
                                             int index) const {
  return ApplyAll(module + (index > 0 ? "#" + std::to_string(index) : ""), {x})[0];
}

// Many rows, so that the map is unpacked once. "MODULE#3" is the fourth of a stack.
ReferenceModel::Rows ReferenceModel::ApplyAll(const std::string& name, const Rows& x) const {
  const std::string module = name.substr(0, name.find('#'));
  const int index = module.size() < name.size() ? std::stoi(name.substr(module.size() + 1)) : 0;
  const Matrix map = Map(module, index);
  Vector bias(map.rows, 0.0);
  if (HasBias(module)) {
    const Vector all = Numbers(module + ".bias");
    const auto begin =
        all.begin() + static_cast<ptrdiff_t>(index) * static_cast<ptrdiff_t>(map.rows);
    bias.assign(begin, begin + static_cast<ptrdiff_t>(map.rows));
  }
  Rows out;
  for (const Vector& row : x) {
    MACRAME_CHECK(row.size() == map.columns) << name << ", " << row.size();
    Vector y = bias;
    for (size_t r = 0; r < map.rows; ++r) {
      y[r] += std::inner_product(row.begin(), row.end(), map.Row(r), 0.0);
    }
    out.push_back(std::move(y));
  }
  return out;
}

ReferenceModel::Vector ReferenceModel::Norm(const std::string& tensor, const Vector& x,
                                            double epsilon) const {
  const Vector weight = Numbers(tensor);
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
  Vector out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * weight[i];
  return out;
}

ReferenceModel::Rows ReferenceModel::NormAll(const std::string& tensor, const Rows& x) const {
  Rows out;
  for (const Vector& row : x) out.push_back(Norm(tensor, row, epsilon_));
  return out;
}

double ReferenceModel::Frequency(int pair, int dims) const {
  const double frequency = std::pow(Number("rope_theta", 10000.0), -2.0 * pair / dims);
  if (!config_.contains("rope_scaling")) return frequency;
  const auto& form = config_.at("rope_scaling");
  const double factor = form.at("factor");
  if (form.at("rope_type") == "linear") return frequency / factor;
  MACRAME_CHECK(form.at("rope_type") == "llama3") << form.dump();
  const double context = form.at("original_max_position_embeddings");
  const double low = form.at("low_freq_factor"), high = form.at("high_freq_factor");
  const double wave = 2 * M_PI / frequency;
  if (wave < context / high) return frequency;
  if (wave > context / low) return frequency / factor;
  const double smooth = (context / wave - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

void ReferenceModel::Turn(double* x, int dims, size_t position, bool interleaved) const {
  for (int pair = 0; pair < dims / 2; ++pair) {
    const double angle = static_cast<double>(position) * Frequency(pair, dims);
    double& first = x[interleaved ? 2 * pair : pair];
    double& second = x[interleaved ? 2 * pair + 1 : pair + dims / 2];
    const double a = first, b = second;
    first = a * std::cos(angle) - b * std::sin(angle);
    second = b * std::cos(angle) + a * std::sin(angle);
  }
}

void ReferenceModel::TakeShares(Vector& scores) {
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (double& score : scores) score /= sum;
}

ReferenceModel::Vector ReferenceModel::Head(const Vector& query, const Rows& keys,
                                            const Rows& values, size_t offset, size_t value_offset,
                                            const std::vector<size_t>& seen, double scale,
                                            const double* sink) const {
  Vector scores;
  for (const size_t at : seen) {
    const double* key = keys[at].data() + offset;
    scores.push_back(scale * std::inner_product(query.begin(), query.end(), key, 0.0));
  }
  if (sink != nullptr) scores.push_back(*sink);
  TakeShares(scores);
  const size_t width = values[0].size() - value_offset;
  Vector out(width, 0.0);
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t d = 0; d < width; ++d) out[d] += scores[i] * values[seen[i]][value_offset + d];
  }
  return out;
}

ReferenceModel::Rows ReferenceModel::Attend(const std::string& prefix, int layer,
                                            const Rows& x) const {
  const auto heads = static_cast<size_t>(Field("num_attention_heads"));
  const auto kv_heads = static_cast<size_t>(Field("num_key_value_heads"));
  const auto dim = static_cast<size_t>(Field("head_dim"));
  Rows queries = ApplyAll(prefix + "q_proj", x), keys = ApplyAll(prefix + "k_proj", x);
  const Rows values = ApplyAll(prefix + "v_proj", x);
  for (const auto& [rows, norm] : {std::pair{&queries, "q_norm"}, std::pair{&keys, "k_norm"}}) {
    for (size_t at = 0; at < x.size(); ++at) {
      Vector& row = (*rows)[at];
      for (size_t begin = 0; begin < row.size(); begin += dim) {
        const auto head = row.begin() + static_cast<ptrdiff_t>(begin);
        Vector own(head, head + static_cast<ptrdiff_t>(dim));
        const std::string tensor = prefix + norm + ".weight";
        if (Has(tensor)) own = Norm(tensor, own, epsilon_);
        Turn(own.data(), static_cast<int>(dim), at, /*interleaved=*/false);
        std::copy(own.begin(), own.end(), head);
      }
    }
  }
  const bool looks_at_all = architecture_ == "gpt_oss" && layer % 2 == 1;
  const auto window = static_cast<size_t>(looks_at_all ? 0 : Field("sliding_window"));
  const Vector sinks = Has(prefix + "sinks") ? Numbers(prefix + "sinks") : Vector();
  Rows mixed;
  for (size_t at = 0; at < x.size(); ++at) {
    std::vector<size_t> seen;
    for (size_t i = window > 0 && at + 1 > window ? at + 1 - window : 0; i <= at; ++i) {
      seen.push_back(i);
    }
    Vector out;
    for (size_t head = 0; head < heads; ++head) {
      const size_t offset = head / (heads / kv_heads) * dim;
      const auto begin = queries[at].begin() + static_cast<ptrdiff_t>(head * dim);
      const Vector query(begin, begin + static_cast<ptrdiff_t>(dim));
      Vector given =
          Head(query, keys, values, offset, offset, seen, 1.0 / std::sqrt(static_cast<double>(dim)),
               sinks.empty() ? nullptr : &sinks[head]);
      given.resize(dim);  // behind it stand the next heads'
      out.insert(out.end(), given.begin(), given.end());
    }
    mixed.push_back(std::move(out));
  }
  return ApplyAll(prefix + "o_proj", mixed);
}

// The index_topk positions that each row attends to.
std::vector<std::vector<size_t>> ReferenceModel::ChosenPositions(const std::string& prefix,
                                                                 const Rows& x,
                                                                 const Rows& query_latents) const {
  std::vector<std::vector<size_t>> chosen;
  const auto top = static_cast<size_t>(Field("index_topk", static_cast<int>(x.size())));
  const int heads = Field("index_n_heads"), dim = Field("index_head_dim");
  const int rope = Field("qk_rope_head_dim");
  Rows keys, queries, weights;
  if (top < x.size()) {
    keys = ApplyAll(prefix + "indexer.wk", x);
    queries = ApplyAll(prefix + "indexer.wq_b", query_latents);
    weights = ApplyAll(prefix + "indexer.weights_proj", x);
    const Vector weight = Numbers(prefix + "indexer.k_norm.weight");
    const Vector bias = Numbers(prefix + "indexer.k_norm.bias");
    for (size_t at = 0; at < x.size(); ++at) {
      Vector& key = keys[at];
      const double mean = std::accumulate(key.begin(), key.end(), 0.0) / dim;
      double variance = 0;
      for (const double number : key) variance += (number - mean) * (number - mean) / dim;
      for (size_t i = 0; i < key.size(); ++i) {
        key[i] = (key[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
      }
      Turn(key.data(), rope, at, /*interleaved=*/false);
      for (int head = 0; head < heads; ++head) {
        Turn(queries[at].data() + head * dim, rope, at, /*interleaved=*/false);
      }
    }
  }
  for (size_t at = 0; at < x.size(); ++at) {
    std::vector<size_t> order(at + 1);
    std::iota(order.begin(), order.end(), size_t{0});
    if (top < order.size()) {
      Vector scores(order.size(), 0.0);
      for (const size_t i : order) {
        for (int head = 0; head < heads; ++head) {
          const double* query = queries[at].data() + head * dim;
          const double product = std::inner_product(keys[i].begin(), keys[i].end(), query, 0.0);
          scores[i] += std::max(product, 0.0) * weights[at][static_cast<size_t>(head)];
        }
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return scores[a] > scores[b]; });
      order.resize(top);
    }
    chosen.push_back(std::move(order));
  }
  return chosen;
}

ReferenceModel::Rows ReferenceModel::AttendLatent(const std::string& prefix, const Rows& x) const {
  const int heads = Field("num_attention_heads"), nope = Field("qk_nope_head_dim");
  const int rope = Field("qk_rope_head_dim"), value = Field("v_head_dim");
  const int rank = Field("kv_lora_rank");
  const bool has_rank = Has(prefix + "q_a_proj.weight");
  Rows latents = x;
  if (has_rank) {
    latents = ApplyAll(prefix + "q_a_proj", x);
    for (Vector& row : latents) row = Norm(prefix + "q_a_layernorm.weight", row, 1e-6);
  }
  const Rows queries = ApplyAll(prefix + (has_rank ? "q_b_proj" : "q_proj"), latents);
  const Rows given = ApplyAll(prefix + "kv_a_proj_with_mqa", x);
  const auto seen = ChosenPositions(prefix, x, latents);
  Rows mixed(x.size());
  for (int head = 0; head < heads; ++head) {
    Rows keys, values;
    for (size_t at = 0; at < x.size(); ++at) {
      Vector latent(given[at].begin(), given[at].begin() + rank);
      Vector turned(given[at].begin() + rank, given[at].end());
      latent = Norm(prefix + "kv_a_layernorm.weight", latent, 1e-6);
      Turn(turned.data(), rope, at, /*interleaved=*/true);
      Vector key, own;
      if (Has(prefix + "kv_b_proj.weight")) {
        const Vector all = Apply(prefix + "kv_b_proj", latent);
        const auto begin = all.begin() + head * (nope + value);
        key.assign(begin, begin + nope);
        own.assign(begin + nope, begin + nope + value);
      } else {
        const Matrix embed = Map(prefix + "embed_q", head);  // [rank, nope]
        key.assign(static_cast<size_t>(nope), 0.0);
        for (size_t r = 0; r < embed.rows; ++r) {
          for (size_t d = 0; d < embed.columns; ++d) key[d] += latent[r] * embed.Row(r)[d];
        }
        own = Apply(prefix + "unembed_out", latent, head);
      }
      key.insert(key.end(), turned.begin(), turned.end());
      keys.push_back(std::move(key));
      values.push_back(std::move(own));
    }
    for (size_t at = 0; at < x.size(); ++at) {
      const auto begin = queries[at].begin() + head * (nope + rope);
      Vector query(begin, begin + nope + rope);
      Turn(query.data() + nope, rope, at, /*interleaved=*/true);
      const Vector out = Head(query, keys, values, 0, 0, seen[at],
                              1.0 / std::sqrt(static_cast<double>(nope + rope)), nullptr);
      mixed[at].insert(mixed[at].end(), out.begin(), out.end());
    }
  }
  return ApplyAll(prefix + "o_proj", mixed);
}

ReferenceModel::Vector ReferenceModel::Feed(const std::string& gate, const std::string& up,
                                            const std::string& down, const Vector& x,
                                            int index) const {
  Vector inner = Apply(gate, x, index);
  const Vector other = Apply(up, x, index);
  for (size_t i = 0; i < inner.size(); ++i) {
    if (architecture_ == "gpt_oss") {
      const double limit = Number("swiglu_limit", 7.0), g = std::min(inner[i], limit);
      inner[i] = g * Sigmoid(1.702 * g) * (std::clamp(other[i], -limit, limit) + 1);
    } else {
      inner[i] = inner[i] * Sigmoid(inner[i]) * other[i];
    }
  }
  return Apply(down, inner, index);
}

std::vector<ReferenceModel::Choice> ReferenceModel::Choose(const std::string& prefix,
                                                           const Vector& x) const {
  const bool is_latent = Has(prefix + "gate.e_score_correction_bias");
  Vector weights = Apply(prefix + (architecture_ == "gpt_oss" ? "router" : "gate"), x);
  Vector ranks = weights;
  if (is_latent) {
    const Vector correction = Numbers(prefix + "gate.e_score_correction_bias");
    for (double& weight : weights) weight = Sigmoid(weight);
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = weights[i] + correction[i];
    // Groups of two, of which the best two groups by their sums are left.
    const auto groups = static_cast<size_t>(Field("n_group")), size = ranks.size() / groups;
    std::vector<size_t> order(groups);
    std::iota(order.begin(), order.end(), size_t{0});
    const auto sum = [&](size_t group) {
      Vector own(ranks.begin() + static_cast<ptrdiff_t>(group * size),
                 ranks.begin() + static_cast<ptrdiff_t>((group + 1) * size));
      std::sort(own.rbegin(), own.rend());
      return own[0] + own[1];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sum(a) > sum(b); });
    for (size_t i = static_cast<size_t>(Field("topk_group")); i < groups; ++i) {
      std::fill_n(ranks.begin() + static_cast<ptrdiff_t>(order[i] * size), size, 0.0);
    }
  } else {
    TakeShares(weights);
  }
  std::vector<Choice> choices;
  for (int i = 0; i < Field("num_experts_per_tok"); ++i) {
    const auto best = std::max_element(ranks.begin(), ranks.end());
    const auto at = static_cast<size_t>(best - ranks.begin());
    choices.push_back({static_cast<int>(at), weights[at]});
    *best = -1e300;
  }
  double sum = 0;
  for (const Choice& choice : choices) sum += choice.weight;
  const bool normalized = config_.value("norm_topk_prob", true) || architecture_ == "gpt_oss" ||
                          architecture_ == "mixtral";
  for (Choice& choice : choices) {
    choice.weight *= Number("routed_scaling_factor", 1.0) / (normalized ? sum : 1.0);
  }
  return choices;
}

ReferenceModel::Vector ReferenceModel::Experts(const std::string& prefix, const Vector& x) const {
  const std::string stack = prefix + (architecture_ == "gpt_oss" ? "experts." : "switch_mlp.");
  const bool is_stacked = Has(stack + "down_proj.weight");
  const bool is_mixtral = architecture_ == "mixtral";
  Vector out(x.size(), 0.0);
  for (const Choice& choice : Choose(prefix, x)) {
    const std::string own =
        is_stacked ? stack : prefix + "experts." + std::to_string(choice.expert) + ".";
    const bool short_names = is_mixtral && !is_stacked;
    const Vector given =
        Feed(own + (short_names ? "w1" : "gate_proj"), own + (short_names ? "w3" : "up_proj"),
             own + (short_names ? "w2" : "down_proj"), x, is_stacked ? choice.expert : 0);
    AddScaled(out, given, choice.weight);
  }
  for (const std::string shared : {"shared_expert", "shared_experts"}) {
    const std::string own = prefix + shared + ".";
    if (!Has(own + "up_proj.weight")) continue;
    const Vector given = Feed(own + "gate_proj", own + "up_proj", own + "down_proj", x);
    const bool is_gated = Has(prefix + shared + "_gate.weight");
    AddScaled(out, given, is_gated ? Sigmoid(Apply(prefix + shared + "_gate", x)[0]) : 1.0);
  }
  return out;
}

ReferenceModel::Vector ReferenceModel::FeedOf(const std::string& layer, const Vector& x) const {
  for (const std::string module : {"mlp.", "block_sparse_moe."}) {
    const std::string prefix = layer + module;
    if (Has(prefix + "gate.weight") || Has(prefix + "router.weight")) return Experts(prefix, x);
  }
  return Feed(layer + "mlp.gate_proj", layer + "mlp.up_proj", layer + "mlp.down_proj", x);
}

std::vector<double> ReferenceModel::Logits(const std::vector<int32_t>& tokens) const {
  const Matrix embeddings = Map("model.embed_tokens");
  Rows hidden;
  for (const int32_t token : tokens) {
    const double* row = embeddings.Row(static_cast<size_t>(token));
    hidden.emplace_back(row, row + embeddings.columns);
  }
  for (int layer = 0; layer < Field("num_hidden_layers"); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const Rows normed = NormAll(prefix + "input_layernorm.weight", hidden);
    const Rows mixed = config_.contains("kv_lora_rank")
                           ? AttendLatent(prefix + "self_attn.", normed)
                           : Attend(prefix + "self_attn.", layer, normed);
    for (size_t at = 0; at < hidden.size(); ++at) AddScaled(hidden[at], mixed[at], 1.0);
    const Rows again = NormAll(prefix + "post_attention_layernorm.weight", hidden);
    for (size_t at = 0; at < hidden.size(); ++at) {
      AddScaled(hidden[at], FeedOf(prefix, again[at]), 1.0);
    }
  }
  const bool tied = !Has("lm_head.weight");
  const Rows logits =
      ApplyAll(tied ? "model.embed_tokens" : "lm_head", NormAll("model.norm.weight", hidden));
  std::vector<double> all;
  for (const Vector& row : logits) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace macrame::runtime::engine
