#include "planner/described/model_card.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/cost_model.h"
#include "planner/served_by.h"
#include "proto/suggestions.h"

namespace macrame::planner {
namespace {

constexpr uint32_t kFloatBits = 16;

constexpr double kGiga = 1e9;
constexpr uint32_t kCardLayersMax = 1024;
// Of a mixture whose experts the card does not tell: the step that its active share is counted in.
constexpr uint32_t kSharesOfUnknownExperts = 1000;

// Weights of one layer's attention.
double AttentionWeights(const ModelCard& card) {
  if (card.attention_weights > 0) return card.attention_weights;
  const double hidden = card.hidden, heads = card.heads;
  if (!card.latent.has_value()) {
    return hidden * card.head_dim * (2 * heads + 2.0 * card.kv_heads);
  }
  const LatentAttention& latent = *card.latent;
  return hidden * latent.q_rank + latent.q_rank * heads * (latent.nope + latent.rope) +
         hidden * (latent.kv_rank + latent.rope) +
         latent.kv_rank * heads * (latent.nope + latent.value) + heads * latent.value * hidden;
}

// Weights of a layer that are read for each token, without routed experts.
double SharedWeights(const ModelCard& card, bool mixed) {
  const double hidden = card.hidden;
  double weights = AttentionWeights(card);
  if (mixed) {
    // Into what experts work in, and back.
    const double narrowed = 2 * hidden * card.expert_hidden;
    return weights + 3 * hidden * card.expert_width * card.shared + hidden * card.experts +
           narrowed;
  }
  return weights + 3 * hidden * card.intermediate;
}

bool HasShape(const ModelCard& card) {
  return card.heads > 0 && card.head_dim > 0 && (card.intermediate > 0 || card.experts > 0);
}

// Cards without all widths: the makers' count of active parameters, spread over the layers.
double SharedWeightsFromCounts(const ModelCard& card, double experts_of_layer) {
  const double tables = static_cast<double>(card.vocab) * card.hidden;
  const double active = card.active_parameters * kGiga - tables;
  const double chosen = card.experts == 0 ? 0 : experts_of_layer * card.active / card.experts;
  return std::max(0.0, active / card.layers - chosen);
}

// Words that say how a copy was made, with the bits of a weight where they say that; 0: they don't.
// "4bit", "Q4_K_M" and "IQ4_XS" follow a rule (CopyAt).
struct CopyWord {
  std::string_view word;
  uint32_t bits;
};
constexpr CopyWord kCopyWords[] = {
    {"awq", 0},   {"bf16", 16}, {"bnb", 0},  {"dwq", 0},    {"f16", 16},  {"f32", 32},
    {"fp16", 16}, {"fp32", 32}, {"fp4", 4},  {"fp8", 16},   {"gguf", 0},  {"gptq", 0},
    {"hf", 0},    {"int4", 4},  {"int8", 8}, {"mlx", 0},    {"mxfp4", 4}, {"mxfp8", 8},
    {"qat", 0},   {"nvfp4", 4}, {"ud", 0},   {"unsloth", 0}};
// What llama.cpp puts behind the bits: "Q8_0", "IQ4_XS".
constexpr std::string_view kAfterQ[] = {"0", "1", "k", "s", "m", "l", "xs", "xxs", "xl", "nl"};
// "Q4_K_M" without its separators.
constexpr std::string_view kJoinedToQ[] = {"", "0", "1", "k", "ks", "km", "kl", "kxl"};
// Copies of one model that were taught to answer; a card stands for all of them.
constexpr std::string_view kTaught[] = {"instruct", "it", "chat"};
constexpr uint32_t kBitsInNameMax = 32;

template <size_t count>
bool IsOneOf(std::string_view word, const std::string_view (&words)[count]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

// "4" → 4; 0: no number of bits.
uint32_t NumberOfBits(std::string_view digits) {
  uint32_t bits = 0;
  const bool is_number = absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &bits);
  return is_number && bits >= 2 && bits <= kBitsInNameMax ? bits : 0;
}

struct CopyPart {
  size_t words = 0;   // that it takes; 0: the word belongs to the model
  uint32_t bits = 0;  // 0: it says none
};

CopyPart CopyAt(const std::vector<std::string>& words, size_t at) {
  const std::string_view word = words[at];
  const std::string_view next = at + 1 < words.size() ? std::string_view(words[at + 1]) : "";
  for (const CopyWord& known : kCopyWords) {
    if (word == known.word) return {1, known.bits};
  }
  for (const std::string_view ending : {"bits", "bit"}) {
    if (next == ending && NumberOfBits(word) > 0) return {2, NumberOfBits(word)};
    if (!word.ends_with(ending)) continue;
    const uint32_t bits = NumberOfBits(word.substr(0, word.size() - ending.size()));
    if (bits > 0) return {1, bits};
  }
  const size_t digit = word.starts_with("iq") ? 2 : 1;
  if (!(word.starts_with("iq") || word.starts_with("q")) || word.size() <= digit) return {};
  const uint32_t bits = NumberOfBits(word.substr(digit, 1));
  if (bits == 0 || !IsOneOf(word.substr(digit + 1), kJoinedToQ)) return {};
  size_t end = at + 1;
  while (end < words.size() && IsOneOf(words[end], kAfterQ)) ++end;
  return {end - at, bits};
}

struct NameParts {
  std::string model;             // small letters and digits alone
  std::optional<uint32_t> bits;  // the fewest that are said: "MXFP4-Q8" has its experts in 4
};

// Word by word: "gemma-3-4b-it" would otherwise end with "4bit".
NameParts PartsOf(std::string_view name) {
  const size_t slash = name.rfind('/');
  if (slash != std::string_view::npos) name.remove_prefix(slash + 1);
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      words.back() += absl::ascii_tolower(c);
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  NameParts parts;
  for (size_t i = 0; i < words.size();) {
    const CopyPart copy = CopyAt(words, i);
    const bool is_maker = i == 0 && words.size() > 1 && words[0] == "meta";
    if (copy.words == 0 && !is_maker && !IsOneOf(words[i], kTaught)) parts.model += words[i];
    if (copy.bits > 0) parts.bits = std::min(copy.bits, parts.bits.value_or(copy.bits));
    i += std::max<size_t>(1, copy.words);
  }
  if (parts.model.empty()) parts.model = absl::StrJoin(words, "");
  return parts;
}

std::string Plain(std::string_view name) { return PartsOf(name).model; }

std::vector<std::string> NamesOf(const ModelCard& card) {
  std::vector<std::string> names = card.aliases;
  names.push_back(card.name);
  return names;
}

std::vector<const ModelCard*> CardsThatContain(const std::vector<ModelCard>& cards,
                                               const std::string& wanted) {
  constexpr size_t kLettersMin = 4;
  std::vector<const ModelCard*> found;
  if (wanted.size() < kLettersMin) return found;
  for (const ModelCard& card : cards) {
    if (Plain(card.name).find(wanted) != std::string::npos) found.push_back(&card);
  }
  return found;
}

// For a name that no card bears: the cards that contain it, else the one whose name it begins with
// ("Qwen3-235B-A22B-Instruct-2507"), else the nearest.
std::string WhatWasMeant(const std::vector<ModelCard>& cards,
                         const std::vector<const ModelCard*>& alike, const std::string& wanted) {
  if (!alike.empty()) {
    std::vector<std::string> names;
    for (const ModelCard* card : alike) names.push_back(card->name);
    return absl::StrCat("; did you mean one of ", NameList(names), "?");
  }
  std::vector<std::string> plain;
  std::map<std::string, std::string> called;  // by the plain form
  std::string begun;
  for (const ModelCard& card : cards) {
    for (const std::string& name : NamesOf(card)) {
      plain.push_back(Plain(name));
      called.emplace(plain.back(), card.name);
      if (wanted.starts_with(plain.back()) && plain.back().size() > begun.size()) {
        begun = plain.back();
      }
    }
  }
  const std::string near = begun.empty() ? SuggestedName(wanted, plain) : begun;
  return near.empty() ? "" : absl::StrCat("; did you mean '", called[near], "'?");
}

// What is wrong with the first key of a card that means nothing; empty: there is none.
std::string UnknownKey(const YAML::Node& node) {
  static const std::set<std::string> known = {"name",
                                              "aliases",
                                              "layers",
                                              "hidden",
                                              "heads",
                                              "kv_heads",
                                              "head_dim",
                                              "intermediate",
                                              "vocab",
                                              "context",
                                              "experts",
                                              "active",
                                              "shared",
                                              "latent",
                                              "expert_width",
                                              "dense_layers",
                                              "parameters",
                                              "group",
                                              "tied_embeddings",
                                              "full_attention_every",
                                              "fixed_state_bytes",
                                              "rest_bits",
                                              "bytes",
                                              "sliding_window",
                                              "kv_index",
                                              "residual_streams",
                                              "expert_hidden",
                                              "attention_weights",
                                              "active_parameters",
                                              "vision_bytes",
                                              "architecture",
                                              "engine",
                                              "splits",
                                              "bits"};
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string key = entry.first.as<std::string>();
    if (!seen.insert(key).second) return absl::StrCat("'", key, "' stands there twice");
    if (known.count(key) > 0) continue;
    return absl::StrCat("'", key, "' is not a key that is known",
                        DidYouMean(key, {known.begin(), known.end()}));
  }
  return "";
}

ModelCard ReadCard(const YAML::Node& node) {
  ModelCard card;
  card.name = node["name"].as<std::string>();
  const auto read = [&](const char* key, auto* value) {
    if (node[key]) *value = node[key].as<std::decay_t<decltype(*value)>>();
  };
  read("aliases", &card.aliases);
  read("layers", &card.layers);
  read("hidden", &card.hidden);
  read("heads", &card.heads);
  read("kv_heads", &card.kv_heads);
  read("head_dim", &card.head_dim);
  read("intermediate", &card.intermediate);
  read("vocab", &card.vocab);
  read("context", &card.context);
  read("experts", &card.experts);
  read("active", &card.active);
  read("shared", &card.shared);
  read("expert_width", &card.expert_width);
  read("dense_layers", &card.dense_layers);
  read("full_attention_every", &card.full_attention_every);
  read("fixed_state_bytes", &card.fixed_state_bytes);
  read("sliding_window", &card.sliding_window);
  read("kv_index", &card.kv_index);
  read("residual_streams", &card.residual_streams);
  read("expert_hidden", &card.expert_hidden);
  read("attention_weights", &card.attention_weights);
  read("tied_embeddings", &card.tied_embeddings);
  read("architecture", &card.architecture);
  read("engine", &card.engine);
  read("splits", &card.splits);
  read("parameters", &card.parameters);
  read("active_parameters", &card.active_parameters);
  read("group", &card.group);
  read("rest_bits", &card.rest_bits);
  read("vision_bytes", &card.vision_bytes);
  read("bits", &card.bits);
  if (const YAML::Node latent = node["latent"]) {
    LatentAttention widths;
    const auto width = [&](const char* key, uint32_t* value) {
      if (latent[key]) *value = latent[key].as<uint32_t>();
    };
    width("kv_rank", &widths.kv_rank);
    width("q_rank", &widths.q_rank);
    width("nope", &widths.nope);
    width("rope", &widths.rope);
    width("value", &widths.value);
    width("index", &widths.index);
    card.latent = widths;
  }
  for (const auto& size : node["bytes"]) {
    card.bytes[size.first.as<uint32_t>()] = size.second.as<uint64_t>();
  }
  return card;
}

// The first number that no model has; sizes made of the others stay far below 2^64.
std::string TooLarge(const ModelCard& card) {
  constexpr uint32_t kWidthMax = 1U << 20;
  constexpr uint32_t kVocabMax = 1U << 24;
  constexpr uint32_t kExpertsMax = 1U << 14;
  constexpr uint32_t kStreamsMax = 64;
  constexpr double kParametersMax = 1e6;
  const LatentAttention latent = card.latent.value_or(LatentAttention());
  const std::pair<const char*, bool> checks[] = {
      {"hidden", card.hidden > kWidthMax},
      {"heads", card.heads > kWidthMax},
      {"kv_heads", card.kv_heads > kWidthMax},
      {"head_dim", card.head_dim > kWidthMax},
      {"intermediate", card.intermediate > kWidthMax},
      {"expert_width", card.expert_width > kWidthMax},
      {"vocab", card.vocab > kVocabMax},
      {"kv_index", card.kv_index > kWidthMax},
      {"residual_streams", card.residual_streams > kStreamsMax},
      {"expert_hidden", card.expert_hidden > kWidthMax},
      {"attention_weights",
       !(card.attention_weights >= 0 && card.attention_weights <= 4.0 * kWidthMax * kWidthMax)},
      {"experts", card.experts > kExpertsMax},
      {"shared", card.shared > kExpertsMax},
      {"group", card.group > kWidthMax},
      {"rest_bits", !(card.rest_bits >= 0 && card.rest_bits <= 32)},
      {"parameters", !(card.parameters >= 0 && card.parameters <= kParametersMax)},
      {"active_parameters",
       !(card.active_parameters >= 0 && card.active_parameters <= kParametersMax)},
      {"latent", std::max({latent.kv_rank, latent.q_rank, latent.nope, latent.rope, latent.value,
                           latent.index}) > kWidthMax},
  };
  for (const auto& [key, is_wrong] : checks) {
    if (is_wrong) return key;
  }
  return "";
}

// What is wrong with the engine that a card names; empty: nothing.
std::string WrongEngine(const ModelCard& card) {
  if (card.engine.empty()) return card.splits.empty() ? "" : "'splits' is for another 'engine'";
  if (card.engine != kMlxLmEngine) {
    return absl::StrCat("'engine' is ", kMlxLmEngine, ", or left out where rankd's own serves it");
  }
  if (card.architecture.empty()) return "'engine' needs the 'architecture' that it serves";
  for (const std::string& split : card.splits) {
    if (split != "tensor") return "of 'splits' there is 'tensor' alone";
  }
  return "";
}

void SetEngine(const ModelCard& card, v1::ModelDescription* model) {
  if (card.engine.empty()) return;
  model->set_engine(card.engine);
  model->mutable_splits()->set_tensor(!card.splits.empty());
}

void GrowLayers(double factor, v1::ModelDescription* model) {
  if (!(factor > 0 && std::isfinite(factor))) return;
  for (auto* sizes : {model->mutable_layer_bytes(), model->mutable_layer_divisible_bytes(),
                      model->mutable_layer_expert_bytes()}) {
    for (uint64_t& size : *sizes) size = static_cast<uint64_t>(static_cast<double>(size) * factor);
  }
}

}  // namespace

