#pragma once

// Finds a port that must be known before it is bound.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "proto/check.h"

namespace macrame {

// Free on 127.0.0.1 now, and none that a connection may be given before it is bound: systems take
// those from 32768 up. Each process looks in a part of its own at first. `type`: SOCK_STREAM or
// SOCK_DGRAM. `held`: gets the socket, which stays bound to it; the caller closes it. One thread.
inline uint16_t FreePort(int type = SOCK_STREAM, int* held = nullptr) {
  constexpr int kBegin = 20'000, kEnd = 32'000, kOfProcess = 40;
  static int next = kBegin + getpid() % ((kEnd - kBegin) / kOfProcess) * kOfProcess;
  for (int tries = kBegin; tries < kEnd; ++tries) {
    const int port = next;
    next = next + 1 < kEnd ? next + 1 : kBegin;
    const int fd = socket(AF_INET, type, 0);
    MACRAME_CHECK(fd >= 0) << "socket";
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    if (is_free && held != nullptr) {
      *held = fd;
    } else {
      close(fd);
    }
    if (is_free) return static_cast<uint16_t>(port);
  }
  MACRAME_CHECK(false) << "no port is free";
  return 0;
}

}  // namespace macrame
