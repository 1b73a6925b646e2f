#include "runtime/model_files/model_description.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/config/model_config.h"
#include "runtime/model/config/python_json.h"
#include "runtime/model/cuts/carried.h"
#include "runtime/model/cuts/recurrent_cut.h"
#include "runtime/model/families/config_file.h"
#include "runtime/model/families/pooling.h"
#include "runtime/model/weights/fp8_weights.h"
#include "runtime/model/weights/packed_weights.h"
#include "runtime/model/weights/weight_files.h"
#include "runtime/model/weights/weight_needs.h"
#include "runtime/model_files/fingerprint.h"
#include "runtime/model_files/foreign_model.h"
#include "runtime/second_engine/worker_process.h"
#include "transport/regular_file.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;

constexpr int kFolderEntriesMax = 4096;
constexpr size_t kTokenizerBytesMax = size_t{256} << 20;  // as the tokenizer library's own bound

absl::Status Unsupported(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelFormatUnsupported,
                      std::move(message));
}

// GGUF is not served as it is, but there is a way.
absl::Status AskForImport(std::string message, const std::string& file) {
  v1::Reason reason = MakeReason(reasons::kModelFormatUnsupported, std::move(message));
  reason.set_remedy(absl::StrCat("run 'clusterctl model import ", file, "' first"));
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

// An adapter by itself is no model, and nothing of it is missing.
absl::Status BareAdapter(const std::string& folder) {
  const auto text = transport::ReadRegularFile(absl::StrCat(folder, "/adapter_config.json"),
                                               engine::kConfigBytesMax);
  if (!text.ok()) {
    return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                        std::string(text.status().message()));
  }
  const nlohmann::json config = engine::ParseConfigJson(*text);
  std::string base;
  for (const char* key : {"base_model_name_or_path", "model"}) {
    const auto found = config.is_object() ? config.find(key) : config.end();
    if (config.is_object() && found != config.end() && found->is_string()) {
      base = found->get<std::string>();
      break;
    }
  }
  v1::Reason reason =
      MakeReason(reasons::kModelFormatUnsupported,
                 absl::StrCat(folder, " holds an adapter (LoRA or the like)",
                              base.empty() ? std::string() : absl::StrCat(" of ", base),
                              ", not a model: rankd does not apply adapters to weights"));
  reason.set_remedy(absl::StrCat(
      "merge it with the model ('python3 -m mlx_lm fuse --model ",
      base.empty() ? std::string("MODEL") : base, " --adapter-path ", folder,
      " --save-path NEW_FOLDER', or PEFT's merge_and_unload) and load the new folder"));
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

// Rank 0 would refuse the folder once everything is launched.
absl::Status TokenizerMissing(const std::string& folder, bool has_tiktoken) {
  v1::Reason reason =
      MakeReason(reasons::kModelFileMissing,
                 absl::StrCat(folder, " has no tokenizer.json",
                              has_tiktoken ? ", only tiktoken's table, which is not read" : ""));
  reason.set_remedy(
      "put the tokenizer.json of another published copy of the model beside it, or one that "
      "transformers' AutoTokenizer writes with save_pretrained");
  return ReasonStatus(absl::StatusCode::kNotFound, reason);
}

absl::Status InvalidConfig(std::string message) {
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reasons::kModelConfigInvalid,
                      std::move(message));
}

// Formats that people have lying about, by the ends of their files' names.
struct ForeignFormat {
  std::string_view ending;
  std::string_view name;
};
constexpr std::array kForeignFormats = {
    ForeignFormat{".gguf", "GGUF (llama.cpp)"},
    ForeignFormat{".ggml", "GGML"},
    ForeignFormat{".bin", "PyTorch pickles"},
    ForeignFormat{".pt", "PyTorch pickles"},
    ForeignFormat{".pth", "PyTorch pickles"},
    ForeignFormat{".npz", "NumPy archives"},
    ForeignFormat{".onnx", "ONNX"},
    ForeignFormat{".mlmodelc", "Core ML"},
    ForeignFormat{".mlpackage", "Core ML"},
    ForeignFormat{".h5", "Keras"},
    ForeignFormat{".msgpack", "Flax"},
    ForeignFormat{".exl2", "ExLlama"},
};

