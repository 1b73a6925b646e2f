#include "discovery/beacons/seed_address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace macrame::discovery {
namespace {

// With a zone or without.
bool IsIpv6(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<SeedAddress> ParseSeed(std::string_view text, uint16_t default_port) {
  SeedAddress seed;
  seed.port = default_port;
  std::string_view port;
  const auto colons = std::count(text.begin(), text.end(), ':');
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    seed.host = std::string(text.substr(1, end == text.npos ? text.npos : end - 1));
    const std::string_view rest = end == text.npos ? "?" : text.substr(end + 1);
    if (rest.starts_with(':')) {
      port = rest.substr(1);
    } else if (!rest.empty()) {
      seed.host.clear();
    }
    if (rest == ":") seed.host.clear();
  } else if (colons == 1) {
    seed.host = std::string(text.substr(0, text.find(':')));
    port = text.substr(text.find(':') + 1);
    if (port.empty()) seed.host.clear();
  } else {
    seed.host = std::string(text);  // a name, an IPv4 address, or a bare IPv6 one
  }
  uint32_t number = seed.port;
  const bool port_holds =
      port.empty() || (absl::SimpleAtoi(absl::string_view(port.data(), port.size()), &number) &&
                       number > 0 && number <= 65535);
  const bool host_holds = !seed.host.empty() && seed.host.size() <= 253 &&
                          std::all_of(seed.host.begin(), seed.host.end(),
                                      [](unsigned char c) { return c > ' ' && c < 127; });
  // Nothing else has more than one colon, or brackets.
  const bool is_v6 = colons > 1 || text.starts_with('[');
  if (!port_holds || !host_holds || (is_v6 && !IsIpv6(seed.host))) {
    return absl::InvalidArgumentError(absl::StrCat("seed '", std::string(text.substr(0, 100)),
                                                   "' is not HOST, HOST:PORT or [IPV6]:PORT"));
  }
  seed.port = static_cast<uint16_t>(number);
  return seed;
}

}  // namespace macrame::discovery
