#pragma once

// IP addresses as text and as the system's calls take them. Any thread.

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

namespace macrame::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Unset when `ip` is no IPv4 or IPv6 address.
std::optional<SocketAddress> ParseSocketAddress(const std::string& ip, int port);

// "10.0.0.7:4711", "[fd00::7]:4711".
std::string HostPort(const std::string& ip, int64_t port);

// The address without its port; of a dual-stack socket IPv4 as such.
std::string IpText(const sockaddr_storage& address);

// Closed on exec, and non-blocking.
void MakeOwn(int fd);

}  // namespace macrame::transport
