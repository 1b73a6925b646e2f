#include "planner/offline/catalogue_entry.h"

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
constexpr uint32_t kLayersMax = 1024;
// Of a mixture whose experts the entry does not tell: the step that its active share is counted in.
constexpr uint32_t kSharesOfUnknownExperts = 1000;

// Weights of one layer's attention.
double AttentionWeights(const CatalogueEntry& entry) {
  if (entry.attention_weights > 0) return entry.attention_weights;
  const double hidden = entry.hidden, heads = entry.heads;
  if (!entry.latent.has_value()) {
    return hidden * entry.head_dim * (2 * heads + 2.0 * entry.kv_heads);
  }
  const LatentAttention& latent = *entry.latent;
  return hidden * latent.q_rank + latent.q_rank * heads * (latent.nope + latent.rope) +
         hidden * (latent.kv_rank + latent.rope) +
         latent.kv_rank * heads * (latent.nope + latent.value) + heads * latent.value * hidden;
}

// Weights of a layer that are read for each token, without routed experts.
double SharedWeights(const CatalogueEntry& entry, bool mixed) {
  const double hidden = entry.hidden;
  double weights = AttentionWeights(entry);
  if (mixed) {
    // Into what experts work in, and back.
    const double narrowed = 2 * hidden * entry.expert_hidden;
    return weights + 3 * hidden * entry.expert_width * entry.shared + hidden * entry.experts +
           narrowed;
  }
  return weights + 3 * hidden * entry.intermediate;
}

bool HasShape(const CatalogueEntry& entry) {
  return entry.heads > 0 && entry.head_dim > 0 && (entry.intermediate > 0 || entry.experts > 0);
}

