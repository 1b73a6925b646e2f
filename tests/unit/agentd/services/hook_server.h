#pragma once

// An HTTP server for one test: takes one request a connection on a port of its own, keeps what it
// was sent, and answers with what it is told to.

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/agentd/services/loopback_server.h"

namespace macrame::tests {

class HookServer {
 public:
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(server_.port()) + "/hook?a=b";
  }
  // Whole requests, heads and bodies.
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  void SetStatus(int status) { status_ = status; }
  // Of further answers: whole lines of the head, and the body.
  void SetHeaders(const std::string& lines) {
    const std::lock_guard lock(mutex_);
    headers_ = lines;
  }
  void SetBody(const std::string& body) {
    const std::lock_guard lock(mutex_);
    body_ = body;
  }
  // Requests are taken, and never answered.
  void SetSilent(bool silent) { silent_ = silent; }

 private:
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
    while (silent_ && !server_.is_stopping()) {
      pollfd gone{client, POLLIN, 0};
      if (::poll(&gone, 1, 50) > 0) return;
    }
    std::string answer = "HTTP/1.1 " + std::to_string(status_) + " X\r\n";
    {
      const std::lock_guard lock(mutex_);
      answer += headers_ + "content-length: " + std::to_string(body_.size()) + "\r\n\r\n" + body_;
    }
    ::send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
  }
  static bool IsWhole(const std::string& request) {
    const size_t head = request.find("\r\n\r\n");
    const size_t length = request.find("Content-Length: ");
    if (head == std::string::npos || length == std::string::npos) return false;
    return request.size() >= head + 4 + std::stoul(request.substr(length + 16));
  }

  std::atomic<int> status_ = 200;
  std::atomic<bool> silent_ = false;
  std::string headers_, body_;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  LoopbackServer server_{[this](int client) { Answer(client); }};
};

}  // namespace macrame::tests
