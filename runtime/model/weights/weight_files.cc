#include "runtime/model/weights/weight_files.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/model/config/python_json.h"
#include "runtime/model/weights/joined_experts.h"
#include "runtime/text/safetensors_header.h"
#include "transport/regular_file.h"

namespace macrame::runtime::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIndexBytesMax = size_t{64} << 20;

absl::Status Broken(std::string message) {
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken, std::move(message));
}

absl::Status Missing(std::string message) {
  return ReasonStatus(absl::StatusCode::kNotFound, reasons::kModelFileMissing, std::move(message));
}

// The shards that the index names. A name is a file of the same folder, nothing else.
absl::StatusOr<std::set<std::string>> ReadIndex(const fs::path& path) {
  const auto text = transport::ReadRegularFile(path.string(), kIndexBytesMax);
  if (!text.ok()) return Broken(std::string(text.status().message()));
  const auto index = ParsePythonJson(*text);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return Broken(absl::StrCat(path.string(), " holds no 'weight_map'"));
  }
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || shard.get<std::string>().find('/') != std::string::npos ||
        shard.get<std::string>().empty()) {
      return Broken(absl::StrCat(path.string(), ": tensor '", tensor, "' is in ",
                                 shard.is_string() ? shard.dump() : "something",
                                 ", which is not the name of a file"));
    }
    shards.insert(shard.get<std::string>());
  }
  return shards;
}

std::set<std::string> WeightFileNames(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    // A Mac leaves a hidden "._NAME" beside each file that it copies to a foreign file system.
    const std::string name = it->path().filename().string();
    const bool is_hidden = name.compare(0, 1, ".") == 0;
    if (!is_hidden && it->path().extension() == ".safetensors") names.insert(name);
  }
  return names;
}

absl::StatusOr<std::set<std::string>> ListShards(const std::string& folder) {
  const fs::path index = fs::path(folder) / "model.safetensors.index.json";
  std::error_code error;
  if (fs::exists(index, error)) {
    auto shards = ReadIndex(index);
    if (!shards.ok()) return shards;
    for (const std::string& shard : *shards) {
      if (!fs::exists(fs::path(folder) / shard, error)) {
        return Missing(absl::StrCat(folder, "/", shard, ", which ", index.filename().string(),
                                    " names, is not there"));
      }
    }
    return shards;
  }
  std::set<std::string> named, others, beside;
  for (const std::string& name : WeightFileNames(folder)) {
    const bool is_model = name.compare(0, 5, "model") == 0;
    (IsBesideWeights(name) ? beside : is_model ? named : others).insert(name);
  }
  // As mlx-lm does it; "weights.00.safetensors" and the like are of older tools.
  if (!named.empty()) return named;
  if (!others.empty()) return others;
  // Its makers' own form alone: the engine says what it can't read of it.
  std::erase_if(beside, [](const std::string& name) { return IsAdapterFile(name); });
  if (!beside.empty()) return beside;
  return Missing(absl::StrCat(folder, " holds no *.safetensors file with a model's weights"));
}