struct FolderContents {
  bool safetensors = false;
  bool index = false;
  bool tokenizer = false;         // tokenizer.json
  bool tiktoken = false;          // what Kimi's copies have in its stead
  std::set<std::string> foreign;  // names of formats, with an example
  std::string gguf;               // the first such file by name
};

FolderContents LookInto(const std::string& folder) {
  FolderContents contents;
  std::error_code error;
  int entries = 0;
  for (fs::directory_iterator it(folder, error), end;
       !error && it != end && entries < kFolderEntriesMax; it.increment(error), ++entries) {
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, ".safetensors")) contents.safetensors = true;
    if (name == "model.safetensors.index.json") contents.index = true;
    if (name == "tokenizer.json") contents.tokenizer = true;
    if (absl::EndsWith(name, "tiktoken.model") || absl::EndsWith(name, ".tiktoken")) {
      contents.tiktoken = true;
    }
    if (absl::EndsWithIgnoreCase(name, ".gguf") &&
        (contents.gguf.empty() || name < contents.gguf)) {
      contents.gguf = name;
    }
    for (const ForeignFormat& format : kForeignFormats) {
      if (absl::EndsWithIgnoreCase(name, std::string(format.ending)) &&
          contents.foreign.size() < 3) {
        contents.foreign.insert(absl::StrCat(std::string(format.name), ": ", name));
        break;
      }
    }
  }
  return contents;
}

