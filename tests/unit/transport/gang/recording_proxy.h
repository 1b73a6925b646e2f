#pragma once

// Stands between two ranks as somebody on the network does, and keeps what passes.

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "transport/stream_socket.h"

namespace macrame::transport {

class RecordingProxy {
 public:
  // Whoever calls address() gets to `target`.
  explicit RecordingProxy(std::string target)
      : target_(std::move(target)),
        listener_(StreamSocket::Listen("127.0.0.1:0").value()),
        thread_([this] { Run(); }) {}
  ~RecordingProxy() {
    ending_ = true;
    thread_.join();
  }
  RecordingProxy(const RecordingProxy&) = delete;
  RecordingProxy& operator=(const RecordingProxy&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(listener_.LocalPort()); }
  size_t bytes() {
    const std::lock_guard lock(mutex_);
    return recorded_.size();
  }
  bool Saw(std::string_view what) {
    const std::lock_guard lock(mutex_);
    return recorded_.find(what) != std::string::npos;
  }

 private:
  struct Pair {
    StreamSocket caller, callee;
  };

  bool Pass(const StreamSocket& from, const StreamSocket& to) {
    char bytes[65536];
    const ssize_t got = recv(from.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0) return got < 0;
    const std::string_view piece(bytes, static_cast<size_t>(got));
    {
      const std::lock_guard lock(mutex_);
      recorded_.append(piece);
    }
    return to.SendBytes(piece).ok();
  }

  void Run() {
    std::list<Pair> pairs;
    while (!ending_) {
      std::vector<pollfd> waits{{listener_.fd(), POLLIN, 0}};
      for (const Pair& pair : pairs) {
        waits.push_back({pair.caller.fd(), POLLIN, 0});
        waits.push_back({pair.callee.fd(), POLLIN, 0});
      }
      if (poll(waits.data(), waits.size(), 20) <= 0) continue;
      size_t at = 1;
      for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
        const bool lives = (waits[at].revents == 0 || Pass(pair->caller, pair->callee)) &&
                           (waits[at + 1].revents == 0 || Pass(pair->callee, pair->caller));
        pair = lives ? std::next(pair) : pairs.erase(pair);
      }
      if (waits[0].revents == 0) continue;
      auto caller = listener_.Accept(std::chrono::milliseconds(0));
      auto callee = StreamSocket::Connect(target_, std::chrono::milliseconds(100));
      if (caller.ok() && callee.ok()) pairs.push_back({*std::move(caller), *std::move(callee)});
    }
  }

  const std::string target_;
  const StreamSocket listener_;
  std::mutex mutex_;
  std::string recorded_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace macrame::transport
