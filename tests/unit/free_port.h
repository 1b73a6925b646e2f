#pragma once

// Finds a port that must be known before it is bound.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "proto/check.h"

namespace macrame {

// Free on 127.0.0.1 now, and none that a connection may be given before it is bound: systems take
// those from 32768 up. Each process looks in a part of its own at first. `type`: SOCK_STREAM or
// SOCK_DGRAM. One thread. What can inherit a socket is given one (PortReservation) instead.
inline uint16_t FreePort(int type = SOCK_STREAM) {
  constexpr int kBegin = 20'000, kEnd = 32'000, kOfProcess = 40;
  static int next = kBegin + getpid() % ((kEnd - kBegin) / kOfProcess) * kOfProcess;
  for (int tries = kBegin; tries < kEnd; ++tries) {
    const int port = next;
    next = next + 1 < kEnd ? next + 1 : kBegin;
    const int fd = socket(AF_INET, type, 0);
    MACRAME_CHECK(fd >= 0) << "socket";
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (is_free) return static_cast<uint16_t>(port);
  }
  MACRAME_CHECK(false) << "no port is free";
  return 0;
}

}  // namespace macrame
