#include "transport/links/ring_search.h"

#include <algorithm>

namespace macrame::transport {
namespace {

class RingSearch {
 public:
  explicit RingSearch(const Adjacency& adjacent)
      : adjacent_(adjacent), used_(adjacent.size(), false) {}

  std::optional<std::vector<int>> Run() {
    path_.push_back(0);
    used_[0] = true;
    if (!Extend()) return std::nullopt;
    return path_;
  }

 private:
  bool Extend() {
    if (++steps_ > kRingSearchStepsMax) return false;
    const int last = path_.back();
    if (path_.size() == adjacent_.size()) return adjacent_[last][0];
    for (size_t next = 1; next < adjacent_.size(); ++next) {
      if (used_[next] || !adjacent_[last][next]) continue;
      used_[next] = true;
      path_.push_back(static_cast<int>(next));
      if (Extend()) return true;
      path_.pop_back();
      used_[next] = false;
      if (steps_ > kRingSearchStepsMax) return false;
    }
    return false;
  }

  const Adjacency& adjacent_;
  std::vector<bool> used_;
  std::vector<int> path_;
  uint64_t steps_ = 0;
};

size_t Degree(const Adjacency& adjacent, size_t node) {
  return static_cast<size_t>(std::count(adjacent[node].begin(), adjacent[node].end(), true));
}

bool IsConnected(const Adjacency& adjacent) {
  std::vector<bool> seen(adjacent.size(), false);
  std::vector<size_t> open = {0};
  seen[0] = true;
  size_t count = 1;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    for (size_t next = 0; next < adjacent.size(); ++next) {
      if (!adjacent[node][next] || seen[next]) continue;
      seen[next] = true;
      ++count;
      open.push_back(next);
    }
  }
  return count == adjacent.size();
}

}  // namespace

std::optional<std::vector<int>> FindRing(const Adjacency& adjacent) {
  const size_t count = adjacent.size();
  if (count < 2) return std::nullopt;
  for (size_t node = 0; node < count; ++node) {
    if (Degree(adjacent, node) < (count == 2 ? 1u : 2u)) return std::nullopt;
  }
  if (!IsConnected(adjacent)) return std::nullopt;
  return RingSearch(adjacent).Run();
}

bool IsComplete(const Adjacency& adjacent) {
  for (size_t node = 0; node < adjacent.size(); ++node) {
    if (Degree(adjacent, node) + 1 != adjacent.size()) return false;
  }
  return true;
}

CableGraph GraphOf(const Adjacency& adjacent) {
  const size_t count = adjacent.size();
  if (count <= 1) return CableGraph::kSingle;
  if (!IsConnected(adjacent)) return CableGraph::kDisconnected;
  if (count == 2) return CableGraph::kPair;
  if (IsComplete(adjacent)) return CableGraph::kMesh;
  size_t ends = 0, through = 0, hubs = 0;
  for (size_t node = 0; node < count; ++node) {
    const size_t degree = Degree(adjacent, node);
    ends += degree == 1;
    through += degree == 2;
    hubs += degree == count - 1;
  }
  if (through == count) return CableGraph::kRing;
  if (ends == 2 && through == count - 2) return CableGraph::kChain;
  if (hubs == 1 && ends == count - 1) return CableGraph::kStar;
  return CableGraph::kOther;
}

}  // namespace macrame::transport
