#pragma once

// The keys of a GGUF model's own architecture ("llama.block_count"), read and checked. Remembers
// which ones were read: what nobody reads may change what the model computes.
//
// All throw ImportFault; one thread.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/gguf/gguf_file.h"

namespace macrame::runtime::gguf {

// Thrown inside this folder only; PlanImport turns it into a status.
struct ImportFault {
  const char* code;
  std::string message;
};

// MODEL_FORMAT_UNSUPPORTED, MODEL_FILE_BROKEN, MODEL_CONFIG_INVALID.
[[noreturn]] void Unsupported(std::string message);
[[noreturn]] void Broken(std::string message);
[[noreturn]] void Invalid(std::string message);

// 1e-05, where the float that is nearest to it was stored.
double AsWritten(double value);

class MetadataKeys {
 public:
  explicit MetadataKeys(const GgufModel& model);

  const GgufModel& model() const { return model_; }
  const std::string& architecture() const { return architecture_; }
  // With the architecture before it.
  std::string Name(std::string_view key) const;
  bool Has(std::string_view key) const;
  void Ignore(std::string_view key) { read_.emplace(key); }

  // From 1 on; a list counts where all its entries that are not zero are the same. Without a
  // fallback it must be there.
  uint64_t Size(std::string_view key, std::optional<uint64_t> fallback = std::nullopt);
  // From 0 on.
  uint64_t Count(std::string_view key, uint64_t fallback);
  // One for each layer, of a list or of one number for all. Lists may be longer (layers that
  // predict further tokens).
  std::vector<uint64_t> ByLayer(std::string_view key, uint64_t layers,
                                std::optional<uint64_t> fallback = std::nullopt);
  // Above zero.
  double Number(std::string_view key, std::optional<double> fallback = std::nullopt);
  // Unset where it is not there.
  std::optional<double> OptionalNumber(std::string_view key);
  std::optional<bool> Flag(std::string_view key);
  std::string Text(std::string_view key, const std::string& fallback);
  // By layer, of a list of flags or numbers; unset where it is not there or a single number.
  std::optional<std::vector<bool>> Flags(std::string_view key, uint64_t layers);

  // MODEL_FORMAT_UNSUPPORTED, by the key's name, where one was neither read nor ignored.
  void ExpectAllRead() const;

 private:
  const MetadataValue* Find(std::string_view key);

  const GgufModel& model_;
  const std::string architecture_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace macrame::runtime::gguf
