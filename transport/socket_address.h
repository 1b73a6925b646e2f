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

// The name under which `ip` is counted where each address has a share. An IPv6 address counts as
// its /64 network, because each IPv6 host has all addresses of one. A link-local or loopback
// address counts whole, with its scope if the text has one, and so does IPv4. An IPv4-mapped
// address counts as IPv4. A text that is no address is returned as it is.
std::string CountedAddress(const std::string& ip);

// Closed on exec, and non-blocking.
void MakeOwn(int fd);

}  // namespace macrame::transport