// mlx-lm's and PEFT's adapters hold differences to weights, which rankd does not apply. Served
// without it, the model would be another one than its owner thinks.
absl::Status CheckAdapters(const std::string& folder) {
  for (const std::string& name : WeightFileNames(folder)) {
    if (!IsAdapterFile(name)) continue;
    v1::Reason reason = MakeReason(
        reasons::kModelFormatUnsupported,
        absl::StrCat(folder, "/", name,
                     " is an adapter (LoRA or the like), which rankd does not apply to weights"));
    reason.set_remedy(
        absl::StrCat("merge it into a model of its own ('python3 -m mlx_lm fuse --model ", folder,
                     " --adapter-path ", folder,
                     " --save-path NEW_FOLDER', or PEFT's merge_and_unload) and "
                     "load that, or move ",
                     name, " out of the folder to serve the model without it"));
    return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsAdapterFile(std::string_view name) {
  // "0000100_adapters.safetensors" is a checkpoint of mlx-lm's training.
  constexpr std::string_view kNames[] = {"adapters.safetensors", "adapter_model.safetensors"};
  for (const std::string_view ending : kNames) {
    if (name == ending) return true;
    const std::string with_dash = "_" + std::string(ending);
    if (name.size() > with_dash.size() &&
        name.substr(name.size() - with_dash.size()) == with_dash) {
      return true;
    }
  }
  return false;
}

bool IsBesideWeights(std::string_view name) {
  constexpr std::string_view kConsolidated = "consolidated";
  return IsAdapterFile(name) || name.substr(0, kConsolidated.size()) == kConsolidated;
}

std::string TextTensorName(std::string_view stored) {
  constexpr std::string_view kInside = "model.language_model.", kBefore = "language_model.";
  if (stored.substr(0, kInside.size()) == kInside) {
    return "model." + std::string(stored.substr(kInside.size()));
  }
  if (stored.substr(0, kBefore.size()) == kBefore)
    return std::string(stored.substr(kBefore.size()));
  // Nemotron's.
  constexpr std::string_view kBackbone = "backbone.", kEmbeddings = "backbone.embeddings",
                             kNorm = "backbone.norm_f";
  if (stored.substr(0, kEmbeddings.size()) == kEmbeddings) {
    return "model.embed_tokens" + std::string(stored.substr(kEmbeddings.size()));
  }
  if (stored.substr(0, kNorm.size()) == kNorm) {
    return "model.norm" + std::string(stored.substr(kNorm.size()));
  }
  if (stored.substr(0, kBackbone.size()) == kBackbone) {
    return "model." + std::string(stored.substr(kBackbone.size()));
  }
  // A map of residual streams has no module of its own.
  constexpr std::string_view kStreams = "_hc.fn";
  if (stored.size() > kStreams.size() &&
      stored.substr(stored.size() - kStreams.size()) == kStreams) {
    return std::string(stored) + ".weight";
  }
  return std::string(stored);
}

namespace {

// Of DeepSeek-V4.1 as published, in MLX's words. Each part is replaced once, in this order.
std::string PublishedName(const std::string& stored) {
  constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {".attn.", ".self_attn."},
      {".ffn.", ".mlp."},
      {".attn_norm.", ".input_layernorm."},
      {".ffn_norm.", ".post_attention_layernorm."},
      {".hc_attn_", ".attn_hc."},
      {".hc_ffn_", ".ffn_hc."},
      {".attn_sink", ".sinks"},
      {".wq_a.", ".q_a_proj."},
      {".wq_b.", ".q_b_proj."},
      {".wkv.", ".kv_proj."},
      {".wgate.", ".gate_proj."},
      {".wo_a.", ".o_a_proj."},
      {".wo_b.", ".o_b_proj."},
      {".q_norm.", ".q_a_norm."},
      {".compressor.norm.", ".compressor.kv_norm."},
      {".indexer.wk.", ".indexer.k_proj."},
      {".gate.bias", ".gate.e_score_correction_bias"},
      {".w1.", ".gate_proj."},
      {".w2.", ".down_proj."},
      {".w3.", ".up_proj."},
  };
  if (stored == "head.weight") return "lm_head.weight";
  if (stored == "embed.weight") return "model.embed_tokens.weight";
  std::string name = "model." + stored;
  for (const auto& [from, to] : kParts) {
    const size_t at = name.find(from);
    // Those that route images' tokens (".gate.bias_vl") keep their name.
    const bool is_end = at != std::string::npos && at + from.size() == name.size();
    if (at == std::string::npos || (from == ".gate.bias" && !is_end)) continue;
    name.replace(at, from.size(), to);
  }
  return TextTensorName(name);
}

bool EndsWith(const std::string& text, std::string_view ending) {
  return text.size() > ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

// Two 4-bit floats a byte, as [rows, columns / 2].
bool IsPackedFp4(const StoredTensor& tensor) {
  return (tensor.dtype == "I8" || tensor.dtype == "U8" || tensor.dtype == "F4") &&
         tensor.shape.size() == 2 && tensor.shape[1] % 4 == 0;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const WeightFiles>> WeightFiles::Open(const std::string& folder) {
  if (const absl::Status status = CheckAdapters(folder); !status.ok()) return status;
  const auto shards = ListShards(folder);
  if (!shards.ok()) return shards.status();
  if (shards->size() > kShardsMax) {
    return Broken(absl::StrCat(folder, " holds ", shards->size(), " shards, above ", kShardsMax));
  }
  std::shared_ptr<WeightFiles> files(new WeightFiles);
  files->folder_ = folder;
  for (const std::string& shard : *shards) {
    const absl::Status status = files->Map(absl::StrCat(folder, "/", shard));
    if (!status.ok()) return status;
  }
  files->NameBareTensors();
  files->NamePublishedTensors();
  files->tensors_ = SplitJoinedExperts(files->tensors_);
  return files;
}

void WeightFiles::NamePublishedTensors() {
  if (Find("embed.weight") == nullptr || Find("layers.0.attn.wq_a.weight") == nullptr) return;
  std::map<std::string, StoredTensor, std::less<>> named;
  for (const auto& [name, tensor] : tensors_) {
    StoredTensor own = tensor;
    const bool is_scale = EndsWith(name, ".scale"), is_weight = EndsWith(name, ".weight");
    const std::string module = name.substr(0, name.rfind('.'));
    const StoredTensor* weight = is_scale ? Find(module + ".weight") : nullptr;
    own.name = PublishedName(weight == nullptr ? name : module + ".weight");
    if (is_weight && IsPackedFp4(tensor) && Find(module + ".scale") != nullptr) {
      own.dtype = "U32";
      own.shape[1] /= 4;
    } else if (weight != nullptr && IsPackedFp4(*weight)) {
      own.name = own.name.substr(0, own.name.rfind('.')) + ".scales";
      if (own.dtype == "F8_E8M0") own.dtype = "U8";
    } else if (weight != nullptr) {
      own.name += "_scale";
    }
    std::string key = own.name;
    named.emplace(std::move(key), std::move(own));
  }
  tensors_ = std::move(named);
}

void WeightFiles::NameBareTensors() {
  if (Find("embed_tokens.weight") == nullptr) return;
  std::map<std::string, StoredTensor, std::less<>> named;
  is_bare_ = true;
  for (auto& [name, tensor] : tensors_) {
    const bool is_head = name.compare(0, 8, "lm_head.") == 0;
    if (is_head) is_bare_ = false;
    if (!is_head) tensor.name = absl::StrCat("model.", name);
    std::string own = tensor.name;
    named.emplace(std::move(own), std::move(tensor));
  }
  tensors_ = std::move(named);
}

namespace {

// A few bytes of both are compared, as far as a look at a model may read.
bool AreAlike(const StoredTensor& one, const StoredTensor& other) {
  constexpr size_t kSampleBytes = 4096, kSamples = 8;
  if (one.dtype != other.dtype || one.shape != other.shape || one.bytes != other.bytes) {
    return false;
  }
  if (one.bytes <= kSampleBytes * kSamples) {
    return std::memcmp(one.data, other.data, one.bytes) == 0;
  }
  for (size_t i = 0; i < kSamples; ++i) {
    const size_t at = (one.bytes - kSampleBytes) / (kSamples - 1) * i;
    if (std::memcmp(one.data + at, other.data + at, kSampleBytes) != 0) return false;
  }
  return true;
}

absl::Status Ambiguous(const StoredTensor& tensor, const std::string& path) {
  v1::Reason reason = MakeReason(reasons::kModelFormatUnsupported,
                                 absl::StrCat("tensor '", tensor.name, "' is in ", tensor.file,
                                              " and, with other numbers, in ", path,
                                              ": which one is the model's can't be told"));
  reason.set_remedy(
      "move the file that is not the model's out of the folder (of two copies of one model, keep "
      "one), and load it again");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

absl::Status WeightFiles::Map(const std::string& path) {
  auto header = text::ReadSafetensorsHeader(path);
  if (!header.ok()) return header.status();
  const auto file = transport::RegularFile::Open(path);
  if (!file.ok()) return Missing(std::string(file.status().message()));
  if (file->size() != header->file_bytes) {
    return Broken(absl::StrCat(path, " changed while it was being read"));
  }
  const size_t bytes = static_cast<size_t>(file->size());
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file->fd(), 0);
  if (address == MAP_FAILED) {
    return Broken(absl::StrCat(path, " can't be mapped: ", std::strerror(errno)));
  }
  mappings_.push_back({address, bytes});
  for (auto& tensor : header->tensors) {
    StoredTensor stored;
    stored.name = TextTensorName(tensor.name);
    stored.dtype = tensor.dtype;
    stored.shape.assign(tensor.shape.begin(), tensor.shape.end());
    stored.data = static_cast<const std::byte*>(address) + tensor.begin;
    stored.begin = tensor.begin;
    stored.bytes = tensor.end - tensor.begin;
    stored.file = path;
    const auto [existing, added] = tensors_.emplace(stored.name, stored);
    if (!added && !AreAlike(existing->second, stored)) return Ambiguous(existing->second, path);
  }
  return absl::OkStatus();
}

WeightFiles::~WeightFiles() {
  for (const Mapping& mapping : mappings_) munmap(mapping.address, mapping.bytes);
}

const StoredTensor* WeightFiles::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace macrame::runtime::engine
