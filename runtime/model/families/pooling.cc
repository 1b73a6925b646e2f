#include "runtime/model/families/pooling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

absl::Status PoolingUnsupported(const std::string& folder, const std::string& what) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelFormatUnsupported,
                      absl::StrCat(folder, ": ", what));
}

// The beginning of a file; empty when there is none.
absl::StatusOr<std::string> BeginningOf(const std::string& path) {
  auto text = transport::ReadBeginning(path, kConfigBytesMax);
  if (absl::IsNotFound(text.status())) return std::string();
  if (text.ok()) return text;
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                      std::string(text.status().message()));
}

bool IsTrue(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

bool IsFalse(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && !found->get<bool>();
}

struct Mode {
  const char* key;   // in 1_Pooling/config.json, behind "pooling_mode_"
  const char* name;  // where "pooling_mode" names it
  Pooling pooling;
};
constexpr Mode kModes[] = {
    {"cls_token", "cls", Pooling::kFirst},
    {"mean_tokens", "mean", Pooling::kMean},
    {"lasttoken", "lasttoken", Pooling::kLast},
    {"max_tokens", "max", Pooling::kNone},
    {"mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::kNone},
    {"weightedmean_tokens", "weightedmean", Pooling::kNone},
};

// What besides the transformer and its pooling modules.json lists; the folder of the pooling.
absl::StatusOr<std::string> PoolingFolder(const std::string& folder) {
  const auto text = BeginningOf(absl::StrCat(folder, "/modules.json"));
  if (!text.ok()) return text.status();
  if (text->empty()) return std::string("1_Pooling");
  const json modules = ParseConfigJson(*text);
  if (!modules.is_array())
    return PoolingUnsupported(folder, "modules.json is not a list of modules");
  std::string pooling;
  for (const json& module : modules) {
    const bool is_whole = module.is_object() && module.contains("type") &&
                          module["type"].is_string() &&
                          (!module.contains("path") || module["path"].is_string());
    if (!is_whole)
      return PoolingUnsupported(folder, "modules.json lists a module without type and path");
    const auto type = module["type"].get<std::string>();
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind == "Transformer" || kind == "Normalize") continue;
    if (kind != "Pooling") {
      return PoolingUnsupported(folder,
                                absl::StrCat("modules.json has a layer of kind '", kind,
                                             "' behind the transformer, which rankd does not "
                                             "compute"));
    }
    pooling = module.value("path", std::string());
    if (pooling.empty() || pooling == ".." || absl::StrContains(pooling, '/')) {
      return PoolingUnsupported(folder, "modules.json names no folder for its pooling");
    }
  }
  if (pooling.empty()) return PoolingUnsupported(folder, "modules.json has no pooling");
  return pooling;
}

// What of config.json would make a causal run of the layers wrong.
std::string WhyNotCausal(const json& config) {
  for (const char* key : {"use_bidirectional_attention", "bidirectional", "is_bidirectional"}) {
    if (IsTrue(config, key)) return absl::StrCat("'", key, "' is true");
  }
  if (IsFalse(config, "is_causal")) return "'is_causal' is false";
  const auto architectures = config.find("architectures");
  if (architectures == config.end() || !architectures->is_array()) return "";
  for (const json& name : *architectures) {
    if (name.is_string() && absl::StrContains(name.get<std::string>(), "Bidirectional")) {
      return absl::StrCat("the architecture is ", name.get<std::string>());
    }
  }
  return "";
}

// Python code of the checkpoint's own that takes the place of the architecture's.
std::string OwnCode(const json& config) {
  const auto map = config.find("auto_map");
  if (map == config.end() || !map->is_object()) return "";
  const auto found = map->find("AutoModel");
  return found != map->end() && found->is_string() ? found->get<std::string>() : "";
}

// Saved without a head: bare tensors, or an architecture "…Model" and no head in sight.
bool LacksHead(const WeightFiles& files, const ModelConfig& config, const json& json_config) {
  if (files.is_bare()) return true;
  if (config.tied_embeddings || files.Find("lm_head.weight") != nullptr) return false;
  const auto names = json_config.find("architectures");
  if (names == json_config.end() || !names->is_array() || names->empty()) return false;
  return names->front().is_string() && absl::EndsWith(names->front().get<std::string>(), "Model");
}

// Their config.json calls modules as their tensors are called.
void NameBareModules(ModelConfig& config) {
  std::map<std::string, QuantizationTraits> named;
  for (const auto& [name, traits] : config.quantization_overrides) {
    named[absl::StartsWith(name, "model.") ? name : absl::StrCat("model.", name)] = traits;
  }
  config.quantization_overrides = std::move(named);
}

bool IsTemplateWithEnd(const json& processor) {
  if (!processor.is_object()) return false;
  const auto type = processor.find("type");  // not copied: it may be nested as deeply as it likes
  if (type == processor.end() || *type != "TemplateProcessing") return false;
  const auto single = processor.find("single");
  return single != processor.end() && single->is_array() && !single->empty() &&
         single->back().contains("SpecialToken");
}

// A template, or a list with one.
bool EndsWithToken(const json& processor) {
  if (!processor.is_object()) return false;
  const auto parts = processor.find("processors");
  if (parts == processor.end() || !parts->is_array()) return IsTemplateWithEnd(processor);
  return std::any_of(parts->begin(), parts->end(), IsTemplateWithEnd);
}

}  // namespace