// Whether rank 0 could read it at all; what it says is rank 0's to judge.
absl::Status CheckTokenizer(const std::string& folder, const FolderContents& contents) {
  if (!contents.tokenizer) return TokenizerMissing(folder, contents.tiktoken);
  const std::string path = absl::StrCat(folder, "/tokenizer.json");
  const auto text = transport::ReadRegularFile(path, kTokenizerBytesMax);
  if (text.ok() && engine::IsPythonJson(*text)) return absl::OkStatus();
  v1::Reason reason =
      MakeReason(reasons::kTokenizerInvalid,
                 text.ok() ? absl::StrCat(path, " is not JSON: it is broken or incomplete")
                           : std::string(text.status().message()));
  reason.set_remedy("get the file anew from where the model came from");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

absl::StatusOr<std::string> ReadConfig(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/config.json");
  const auto text = transport::ReadRegularFile(path, engine::kConfigBytesMax);
  if (absl::IsNotFound(text.status()) || (text.ok() && text->empty())) {
    return InvalidConfig(absl::StrCat(path, " is missing or empty"));
  }
  if (!text.ok()) return InvalidConfig(std::string(text.status().message()));
  return text;
}

// Other programs' quantisations keep their weights in safetensors too.
absl::Status CheckStorage(const engine::WeightFiles& files) {
  for (const auto& [name, tensor] : files.tensors()) {
    const std::string at = absl::StrCat(files.folder(), ": tensor '", name, "' ");
    if (absl::EndsWith(name, ".qweight") || absl::EndsWith(name, ".qzeros") ||
        absl::EndsWith(name, ".g_idx")) {
      return Unsupported(absl::StrCat(at, "belongs to GPTQ or AWQ"));
    }
    const bool is_scale = engine::IsPowerScale(tensor) &&
                          (absl::EndsWith(name, "_scale") || absl::EndsWith(name, "_scale_inv"));
    if (absl::StartsWith(tensor.dtype, "F8") && !engine::IsFp8(tensor) && !is_scale) {
      return Unsupported(absl::StrCat(at, "is stored in 8-bit floats of another kind (",
                                      tensor.dtype, ") than those that are read, F8_E4M3"));
    }
    if (absl::EndsWith(name, ".weight.absmax") || absl::EndsWith(name, ".SCB")) {
      return Unsupported(absl::StrCat(at, "belongs to bitsandbytes"));
    }
  }
  return absl::OkStatus();
}

std::string DtypeName(const std::string& stored) {
  if (stored == "BF16") return "bfloat16";
  if (stored == "F16") return "float16";
  return "float32";
}

// "model.layers.12.mlp…" → 12; -1 for tensors of no layer.
int LayerOf(const std::string& name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return -1;
  const std::string rest = name.substr(kPrefix.size());
  int layer = -1;
  return absl::SimpleAtoi(rest.substr(0, rest.find('.')), &layer) ? layer : -1;
}

// Does a tensor split divide it? All parts of the matrices that are split do; a bias that is added
// after the ranks' sums (of o and down) is whole on each, and so is a router.
struct LayerTensors {
  std::set<std::string> divisible;
  std::set<std::string> of_experts;
};

LayerTensors TensorsOf(const engine::ModelConfig& config, const engine::WeightFiles& files,
                       int layer) {
  const engine::LayerNeeds needs = engine::NeedsOfLayer(config, engine::ShardPlace(), layer);
  LayerTensors tensors;
  for (const engine::LinearNeed* need : engine::LinearsOf(needs, files)) {
    if (need->split == engine::Split::kNone) continue;
    const engine::StoredNames names = engine::StoredNamesOf(*need, files);
    for (const std::string& part : {names.weight, names.scales, names.biases}) {
      tensors.divisible.insert(part);
      if (need->experts > 0) tensors.of_experts.insert(part);
    }
    if (need->split == engine::Split::kRows) tensors.divisible.insert(names.bias);
  }
  return tensors;
}

void AddBytes(const engine::ModelConfig& config, const engine::WeightFiles& files,
              v1::ModelDescription* out) {
  std::vector<LayerTensors> layers;
  for (int layer = 0; layer < config.layer_count; ++layer) {
    layers.push_back(TensorsOf(config, files, layer));
    out->add_layer_bytes(0);
    out->add_layer_divisible_bytes(0);
    if (config.experts.count > 0) out->add_layer_expert_bytes(0);
  }
  // A table by token besides the embedding's: not the head's, which is tied to that one alone. So
  // the head is counted for itself, once more where a rank has both.
  const bool has_inputs = config.layer_input_width > 0;
  if (has_inputs) out->set_tied_embeddings(false);
  for (const auto& [name, tensor] : files.tensors()) {
    const int layer = LayerOf(name);
    const uint64_t bytes = engine::HeldBytes(tensor, files);
    if (layer >= 0 && layer < config.layer_count) {
      out->set_layer_bytes(layer, out->layer_bytes(layer) + bytes);
      if (layers[layer].divisible.count(name) > 0) {
        out->set_layer_divisible_bytes(layer, out->layer_divisible_bytes(layer) + bytes);
      }
      if (layers[layer].of_experts.count(name) > 0) {
        out->set_layer_expert_bytes(layer, out->layer_expert_bytes(layer) + bytes);
      }
    } else if (absl::StartsWith(name, "model.embed_tokens.")) {
      out->set_embedding_bytes(out->embedding_bytes() + bytes);
      if (has_inputs && config.tied_embeddings) out->set_head_bytes(out->head_bytes() + bytes);
    } else if (has_inputs && (absl::StartsWith(name, "model.embed_tokens_per_layer.") ||
                              absl::StartsWith(name, "model.per_layer_"))) {
      out->set_embedding_bytes(out->embedding_bytes() + bytes);
    } else if (absl::StartsWith(name, "lm_head.") && !config.tied_embeddings) {
      out->set_head_bytes(out->head_bytes() + bytes);
    } else if (absl::StartsWith(name, "model.norm.")) {
      out->set_final_norm_bytes(out->final_norm_bytes() + bytes);
    }
  }
}

// The modules that are really quantised, as their tensors show: the default's bits, and the
// coarsest groups of any, which is what a tensor split has to keep whole. Counts weights on the
// way.
void AddStorage(const engine::ModelConfig& config, const engine::WeightFiles& files,
                v1::ModelDescription* out) {
  std::map<std::string, uint64_t> float_bytes;
  std::map<uint32_t, uint64_t> bytes_by_bits;
  uint32_t group_size = 0;
  uint64_t parameters = 0;
  for (const auto& [name, tensor] : files.tensors()) {
    const bool part = absl::EndsWith(name, ".scales") || absl::EndsWith(name, ".biases") ||
                      absl::EndsWith(name, "_scales") || engine::IsPackedScale(tensor, files) ||
                      engine::IsPackedShape(tensor, files);
    const bool packed = tensor.dtype == "U32" || engine::IsPackedWeight(tensor);
    if (!part && tensor.dtype == "U8") {  // OpenAI's blocks of MXFP4
      bytes_by_bits[4] += tensor.bytes;
      group_size = std::max(group_size, 32U);
      parameters += tensor.bytes * 2;
    } else if (engine::IsFp8(tensor)) {
      float_bytes["BF16"] += 2 * tensor.bytes;
      parameters += tensor.bytes;
    } else if (!part && !packed && !engine::IsFp8Scale(tensor, files)) {
      float_bytes[tensor.dtype] += tensor.bytes;
      parameters += tensor.bytes / (tensor.dtype == "F32" ? 4 : 2);
    } else if (!part) {
      const auto traits = config.QuantizationOf(name.substr(0, name.rfind('.')));
      if (traits.bits == 0) continue;
      bytes_by_bits[static_cast<uint32_t>(traits.bits)] += tensor.bytes;
      group_size = std::max(group_size, static_cast<uint32_t>(traits.group_size));
      parameters += tensor.bytes * 8 / static_cast<uint64_t>(traits.bits);
    }
  }
  const auto by_bytes = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most_floats = std::max_element(float_bytes.begin(), float_bytes.end(), by_bytes);
  const auto most_bits = std::max_element(bytes_by_bits.begin(), bytes_by_bits.end(), by_bytes);
  out->set_dtype(most_floats == float_bytes.end() ? "float16" : DtypeName(most_floats->first));
  if (most_bits != bytes_by_bits.end()) {
    out->mutable_quantization()->set_bits(most_bits->first);
    out->mutable_quantization()->set_group_size(group_size);
  }
  out->set_parameter_count(parameters);
}

// Which layers attend, and what the others keep of a sequence instead of keys and values.
void AddStates(const engine::ModelConfig& config, v1::ModelDescription* out) {
  if (!config.has_state()) return;
  const engine::RecurrentCut whole = engine::RecurrentCutOf(config, engine::SliceRange());
  std::vector<uint32_t> attending;
  uint64_t others = 0, states = 0;
  for (int layer = 0; layer < config.layer_count; ++layer) {
    if (config.MixerOf(layer) == engine::MixerKind::kAttention) {
      attending.push_back(static_cast<uint32_t>(layer));
      continue;
    }
    ++others;
    if (config.IsRecurrent(layer)) ++states;
  }
  // Layers that are feed-forwards alone keep nothing: the others' bytes are shared out over them.
  const uint64_t bytes = states * whole.floats() * sizeof(float);
  out->set_fixed_state_bytes(others == 0 ? 0 : (bytes + others - 1) / others);
  const uint32_t every = attending.empty() ? 0 : attending.front() + 1;
  bool regular = every > 1 && attending.size() == static_cast<size_t>(config.layer_count) / every;
  for (size_t i = 0; regular && i < attending.size(); ++i) {
    regular = attending[i] == every * (i + 1) - 1;
  }
  if (attending.empty()) {
    out->set_full_attention_every(out->layer_count() + 1);  // none
  } else if (regular) {
    out->set_full_attention_every(every);
  } else {
    for (const uint32_t layer : attending) out->add_attention_layers(layer);
  }
}

// Of layers with heads of several sizes, the size that keeps most of a position; which layers keep
// keys and values at all, where others read theirs; and how much stages hand each other.
void AddHeads(const engine::ModelConfig& config, v1::ModelDescription* out) {
  engine::HeadTraits most{config.kv_heads, config.value_dim()};
  if (config.global_heads.has_value() &&
      config.global_heads->kv_heads * config.global_heads->dim > most.kv_heads * most.dim) {
    most = *config.global_heads;
  }
  out->set_kv_heads(static_cast<uint32_t>(most.kv_heads));
  out->set_head_dim(static_cast<uint32_t>(most.dim));
  for (int layer = 0; layer < config.layer_count && !config.kv_sources.empty(); ++layer) {
    if (config.KvSourceOf(layer) == layer) {
      out->add_attention_layers(static_cast<uint32_t>(layer));
    }
  }
  const int carried = engine::CarriedWidthMax(config);
  if (carried > config.hidden_size) {
    out->set_residual_streams(
        static_cast<uint32_t>((carried + config.hidden_size - 1) / config.hidden_size));
  }
}

// Numbers that a layer caches for a position: a window's vector, and over all layers what those
// that make entries keep, with one more of these for a stage that reads those of the stage before.
uint32_t CompressedWidth(const engine::ModelConfig& config) {
  const auto& makes = config.compress.makes;
  const auto makers = std::count(makes.begin(), makes.end(), true);
  const int64_t entry = int64_t{config.head_dim} + config.compress.index_dim;
  const int64_t entries = makers == 0 ? 0 : (makers + 1) * entry;
  const int64_t width = config.head_dim + (entries + config.layer_count - 1) / config.layer_count;
  // Its parts have groups of dimensions, as narrow keys need them; so has the whole then.
  const int64_t group = std::gcd(config.head_dim, 64);
  return static_cast<uint32_t>((width + group - 1) / group * group);
}

// Of the keys by which blocks of positions are chosen: a layer's, on average over all of them.
uint32_t BlockIndexWidth(const engine::ModelConfig& config) {
  if (config.block_index.top == 0) return 0;
  const auto& chooses = config.block_index.layers;
  const int64_t numbers =
      std::count(chooses.begin(), chooses.end(), true) * int64_t{config.block_index.dim};
  return static_cast<uint32_t>((numbers + config.layer_count - 1) / config.layer_count);
}

void AddConfig(const engine::ModelConfig& config, v1::ModelDescription* out) {
  out->set_architecture(config.architecture);
  out->set_layer_count(static_cast<uint32_t>(config.layer_count));
  out->set_hidden_size(static_cast<uint32_t>(config.hidden_size));
  // What a tensor split cuts of most weights.
  const bool has_experts = config.experts.count > 0;
  out->set_intermediate_size(
      static_cast<uint32_t>(has_experts ? config.experts.width : config.intermediate_size));
  out->set_experts(static_cast<uint32_t>(config.experts.count));
  out->set_experts_active(static_cast<uint32_t>(config.experts.active));
  out->set_attention_heads(static_cast<uint32_t>(config.attention_heads));
  AddHeads(config, out);
  if (config.has_latent()) {
    out->set_kv_latent_width(static_cast<uint32_t>(config.latent.width() + config.index.dim));
  }
  out->set_kv_index_width(BlockIndexWidth(config));
  if (config.has_compression()) {
    out->set_kv_latent_width(CompressedWidth(config));
  }
  out->set_vocab_size(static_cast<uint32_t>(config.vocab_size));
  out->set_context_length_max(static_cast<uint32_t>(config.context_length_max));
  out->set_tied_embeddings(config.tied_embeddings);
  AddStates(config, out);
  out->set_pooling(std::string(engine::PoolingName(config.pooling)));
  // No sliding_window, even when the config has one: rankd keeps the keys and values of all
  // positions, and what lies behind the window takes memory like the rest.
}

std::string Architectures() {
  const auto known = engine::KnownFamilies();
  return absl::StrJoin(std::vector<std::string>(known.begin(), known.end()), ", ");
}

// Why neither engine serves a model that rankd refused with `own`.
absl::Status ServedByNone(const absl::Status& own, const std::string& type,
                          const SecondEngine& second) {
  v1::Reason reason = ReasonOf(own);
  if (reason.code() != reasons::kModelArchitectureUnknown) return own;
  std::string message = reason.message();
  const auto known = engine::KnownFamilies();
  // Else the text that a known one stands around is not.
  if (std::find(known.begin(), known.end(), type) == known.end()) {
    absl::StrAppend(&message, " is not known; known are ", Architectures());
  }
  if (second.mlx_lm.has_value()) {
    absl::StrAppend(&message, "; nor has mlx-lm ", second.mlx_lm->version, " (",
                    second.mlx_lm->python, ") a model_type '", type, "'");
    reason.set_remedy(absl::StrCat("update mlx-lm ('", second.mlx_lm->python,
                                   " -m pip install --upgrade mlx-lm') and restart the agent, or "
                                   "load a model of one of the known architectures"));
  } else {
    absl::StrAppend(&message, "; mlx-lm, which knows more of them, is not there: ", second.why_not);
    reason.set_remedy(
        "install it on the node (python3 -m venv ~/.macrame/mlx-lm; ~/.macrame/mlx-lm/bin/pip "
        "install mlx-lm, on Linux 'mlx-lm[cpu]') or set mlx_lm_python to a Python that has it, and "
        "restart the agent");
  }
  reason.set_message(message);
  return ReasonStatus(own.code(), reason);
}

std::string TypeOf(const std::string& config_json) {
  const nlohmann::json config = engine::ParseConfigJson(config_json);
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "";
}

absl::Status Finish(const std::string& folder, const std::string& config,
                    const engine::WeightFiles& files, v1::ModelDescription& description) {
  description.set_name(fs::path(folder).lexically_normal().filename().string());
  description.set_path(folder);
  const auto weights = FingerprintOf(config, files);
  if (!weights.ok()) return weights.status();
  const auto text = TextDigestOf(folder);
  if (!text.ok()) return text.status();
  description.set_fingerprint(JoinedFingerprint(*weights, *text));
  return absl::OkStatus();
}

// `own`: why rankd's engine doesn't.
absl::StatusOr<v1::ModelDescription> DescribeForSecond(const std::string& folder,
                                                       const std::string& config,
                                                       const absl::Status& own,
                                                       const SecondEngine& second) {
  const std::string type = TypeOf(config);
  if (ReasonOf(own).code() != reasons::kModelArchitectureUnknown || !second.mlx_lm.has_value() ||
      !second.mlx_lm->architectures.contains(type)) {
    return ServedByNone(own, type, second);
  }
  auto description = ReadForeignConfig(config, folder);
  if (!description.ok()) return description.status();
  const auto files = engine::WeightFiles::Open(folder);
  if (!files.ok()) return files.status();
  description->set_engine(kMlxLmEngine);
  // Its pipelines need stages of one size, which plans don't promise.
  description->mutable_splits()->set_tensor(second.mlx_lm->architectures.at(type).tensor());
  AddForeignBytes(config, **files, description->splits().tensor(), &*description);
  const absl::Status finished = Finish(folder, config, **files, *description);
  if (!finished.ok()) return finished;
  return description;
}

}  // namespace

