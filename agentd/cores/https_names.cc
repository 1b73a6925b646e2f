#include "agentd/cores/https_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "transport/private_names.h"
#include "transport/trust.h"

namespace macrame::agentd {
namespace {

constexpr std::array kLoopbackNames = {"127.0.0.1", "::1", "localhost"};

bool IsLoopbackName(const std::string& name) {
  return std::find(kLoopbackNames.begin(), kLoopbackNames.end(), name) != kLoopbackNames.end();
}

// As a certificate tells it: names in lower case, addresses in their shortest form.
std::string PlainName(const std::string& name) {
  for (const int family : {AF_INET, AF_INET6}) {
    std::array<unsigned char, sizeof(in6_addr)> address{};
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_pton(family, name.c_str(), address.data()) != 1) continue;
    const char* made = ::inet_ntop(family, address.data(), text.data(), text.size());
    return made == nullptr ? name : made;
  }
  return absl::AsciiStrToLower(name);
}

// "Mac-1.local" and "mac-1" are one host's.
std::string HostOf(const std::string& name) {
  if (transport::IsAddress(name)) return name;
  return absl::AsciiStrToLower(name.substr(0, name.find('.')));
}

}  // namespace

std::vector<std::string> WantedHttpsNames(const v1::NodeIdentity& self,
                                          const std::vector<std::string>& more) {
  std::set<std::string> names(kLoopbackNames.begin(), kLoopbackNames.end());
  const auto add = [&](const std::string& spelled) {
    const std::string name = PlainName(spelled);
    if (names.size() < transport::kHttpsNamesMax && transport::IsPrivateName(name)) {
      names.insert(name);
    }
  };
  const std::string host = HostOf(self.hostname());
  add(host);
  add(host + ".local");
  add(self.hostname());
  for (const std::string& name : more) add(name);
  for (const v1::NodeAddress& address : self.addresses()) add(address.ip());
  return {names.begin(), names.end()};
}

absl::Status CheckHttpsNames(const std::vector<std::string>& names, const std::string& caller_id,
                             const std::vector<v1::NodeIdentity>& members) {
  for (const std::string& spelled : names) {
    const std::string name = PlainName(spelled);
    if (IsLoopbackName(name)) continue;
    const std::string host = HostOf(name);
    for (const v1::NodeIdentity& member : members) {
      if (member.node_id() == caller_id) continue;
      const bool is_theirs =
          host == HostOf(member.hostname()) ||
          std::any_of(member.addresses().begin(), member.addresses().end(),
                      [&](const v1::NodeAddress& one) { return PlainName(one.ip()) == name; });
      if (!is_theirs) continue;
      return absl::PermissionDeniedError(
          absl::StrCat("'", name.substr(0, 64), "' is a name of node ", member.hostname()));
    }
  }
  return absl::OkStatus();
}

}  // namespace macrame::agentd
