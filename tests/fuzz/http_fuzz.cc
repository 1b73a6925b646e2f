// Bytes from anyone at the gateway's port, over a socket: whatever they are, what comes back is
// HTTP or nothing, the connection ends, and the next client is served.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "agentd/gateway/gateway.h"
#include "tests/unit/agentd/gateway/fake_backend.h"

namespace {

using namespace macrame::agentd;

constexpr int kHealthEvery = 64;  // inputs

struct Served {
  FakeBackend backend;
  std::unique_ptr<Gateway> gateway;
};

Gateway& TheGateway() {
  static Served* const served = [] {
    auto* made = new Served();
    GatewayOptions options;
    options.port = 0;
    auto gateway = Gateway::Start(options, &made->backend);
    if (!gateway.ok()) abort();
    made->gateway = *std::move(gateway);
    return made;
  }();
  return *served->gateway;
}

// Says it, closes its own half, and hears the rest.
std::string Exchange(const uint8_t* data, size_t size) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(TheGateway().port());
  timeval limit{.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) abort();
  size_t sent = 0;
  while (sent < size) {
    const ssize_t wrote = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
    if (wrote <= 0) break;  // it was refused before its end
    sent += static_cast<size_t>(wrote);
  }
  shutdown(fd, SHUT_WR);
  std::string heard;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
    heard.append(buffer, static_cast<size_t>(got));
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) abort();  // it never ended
  close(fd);
  return heard;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string heard = Exchange(data, size);
  if (!heard.empty() && heard.rfind("HTTP/1.1 ", 0) != 0) abort();
  static int inputs = 0;
  if (++inputs % kHealthEvery != 0) return 0;
  const std::string health = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  const std::string well = Exchange(reinterpret_cast<const uint8_t*>(health.data()), health.size());
  if (well.rfind("HTTP/1.1 200", 0) != 0) abort();
  return 0;
}
