#pragma once

// One answer on its way from the backend's threads to the coroutine that writes it to a client.
//
// The backend's callbacks only post to the io thread; everything else happens there. What the
// client has not taken yet is bounded: beyond the bound the request is cancelled, so that a slow
// reader costs a known amount of memory and no tokens that nobody reads.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "agentd/gateway/inference_backend.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

class GenerationFeed : public std::enable_shared_from_this<GenerationFeed> {
 public:
  enum class EventKind {
    kChunk,    // `chunk` is set
    kDone,     // `status` is set; nothing follows
    kSilence,  // the patience ran out; the answer may still come
    kGone,     // the client left, or fell too far behind (`status` then says so); nothing follows
  };
  struct Event {
    EventKind kind = EventKind::kSilence;
    v1::GenerateChunk chunk;
    absl::Status status;
  };

  // From the io thread, as all methods. The feed keeps `io` alive for late callbacks.
  static std::shared_ptr<GenerationFeed> Start(std::shared_ptr<boost::asio::io_context> io,
                                               InferenceBackend& backend,
                                               v1::GenerateRequest request,
                                               size_t buffered_bytes_max);

  explicit GenerationFeed(std::shared_ptr<boost::asio::io_context> io, size_t buffered_bytes_max);

  // The next event; waits at most `patience`. One waiter at a time.
  boost::asio::awaitable<Event> Next(std::chrono::milliseconds patience);
  // True when Next would not have to wait.
  bool HasMore() const { return gone_ || !chunks_.empty() || done_; }
  // The client left: cancels the request and wakes Next.
  void ClientGone();
  // Nobody will call Next any more: cancels the request unless it has ended.
  void Close();

 private:
  void OnChunk(v1::GenerateChunk chunk);
  void OnDone(absl::Status status);
  void CancelCall();

  std::shared_ptr<boost::asio::io_context> io_;  // outlives the timer
  boost::asio::steady_timer wake_;
  const size_t buffered_bytes_max_;
  std::shared_ptr<GenerateCall> call_;
  std::deque<v1::GenerateChunk> chunks_;
  size_t buffered_bytes_ = 0;
  absl::Status status_;
  bool done_ = false;
  bool gone_ = false;
};

}  // namespace macrame::agentd
