#include "agentd/gateway/generation/generation_feed.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <utility>

#include "agentd/gateway/base/token_counts.h"
#include "proto/reasons.h"

namespace macrame::agentd {
namespace net = boost::asio;

GenerationFeed::GenerationFeed(std::shared_ptr<net::io_context> io, InferenceBackend& backend,
                               std::vector<v1::GenerateRequest> requests, const Bounds& bounds)
    : io_(std::move(io)),
      wake_(*io_),
      again_(*io_),
      backend_(backend),
      requests_(std::move(requests)),
      bounds_(bounds),
      choices_(requests_.size()),
      choices_left_(requests_.size()),
      progress_at_(std::chrono::steady_clock::now()) {}

std::shared_ptr<GenerationFeed> GenerationFeed::Start(std::shared_ptr<net::io_context> io,
                                                      InferenceBackend& backend,
                                                      std::vector<v1::GenerateRequest> requests,
                                                      const Bounds& bounds) {
  auto feed = std::make_shared<GenerationFeed>(io, backend, std::move(requests), bounds);
  const size_t at_once = std::min(bounds.under_way, feed->requests_.size());
  for (size_t i = 0; i < at_once; ++i) feed->StartNext();
  return feed;
}

void GenerationFeed::StartNext() {
  if (waiting_.empty() && started_ == requests_.size()) return;
  uint32_t choice = 0;
  if (waiting_.empty()) {
    choice = static_cast<uint32_t>(started_++);
  } else {
    choice = *waiting_.begin();
    waiting_.erase(waiting_.begin());
  }
  ++under_way_;
  if (bounds_.keeps_facts && choices_[choice].facts == nullptr) {
    choices_[choice].facts = std::make_unique<CallFacts>();
    choices_[choice].facts->begun = std::chrono::steady_clock::now();
  }
  const bool once = bounds_.queue_patience.count() == 0;
  const auto take = [feed = shared_from_this(), choice](const v1::GenerateChunk& chunk) {
    net::post(*feed->io_, [feed, choice, chunk = v1::GenerateChunk(chunk),
                           come = std::chrono::steady_clock::now()]() mutable {
      if (!feed->first_piece_at_ && !chunk.has_progress()) {
        feed->first_piece_at_ = come;
      }
      feed->OnChunk(choice, std::move(chunk), come);
    });
  };
  std::function<void()> begin_again;
  if (bounds_.is_whole) {
    begin_again = [feed = shared_from_this(), choice] {
      net::post(*feed->io_, [feed, choice] { feed->OnAgain(choice); });
    };
  }
  choices_[choice].call = backend_.StartGenerate(
      once ? std::move(requests_[choice]) : requests_[choice],
      ChunkCallback(take, std::move(begin_again)),
      [feed = shared_from_this(), choice](absl::Status status) {
        net::post(*feed->io_,
                  [feed, choice, status = std::move(status)] { feed->OnDone(choice, status); });
      });
}

net::awaitable<GenerationFeed::Event> GenerationFeed::Next(std::chrono::milliseconds patience) {
  if (!HasMore()) {
    wake_.expires_after(patience);
    co_await wake_.async_wait(net::as_tuple(net::use_awaitable));
  }
  Event event;
  if (gone_) {
    event.kind = EventKind::kGone;
    event.status = status_;
  } else if (!events_.empty()) {
    event = std::move(events_.front());
    events_.pop_front();
    buffered_bytes_ -= BytesOf(event.chunk);
  } else if (over_) {
    event.kind = EventKind::kDone;
    event.status = status_;
  }
  co_return event;
}

void GenerationFeed::ClientGone() {
  if (gone_) return;
  gone_ = true;
  CancelCalls();
  wake_.cancel();
}

void GenerationFeed::Close() {
  gone_ = true;
  again_.cancel();
  CancelCalls();
  events_.clear();
}

std::vector<CallFacts> GenerationFeed::Facts() const {
  std::vector<CallFacts> facts;
  for (const Choice& choice : choices_) {
    if (choice.facts == nullptr) continue;
    facts.push_back(*choice.facts);
    if (choice.call != nullptr) facts.back().route = choice.call->Route();
  }
  return facts;
}

void GenerationFeed::EndFacts(Choice& choice, const absl::Status& status) {
  if (choice.facts == nullptr) return;
  choice.facts->ended = std::chrono::steady_clock::now();
  if (!status.ok()) choice.facts->failure_code = ReasonOf(status).code();
  if (choice.call != nullptr) choice.facts->route = choice.call->Route();
}

void GenerationFeed::OnChunk(uint32_t choice, v1::GenerateChunk chunk,
                             std::chrono::steady_clock::time_point come) {
  CallFacts* facts = choices_[choice].facts.get();
  if (facts != nullptr && !chunk.has_progress()) facts->AddChunk(chunk, come);
  if (gone_ || over_ || choices_[choice].done) return;
  choices_[choice].begun = choices_[choice].begun || !chunk.has_progress();
  buffered_bytes_ += BytesOf(chunk);
  const EventKind kind = chunk.has_progress() ? EventKind::kProgress : EventKind::kChunk;
  events_.push_back({kind, choice, std::move(chunk), absl::OkStatus()});
  if (buffered_bytes_ > bounds_.buffered_bytes) {
    status_ = absl::ResourceExhaustedError("the client reads too slowly");
    ClientGone();
    return;
  }
  wake_.cancel();
}

void GenerationFeed::OnAgain(uint32_t choice) {
  Choice& again = choices_[choice];
  if (again.facts != nullptr) {
    const CallFacts::Time begun = again.facts->begun;
    *again.facts = CallFacts();
    again.facts->begun = begun;
  }
  if (gone_ || over_ || again.done) return;
  again.begun = false;
  std::erase_if(events_, [&](const Event& event) {
    if (event.choice != choice) return false;
    buffered_bytes_ -= BytesOf(event.chunk);
    return true;
  });
  events_.push_back({EventKind::kAgain, choice, {}, absl::OkStatus()});
  wake_.cancel();
}

void GenerationFeed::OnDone(uint32_t choice, absl::Status status) {
  if (choices_[choice].done) return;
  --under_way_;
  if (Waits(choice, status)) return WaitForPlace(choice);
  requests_[choice].Clear();
  progress_at_ = std::chrono::steady_clock::now();
  choices_[choice].done = true;
  EndFacts(choices_[choice], status);
  choices_[choice].call.reset();
  --choices_left_;
  if (gone_ || over_) return;
  over_ = choices_left_ == 0 || !status.ok();
  if (status.ok()) {
    // Where the queue had no place for some, one more at a time finds out when it has.
    StartNext();
    if (under_way_ < bounds_.under_way) StartNext();
  } else {
    CancelCalls();
  }
  status_ = status;
  events_.push_back({EventKind::kDone, choice, {}, std::move(status)});
  wake_.cancel();
}

bool GenerationFeed::Waits(uint32_t choice, const absl::Status& status) const {
  if (gone_ || over_ || choices_[choice].begun) return false;
  if (status.ok() || ReasonOf(status).code() != reasons::kQueueFull) return false;
  if (bounds_.queue_patience.count() == 0) return false;
  // The first ones of a request that find none tell its client.
  const bool none_had_a_place = under_way_ == 0 && choices_left_ == choices_.size();
  const bool in_time =
      under_way_ > 0 || std::chrono::steady_clock::now() - progress_at_ < bounds_.queue_patience;
  return !none_had_a_place && in_time;
}

void GenerationFeed::WaitForPlace(uint32_t choice) {
  choices_[choice].call.reset();
  waiting_.insert(choice);
  if (under_way_ > 0) return;
  again_.expires_after(kQueueRetry);
  again_.async_wait([feed = shared_from_this()](boost::system::error_code error) {
    if (!error && !feed->gone_ && !feed->over_ && feed->under_way_ == 0) feed->StartNext();
  });
}

void GenerationFeed::CancelCalls() {
  for (const Choice& choice : choices_) {
    if (!choice.done && choice.call != nullptr) choice.call->Cancel();
  }
}

}  // namespace macrame::agentd
