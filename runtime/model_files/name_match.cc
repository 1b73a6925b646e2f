#include "runtime/model_files/name_match.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "proto/suggestions.h"

namespace macrame::runtime {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kPartBytesMin = 2;  // a beginning or end shorter than this means nothing

std::string Lower(std::string_view text) {
  return absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
}

std::string WithoutOrg(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

}  // namespace

bool IsModelPath(std::string_view name_or_path) {
  return name_or_path.starts_with("/") || name_or_path.starts_with("./") ||
         name_or_path.starts_with("../") || name_or_path.starts_with("~/") || name_or_path == "." ||
         name_or_path == "..";
}

NameMatch MatchName(std::string_view wanted, const std::vector<std::string>& names) {
  NameMatch match;
  if (wanted.empty() || wanted.size() > kNameBytesMax) return match;
  const std::string lower = Lower(wanted);
  const auto is_part = [&](const std::string& whole) {
    return lower.size() >= kPartBytesMin &&
           (absl::StartsWith(whole, lower) || absl::EndsWith(whole, lower));
  };
  const std::function<bool(const std::string&)> rules[] = {
      [&](const std::string& name) { return name == wanted; },
      [&](const std::string& name) { return Lower(name) == lower; },
      [&](const std::string& name) { return Lower(WithoutOrg(name)) == lower; },
      [&](const std::string& name) {
        return is_part(Lower(name)) || is_part(Lower(WithoutOrg(name)));
      },
  };
  for (const auto& fits : rules) {
    for (const std::string& name : names) {
      if (fits(name)) match.fits.push_back(name);
    }
    if (!match.fits.empty()) {
      match.exact = &fits == &rules[0];
      return match;
    }
  }
  return match;
}

std::vector<std::string> SuggestedNames(std::string_view wanted,
                                        const std::vector<std::string>& names) {
  if (wanted.size() > kNameBytesMax) return {};
  const std::string lower = Lower(wanted);
  const size_t limit = std::max<size_t>(2, wanted.size() / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : names) {
    if (name.size() > kNameBytesMax) continue;
    auto distance = static_cast<size_t>(
        std::min(EditDistance(lower, Lower(name)), EditDistance(lower, Lower(WithoutOrg(name)))));
    if (lower.size() > 2 && absl::StrContains(Lower(name), lower)) distance = 1;
    if (distance <= limit) near.emplace_back(distance, name);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < near.size() && i < kSuggestionsMax; ++i) out.push_back(near[i].second);
  return out;
}

}  // namespace macrame::runtime
