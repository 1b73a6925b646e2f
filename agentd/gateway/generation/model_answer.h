#pragma once

// The answer of a model to one request, as its client gets it: sends requests to the entry rank and
// writes what comes back, in the form of its head. On the io thread.

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "agentd/gateway/dialects/answer_writers.h"
#include "agentd/gateway/generation/generation_feed.h"
#include "agentd/gateway/http/exchange.h"

namespace macrame::agentd {

class ModelAnswer {
 public:
  // The exchange outlives it.
  ModelAnswer(Exchange& exchange, AnswerHead head) : exchange_(exchange), head_(std::move(head)) {}

  // One answer for each request. Whether the connection can take another request.
  boost::asio::awaitable<bool> Send(std::vector<v1::GenerateRequest> requests, bool is_stream);

 private:
  using Event = GenerationFeed::Event;

  void Begin(std::vector<v1::GenerateRequest> requests, bool is_stream);
  boost::asio::awaitable<bool> Stream();
  // Events up to the end, beginning with `event`; false when the client is gone.
  boost::asio::awaitable<bool> PumpEvents(AnswerStream& writer, Event event);
  // What is written of an event.
  std::string TextOf(AnswerStream& writer, const Event& event);
  template <typename Collected>
  boost::asio::awaitable<bool> Collect(BodyOf<Collected> body_of);
  // Why the answers can't be sent, after a piece of one, or after the end of one.
  template <typename Collected>
  std::optional<ApiError> FaultOfPiece(const Collected& choice, size_t bytes);
  template <typename Collected>
  std::optional<ApiError> FaultOfEnd(const Event& event, const Collected& choice);
  // In pieces, so that no more than one of them stands as text.
  boost::asio::awaitable<bool> SendEmbeddings(std::vector<CollectedEmbedding> embeddings);
  // It is no longer among those that are asked for.
  bool WasUnloaded();
  // As whoever asks may be told of it; the log is told.
  ApiError FailureOf(const absl::Status& status);
  void LogFailure(const absl::Status& status) const;

  Exchange& exchange_;
  const AnswerHead head_;
  std::shared_ptr<GenerationFeed> feed_;
};

}  // namespace macrame::agentd
