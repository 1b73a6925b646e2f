#include "proto/suggestions.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace macrame {
namespace {

constexpr size_t kWordMax = 64;
constexpr size_t kNamesListed = 24;

}  // namespace

int EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

std::string SuggestedName(std::string_view word, const std::vector<std::string>& names) {
  if (word.empty() || word.size() > kWordMax) return "";
  const std::string wanted = absl::AsciiStrToLower(std::string(word));
  int best = std::max<int>(1, static_cast<int>(word.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    if (name.size() > 2 * kWordMax) continue;
    const int distance = EditDistance(wanted, absl::AsciiStrToLower(name));
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view word, const std::vector<std::string>& names) {
  const std::string near = SuggestedName(word, names);
  return near.empty() ? "" : absl::StrCat("; did you mean '", near, "'?");
}

std::string NameList(const std::vector<std::string>& names) {
  if (names.size() <= kNamesListed) return absl::StrJoin(names, ", ");
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + kNamesListed, ", "), " and ",
                      names.size() - kNamesListed, " more");
}

}  // namespace macrame
