#include "runtime/model_files/fingerprint.h"

#include <openssl/evp.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/check.h"
#include "proto/model_fingerprint.h"
#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "runtime/model/config/python_json.h"
#include "runtime/text/safetensors_header.h"
#include "transport/regular_file.h"

namespace macrame::runtime {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFingerprintBytes = 16;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    MACRAME_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  // Length first, so that two different runs of texts never hash alike.
  void Add(const std::string& text) {
    const uint64_t size = text.size();
    unsigned char length[8];
    for (int i = 0; i < 8; ++i) length[i] = static_cast<unsigned char>(size >> (8 * i));
    MACRAME_CHECK(EVP_DigestUpdate(context_.get(), length, sizeof(length)) == 1);
    MACRAME_CHECK(EVP_DigestUpdate(context_.get(), text.data(), text.size()) == 1);
  }
  std::string Finish() {
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned int size = 0;
    MACRAME_CHECK(EVP_DigestFinal_ex(context_.get(),
                                     reinterpret_cast<unsigned char*>(digest.data()), &size) == 1);
    digest.resize(size);
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

absl::Status Unread(const absl::Status& why) {
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                      std::string(why.message()));
}

using OpenFiles = std::map<std::string, transport::RegularFile>;

absl::StatusOr<std::string> ReadAt(const std::string& path, uint64_t begin, size_t count,
                                   OpenFiles& opened) {
  auto file = opened.find(path);
  if (file == opened.end()) {
    auto fresh = transport::RegularFile::Open(path);
    if (!fresh.ok()) return Unread(fresh.status());
    file = opened.emplace(path, *std::move(fresh)).first;
  }
  std::string bytes(count, '\0');
  const ssize_t got = pread(file->second.fd(), bytes.data(), count, static_cast<off_t>(begin));
  if (got == static_cast<ssize_t>(count)) return bytes;
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                      absl::StrCat(path, " can't be read at byte ", begin));
}

constexpr size_t kTextFileBytesMax = size_t{256} << 20;
// Larger ones are hashed as they stand: reading a table of 200,000 tokens would take long.
constexpr uintmax_t kValuesBytesMax = uintmax_t{1} << 20;

bool ShapesText(const std::string& name) {
  for (const char* known :
       {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
        "added_tokens.json", "generation_config.json", "chat_template.json", "vocab.json",
        "merges.txt"}) {
    if (name == known) return true;
  }
  return absl::EndsWith(name, ".jinja") || absl::EndsWith(name, ".tiktoken");
}

// The values of a JSON object without stamps; the bytes of any other file.
std::string TextValues(const std::string& name, std::string bytes) {
  if (!absl::EndsWith(name, ".json") || bytes.size() > kValuesBytesMax) return bytes;
  nlohmann::json values = engine::ParsePythonJson(bytes);
  if (!values.is_object()) return bytes;
  for (const char* stamp : {"_from_model_config", "_commit_hash", "name_or_path", "_name_or_path",
                            "transformers_version", "tokenizer_file", "special_tokens_map_file"}) {
    values.erase(stamp);
  }
  return values.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::string> TextDigestOf(const std::string& folder) {
  std::set<std::string> names;  // below the folder, sorted
  for (const char* below : {"", "additional_chat_templates/"}) {
    std::error_code error;
    for (fs::directory_iterator it(fs::path(folder) / below, error), end; !error && it != end;
         it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name[0] != '.' && ShapesText(name)) names.insert(below + name);
    }
  }
  Sha256 hash;
  for (const std::string& name : names) {
    auto bytes = transport::ReadRegularFile(absl::StrCat(folder, "/", name), kTextFileBytesMax);
    if (!bytes.ok()) return Unread(bytes.status());
    hash.Add(name);
    hash.Add(TextValues(name, *std::move(bytes)));
  }
  return absl::BytesToHexString(hash.Finish().substr(0, kFingerprintBytes));
}

std::string JoinedFingerprint(const std::string& weights, const std::string& text) {
  return absl::StrCat(weights, kFingerprintSeparator, text);
}

absl::StatusOr<std::string> FingerprintOf(const std::string& config_json,
                                          const engine::WeightFiles& files) {
  auto config = engine::ParseConfigObject(config_json, files.folder());
  if (!config.ok()) return config.status();
  for (const char* stamp : {"_name_or_path", "transformers_version"}) config->erase(stamp);
  Sha256 hash;
  hash.Add(config->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  for (const auto& [name, tensor] : files.tensors()) {
    hash.Add(name);
    hash.Add(tensor.dtype);
    hash.Add(absl::StrJoin(tensor.shape, ","));
  }
  // Files are read, not their mapping: a file that is cut short meanwhile is an error, not a
  // signal.
  const size_t step = files.tensors().size() / kSampledTensorsMax + 1;
  size_t index = 0;
  OpenFiles opened;
  for (const auto& [name, tensor] : files.tensors()) {
    if (index++ % step != 0 || tensor.bytes == 0) continue;
    const size_t bytes = std::min(tensor.bytes, kSampleBytes);
    const auto sample = ReadAt(tensor.file, tensor.begin, bytes, opened);
    if (!sample.ok()) return sample.status();
    hash.Add(*sample);
  }
  return absl::BytesToHexString(hash.Finish().substr(0, kFingerprintBytes));
}

}  // namespace macrame::runtime
