#include <algorithm>

#include "discovery/parsers/text_scan.h"
#include "discovery/probe/linux_files.h"
#include "discovery/probe/linux_probe.h"

namespace macrame::discovery {
namespace {

constexpr size_t kCgroupLevelsMax = 32;

// "inactive_file 123" of memory.stat: cache that gives way before anybody is killed.
uint64_t InactiveFile(const std::string& folder, bool is_v2) {
  const std::string text = ReadFile(folder + "/memory.stat");
  const std::string_view wanted = is_v2 ? "inactive_file" : "total_inactive_file";
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    if (words.size() == 2 && words[0] == wanted) return ParseUnsigned(words[1]).value_or(0);
  }
  return 0;
}

}  // namespace

CgroupMemory::CgroupMemory(const std::string& root) {
  const std::string groups = ReadFile(root + "/proc/self/cgroup");
  for (const std::string_view line : WholeLines(groups)) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) AddLevels(root + "/sys/fs/cgroup", path, true);
    if (controllers == "memory") AddLevels(root + "/sys/fs/cgroup/memory", path, false);
  }
}

void CgroupMemory::AddLevels(const std::string& mount, std::string path, bool is_v2) {
  // Inside a container the path may be the host's, and only the mount's top is ours to see; levels
  // that are not there simply have no limit. Of a process that was moved out of the container's own
  // group the path leads up from there.
  if ((path + "/").find("/../") != path.npos) path.clear();
  for (size_t i = 0; i < kCgroupLevelsMax; ++i) {
    while (path.ends_with('/')) path.pop_back();
    levels_.push_back({mount + path, is_v2});
    if (path.empty()) break;
    path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

std::optional<uint64_t> CgroupMemory::LimitOf(const Level& level, uint64_t memory_total) {
  // "max", or on version 1 a figure near 2^63, is no limit.
  const auto limit =
      ReadNumber(level.folder + (level.is_v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  return limit && *limit > 0 && *limit < memory_total ? limit : std::nullopt;
}

std::optional<uint64_t> CgroupMemory::Limit(uint64_t memory_total) const {
  std::optional<uint64_t> tightest;
  for (const Level& level : levels_) {
    const auto limit = LimitOf(level, memory_total);
    if (limit && (!tightest || *limit < *tightest)) tightest = limit;
  }
  return tightest;
}

std::optional<uint64_t> CgroupMemory::Available(uint64_t memory_total) const {
  std::optional<uint64_t> least;
  for (const Level& level : levels_) {
    const auto limit = LimitOf(level, memory_total);
    if (!limit) continue;
    const auto used =
        ReadNumber(level.folder + (level.is_v2 ? "/memory.current" : "/memory.usage_in_bytes"));
    if (!used) continue;
    const uint64_t held = *used - std::min(*used, InactiveFile(level.folder, level.is_v2));
    const uint64_t available = *limit - std::min(*limit, held);
    if (!least || available < *least) least = available;
  }
  return least;
}

}  // namespace macrame::discovery
