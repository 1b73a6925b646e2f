#include "transport/private_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "absl/strings/match.h"

namespace macrame::transport {
namespace {

constexpr size_t kNameBytesMax = 253;
constexpr size_t kLabelBytesMax = 63;
// Reserved for networks of one's own: .local (RFC 6762), .home.arpa (RFC 8375), .internal (ICANN,
// 2024); .lan, .home and .localdomain are what routers make, and nobody is given them (RFC 8244).
constexpr std::array<std::string_view, 6> kPrivateEnds = {
    ".local", ".lan", ".home", ".internal", ".home.arpa", ".localdomain"};

bool IsPrivateV4(uint32_t ip) {
  const auto within = [ip](uint32_t base, int bits) { return (ip ^ base) >> (32 - bits) == 0; };
  return within(0x7f000000, 8) ||   // loopback
         within(0x0a000000, 8) ||   // RFC 1918, as the next two
         within(0xac100000, 12) ||  //
         within(0xc0a80000, 16) ||  //
         within(0xa9fe0000, 16) ||  // link-local
         within(0x64400000, 10);    // shared, RFC 6598
}

bool IsPrivateV6(const in6_addr& ip) {
  const auto* bytes = ip.s6_addr;
  return IN6_IS_ADDR_LOOPBACK(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip) || (bytes[0] & 0xfe) == 0xfc;
}

bool IsLabel(std::string_view label) {
  return !label.empty() && label.size() <= kLabelBytesMax && label.front() != '-' &&
         label.back() != '-' &&
         label.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") ==
             std::string_view::npos;
}

bool IsHostName(std::string_view name) {
  if (name.size() > kNameBytesMax) return false;
  while (true) {
    const size_t dot = name.find('.');
    if (!IsLabel(name.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    name.remove_prefix(dot + 1);
  }
}

}  // namespace

bool IsAddress(const std::string& name) {
  in_addr v4{};
  in6_addr v6{};
  return ::inet_pton(AF_INET, name.c_str(), &v4) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &v6) == 1;
}

bool IsPrivateName(const std::string& name) {
  in_addr v4{};
  if (::inet_pton(AF_INET, name.c_str(), &v4) == 1) return IsPrivateV4(ntohl(v4.s_addr));
  in6_addr v6{};
  if (::inet_pton(AF_INET6, name.c_str(), &v6) == 1) return IsPrivateV6(v6);
  if (!IsHostName(name)) return false;
  // A last label of digits alone would be taken for an address.
  if (name.find_first_not_of("0123456789.") == std::string::npos) return false;
  if (name.find('.') == std::string::npos) return true;
  // Names compare without case (RFC 4343).
  return std::any_of(kPrivateEnds.begin(), kPrivateEnds.end(), [&](std::string_view end) {
    return absl::EndsWithIgnoreCase(name, absl::string_view(end.data(), end.size()));
  });
}

}  // namespace macrame::transport
