#include "transport/links/ipv4.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace macrame::transport {
namespace {

uint32_t Mask(uint32_t prefix_length) {
  return prefix_length == 0 ? 0 : ~uint32_t{0} << (32 - prefix_length);
}

// One to four numbers below 256 between dots; missing ones are zero.
std::optional<uint32_t> ParseNumbers(std::string_view text, size_t* count) {
  if (text.empty() || text.size() > 15) return std::nullopt;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '.');
  if (parts.size() > 4) return std::nullopt;
  uint32_t address = 0;
  for (const absl::string_view part : parts) {
    uint32_t number = 0;
    const bool digits = !part.empty() && part.size() <= 3 &&
                        part.find_first_not_of("0123456789") == absl::string_view::npos;
    if (!digits || !absl::SimpleAtoi(part, &number) || number > 255) return std::nullopt;
    address = address << 8 | number;
  }
  *count = parts.size();
  return address << (8 * (4 - parts.size()));
}

}  // namespace

bool Ipv4Subnet::Contains(uint32_t address) const {
  return (address & Mask(prefix_length)) == network;
}

bool Ipv4Subnet::Overlaps(const Ipv4Subnet& other) const {
  return Contains(other.network) || other.Contains(network);
}

std::optional<uint32_t> ParseIpv4(std::string_view text) {
  size_t count = 0;
  const auto address = ParseNumbers(text, &count);
  return count == 4 ? address : std::nullopt;
}

std::string Ipv4Text(uint32_t address) {
  return absl::StrCat(address >> 24, ".", address >> 16 & 255, ".", address >> 8 & 255, ".",
                      address & 255);
}

Ipv4Subnet SubnetOf(uint32_t address, uint32_t prefix_length) {
  const uint32_t length = prefix_length > 32 ? 32 : prefix_length;
  return {address & Mask(length), length};
}

Ipv4Subnet SubnetHeld(uint32_t address, uint32_t prefix_length) {
  return SubnetOf(address, prefix_length == 0 ? 32 : prefix_length);
}

std::optional<Ipv4Subnet> ParseDestination(std::string_view text) {
  if (text == "default") return Ipv4Subnet{};
  const size_t slash = text.find('/');
  size_t count = 0;
  const auto address = ParseNumbers(text.substr(0, slash), &count);
  if (!address) return std::nullopt;
  uint32_t length = static_cast<uint32_t>(count) * 8;  // "127" is 127.0.0.0/8
  if (slash != text.npos) {
    const std::string_view digits = text.substr(slash + 1);
    if (!absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), &length) ||
        length > 32) {
      return std::nullopt;
    }
  }
  return SubnetOf(*address, length);
}

bool IsLoopback(uint32_t address) { return address >> 24 == 127; }
bool IsLinkLocal(uint32_t address) { return address >> 16 == (169u << 8 | 254u); }
bool IsNoHost(uint32_t address) { return address >> 24 == 0 || address >> 28 >= 14; }

}  // namespace macrame::transport