std::string_view PoolingName(Pooling pooling) {
  switch (pooling) {
    case Pooling::kNone:
      return "";
    case Pooling::kMean:
      return "mean";
    case Pooling::kLast:
      return "last";
    case Pooling::kFirst:
      return "first";
  }
  return "";
}

absl::StatusOr<Pooling> ParsePooling(std::string_view text) {
  const json config = ParseConfigJson(text);
  if (!config.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  const auto named = config.find("pooling_mode");
  std::vector<const Mode*> asked;
  for (const Mode& mode : kModes) {
    const bool is_named = named != config.end() && named->is_string() && *named == mode.name;
    if (is_named || IsTrue(config, absl::StrCat("pooling_mode_", mode.key).c_str())) {
      asked.push_back(&mode);
    }
  }
  if (asked.empty()) return absl::InvalidArgumentError("it names no pooling that rankd knows");
  if (asked.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("it joins the poolings '", asked[0]->name,
                                                   "' and '", asked[1]->name,
                                                   "', where rankd does one"));
  }
  if (asked[0]->pooling != Pooling::kNone) return asked[0]->pooling;
  return absl::InvalidArgumentError(absl::StrCat("its pooling '", asked[0]->name,
                                                 "' is not implemented; mean, lasttoken and cls "
                                                 "are"));
}

bool EndsTexts(std::string_view tokenizer_json) {
  constexpr std::string_view kKey = "\"post_processor\"";
  const size_t at = tokenizer_json.find(kKey);
  if (at == std::string_view::npos) return false;
  const size_t colon = tokenizer_json.find(':', at + kKey.size());
  if (colon == std::string_view::npos) return false;
  std::istringstream value{std::string(tokenizer_json.substr(colon + 1))};
  try {
    json processor;
    value >> processor;
    return EndsWithToken(processor);
  } catch (const json::exception&) {
    return false;  // cut off, or malformed: the tokenizer library says so
  }
}

absl::Status ReadPooling(const WeightFiles& files, ModelConfig& config) {
  const std::string& folder = files.folder();
  const auto config_text = BeginningOf(absl::StrCat(folder, "/config.json"));
  if (!config_text.ok()) return config_text.status();
  const json json_config = ParseConfigJson(*config_text);
  if (!json_config.is_object()) return absl::OkStatus();  // said elsewhere
  std::string why = WhyNotCausal(json_config);
  const auto inner = json_config.find("text_config");
  if (why.empty() && inner != json_config.end() && inner->is_object()) why = WhyNotCausal(*inner);
  if (!why.empty()) {
    return PoolingUnsupported(folder,
                              absl::StrCat("config.json: ", why,
                                           ", so each position attends to those behind it, too; "
                                           "rankd's layers attend to those before alone"));
  }
  config.has_head = !LacksHead(files, config, json_config);
  if (files.is_bare()) NameBareModules(config);
  const auto where = PoolingFolder(folder);
  if (!where.ok()) return where.status();
  const std::string path = absl::StrCat(*where, "/config.json");
  const auto text = BeginningOf(absl::StrCat(folder, "/", path));
  if (!text.ok()) return text.status();
  if (text->empty()) {
    const auto tokenizer = BeginningOf(absl::StrCat(folder, "/tokenizer.json"));
    if (!tokenizer.ok()) return tokenizer.status();
    const bool is_last = !config.has_head || EndsTexts(*tokenizer);
    config.pooling = is_last ? Pooling::kLast : Pooling::kNone;
    return absl::OkStatus();
  }
  const auto pooling = ParsePooling(*text);
  if (!pooling.ok()) {
    return PoolingUnsupported(folder, absl::StrCat(path, ": ", pooling.status().message()));
  }
  config.pooling = *pooling;
  const std::string code = OwnCode(json_config);
  if (code.empty()) return absl::OkStatus();
  return PoolingUnsupported(folder,
                            absl::StrCat("its embeddings are made by code of its own (", code,
                                         " in config.json's auto_map), which rankd does not run"));
}

}  // namespace macrame::runtime::engine
