#include "runtime/model_files/name_match.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

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

size_t EditDistance(std::string_view a, std::string_view b, size_t limit) {
  if (a.size() > kNameBytesMax || b.size() > kNameBytesMax) return limit + 1;
  const std::string left = Lower(a);
  const std::string right = Lower(b);
  std::vector<size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right.size(); ++j) {
      const size_t replaced = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return std::min(row.back(), limit + 1);
}

std::vector<std::string> NearMisses(std::string_view wanted,
                                    const std::vector<std::string>& names) {
  const std::string lower = Lower(wanted);
  const size_t limit = std::max<size_t>(2, wanted.size() / 3);
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& name : names) {
    size_t distance =
        std::min(EditDistance(wanted, name, limit), EditDistance(wanted, WithoutOrg(name), limit));
    if (lower.size() > 2 && absl::StrContains(Lower(name), lower)) distance = 1;
    if (distance <= limit) near.emplace_back(distance, name);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> out;
  for (size_t i = 0; i < near.size() && i < kNearMissesMax; ++i) out.push_back(near[i].second);
  return out;
}

}  // namespace macrame::runtime
