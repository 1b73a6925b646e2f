#include "discovery/probe/link_watcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "discovery/probe/change_sockets.h"

namespace macrame::discovery {
namespace {

// Announcements come in bursts: after one, the rest is gathered for so long.
constexpr int kGatherMs = 100;

void Drain(int fd) {
  char buffer[4096];
  while (recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace

class LinkWatcher::Impl {
 public:
  explicit Impl(std::function<void()> on_change)
      : on_change_(std::move(on_change)), sockets_(OpenChangeSockets()) {
    int ends[2];
    if (sockets_.empty() || pipe(ends) != 0) {
      sockets_.clear();
      return;
    }
    for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
    stop_read_ = transport::StreamSocket(ends[0]);
    stop_write_ = transport::StreamSocket(ends[1]);
    thread_ = std::thread([this] { Watch(); });
  }

  ~Impl() {
    stop_write_.Close();  // the reader sees its end
    if (thread_.joinable()) thread_.join();
  }

  bool watches() const { return thread_.joinable(); }

 private:
  void Watch() {
    std::vector<pollfd> waits{{stop_read_.fd(), POLLIN, 0}};
    for (const transport::StreamSocket& socket : sockets_)
      waits.push_back({socket.fd(), POLLIN, 0});
    while (true) {
      if (poll(waits.data(), waits.size(), -1) < 0) continue;
      if (waits[0].revents != 0) return;
      pollfd stop{stop_read_.fd(), POLLIN, 0};
      if (poll(&stop, 1, kGatherMs) != 0) return;
      for (const transport::StreamSocket& socket : sockets_) Drain(socket.fd());
      on_change_();
    }
  }

  const std::function<void()> on_change_;
  std::vector<transport::StreamSocket> sockets_;
  transport::StreamSocket stop_read_, stop_write_;
  std::thread thread_;
};

LinkWatcher::LinkWatcher(std::function<void()> on_change)
    : impl_(std::make_unique<Impl>(std::move(on_change))) {}
LinkWatcher::~LinkWatcher() = default;
bool LinkWatcher::watches() const { return impl_->watches(); }

}  // namespace macrame::discovery