absl::StatusOr<std::vector<ModelCard>> ReadModelCards(const std::string& yaml) {
  std::vector<ModelCard> cards;
  try {
    const YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap() && !root.IsSequence()) {
      return absl::InvalidArgumentError(
          "model cards: they do not begin with 'models:'; deploy/catalogue/models.yaml shows how");
    }
    const YAML::Node list = root.IsMap() ? root["models"] : root;
    if (!list || !list.IsSequence()) {
      return absl::InvalidArgumentError(
          "model cards: 'models' is a list: each card begins with '- {name: '");
    }
    for (const YAML::Node& node : list) {
      if (!node.IsMap() || !node["name"]) {
        return absl::InvalidArgumentError(
            absl::StrCat("model card ", cards.size() + 1, " has no 'name'"));
      }
      ModelCard card = ReadCard(node);
      if (const std::string wrong = UnknownKey(node); !wrong.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("the card of ", card.name, ": ", wrong));
      }
      if (card.bits == 1 || card.bits > 32) {
        return absl::InvalidArgumentError(
            absl::StrCat("the card of ", card.name, ": 'bits' of a weight are between 2 and 32"));
      }
      if (const std::string wrong = WrongEngine(card); !wrong.empty()) {
        return absl::InvalidArgumentError(absl::StrCat("the card of ", card.name, ": ", wrong));
      }
      if (const std::string wrong = TooLarge(card); !wrong.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the card of ", card.name, ": '", wrong, "' is larger than any model's"));
      }
      if (card.layers == 0 || card.layers > kCardLayersMax || card.hidden == 0 || card.group == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the card of ", card.name, " has no sensible number of layers or hidden size"));
      }
      if (!HasShape(card) && card.active_parameters == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the card of ", card.name, " does not say how large it is: it needs 'heads', ",
            "'head_dim' and 'intermediate' (or 'experts'), or 'active_parameters'"));
      }
      for (const ModelCard& other : cards) {
        if (other.name != card.name) continue;
        return absl::InvalidArgumentError(absl::StrCat("two cards are called '", card.name, "'"));
      }
      cards.push_back(std::move(card));
    }
  } catch (const YAML::Exception& error) {
    const bool kind = dynamic_cast<const YAML::BadConversion*>(&error) != nullptr;
    return absl::InvalidArgumentError(
        absl::StrCat("model cards: line ", error.mark.line + 1, ", column ", error.mark.column + 1,
                     ": ", kind ? "a value of the wrong kind: text, or a number" : error.msg));
  }
  return cards;
}