// Entries without all widths: the makers' count of active parameters, spread over the layers.
double SharedWeightsFromCounts(const CatalogueEntry& entry, double experts_of_layer) {
  const double tables = static_cast<double>(entry.vocab) * entry.hidden;
  const double active = entry.active_parameters * kGiga - tables;
  const double chosen = entry.experts == 0 ? 0 : experts_of_layer * entry.active / entry.experts;
  return std::max(0.0, active / entry.layers - chosen);
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
// Copies of one model that were taught to answer; an entry stands for all of them.
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

std::vector<std::string> NamesOf(const CatalogueEntry& entry) {
  std::vector<std::string> names = entry.aliases;
  names.push_back(entry.name);
  return names;
}

std::vector<const CatalogueEntry*> EntriesThatContain(const std::vector<CatalogueEntry>& entries,
                                                      const std::string& wanted) {
  constexpr size_t kLettersMin = 4;
  std::vector<const CatalogueEntry*> found;
  if (wanted.size() < kLettersMin) return found;
  for (const CatalogueEntry& entry : entries) {
    if (Plain(entry.name).find(wanted) != std::string::npos) found.push_back(&entry);
  }
  return found;
}

// For a name that no entry bears: the entries that contain it, else the one whose name it begins
// with ("Qwen3-235B-A22B-Instruct-2507"), else the nearest.
std::string WhatWasMeant(const std::vector<CatalogueEntry>& entries,
                         const std::vector<const CatalogueEntry*>& alike,
                         const std::string& wanted) {
  if (!alike.empty()) {
    std::vector<std::string> names;
    for (const CatalogueEntry* entry : alike) names.push_back(entry->name);
    return absl::StrCat("; did you mean one of ", NameList(names), "?");
  }
  std::vector<std::string> plain;
  std::map<std::string, std::string> called;  // by the plain form
  std::string begun;
  for (const CatalogueEntry& entry : entries) {
    for (const std::string& name : NamesOf(entry)) {
      plain.push_back(Plain(name));
      called.emplace(plain.back(), entry.name);
      if (wanted.starts_with(plain.back()) && plain.back().size() > begun.size()) {
        begun = plain.back();
      }
    }
  }
  const std::string near = begun.empty() ? SuggestedName(wanted, plain) : begun;
  return near.empty() ? "" : absl::StrCat("; did you mean '", called[near], "'?");
}

const std::set<std::string>& LatentKeys() {
  static const std::set<std::string> known = {"kv_rank", "q_rank", "nope",
                                              "rope",    "value",  "index"};
  return known;
}

std::string UnknownKeyOf(const YAML::Node& node, const std::set<std::string>& known) {
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

// What is wrong with the first key of an entry that means nothing; empty: there is none.
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
  for (const char* widths : {"latent", "bytes"}) {
    if (node[widths] && !node[widths].IsMap()) {
      return absl::StrCat("'", widths, "' holds keys with numbers, such as '{",
                          widths == std::string_view("bytes") ? "4: 61000000000" : "kv_rank: 512",
                          "}'");
    }
  }
  std::string wrong = UnknownKeyOf(node, known);
  if (!wrong.empty() || !node["latent"]) return wrong;
  wrong = UnknownKeyOf(node["latent"], LatentKeys());
  return wrong.empty() ? "" : absl::StrCat("latent: ", wrong);
}

// Numbers that can't both be true; empty: there are none.
std::string Contradiction(const CatalogueEntry& entry) {
  const auto more = [](const char* part, double of_part, const char* whole, double of_whole) {
    return absl::StrCat("'", part, "' (", of_part, ") is more than '", whole, "' (", of_whole, ")");
  };
  if (entry.experts > 0 && entry.active > entry.experts) {
    return more("active", entry.active, "experts", entry.experts);
  }
  if (entry.heads > 0 && entry.kv_heads > entry.heads) {
    return more("kv_heads", entry.kv_heads, "heads", entry.heads);
  }
  if (entry.parameters > 0 && entry.active_parameters > entry.parameters) {
    return more("active_parameters", entry.active_parameters, "parameters", entry.parameters);
  }
  if (entry.dense_layers > entry.layers) {
    return more("dense_layers", entry.dense_layers, "layers", entry.layers);
  }
  return "";
}

CatalogueEntry ReadEntry(const YAML::Node& node) {
  CatalogueEntry entry;
  entry.name = node["name"].as<std::string>();
  const auto read = [&](const char* key, auto* value) {
    if (node[key]) *value = node[key].as<std::decay_t<decltype(*value)>>();
  };
  read("aliases", &entry.aliases);
  read("layers", &entry.layers);
  read("hidden", &entry.hidden);
  read("heads", &entry.heads);
  read("kv_heads", &entry.kv_heads);
  read("head_dim", &entry.head_dim);
  read("intermediate", &entry.intermediate);
  read("vocab", &entry.vocab);
  read("context", &entry.context);
  read("experts", &entry.experts);
  read("active", &entry.active);
  read("shared", &entry.shared);
  read("expert_width", &entry.expert_width);
  read("dense_layers", &entry.dense_layers);
  read("full_attention_every", &entry.full_attention_every);
  read("fixed_state_bytes", &entry.fixed_state_bytes);
  read("sliding_window", &entry.sliding_window);
  read("kv_index", &entry.kv_index);
  read("residual_streams", &entry.residual_streams);
  read("expert_hidden", &entry.expert_hidden);
  read("attention_weights", &entry.attention_weights);
  read("tied_embeddings", &entry.tied_embeddings);
  read("architecture", &entry.architecture);
  read("engine", &entry.engine);
  read("splits", &entry.splits);
  read("parameters", &entry.parameters);
  read("active_parameters", &entry.active_parameters);
  read("group", &entry.group);
  read("rest_bits", &entry.rest_bits);
  read("vision_bytes", &entry.vision_bytes);
  read("bits", &entry.bits);
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
    entry.latent = widths;
  }
  for (const auto& size : node["bytes"]) {
    entry.bytes[size.first.as<uint32_t>()] = size.second.as<uint64_t>();
  }
  return entry;
}

