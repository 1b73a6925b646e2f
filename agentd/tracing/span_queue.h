#pragma once

// Spans that wait to be sent. Bounded: a request whose spans have no place any more is dropped
// whole, so that no trace is there in part. Pure.

#include <cstddef>
#include <deque>
#include <vector>

#include "agentd/tracing/span.h"

namespace macrame::agentd {

class SpanQueue {
 public:
  explicit SpanQueue(size_t spans_max) : spans_max_(spans_max) {}

  // Spans of one request. False, and they are dropped, when there is no place for all of them.
  bool Add(std::vector<Span> spans);
  // The oldest requests': at most `spans_max` spans, or one request's.
  std::vector<Span> Take(size_t spans_max);

  size_t size() const { return size_; }  // spans
  bool empty() const { return requests_.empty(); }

 private:
  const size_t spans_max_;
  size_t size_ = 0;
  std::deque<std::vector<Span>> requests_;
};

}  // namespace macrame::agentd
