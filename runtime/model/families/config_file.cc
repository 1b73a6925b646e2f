#include "runtime/model/families/config_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/families/config_fields.h"
#include "runtime/model/families/family.h"
#include "runtime/model/families/known_fields.h"
#include "runtime/model/weights/weight_files.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

using nlohmann::json;

constexpr QuantizationTraits kMxfp4Traits = {4, 32, QuantizationMode::kMxfp4};

// MLX's modes, with MLX's defaults. Only affine has other bits and groups.
struct NamedMode {
  const char* name;
  QuantizationTraits traits;
};
constexpr NamedMode kModes[] = {{"affine", {4, 64, QuantizationMode::kAffine}},
                                {"mxfp4", kMxfp4Traits},
                                {"mxfp8", {8, 32, QuantizationMode::kMxfp8}},
                                {"nvfp4", {4, 16, QuantizationMode::kNvfp4}}};

const NamedMode& ReadMode(const json& value, const std::string& where) {
  const std::string mode = ReadText(value, "mode", "affine");
  for (const NamedMode& known : kModes) {
    if (mode == known.name) return known;
  }
  ConfigError error{reasons::kModelFormatUnsupported,
                    absl::StrCat(where, ": quantisation mode \"", mode,
                                 "\" is not implemented; affine, mxfp4, mxfp8 and nvfp4 are")};
  error.remedy =
      "the files are whole; load a copy of the model in MLX's mode affine, mxfp4, mxfp8 or nvfp4, "
      "or convert the original weights with mlx_lm.convert --q-mode affine";
  throw error;
}

QuantizationTraits ReadQuantizationTraits(const json& value, const std::string& where,
                                          QuantizationTraits fallback) {
  const NamedMode& mode = ReadMode(value, where);
  if (ReadBool(value, "global_scale", false)) {
    Unsupported(absl::StrCat(where, ": ", mode.name,
                             " with a global scale is not implemented; without one it is"));
  }
  // MLX's own defaults, where a module's mode is not the model's.
  if (mode.traits.mode != fallback.mode) fallback = mode.traits;
  QuantizationTraits traits = mode.traits;
  traits.bits = ReadInt(value, "bits", fallback.bits);
  traits.group_size = ReadInt(value, "group_size", fallback.group_size);
  if (traits.mode != QuantizationMode::kAffine) {
    if (traits == mode.traits) return traits;
    Unsupported(absl::StrCat(where, ": ", mode.name, " with ", traits.bits, " bits in groups of ",
                             traits.group_size, "; the format has ", mode.traits.bits,
                             " bits in groups of ", mode.traits.group_size));
  }
  if (traits.bits < 2 || traits.bits > 8 || traits.bits == 7) {
    Unsupported(absl::StrCat(where, ": ", traits.bits, " bits"));
  }
  if (traits.group_size != 32 && traits.group_size != 64 && traits.group_size != 128) {
    Unsupported(absl::StrCat(where, ": groups of ", traits.group_size));
  }
  return traits;
}

// Whole numbers that compressed-tensors packs (packed_weights.h).
void ReadPacked(const json& foreign, ModelConfig& out) {
  const json* groups = FindField(foreign, "config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    Invalid("'quantization_config' names no 'config_groups'");
  }
  for (const auto& [name, group] : groups->items()) {
    const std::string where = absl::StrCat("'config_groups.", name, "'");
    const json* weights = group.is_object() ? FindField(group, "weights") : nullptr;
    if (weights == nullptr || !weights->is_object()) Invalid(where + " says nothing of weights");
    const int bits = ReadInt(*weights, "num_bits", std::nullopt);
    const std::string type = ReadText(*weights, "type", "int");
    const std::string strategy = ReadText(*weights, "strategy", "group");
    const bool symmetric = ReadBool(*weights, "symmetric", true);
    const bool ordered = FindField(*weights, "actorder") != nullptr;
    if (type != "int" || strategy != "group" || !symmetric || ordered || (bits != 4 && bits != 8)) {
      Unsupported(absl::StrCat(where, ": packed ", type, " of ", bits, " bits by ", strategy,
                               symmetric ? "" : ", with zero points",
                               ordered ? ", in an order of their own" : "",
                               "; symmetric int of 4 or 8 bits by group is implemented"));
    }
    const json plain = {{"bits", bits},
                        {"group_size", ReadInt(*weights, "group_size", std::nullopt)}};
    const QuantizationTraits traits = ReadQuantizationTraits(plain, where, {});
    if (out.quantization.bits != 0 && out.quantization != traits) {
      Unsupported("'config_groups' that are packed in different ways");
    }
    out.quantization = traits;
  }
}

