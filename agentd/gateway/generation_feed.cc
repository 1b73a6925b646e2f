#include "agentd/gateway/generation_feed.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace macrame::agentd {
namespace net = boost::asio;

GenerationFeed::GenerationFeed(std::shared_ptr<net::io_context> io, size_t buffered_bytes_max)
    : io_(std::move(io)), wake_(*io_), buffered_bytes_max_(buffered_bytes_max) {}

std::shared_ptr<GenerationFeed> GenerationFeed::Start(std::shared_ptr<net::io_context> io,
                                                      InferenceBackend& backend,
                                                      v1::GenerateRequest request,
                                                      size_t buffered_bytes_max) {
  auto feed = std::make_shared<GenerationFeed>(io, buffered_bytes_max);
  auto call = backend.StartGenerate(
      std::move(request),
      [feed](const v1::GenerateChunk& chunk) {
        net::post(*feed->io_, [feed, chunk]() mutable { feed->OnChunk(std::move(chunk)); });
      },
      [feed](absl::Status status) {
        net::post(*feed->io_, [feed, status = std::move(status)] { feed->OnDone(status); });
      });
  feed->call_ = std::move(call);
  return feed;
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
  } else if (!chunks_.empty()) {
    event.kind = EventKind::kChunk;
    event.chunk = std::move(chunks_.front());
    chunks_.pop_front();
    buffered_bytes_ -= event.chunk.text().size();
  } else if (done_) {
    event.kind = EventKind::kDone;
    event.status = status_;
  }
  co_return event;
}

void GenerationFeed::ClientGone() {
  if (gone_) return;
  gone_ = true;
  CancelCall();
  wake_.cancel();
}

void GenerationFeed::Close() {
  gone_ = true;
  CancelCall();
  chunks_.clear();
}

void GenerationFeed::OnChunk(v1::GenerateChunk chunk) {
  if (gone_ || done_) return;
  buffered_bytes_ += chunk.text().size();
  chunks_.push_back(std::move(chunk));
  if (buffered_bytes_ > buffered_bytes_max_) {
    status_ = absl::ResourceExhaustedError("the client reads too slowly");
    ClientGone();
    return;
  }
  wake_.cancel();
}

void GenerationFeed::OnDone(absl::Status status) {
  if (done_) return;
  done_ = true;
  call_.reset();
  if (gone_) return;
  status_ = std::move(status);
  wake_.cancel();
}

void GenerationFeed::CancelCall() {
  if (!done_ && call_ != nullptr) call_->Cancel();
}

}  // namespace macrame::agentd