absl::StatusOr<v1::ModelDescription> DescribeModel(const std::string& folder,
                                                   const SecondEngine& second) {
  std::error_code error;
  if (absl::EndsWithIgnoreCase(folder, ".gguf") && fs::is_regular_file(folder, error)) {
    return AskForImport(absl::StrCat(folder, " is a GGUF file, not a model's folder"), folder);
  }
  if (!fs::is_directory(folder, error)) {
    return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelNotFound,
                        absl::StrCat(folder, " is not a folder"));
  }
  const FolderContents contents = LookInto(folder);
  if (!contents.safetensors && !contents.index && !contents.foreign.empty()) {
    std::string what =
        absl::StrCat(folder, " holds no safetensors but ", absl::StrJoin(contents.foreign, "; "));
    if (contents.gguf.empty()) return Unsupported(std::move(what));
    return AskForImport(std::move(what), absl::StrCat(folder, "/", contents.gguf));
  }
  const bool is_bare_adapter = fs::exists(folder + "/adapter_config.json", error) &&
                               !fs::exists(folder + "/config.json", error);
  if (is_bare_adapter) return BareAdapter(folder);
  const auto text = ReadConfig(folder);
  if (!text.ok()) return text.status();
  auto config = engine::ParseModelConfig(*text, folder);
  const absl::Status own = config.status();
  if (!own.ok()) {
    auto described = DescribeForSecond(folder, *text, own, second);
    if (!described.ok()) return described;
    if (auto status = CheckTokenizer(folder, contents); !status.ok()) return status;
    return described;
  }
  const auto files = engine::WeightFiles::Open(folder);
  if (!files.ok()) return files.status();
  if (auto status = CheckStorage(**files); !status.ok()) return status;
  if (auto status = engine::ReadPooling(**files, *config); !status.ok()) return status;
  engine::ShardPlace whole;
  whole.layer_end = config->layer_count;
  if (auto status = engine::CheckWeights(*config, whole, **files); !status.ok()) return status;
  if (auto status = CheckTokenizer(folder, contents); !status.ok()) return status;

  v1::ModelDescription description;
  AddConfig(*config, &description);
  AddBytes(*config, **files, &description);
  AddStorage(*config, **files, &description);
  const absl::Status finished = Finish(folder, *text, **files, description);
  if (!finished.ok()) return finished;
  return description;
}

}  // namespace macrame::runtime
