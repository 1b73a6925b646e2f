#include "transport/verbs/gid_choice.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace macrame::transport {

std::optional<uint32_t> Ipv4Of(const Gid& gid) {
  const auto& bytes = gid.bytes;
  const bool zeros =
      std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t b) { return b == 0; });
  if (!zeros || bytes[10] != 0xff || bytes[11] != 0xff) return std::nullopt;
  const uint32_t ip = uint32_t{bytes[12]} << 24 | uint32_t{bytes[13]} << 16 |
                      uint32_t{bytes[14]} << 8 | uint32_t{bytes[15]};
  return ip == 0 ? std::nullopt : std::optional<uint32_t>(ip);
}

std::string GidText(const std::array<uint8_t, 16>& gid) {
  std::string text;
  for (size_t i = 0; i < gid.size(); i += 2) {
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", gid[i], gid[i + 1]);
  }
  return text;
}

std::optional<std::pair<Gid, Gid>> ChooseGids(std::span<const Gid> own,
                                              std::span<const Gid> theirs) {
  std::optional<std::pair<Gid, Gid>> best;
  // Longest common prefix first; then the lower addresses, whoever's they are.
  std::tuple<int, uint32_t, uint32_t> best_rank;
  for (const Gid& mine : own) {
    const auto a = Ipv4Of(mine);
    if (!a) continue;
    for (const Gid& other : theirs) {
      const auto b = Ipv4Of(other);
      if (!b || *a == *b) continue;  // one address at both ends is no link
      const std::tuple<int, uint32_t, uint32_t> rank(std::countl_zero(*a ^ *b), ~std::min(*a, *b),
                                                     ~std::max(*a, *b));
      if (best && rank <= best_rank) continue;
      best = {mine, other};
      best_rank = rank;
    }
  }
  return best;
}

}  // namespace macrame::transport