// The first number that no model has.
std::string TooLarge(const CatalogueEntry& entry) {
  constexpr uint32_t kWidthMax = 1U << 20;
  constexpr uint32_t kVocabMax = 1U << 24;
  constexpr uint32_t kExpertsMax = 1U << 14;
  constexpr uint32_t kStreamsMax = 64;
  constexpr double kParametersMax = 1e6;
  const LatentAttention latent = entry.latent.value_or(LatentAttention());
  const std::pair<const char*, bool> checks[] = {
      {"hidden", entry.hidden > kWidthMax},
      {"heads", entry.heads > kWidthMax},
      {"kv_heads", entry.kv_heads > kWidthMax},
      {"head_dim", entry.head_dim > kWidthMax},
      {"intermediate", entry.intermediate > kWidthMax},
      {"expert_width", entry.expert_width > kWidthMax},
      {"vocab", entry.vocab > kVocabMax},
      {"kv_index", entry.kv_index > kWidthMax},
      {"residual_streams", entry.residual_streams > kStreamsMax},
      {"expert_hidden", entry.expert_hidden > kWidthMax},
      {"attention_weights",
       !(entry.attention_weights >= 0 && entry.attention_weights <= 4.0 * kWidthMax * kWidthMax)},
      {"experts", entry.experts > kExpertsMax},
      {"shared", entry.shared > kExpertsMax},
      {"group", entry.group > kWidthMax},
      {"rest_bits", !(entry.rest_bits >= 0 && entry.rest_bits <= 32)},
      {"parameters", !(entry.parameters >= 0 && entry.parameters <= kParametersMax)},
      {"active_parameters",
       !(entry.active_parameters >= 0 && entry.active_parameters <= kParametersMax)},
      {"latent", std::max({latent.kv_rank, latent.q_rank, latent.nope, latent.rope, latent.value,
                           latent.index}) > kWidthMax},
  };
  for (const auto& [key, is_wrong] : checks) {
    if (is_wrong) return key;
  }
  return "";
}

// Of numbers each of which may be: all layers together stay far below 2^63 bytes.
std::string TooLargeTogether(const CatalogueEntry& entry) {
  constexpr double kWeightsOfLayerMax = 1e14;
  const double hidden = entry.hidden;
  const double experts = 3 * std::max<double>(hidden, entry.expert_hidden) * entry.expert_width *
                         (static_cast<double>(entry.experts) + entry.shared);
  const double weights = AttentionWeights(entry) + experts + 3 * hidden * entry.intermediate +
                         hidden * entry.experts + 2 * hidden * entry.expert_hidden;
  return weights <= kWeightsOfLayerMax
             ? ""
             : absl::StrCat("its numbers make a layer of ", weights, " weights, and no model has ",
                            "more than ", kWeightsOfLayerMax);
}

// What is wrong with the engine that an entry names; empty: nothing.
std::string WrongEngine(const CatalogueEntry& entry) {
  if (entry.engine.empty()) return entry.splits.empty() ? "" : "'splits' is for another 'engine'";
  if (entry.engine != kMlxLmEngine) {
    return absl::StrCat("'engine' is ", kMlxLmEngine, ", or left out where rankd's own serves it");
  }
  if (entry.architecture.empty()) return "'engine' needs the 'architecture' that it serves";
  for (const std::string& split : entry.splits) {
    if (split != "tensor") return "of 'splits' there is 'tensor' alone";
  }
  return "";
}

void SetEngine(const CatalogueEntry& entry, v1::ModelDescription* model) {
  if (entry.engine.empty()) return;
  model->set_engine(entry.engine);
  model->mutable_splits()->set_tensor(!entry.splits.empty());
}

void GrowLayers(double factor, v1::ModelDescription* model) {
  if (!(factor > 0 && std::isfinite(factor))) return;
  for (auto* sizes : {model->mutable_layer_bytes(), model->mutable_layer_divisible_bytes(),
                      model->mutable_layer_expert_bytes()}) {
    for (uint64_t& size : *sizes) size = static_cast<uint64_t>(static_cast<double>(size) * factor);
  }
}

