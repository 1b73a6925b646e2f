#pragma once

// One request's answers, mostly one, on their way from the backend's threads to the coroutine that
// writes them to a client.
//
// The backend's callbacks only post to the io thread; everything else happens there. What the
// client has not taken yet is bounded, for all answers together: beyond the bound the request is
// cancelled, so that a slow reader costs a known amount of memory and no tokens that nobody reads.

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agentd/gateway/base/inference_backend.h"
#include "agentd/gateway/http/call_facts.h"
#include "macrame/v1/rank.pb.h"

namespace macrame::agentd {

inline constexpr std::chrono::milliseconds kQueueRetry{100};

class GenerationFeed : public std::enable_shared_from_this<GenerationFeed> {
 public:
  enum class EventKind {
    kChunk,     // `chunk` is set, and a piece of the answer
    kProgress,  // `chunk` tells how far the prompt is
    kAgain,     // that answer begins again: what came of it so far is dropped
    kDone,      // `status` is set: that answer is over. Nothing follows the last one, nor an error
    kSilence,   // the patience ran out; the answer may still come
    kGone,      // the client left, or fell too far behind (`status` then says so); nothing follows
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
    // How long an answer for which the queue has no place (QUEUE_FULL) waits for one, where others
    // of the request have or had theirs, counted from the last one that came. 0: not at all.
    std::chrono::milliseconds queue_patience{0};
    bool keeps_facts = false;  // for a trace
    bool is_whole = false;     // the client is sent nothing before the end: answers may begin again
  };

  // From the io thread, as all methods. The feed keeps `io` alive for late callbacks. One answer
  // for each request; when one fails, the others are cancelled. Those that wait for a place in the
  // queue begin in their order: when another is over, or every kQueueRetry.
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
  // When the backend's first piece came; nullopt: none did yet.
  std::optional<std::chrono::steady_clock::time_point> first_piece_at() const {
    return first_piece_at_;
  }
  // What is known of each answer that was begun; empty unless Bounds::keeps_facts.
  std::vector<CallFacts> Facts() const;
  // The client left: cancels the request and wakes Next.
  void ClientGone();
  // Nobody will call Next any more: cancels the request unless it has ended.
  void Close();

 private:
  // One answer's side of it; `call` is dropped when it is over.
  struct Choice {
    std::shared_ptr<GenerateCall> call;
    bool begun = false;  // some of it has come
    bool done = false;
    std::unique_ptr<CallFacts> facts;  // of one that is begun, where they are kept
  };
  void StartNext();
  void OnChunk(uint32_t choice, v1::GenerateChunk chunk,
               std::chrono::steady_clock::time_point come);
  void OnAgain(uint32_t choice);
  void OnDone(uint32_t choice, absl::Status status);
  void EndFacts(Choice& choice, const absl::Status& status);
  // Whether an answer that ended so is tried again.
  bool Waits(uint32_t choice, const absl::Status& status) const;
  void WaitForPlace(uint32_t choice);
  void CancelCalls();

  std::shared_ptr<boost::asio::io_context> io_;  // outlives the timer
  boost::asio::steady_timer wake_;
  boost::asio::steady_timer again_;
  InferenceBackend& backend_;
  std::vector<v1::GenerateRequest> requests_;  // kept as long as they may be started again
  const Bounds bounds_;
  std::vector<Choice> choices_;
  size_t choices_left_;
  size_t started_ = 0;
  size_t under_way_ = 0;
  std::set<uint32_t> waiting_;  // that were started and found no place in the queue
  std::chrono::steady_clock::time_point progress_at_;
  std::deque<Event> events_;
  size_t buffered_bytes_ = 0;
  std::optional<std::chrono::steady_clock::time_point> first_piece_at_;
  absl::Status status_;
  bool over_ = false;  // no more events come
  bool gone_ = false;
};

// How long nothing was heard of a request. While it waits for its first turn, and while its prompt
// is computed, the entry rank is heard; an answer that was interrupted and gets no turn again is
// silent.
class AnswerPatience {
 public:
  AnswerPatience(std::chrono::milliseconds limit, std::chrono::steady_clock::time_point since)
      : limit_(limit), heard_(since) {}

  void Hear(const GenerationFeed::Event& event) {
    if (event.kind == GenerationFeed::EventKind::kSilence) return;
    has_begun_ = event.kind == GenerationFeed::EventKind::kChunk ||
                 (has_begun_ && event.kind != GenerationFeed::EventKind::kAgain);
    const bool waits_again = has_begun_ && event.kind == GenerationFeed::EventKind::kProgress &&
                             event.chunk.progress().is_queued();
    if (!waits_again) heard_ = std::chrono::steady_clock::now();
  }
  bool is_over() const { return std::chrono::steady_clock::now() - heard_ >= limit_; }
  std::chrono::milliseconds left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        heard_ + limit_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }

 private:
  const std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point heard_;
  bool has_begun_ = false;
};

}  // namespace macrame::agentd
