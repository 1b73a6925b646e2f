#pragma once

// An HTTP server for one test: takes one request a connection on a port of its own, keeps what it
// was sent, and answers with what it is told to.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace macrame::tests {

class HookServer {
 public:
  HookServer() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 16);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~HookServer() {
    stop_ = true;
    thread_.join();
    ::close(listener_);
  }
  HookServer(const HookServer&) = delete;
  HookServer& operator=(const HookServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/hook?a=b"; }
  // Whole requests, heads and bodies.
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void SetStatus(int status) { status_ = status; }

 private:
  void Serve() {
    while (!stop_) {
      pollfd waiting{listener_, POLLIN, 0};
      if (::poll(&waiting, 1, 50) <= 0) continue;
      const int client = ::accept(listener_, nullptr, nullptr);
      if (client < 0) continue;
      const timeval limit{5, 0};
      ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      Answer(client);
      ::close(client);
    }
  }
  void Answer(int client) {
    std::string request;
    char block[4096];
    while (!IsWhole(request)) {
      const ssize_t got = ::recv(client, block, sizeof block, 0);
      if (got <= 0) return;
      request.append(block, static_cast<size_t>(got));
    }
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    const std::string answer =
        "HTTP/1.1 " + std::to_string(status_) + " X\r\ncontent-length: 0\r\n\r\n";
    ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
  }
  static bool IsWhole(const std::string& request) {
    const size_t head = request.find("\r\n\r\n");
    const size_t length = request.find("Content-Length: ");
    if (head == std::string::npos || length == std::string::npos) return false;
    return request.size() >= head + 4 + std::stoul(request.substr(length + 16));
  }

  const int listener_;
  int port_ = 0;
  std::atomic<int> status_ = 200;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace macrame::tests