absl::StatusOr<const ModelCard*> FindModelCard(const std::vector<ModelCard>& cards,
                                               std::string_view name) {
  const std::string wanted = Plain(name);
  for (const ModelCard& card : cards) {
    for (const std::string& one : NamesOf(card)) {
      if (Plain(one) == wanted) return &card;
    }
  }
  const std::vector<const ModelCard*> alike = CardsThatContain(cards, wanted);
  if (alike.size() == 1) return alike[0];
  return absl::NotFoundError(absl::StrCat("no model of the catalogue is called '",
                                          std::string(name), "'",
                                          WhatWasMeant(cards, alike, wanted)));
}

uint32_t BitsOf(const ModelCard& card, std::string_view name, uint32_t asked) {
  if (asked > 0) return asked;
  return BitsInName(name).value_or(card.bits > 0 ? card.bits : kFloatBits);
}

std::optional<uint32_t> BitsInName(std::string_view name) { return PartsOf(name).bits; }

std::string WhyNotServed(const v1::ModelDescription& model) {
  if (!model.engine().empty()) return "";
  const bool served = std::find(std::begin(kServedArchitectures), std::end(kServedArchitectures),
                                model.architecture()) != std::end(kServedArchitectures);
  if (served) return "";
  return absl::StrCat("this release predicts ", model.name(), " but can't serve it yet: ",
                      model.architecture().empty()
                          ? "no engine is known that serves it"
                          : absl::StrCat("no engine of it knows ", model.architecture()));
}

