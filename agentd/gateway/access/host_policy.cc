#include "agentd/gateway/access/host_policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "agentd/base/web_url.h"

namespace macrame::agentd {
namespace {

bool IsAddress(const std::string& host, bool* loopback) {
  in_addr four{};
  in6_addr six{};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) {
    *loopback = (ntohl(four.s_addr) >> 24) == 127;
    return true;
  }
  if (inet_pton(AF_INET6, host.c_str(), &six) == 1) {
    *loopback = IN6_IS_ADDR_LOOPBACK(&six);
    return true;
  }
  return false;
}

}  // namespace

bool IsHostAllowed(absl::string_view host, bool over_loopback,
                   const std::vector<std::string>& allowed_hosts) {
  if (host.empty()) return false;
  const std::string name(host);
  bool loopback = false;
  if (IsAddress(name, &loopback)) {
    if (!over_loopback || loopback) return true;
  } else if (name == "localhost") {
    return true;
  }
  // "*.localhost" stands for every name that ends so.
  for (const std::string& allowed : allowed_hosts) {
    const bool is_ending = absl::StartsWith(allowed, "*.") && allowed.size() > 2;
    if (is_ending && absl::EndsWithIgnoreCase(name, absl::string_view(allowed).substr(1))) {
      return true;
    }
  }
  return std::any_of(allowed_hosts.begin(), allowed_hosts.end(), [&](const std::string& allowed) {
    return absl::EqualsIgnoreCase(allowed, name) || HostOf(allowed) == name;
  });
}

}  // namespace macrame::agentd