// What other programs than MLX write. Which modules are stored so, their tensors show.
void ReadForeignQuantization(const json& foreign, ModelConfig& out) {
  const std::string method = ReadText(foreign, "quant_method", "");
  if (method == "mxfp4" && out.experts.stored_as_blocks) {
    out.quantization = kMxfp4Traits;
    return;
  }
  if (method == "mxfp8") {  // 8-bit floats, 32 of a row with a power of two
    out.fp8_block_rows = 1;
    out.fp8_block_columns = 32;
    return;
  }
  const std::string format = ReadText(foreign, "format", "");
  if (method == "compressed-tensors" && format == "float-quantized") return;
  if (method == "compressed-tensors" && format == "pack-quantized") {
    return ReadPacked(foreign, out);
  }
  if (method == "compressed-tensors" || method == "modelopt") {
    Unsupported(
        absl::StrCat("quantised with ", method, ", ",
                     format.empty() ? ReadText(foreign, "quant_algo", "?") : format,
                     ", which is not implemented; MLX's own formats, FP8 and pack-quantized are"));
  }
  if (method != "fp8") Unsupported(absl::StrCat("quantised with \"", method, "\""));
  const std::string number = ReadText(foreign, "fmt", "e4m3");
  if (number != "e4m3" && number != "float8_e4m3fn") {
    Unsupported(absl::StrCat("8-bit floats of form '", number, "' are not implemented; e4m3 is"));
  }
  if (out.experts.published_as_fp4) out.quantization = kMxfp4Traits;
  const json* block = FindField(foreign, "weight_block_size");
  if (block == nullptr) return;
  if (!block->is_array() || block->size() != 2) Invalid("'weight_block_size' is not two numbers");
  const json sizes = {{"weight_block_size", (*block)[0]}, {"weight_block_size[1]", (*block)[1]}};
  out.fp8_block_rows = ReadInt(sizes, "weight_block_size", std::nullopt);
  out.fp8_block_columns = ReadInt(sizes, "weight_block_size[1]", std::nullopt);
}

void ReadQuantization(const json& config, ModelConfig& out) {
  const auto found = config.find("quantization");
  if (found == config.end() || found->is_null()) {
    const json* foreign = FindField(config, "quantization_config");
    const json* text = FindField(config, "text_config");
    if (foreign == nullptr && text != nullptr && text->is_object()) {
      foreign = FindField(*text, "quantization_config");
    }
    if (foreign != nullptr && foreign->is_object() && foreign->contains("quant_method")) {
      ReadForeignQuantization(*foreign, out);
    }
    return;
  }
  if (!found->is_object()) Invalid("'quantization' is not an object");
  out.quantization = ReadQuantizationTraits(*found, "'quantization'", {});
  for (const auto& [stored, value] : found->items()) {
    const std::string name = TextTensorName(stored);
    if (value.is_object()) {
      out.quantization_overrides[name] = ReadQuantizationTraits(
          value, absl::StrCat("'quantization.", name, "'"), out.quantization);
    } else if (value.is_boolean() && name.find('.') != std::string::npos) {
      out.quantization_overrides[name] =
          value.get<bool>() ? out.quantization : QuantizationTraits{};
    }
  }
}

const Family& FamilyOf(const json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) Invalid("'model_type' is missing");
  const auto name = type->get<std::string>();
  const Family* family = FindFamily(name);
  if (family != nullptr) return *family;
  throw ConfigError{reasons::kModelArchitectureUnknown, absl::StrCat("architecture '", name, "'")};
}

