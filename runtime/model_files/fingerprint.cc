#include "runtime/model_files/fingerprint.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/check.h"
#include "proto/reasons.h"
#include "runtime/model/config/config_json.h"
#include "runtime/text/safetensors_header.h"

namespace macrame::runtime {
namespace {

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

absl::StatusOr<std::string> ReadAt(const std::string& path, uint64_t begin, size_t count) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string bytes(count, '\0');
  ssize_t got = -1;
  if (fd >= 0) {
    got = pread(fd, bytes.data(), count, static_cast<off_t>(begin));
    close(fd);
  }
  if (got == static_cast<ssize_t>(count)) return bytes;
  return ReasonStatus(absl::StatusCode::kDataLoss, reasons::kModelFileBroken,
                      absl::StrCat(path, " can't be read at byte ", begin));
}

}  // namespace

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
  for (const auto& [name, tensor] : files.tensors()) {
    if (index++ % step != 0 || tensor.bytes == 0) continue;
    const auto sample = ReadAt(tensor.file, tensor.begin, std::min(tensor.bytes, kSampleBytes));
    if (!sample.ok()) return sample.status();
    hash.Add(*sample);
  }
  return absl::BytesToHexString(hash.Finish().substr(0, kFingerprintBytes));
}

}  // namespace macrame::runtime
