#pragma once

// One request's answers, mostly one, on their way from the backend's threads to the coroutine that
// writes them to a client.
//
// The backend's callbacks only post to the io thread; everything else happens there. What the
// client has not taken yet is bounded, for all answers together: beyond the bound the request is
// cancelled, so that a slow reader costs a known amount of memory and no tokens that nobody reads.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentd/gateway/inference_backend.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

class GenerationFeed : public std::enable_shared_from_this<GenerationFeed> {
 public:
  enum class EventKind {
    kChunk,    // `chunk` is set
    kDone,     // `status` is set: that answer is over. Nothing follows the last one, nor an error
    kSilence,  // the patience ran out; the answer may still come
    kGone,     // the client left, or fell too far behind (`status` then says so); nothing follows
  };
  struct Event {
    EventKind kind = EventKind::kSilence;
    uint32_t choice = 0;  // which answer's
    v1::GenerateChunk chunk;
    absl::Status status;
  };

  struct Bounds {
    size_t buffered_bytes = 0;    // that the client has not taken yet
    size_t under_way = SIZE_MAX;  // answers at once; the next begins when one is over
  };

  // From the io thread, as all methods. The feed keeps `io` alive for late callbacks. One answer
  // for each request; when one fails, the others are cancelled.
  static std::shared_ptr<GenerationFeed> Start(std::shared_ptr<boost::asio::io_context> io,
                                               InferenceBackend& backend,
                                               std::vector<v1::GenerateRequest> requests,
                                               const Bounds& bounds);

  GenerationFeed(std::shared_ptr<boost::asio::io_context> io, InferenceBackend& backend,
                 std::vector<v1::GenerateRequest> requests, const Bounds& bounds);

  // The next event; waits at most `patience`. One waiter at a time.
  boost::asio::awaitable<Event> Next(std::chrono::milliseconds patience);
  // True when Next would not have to wait.
  bool HasMore() const { return gone_ || !events_.empty() || over_; }
  // The client left: cancels the request and wakes Next.
  void ClientGone();
  // Nobody will call Next any more: cancels the request unless it has ended.
  void Close();

 private:
  // One answer's side of it; `call` is dropped when it is over.
  struct Choice {
    std::shared_ptr<GenerateCall> call;
    bool done = false;
  };
  void StartNext();
  void OnChunk(uint32_t choice, v1::GenerateChunk chunk);
  void OnDone(uint32_t choice, absl::Status status);
  void CancelCalls();

  std::shared_ptr<boost::asio::io_context> io_;  // outlives the timer
  boost::asio::steady_timer wake_;
  InferenceBackend& backend_;
  std::vector<v1::GenerateRequest> requests_;  // moved out as they are started
  const Bounds bounds_;
  std::vector<Choice> choices_;
  size_t choices_left_;
  size_t started_ = 0;
  std::deque<Event> events_;
  size_t buffered_bytes_ = 0;
  absl::Status status_;
  bool over_ = false;  // no more events come
  bool gone_ = false;
};

}  // namespace macrame::agentd