// The shape that the entry tells, without a byte of weights.
v1::ModelDescription DescribeShape(const CatalogueEntry& entry, uint32_t bits) {
  v1::ModelDescription model;
  model.set_name(entry.name);
  model.set_architecture(entry.architecture);
  SetEngine(entry, &model);
  model.set_layer_count(entry.layers);
  model.set_hidden_size(entry.hidden);
  model.set_intermediate_size(entry.experts > 0 ? entry.expert_width : entry.intermediate);
  model.set_attention_heads(std::max(1u, entry.heads > 0 ? entry.heads : entry.kv_heads));
  model.set_kv_heads(std::max(1u, entry.kv_heads));
  model.set_head_dim(entry.head_dim > 0 ? entry.head_dim : 128);
  model.set_vocab_size(entry.vocab);
  model.set_context_length_max(entry.context);
  model.set_dtype("bfloat16");
  if (bits < kFloatBits) {
    model.mutable_quantization()->set_bits(bits);
    model.mutable_quantization()->set_group_size(entry.group);
  }
  model.set_full_attention_every(entry.full_attention_every);
  model.set_fixed_state_bytes(entry.fixed_state_bytes);
  model.set_sliding_window(entry.sliding_window);
  model.set_kv_index_width(entry.kv_index);
  model.set_residual_streams(entry.residual_streams);
  if (entry.latent.has_value())
    model.set_kv_latent_width(entry.latent->kv_rank + entry.latent->rope + entry.latent->index);
  model.set_experts(entry.experts);
  model.set_experts_active(entry.active);
  return model;
}

// What is wrong with an entry by itself, as it goes on behind "the entry of NAME"; empty: nothing.
std::string Wrong(const CatalogueEntry& entry) {
  if (entry.bits == 1 || entry.bits > 32) return ": 'bits' of a weight are between 2 and 32";
  if (const std::string wrong = WrongEngine(entry); !wrong.empty()) {
    return absl::StrCat(": ", wrong);
  }
  if (const std::string wrong = TooLarge(entry); !wrong.empty()) {
    return absl::StrCat(": '", wrong, "' is larger than any model's");
  }
  if (entry.layers == 0 || entry.layers > kLayersMax || entry.hidden == 0 || entry.group == 0) {
    return " has no sensible number of layers or hidden size";
  }
  for (const std::string& wrong : {Contradiction(entry), TooLargeTogether(entry)}) {
    if (!wrong.empty()) return absl::StrCat(": ", wrong);
  }
  if (!HasShape(entry) && entry.active_parameters == 0) {
    return " does not say how large it is: it needs 'heads', 'head_dim' and 'intermediate' (or "
           "'experts'), or 'active_parameters'";
  }
  return "";
}

// Adds what `node` describes.
absl::Status AddEntry(const YAML::Node& node, std::vector<CatalogueEntry>* entries) {
  if (!node.IsMap() || !node["name"] || node["name"].as<std::string>().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model entry ", entries->size() + 1, " has no 'name'"));
  }
  if (const std::string wrong = UnknownKey(node); !wrong.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the entry of ", node["name"].as<std::string>(), ": ", wrong));
  }
  CatalogueEntry entry = ReadEntry(node);
  if (const std::string wrong = Wrong(entry); !wrong.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the entry of ", entry.name, wrong));
  }
  for (const CatalogueEntry& other : *entries) {
    if (other.name != entry.name) continue;
    return absl::InvalidArgumentError(absl::StrCat("two entries are called '", entry.name, "'"));
  }
  entries->push_back(std::move(entry));
  return absl::OkStatus();
}

absl::Status NotReadable(const YAML::Exception& error) {
  const bool kind = dynamic_cast<const YAML::BadConversion*>(&error) != nullptr;
  const std::string place =
      error.mark.is_null()
          ? ""
          : absl::StrCat("line ", error.mark.line + 1, ", column ", error.mark.column + 1, ": ");
  return absl::InvalidArgumentError(absl::StrCat(
      "model entries: ", place, kind ? "a value of the wrong kind: text, or a number" : error.msg));
}

}  // namespace

