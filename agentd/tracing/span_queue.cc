#include "agentd/tracing/span_queue.h"

#include <iterator>
#include <utility>

namespace macrame::agentd {

bool SpanQueue::Add(std::vector<Span> spans) {
  if (spans.empty()) return true;
  if (spans.size() > spans_max_ - size_) return false;
  size_ += spans.size();
  requests_.push_back(std::move(spans));
  return true;
}

std::vector<Span> SpanQueue::Take(size_t spans_max) {
  std::vector<Span> taken;
  while (!requests_.empty()) {
    std::vector<Span>& next = requests_.front();
    if (!taken.empty() && taken.size() + next.size() > spans_max) break;
    size_ -= next.size();
    taken.insert(taken.end(), std::make_move_iterator(next.begin()),
                 std::make_move_iterator(next.end()));
    requests_.pop_front();
  }
  return taken;
}

}  // namespace macrame::agentd
