#include "runtime/model/weight_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/text/safetensors_header.h"

namespace macrame::runtime::engine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kIndexBytesMax = size_t{64} << 20;

absl::Status Broken(std::string message) {
  return ReasonStatus(absl::StatusCode::kDataLoss, "MODEL_FILE_BROKEN", std::move(message));
}

absl::Status Missing(std::string message) {
  return ReasonStatus(absl::StatusCode::kNotFound, "MODEL_FILE_MISSING", std::move(message));
}

// The shards that the index names. A name is a file of the same folder, nothing else.
absl::StatusOr<std::set<std::string>> ReadIndex(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error || bytes > kIndexBytesMax) return Broken(absl::StrCat(path.string(), " can't be read"));
  std::ifstream file(path, std::ios::binary);
  const auto index = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
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
  std::set<std::string> shards;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") shards.insert(it->path().filename().string());
  }
  if (shards.empty()) return Missing(absl::StrCat(folder, " holds no *.safetensors file"));
  return shards;
}

}  // namespace

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
  return std::string(stored);
}

absl::StatusOr<std::shared_ptr<const WeightFiles>> WeightFiles::Open(const std::string& folder) {
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
  return files;
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

absl::Status WeightFiles::Map(const std::string& path) {
  auto header = text::ReadSafetensorsHeader(path);
  if (!header.ok()) return header.status();
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Missing(absl::StrCat(path, ": ", std::strerror(errno)));
  struct stat info {};
  if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) != header->file_bytes) {
    close(fd);
    return Broken(absl::StrCat(path, " changed while it was being read"));
  }
  const size_t bytes = static_cast<size_t>(info.st_size);
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  const int map_error = errno;
  close(fd);
  if (address == MAP_FAILED) {
    return Broken(absl::StrCat(path, " can't be mapped: ", std::strerror(map_error)));
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
    if (!added) {
      return Broken(absl::StrCat("tensor '", stored.name, "' is both in ", existing->second.file,
                                 " and in ", path));
    }
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
