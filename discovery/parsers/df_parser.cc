#include "discovery/parsers/mac_parsers.h"
#include "discovery/parsers/text_scan.h"

namespace macrame::discovery {
namespace {

constexpr uint64_t kBlockBytes = 1024;

bool IsPercentage(std::string_view word) {
  if (word == "-") return true;
  if (!word.ends_with('%')) return false;
  word.remove_suffix(1);
  return ParseUnsigned(word).has_value();
}

}  // namespace

std::vector<DfRow> ParseDf(std::string_view text) {
  std::vector<DfRow> rows;
  for (const std::string_view line : WholeLines(text)) {
    const auto words = Words(line);
    // Device and mount point may hold blanks; the three figures and the percentage between do not.
    for (size_t i = 1; i + 4 < words.size(); ++i) {
      const auto total = ParseUnsigned(words[i]);
      const auto used = ParseUnsigned(words[i + 1]);
      const auto free = ParseUnsigned(words[i + 2]);
      if (!total || !used || !free || !IsPercentage(words[i + 3])) continue;
      const auto total_bytes = Multiply(*total, kBlockBytes);
      const auto free_bytes = Multiply(*free, kBlockBytes);
      if (total_bytes && free_bytes && *free_bytes <= *total_bytes) {
        const char* mount = words[i + 4].data();
        const std::string_view mounted(mount,
                                       static_cast<size_t>(line.data() + line.size() - mount));
        const char* device_end = words[i - 1].data() + words[i - 1].size();
        rows.push_back({std::string(words[0].data(), device_end), std::string(Trim(mounted)),
                        *total_bytes, *free_bytes});
      }
      break;
    }
  }
  return rows;
}

}  // namespace macrame::discovery