// What a family left at its default, and that sizes fit each other.
void Complete(ModelConfig& out) {
  const auto layers = static_cast<size_t>(out.layer_count);
  if (out.has_experts.empty()) out.has_experts.assign(layers, false);
  if (out.sliding_windows.empty()) out.sliding_windows.assign(layers, 0);
  if (out.has_feed.empty()) out.has_feed.assign(layers, true);
  if (out.mixers.empty()) out.mixers.assign(layers, MixerKind::kAttention);
  if (out.rope_uses.empty()) out.rope_uses.assign(layers, RopeUse::kGlobal);
  if (out.intermediate_size == 0) {
    if (std::find(out.has_experts.begin(), out.has_experts.end(), false) != out.has_experts.end()) {
      Invalid("'intermediate_size' is missing");
    }
    out.intermediate_size = out.experts.width;
  }
  // Rows of what all heads have together; each factor is bounded by itself only.
  const LatentTraits& latent = out.latent;
  int64_t widest =
      std::max({int64_t{out.head_dim}, int64_t{latent.nope} + latent.rope,
                int64_t{latent.nope} + latent.value, int64_t{latent.kv_rank}, int64_t{1}});
  const HeadTraits global = out.global_heads.value_or(HeadTraits{out.kv_heads, out.head_dim});
  widest = std::max(widest, int64_t{global.dim});
  const int64_t heads = std::max({out.attention_heads, out.kv_heads, global.kv_heads});
  if (heads * widest > kDimensionMax) {
    Invalid(absl::StrCat(heads, " attention heads of ", widest, " numbers are more than ",
                         kDimensionMax));
  }
  if (out.attention_heads % out.kv_heads != 0) {
    Invalid(absl::StrCat("'num_attention_heads' ", out.attention_heads,
                         " is not a multiple of 'num_key_value_heads' ", out.kv_heads));
  }
  if (out.attention_heads % global.kv_heads != 0) {
    Invalid(absl::StrCat("'num_attention_heads' ", out.attention_heads, " is not a multiple of ",
                         "'num_global_key_value_heads' ", global.kv_heads));
  }
}

void ReadTraits(const Family& family, const json& given, ModelConfig& out) {
  json config = given;
  NameFields(family.model_type, config);
  CheckFixedFields(family.model_type, config);
  try {
    family.read(config, out);
  } catch (ConfigError& error) {
    // Of the code's own remedy, which tells of ways to store weights, nothing is true here.
    if (error.code == reasons::kModelFormatUnsupported && error.remedy.empty()) {
      error.remedy = "load another model: README.md lists the architectures that are served";
    }
    throw;
  }
  Complete(out);
  ReadFeedKinds(config, out);
  CheckLayerKinds(config, out);
}

ModelConfig Read(const json& config) {
  ModelConfig out;
  const Family& family = FamilyOf(config);
  out.architecture = family.model_type;
  ReadTraits(family, config, out);
  ReadQuantization(config, out);
  return out;
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             const std::string& folder) {
  const auto config = ParseConfigObject(config_json, folder);
  if (!config.ok()) return config.status();
  try {
    return Read(*config);
  } catch (const ConfigError& error) {
    v1::Reason reason =
        MakeReason(error.code, absl::StrCat(folder, "/config.json: ", error.message));
    if (!error.remedy.empty()) reason.set_remedy(error.remedy);
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
  } catch (const json::exception& error) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                        absl::StrCat(folder, "/config.json: ", error.what()));
  }
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  const auto text = transport::ReadRegularFile(path, kConfigBytesMax);
  if (absl::IsNotFound(text.status())) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelConfigInvalid,
                        absl::StrCat(path, " can't be read: it is not there"));
  }
  if (!text.ok()) {
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                        std::string(text.status().message()));
  }
  return ParseModelConfig(*text, folder);
}

}  // namespace macrame::runtime::engine
