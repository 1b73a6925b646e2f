#include "runtime/gguf/metadata_keys.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"

namespace macrame::runtime::gguf {
namespace {

constexpr int64_t kSizeMax = 1 << 24;

}  // namespace

void Unsupported(std::string message) {
  throw ImportFault{reasons::kModelFormatUnsupported, std::move(message)};
}
void Broken(std::string message) {
  throw ImportFault{reasons::kModelFileBroken, std::move(message)};
}
void Invalid(std::string message) {
  throw ImportFault{reasons::kModelConfigInvalid, std::move(message)};
}

double AsWritten(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end() - 1, static_cast<float>(value)).ptr;
  return static_cast<double>(static_cast<float>(value)) == value && *end == '\0'
             ? std::strtod(text.data(), nullptr)
             : value;
}

MetadataKeys::MetadataKeys(const GgufModel& model)
    : model_(model), architecture_(model.Text("general.architecture").value_or("")) {}

std::string MetadataKeys::Name(std::string_view key) const {
  return absl::StrCat(architecture_, ".", std::string(key));
}

bool MetadataKeys::Has(std::string_view key) const { return model_.Find(Name(key)) != nullptr; }

const MetadataValue* MetadataKeys::Find(std::string_view key) {
  read_.emplace(key);
  return model_.Find(Name(key));
}

uint64_t MetadataKeys::Size(std::string_view key, std::optional<uint64_t> fallback) {
  const MetadataValue* value = Find(key);
  std::optional<int64_t> size;
  if (value != nullptr) {
    if (const auto* one = std::get_if<int64_t>(value)) size = *one;
    if (const auto* list = std::get_if<std::vector<int64_t>>(value)) {
      for (const int64_t entry : *list) {
        if (entry == 0) continue;
        if (size.has_value() && *size != entry) {
          Unsupported(absl::StrCat(Name(key), " differs between layers"));
        }
        size = entry;
      }
    }
  }
  if (!size.has_value() && fallback.has_value()) return *fallback;
  if (!size.has_value()) Invalid(absl::StrCat("the metadata has no ", Name(key)));
  if (*size < 1 || *size > kSizeMax) Invalid(absl::StrCat(Name(key), " is ", *size));
  return static_cast<uint64_t>(*size);
}

uint64_t MetadataKeys::Count(std::string_view key, uint64_t fallback) {
  const MetadataValue* value = Find(key);
  const auto* count = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  if (count != nullptr && *count == 0) return 0;
  return Size(key, fallback);
}

std::vector<uint64_t> MetadataKeys::ByLayer(std::string_view key, uint64_t layers,
                                            std::optional<uint64_t> fallback) {
  const MetadataValue* value = Find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (list == nullptr) return std::vector<uint64_t>(layers, Count(key, fallback.value_or(0)));
  if (list->size() < layers) {
    Invalid(absl::StrCat(Name(key), " has ", list->size(), " entries for ", layers, " layers"));
  }
  std::vector<uint64_t> sizes;
  for (uint64_t layer = 0; layer < layers; ++layer) {
    const int64_t entry = (*list)[layer];
    if (entry < 0 || entry > kSizeMax) Invalid(absl::StrCat(Name(key), " holds ", entry));
    sizes.push_back(static_cast<uint64_t>(entry));
  }
  return sizes;
}

std::optional<double> MetadataKeys::OptionalNumber(std::string_view key) {
  Find(key);
  const auto value = model_.Number(Name(key));
  if (value.has_value() && !std::isfinite(*value)) {
    Invalid(absl::StrCat(Name(key), " is ", *value));
  }
  return value;
}

double MetadataKeys::Number(std::string_view key, std::optional<double> fallback) {
  const auto value = OptionalNumber(key);
  if (!value.has_value() && fallback.has_value()) return *fallback;
  if (!value.has_value()) Invalid(absl::StrCat("the metadata has no ", Name(key)));
  if (!(*value > 0)) Invalid(absl::StrCat(Name(key), " is ", *value));
  return *value;
}

std::optional<bool> MetadataKeys::Flag(std::string_view key) {
  Find(key);
  return model_.Flag(Name(key));
}

std::string MetadataKeys::Text(std::string_view key, const std::string& fallback) {
  Find(key);
  return model_.Text(Name(key)).value_or(fallback);
}

std::optional<std::vector<bool>> MetadataKeys::Flags(std::string_view key, uint64_t layers) {
  const MetadataValue* value = Find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (list == nullptr) return std::nullopt;
  if (list->size() < layers) {
    Invalid(absl::StrCat(Name(key), " has ", list->size(), " entries for ", layers, " layers"));
  }
  std::vector<bool> flags;
  for (uint64_t layer = 0; layer < layers; ++layer) flags.push_back((*list)[layer] != 0);
  return flags;
}

void MetadataKeys::ExpectAllRead() const {
  const std::string prefix = absl::StrCat(architecture_, ".");
  for (const std::string& name : model_.KeysWith(prefix)) {
    if (read_.find(name.substr(prefix.size())) != read_.end()) continue;
    Unsupported(absl::StrCat("the metadata has '", absl::CHexEscape(name),
                             "', which the import does not know: it may change what the model "
                             "computes"));
  }
}

}  // namespace macrame::runtime::gguf
