#include "runtime/gguf/model_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reasons.h"
#include "runtime/gguf/block_forms.h"

namespace macrame::runtime::gguf {
namespace {

constexpr size_t kNameBytesMax = 200;

std::string FileStem(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  if (absl::EndsWithIgnoreCase(name, ".gguf")) name.resize(name.size() - 5);
  const size_t part = name.rfind("-00001-of-");
  if (part != std::string::npos && part + 15 == name.size()) name.resize(part);
  return name;
}

bool CanName(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name.size() <= kNameBytesMax;
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return std::isxdigit(static_cast<unsigned char>(letter)) != 0;
  });
}

// Letters and digits alone, small.
std::string Plain(std::string_view text) {
  std::string plain;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0) plain += static_cast<char>(std::tolower(byte));
  }
  return plain;
}

// Names that say nothing of a model: "model", "ggml-model-q4_0", "sha256-3a1f…", "F16".
bool SaysNothing(const std::string& stem) {
  std::string plain = Plain(stem);
  if (plain.substr(0, 6) == "sha256" || (plain.size() >= 32 && IsHex(plain))) return true;
  for (const char* word :
       {"ggml", "gguf", "model", "weights", "consolidated", "download", "unnamed", "file"}) {
    if (plain.compare(0, std::string_view(word).size(), word) == 0) {
      plain.erase(0, std::string_view(word).size());
    }
  }
  if (plain.empty()) return true;
  // What is left is a kind of blocks or a number.
  for (const char* kind : {"f16", "f32", "bf16", "fp16", "fp32", "mxfp4"}) {
    if (plain == kind) return true;
  }
  const size_t at = plain.substr(0, 2) == "iq" || plain.substr(0, 2) == "tq" ? 2
                    : plain[0] == 'q'                                        ? 1
                                                                             : 0;
  return at < plain.size() && std::isdigit(static_cast<unsigned char>(plain[at])) != 0 &&
         plain.size() <= at + 5;
}

// One part of a path that a shell takes as it is.
std::string Safe(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_kept = std::isalnum(byte) != 0 || letter == '.' || letter == '_' || letter == '+';
    if (is_kept) {
      safe += letter;
    } else if (!safe.empty() && safe.back() != '-') {
      safe += '-';
    }
  }
  while (!safe.empty() && (safe.back() == '-' || safe.back() == '.')) safe.pop_back();
  safe.erase(0, std::min(safe.find_first_not_of(".-"), safe.size()));
  return safe.substr(0, kNameBytesMax / 2);
}

std::string MetadataName(const GgufModel& model) {
  const auto text = [&](const char* key) {
    return Safe(model.Text(absl::StrCat("general.", key)).value_or(""));
  };
  std::string name = text("basename");
  if (name.empty()) return text("name");
  for (const char* key : {"size_label", "finetune", "version"}) {
    const std::string part = text(key);
    if (part.empty() || absl::StrContains(Plain(name), Plain(part))) continue;
    absl::StrAppend(&name, "-", part);
  }
  return name;
}

// How most numbers are stored.
std::string MostBlocks(const GgufModel& model) {
  std::map<uint32_t, uint64_t> numbers;
  for (const auto& [name, tensor] : model.tensors()) {
    numbers[tensor.type] += tensor.rows * tensor.columns;
  }
  if (numbers.empty()) return "";
  const auto most = std::max_element(numbers.begin(), numbers.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return BlockTypeName(most->first);
}

absl::Status CanNotName(const std::string& name) {
  v1::Reason reason =
      MakeReason(reasons::kBadRequest, absl::StrCat("'", name, "' can't name a model"));
  reason.set_remedy("give --name a name without '/' that does not begin with '.'");
  return ReasonStatus(absl::StatusCode::kInvalidArgument, reason);
}

}  // namespace

absl::Status CheckModelName(const std::string& given, const std::string& file) {
  const std::string name = given.empty() ? FileStem(file) : given;
  return CanName(name) ? absl::OkStatus() : CanNotName(name);
}

absl::StatusOr<std::string> ModelName(const GgufModel& model, const std::string& given) {
  if (!given.empty()) return given;
  const std::string stem = FileStem(model.path());
  if (!CanName(stem)) return CanNotName(stem);
  const std::string name = SaysNothing(stem) ? MetadataName(model) : "";
  return name.empty() ? stem : absl::StrCat(name, "-", MostBlocks(model));
}

}  // namespace macrame::runtime::gguf
