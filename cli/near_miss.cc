#include "cli/near_miss.h"

#include <algorithm>

namespace macrame::cli {
namespace {

constexpr size_t kWordMax = 64;

}  // namespace

int EditDistance(const std::string& a, const std::string& b) {
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

std::string NearMiss(const std::string& word, const std::vector<std::string>& names) {
  if (word.size() > kWordMax) return "";
  int best = std::max<int>(1, static_cast<int>(word.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& name : names) {
    const int distance = EditDistance(word, name);
    if (distance < best) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace macrame::cli
