#include "transport/socket_address.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace macrame::transport {

std::optional<SocketAddress> ParseSocketAddress(const std::string& ip, int port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  if (::inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(v4);
  } else if (::inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(v6);
  } else {
    return std::nullopt;
  }
  return address;
}

std::string HostPort(const std::string& ip, int64_t port) {
  return ip.find(':') == std::string::npos ? absl::StrCat(ip, ":", port)
                                           : absl::StrCat("[", ip, "]:", port);
}

std::string IpText(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return text;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  }
  return text;
}

std::string CountedAddress(const std::string& ip) {
  const std::optional<SocketAddress> parsed = ParseSocketAddress(ip.substr(0, ip.find('%')), 0);
  if (!parsed.has_value() || parsed->family() != AF_INET6) return ip;
  in6_addr network = reinterpret_cast<const sockaddr_in6&>(parsed->storage).sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&network)) return IpText(parsed->storage);
  if (IN6_IS_ADDR_LINKLOCAL(&network) || IN6_IS_ADDR_LOOPBACK(&network)) return ip;
  std::fill(network.s6_addr + 8, network.s6_addr + 16, uint8_t{0});
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET6, &network, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

void MakeOwn(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace macrame::transport