absl::StatusOr<std::vector<CatalogueEntry>> ReadCatalogue(const std::string& yaml) {
  std::vector<CatalogueEntry> entries;
  try {
    const YAML::Node root = YAML::Load(yaml);
    if (!root.IsMap() && !root.IsSequence()) {
      return absl::InvalidArgumentError(
          "model entries: they do not begin with 'models:'; deploy/catalogue/models.yaml shows "
          "how");
    }
    const YAML::Node list = root.IsMap() ? root["models"] : root;
    if (!list || !list.IsSequence()) {
      return absl::InvalidArgumentError(
          "model entries: 'models' is a list: each entry begins with '- {name: '");
    }
    for (const YAML::Node& node : list) {
      const absl::Status added = AddEntry(node, &entries);
      if (!added.ok()) return added;
    }
  } catch (const YAML::Exception& error) {
    return NotReadable(error);
  }
  return entries;
}

absl::StatusOr<const CatalogueEntry*> FindEntry(const std::vector<CatalogueEntry>& entries,
                                                std::string_view name) {
  const std::string wanted = Plain(name);
  for (const CatalogueEntry& entry : entries) {
    for (const std::string& one : NamesOf(entry)) {
      if (Plain(one) == wanted) return &entry;
    }
  }
  const std::vector<const CatalogueEntry*> alike = EntriesThatContain(entries, wanted);
  if (alike.size() == 1) return alike[0];
  return absl::NotFoundError(absl::StrCat("no model of the catalogue is called '",
                                          std::string(name), "'",
                                          WhatWasMeant(entries, alike, wanted)));
}

uint32_t BitsOf(const CatalogueEntry& entry, std::string_view name, uint32_t asked) {
  if (asked > 0) return asked;
  return BitsInName(name).value_or(entry.bits > 0 ? entry.bits : kFloatBits);
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

v1::ModelDescription DescribeForPlan(const CatalogueEntry& entry, uint32_t bits) {
  v1::ModelDescription model = DescribeEntry(entry, bits);
  if (model.sliding_window() > 0 && model.engine().empty() && WhyNotServed(model).empty()) {
    model.clear_sliding_window();
    model.clear_full_attention_every();
  }
  return model;
}

v1::ModelDescription DescribeEntry(const CatalogueEntry& entry, uint32_t bits) {
  const double weight = BytesPerWeight(bits, entry.group);
  const double rest = entry.rest_bits > 0 ? BytesPerWeight(entry.rest_bits, entry.group) : weight;
  v1::ModelDescription model = DescribeShape(entry, bits);
  // More parameters than active ones: a mixture, even when the entry does not tell its experts.
  const double idle = entry.experts == 0 && entry.active_parameters > 0
                          ? std::max(0.0, entry.parameters - entry.active_parameters) * kGiga
                          : 0;
  if (idle > 0) {
    model.set_experts(kSharesOfUnknownExperts);
    model.set_experts_active(static_cast<uint32_t>(
        std::max(1.0, kSharesOfUnknownExperts * entry.active_parameters / entry.parameters)));
  }
  model.set_parameter_count(static_cast<uint64_t>(entry.parameters * kGiga));
  const double table = static_cast<double>(entry.vocab) * entry.hidden * rest;
  // A head of its own is a second table.
  const double tables = entry.tied_embeddings ? table : 2 * table;
  model.set_tied_embeddings(entry.tied_embeddings);
  model.set_embedding_bytes(static_cast<uint64_t>(table));
  model.set_head_bytes(static_cast<uint64_t>(tables - table));
  double all = tables;
  for (uint32_t i = 0; i < entry.layers; ++i) {
    const bool mixed = entry.experts > 0 && i >= entry.dense_layers;
    const double inside = entry.expert_hidden > 0 ? entry.expert_hidden : entry.hidden;
    double experts = mixed ? 3.0 * inside * entry.expert_width * entry.experts : 0;
    double shared =
        HasShape(entry) ? SharedWeights(entry, mixed) : SharedWeightsFromCounts(entry, experts);
    if (idle > 0) {  // what is active is read by share, like the rest
      experts = shared + idle / entry.layers;
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
  const auto published = entry.bytes.find(bits);
  if (published == entry.bytes.end()) return model;
  const auto vision = static_cast<double>(entry.vision_bytes);
  GrowLayers((static_cast<double>(published->second) - vision - tables) / (all - tables), &model);
  return model;
}

}  // namespace macrame::planner
