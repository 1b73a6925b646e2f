#include "runtime/text/cancellation.h"

#include "runtime/text/macrame_text.h"

namespace macrame::runtime::text {

static_assert(sizeof(std::atomic<bool>) == 1 && std::atomic<bool>::is_always_lock_free);

CancelledBy::CancelledBy(const std::atomic<bool>& is_cancelled) {
  macrame_text_watch_cancellation(reinterpret_cast<const bool*>(&is_cancelled));
}

CancelledBy::~CancelledBy() { macrame_text_watch_cancellation(nullptr); }

}  // namespace macrame::runtime::text
