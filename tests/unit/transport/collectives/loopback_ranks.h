#pragma once

// Ranks of one group as threads of this process, over TCP on the loopback interface.

#include <sys/wait.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "transport/collectives/group.h"
#include "transport/collectives/tcp_wire.h"
#include "transport/stream_socket.h"

namespace macrame::transport {

// Returns when all ranks are here.
inline absl::Status Meet(Group& group) {
  uint8_t here = 1;
  return group.AllReduce(&here, &here, 1, Element::kUint8, Reduction::kMax);
}

// Listening sockets on ports that the system chose, handed over to the ranks: nobody else can take
// a port in between.
class LoopbackRanks {
 public:
  explicit LoopbackRanks(int size) {
    for (int rank = 0; rank < size; ++rank) {
      auto listener = StreamSocket::Listen("127.0.0.1:0");
      EXPECT_TRUE(listener.ok()) << listener.status();
      addresses_.push_back(absl::StrCat("127.0.0.1:", listener->LocalPort()));
      listeners_.push_back(*std::move(listener));
    }
  }

  const std::string& address(int rank) const { return addresses_[rank]; }
  int size() const { return static_cast<int>(addresses_.size()); }

  TcpWireOptions Options(int rank) {
    TcpWireOptions options;
    options.rank = rank;
    options.size = size();
    options.addresses = addresses_;
    options.listen_fd = listeners_[rank].Release();
    options.secret = std::string(32, 's');
    options.connect_timeout = std::chrono::seconds(10);
    options.collective_timeout = std::chrono::seconds(10);
    return options;
  }

  // Runs `body` as each rank, on a thread of its own; returns when all are through.
  void Run(const std::function<void(int rank, std::unique_ptr<Wire> wire)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([rank, &body, options = Options(rank)] {
        auto wire = ConnectTcpWire(options);
        ASSERT_TRUE(wire.ok()) << "rank " << rank << ": " << wire.status();
        body(rank, *std::move(wire));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::string> addresses_;
  std::vector<StreamSocket> listeners_;
};

}  // namespace macrame::transport
