#include "agentd/gateway/host_policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace macrame::agentd {
namespace {

bool IsPort(absl::string_view text) {
  return text.size() <= 5 && std::all_of(text.begin(), text.end(),
                                         [](unsigned char c) { return absl::ascii_isdigit(c); });
}

bool IsHostCharacter(unsigned char c) {
  return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':';
}

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

std::string HostOf(absl::string_view authority) {
  absl::string_view host = authority, port;
  if (!authority.empty() && authority.front() == '[') {
    const size_t close = authority.find(']');
    if (close == absl::string_view::npos) return "";
    host = authority.substr(1, close - 1);
    const absl::string_view rest = authority.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return "";
    port = rest.empty() ? rest : rest.substr(1);
  } else if (const size_t colon = authority.find(':'); colon != absl::string_view::npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  if (!IsPort(port) || !std::all_of(host.begin(), host.end(), IsHostCharacter)) return "";
  if (!host.empty() && host.back() == '.') host.remove_suffix(1);
  return absl::AsciiStrToLower(host);
}

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
  return std::any_of(allowed_hosts.begin(), allowed_hosts.end(), [&](const std::string& allowed) {
    return absl::EqualsIgnoreCase(allowed, name) || HostOf(allowed) == name;
  });
}

}  // namespace macrame::agentd
