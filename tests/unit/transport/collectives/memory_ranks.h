#pragma once

// Ranks of one group as threads of this process over memory: a wire without sockets that keeps the
// contract of transport/collectives/wire.h and complains when a collective breaks it.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "transport/collectives/wire.h"

namespace macrame::transport {

// What passes between the ranks. Any thread.
class MemoryFabric {
 public:
  void Put(int from, int to, std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    mail_[{from, to}].emplace_back(bytes.begin(), bytes.end());
    changed_.notify_all();
  }
  // Waits for the next message; false when none comes or the fabric was cut.
  bool Take(int from, int to, std::vector<std::byte>& bytes) {
    std::unique_lock lock(mutex_);
    auto& queue = mail_[{from, to}];
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return cut_ || !queue.empty(); });
    if (!came || queue.empty()) return false;
    bytes = std::move(queue.front());
    queue.pop_front();
    return true;
  }
  // Nobody waits for anybody any more.
  void Cut() {
    const std::lock_guard lock(mutex_);
    cut_ = true;
    changed_.notify_all();
  }
  // Messages that nobody took.
  size_t Left() {
    const std::lock_guard lock(mutex_);
    size_t left = 0;
    for (const auto& [pair, queue] : mail_) left += queue.size();
    return left;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail_;
  bool cut_ = false;
};

class MemoryWire : public Wire {
 public:
  // `fails_at`: this exchange (from 0) loses a peer. Negative: none does.
  MemoryWire(std::shared_ptr<MemoryFabric> fabric, int rank, int size, bool is_ring, int fails_at)
      : fabric_(std::move(fabric)),
        rank_(rank),
        size_(size),
        is_ring_(is_ring),
        fails_at_(fails_at) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Backend backend() const override { return Backend::kRing; }
  bool Reaches(int peer) const override {
    if (peer < 0 || peer >= size_ || peer == rank_) return false;
    return !is_ring_ || (peer + 1) % size_ == rank_ || (rank_ + 1) % size_ == peer;
  }

  // What is received arrives from the first moment on: memory that is sent and received into at
  // once would send what is written here.
  absl::Status Exchange(std::span<const Send> sends, std::span<const Receive> receives) override {
    const int number = static_cast<int>(stats_.exchanges++);
    if (number == fails_at_) {
      fabric_->Cut();
      return absl::UnavailableError("rank 1 (10.0.0.2:7000) is gone: it closed the connection");
    }
    for (const Receive& receive : receives) {
      EXPECT_TRUE(Reaches(receive.peer)) << rank_ << " from " << receive.peer;
      std::fill(receive.bytes.begin(), receive.bytes.end(), std::byte{0xa5});
    }
    for (const Send& send : sends) {
      EXPECT_TRUE(Reaches(send.peer)) << rank_ << " to " << send.peer;
      stats_.bytes_sent += send.bytes.size();
      fabric_->Put(rank_, send.peer, send.bytes);
    }
    for (const Receive& receive : receives) {
      std::vector<std::byte> bytes;
      if (!fabric_->Take(receive.peer, rank_, bytes)) {
        return absl::UnavailableError(absl::StrCat("nothing came of rank ", receive.peer));
      }
      EXPECT_EQ(bytes.size(), receive.bytes.size()) << rank_ << " from " << receive.peer;
      if (bytes.size() != receive.bytes.size()) return absl::DataLossError("out of step");
      std::copy(bytes.begin(), bytes.end(), receive.bytes.begin());
      stats_.bytes_received += bytes.size();
    }
    return absl::OkStatus();
  }
  absl::Status CheckPeer(int) override { return absl::OkStatus(); }
  WireStats stats() const override { return stats_; }
  void ShutDown() override { fabric_->Cut(); }

 private:
  const std::shared_ptr<MemoryFabric> fabric_;
  const int rank_, size_;
  const bool is_ring_;
  const int fails_at_;
  WireStats stats_;
};

// Runs `body` as each rank, on a thread of its own. Nothing may be left on the way afterwards,
// unless a wire failed.
inline void RunInMemory(int size, bool is_ring,
                        const std::function<void(int rank, std::unique_ptr<Wire> wire)>& body,
                        int failing_rank = -1, int fails_at = -1) {
  const auto fabric = std::make_shared<MemoryFabric>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      body(rank, std::make_unique<MemoryWire>(fabric, rank, size, is_ring,
                                              rank == failing_rank ? fails_at : -1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (fails_at < 0) {
    EXPECT_EQ(fabric->Left(), 0u) << "messages that nobody asked for";
  }
}

}  // namespace macrame::transport