v1::ModelDescription DescribeForPlan(const ModelCard& card, uint32_t bits) {
  v1::ModelDescription model = DescribeCard(card, bits);
  if (model.sliding_window() > 0 && model.engine().empty() && WhyNotServed(model).empty()) {
    model.clear_sliding_window();
    model.clear_full_attention_every();
  }
  return model;
}

v1::ModelDescription DescribeCard(const ModelCard& card, uint32_t bits) {
  const double weight = BytesPerWeight(bits, card.group);
  const double rest = card.rest_bits > 0 ? BytesPerWeight(card.rest_bits, card.group) : weight;
  const bool latent = card.latent.has_value();
  v1::ModelDescription model;
  model.set_name(card.name);
  model.set_architecture(card.architecture);
  SetEngine(card, &model);
  model.set_layer_count(card.layers);
  model.set_hidden_size(card.hidden);
  model.set_intermediate_size(card.experts > 0 ? card.expert_width : card.intermediate);
  model.set_attention_heads(std::max(1u, card.heads > 0 ? card.heads : card.kv_heads));
  model.set_kv_heads(std::max(1u, card.kv_heads));
  model.set_head_dim(card.head_dim > 0 ? card.head_dim : 128);
  model.set_vocab_size(card.vocab);
  model.set_context_length_max(card.context);
  model.set_dtype("bfloat16");
  if (bits < kFloatBits) {
    model.mutable_quantization()->set_bits(bits);
    model.mutable_quantization()->set_group_size(card.group);
  }
  model.set_full_attention_every(card.full_attention_every);
  model.set_fixed_state_bytes(card.fixed_state_bytes);
  model.set_sliding_window(card.sliding_window);
  model.set_kv_index_width(card.kv_index);
  model.set_residual_streams(card.residual_streams);
  if (latent)
    model.set_kv_latent_width(card.latent->kv_rank + card.latent->rope + card.latent->index);
  model.set_experts(card.experts);
  model.set_experts_active(card.active);
  // More parameters than active ones: a mixture, even when the card does not tell its experts.
  const double idle = card.experts == 0 && card.active_parameters > 0
                          ? std::max(0.0, card.parameters - card.active_parameters) * kGiga
                          : 0;
  if (idle > 0) {
    model.set_experts(kSharesOfUnknownExperts);
    model.set_experts_active(static_cast<uint32_t>(
        std::max(1.0, kSharesOfUnknownExperts * card.active_parameters / card.parameters)));
  }
  model.set_parameter_count(static_cast<uint64_t>(card.parameters * kGiga));
  const double table = static_cast<double>(card.vocab) * card.hidden * rest;
  // A head of its own is a second table.
  const double tables = card.tied_embeddings ? table : 2 * table;
  model.set_tied_embeddings(card.tied_embeddings);
  model.set_embedding_bytes(static_cast<uint64_t>(table));
  model.set_head_bytes(static_cast<uint64_t>(tables - table));
  double all = tables;
  for (uint32_t i = 0; i < card.layers; ++i) {
    const bool mixed = card.experts > 0 && i >= card.dense_layers;
    const double inside = card.expert_hidden > 0 ? card.expert_hidden : card.hidden;
    double experts = mixed ? 3.0 * inside * card.expert_width * card.experts : 0;
    double shared =
        HasShape(card) ? SharedWeights(card, mixed) : SharedWeightsFromCounts(card, experts);
    if (idle > 0) {  // what is active is read by share, like the rest
      experts = shared + idle / card.layers;
      shared = 0;
    }
    const double bytes = shared * rest + experts * weight;
    model.add_layer_bytes(static_cast<uint64_t>(bytes));
    model.add_layer_divisible_bytes(static_cast<uint64_t>(bytes * 0.999));
    model.add_layer_expert_bytes(static_cast<uint64_t>(experts * weight));
    all += bytes;
  }
  if (model.experts() == 0) model.clear_layer_expert_bytes();
  // Files hold what the shapes don't say (norms, a vision tower, other widths).
  const auto published = card.bytes.find(bits);
  if (published == card.bytes.end()) return model;
  const auto text = static_cast<double>(published->second) - static_cast<double>(card.vision_bytes);
  GrowLayers((text - tables) / (all - tables), &model);
  return model;
}

}  // namespace macrame::planner
